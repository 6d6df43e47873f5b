# SPDX-License-Identifier: Apache-2.0
"""Modules for the operators of ops, with the parameter names and layouts of PyTorch: a state dict
of torch.nn.Linear (weight [out, in]) or of Hugging Face's MLP (gate_proj, up_proj, down_proj) loads
without changes."""

from __future__ import annotations

import torch
from torch import nn

from coda_cpp import ops
from coda_cpp._core import Error


class LinearResidualRMS(nn.Linear):
    """x·weightᵀ + residual, and the reciprocal root mean square of its rows:
    ops.linear_residual_rms.
    """

    def __init__(self, in_features: int, out_features: int, eps: float = 1e-6, device=None,
                 dtype=None) -> None:
        super().__init__(in_features, out_features, bias=False, device=device, dtype=dtype)
        self.eps = eps

    def forward(self, x: torch.Tensor, residual: torch.Tensor
                ) -> tuple[torch.Tensor, torch.Tensor]:
        return ops.linear_residual_rms(x, self.weight, residual, self.eps)


class RMSLinear(nn.Linear):
    """A linear layer of rms_norm(x), given the rows' rstd: ops.rms_linear. The norm's weight
    belongs to the norm's own module and is passed to each call."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, offset: float = 0.0,
                 device=None, dtype=None) -> None:
        super().__init__(in_features, out_features, bias, device=device, dtype=dtype)
        self.offset = offset

    def forward(self, x: torch.Tensor, rstd: torch.Tensor,
                norm_weight: torch.Tensor | None = None) -> torch.Tensor:
        return ops.rms_linear(x, self.weight, rstd, norm_weight, self.bias, self.offset)


class GatedMLP(nn.Module):
    """down_proj(activation(gate_proj(h)) ⊙ up_proj(h)) like Hugging Face's LlamaMLP ("silu") and
    Gemma's MLP ("gelu", "gelu_tanh"). h is x, or the norm of x if rstd and the norm's weight are
    given."""

    def __init__(self, hidden_size: int, intermediate_size: int, activation: str = "silu",
                 device=None, dtype=None) -> None:
        super().__init__()
        if activation not in ("silu", "gelu", "gelu_tanh"):
            raise Error(f"GatedMLP: activation '{activation}' is none of 'silu', 'gelu', "
                        "'gelu_tanh'")
        options = {"bias": False, "device": device, "dtype": dtype}
        self.gate_proj = nn.Linear(hidden_size, intermediate_size, **options)
        self.up_proj = nn.Linear(hidden_size, intermediate_size, **options)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, **options)
        self.activation = activation

    def forward(self, x: torch.Tensor, rstd: torch.Tensor | None = None,
                norm_weight: torch.Tensor | None = None, offset: float = 0.0) -> torch.Tensor:
        given = (x, self.gate_proj.weight, self.up_proj.weight, rstd, norm_weight, offset)
        if self.activation == "silu":
            return self.down_proj(ops.swiglu_linear(*given))
        approximate = "tanh" if self.activation == "gelu_tanh" else "none"
        return self.down_proj(ops.geglu_linear(*given, approximate=approximate))


class LinearRope(nn.Linear):
    """q_proj or k_proj with rotated heads: ops.linear_rope. With `head_norm` each head is normed
    before the rotation (head_norm_weight), as in Qwen3."""

    def __init__(self, in_features: int, heads: int, head_dim: int, head_norm: bool = False,
                 eps: float = 1e-6, half: bool = True, device=None, dtype=None) -> None:
        super().__init__(in_features, heads * head_dim, bias=False, device=device, dtype=dtype)
        self.head_dim, self.eps, self.half = head_dim, eps, half
        self.head_norm_weight = nn.Parameter(torch.ones(head_dim, device=device, dtype=dtype)
                                             ) if head_norm else None

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor,
                positions: torch.Tensor, rstd: torch.Tensor | None = None,
                norm_weight: torch.Tensor | None = None) -> torch.Tensor:
        return ops.linear_rope(
            x, self.weight, cos, sin, positions, self.head_dim, rstd=rstd, norm_weight=norm_weight,
            head_norm_weight=self.head_norm_weight, eps=self.eps, half=self.half)


class LinearCrossEntropy(nn.Linear):
    """The head of a language model and its loss, with the options of ops.linear_cross_entropy.
    Returns the loss and the number of rows that count."""

    def __init__(self, in_features: int, vocabulary: int, device=None, dtype=None,
                 **options) -> None:
        super().__init__(in_features, vocabulary, bias=False, device=device, dtype=dtype)
        self.options = options

    def forward(self, x: torch.Tensor, targets: torch.Tensor, rstd: torch.Tensor | None = None,
                norm_weight: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        return ops.linear_cross_entropy(x, self.weight, targets, rstd=rstd,
                                        norm_weight=norm_weight, **self.options)
