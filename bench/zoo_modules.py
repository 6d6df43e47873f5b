# SPDX-License-Identifier: Apache-2.0
"""Models in the style of well-known training code that no package contains: small GPT-2 scripts, a
LLaMA with complex rotations, a LLaMA with one configuration for many models. The models are written
for bench/zoo.py, with the operations that are typical for such code.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

VOCABULARY, WIDTH, HEADS, LAYERS, LENGTH = 128, 64, 4, 2, 64
_SIZE = WIDTH // HEADS


class _Decoder(nn.Module):
    """Embedding, blocks, a final norm, the head and the loss; the targets are an argument."""

    def __init__(self, blocks: list[nn.Module], norm: nn.Module, is_tied: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks, self.norm = nn.ModuleList(blocks), norm
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.06)
        if is_tied:
            self.embedding.weight = self.head.weight

    def _embedded(self, ids: torch.Tensor) -> tuple[torch.Tensor, tuple]:
        return self.embedding(ids), ()

    def forward(self, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x, others = self._embedded(ids)
        for block in self.blocks:
            x = block(x, *others)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1),
                                        ignore_index=-1)


class _LayerNorm(nn.Module):
    """LayerNorm with an optional bias."""

    def __init__(self, has_bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))
        self.bias = nn.Parameter(torch.zeros(WIDTH)) if has_bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class _ScriptBlock(nn.Module):
    """One linear layer for queries, keys and values, whose result is split. The attention scores
    are written out, or computed by scaled_dot_product_attention."""

    def __init__(self, has_bias: bool, is_fast: bool) -> None:
        super().__init__()
        self.before, self.behind = _LayerNorm(has_bias), _LayerNorm(has_bias)
        self.attend = nn.Linear(WIDTH, 3 * WIDTH, bias=has_bias)
        self.project = nn.Linear(WIDTH, WIDTH, bias=has_bias)
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=has_bias)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=has_bias)
        self.gelu, self.is_fast = nn.GELU(), is_fast
        self.register_buffer("mask", torch.tril(torch.ones(LENGTH, LENGTH))[None, None])

    def _attention(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.size()
        q, k, v = (part.view(batch, length, HEADS, _SIZE).transpose(1, 2)
                   for part in self.attend(x).split(WIDTH, dim=2))
        if self.is_fast:
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) * _SIZE**-0.5
            scores = scores.masked_fill(self.mask[:, :, :length, :length] == 0, float("-inf"))
            y = functional.softmax(scores, dim=-1) @ v
        return self.project(y.transpose(1, 2).contiguous().view(batch, length, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self._attention(self.before(x))
        return x + self.down(self.gelu(self.up(self.behind(x))))


class _Script(_Decoder):
    """A decoder with learned positions."""

    def __init__(self, *block: bool) -> None:
        super().__init__([_ScriptBlock(*block) for _ in range(LAYERS)], _LayerNorm(block[0]), True)
        self.positions = nn.Embedding(LENGTH, WIDTH)

    def _embedded(self, ids: torch.Tensor) -> tuple[torch.Tensor, tuple]:
        places = torch.arange(0, ids.size(1), dtype=torch.long, device=ids.device)
        return self.embedding(ids) + self.positions(places), ()


class _Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(WIDTH, 96, bias=False) for _ in range(2))
        self.down = nn.Linear(96, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class _ComplexBlock(nn.Module):
    """RoPE as a complex multiplication in fp32; keys and values are repeated for each group."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.behind = nn.RMSNorm(WIDTH, 1e-5), nn.RMSNorm(WIDTH, 1e-5)
        self.wq, self.wo = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.wk, self.wv = (nn.Linear(WIDTH, WIDTH // 2, bias=False) for _ in range(2))
        self.feed = _Gated()

    def _attention(self, x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = (layer(x).view(batch, length, -1, _SIZE) for layer in (self.wq, self.wk, self.wv))
        q, k = _turned(q, turns), _turned(k, turns)
        k, v = (part[:, :, :, None, :].expand(batch, length, HEADS // 2, 2, _SIZE)
                .reshape(batch, length, HEADS, _SIZE) for part in (k, v))
        y = functional.scaled_dot_product_attention(
            *(part.transpose(1, 2) for part in (q, k, v)), is_causal=True)
        return self.wo(y.transpose(1, 2).contiguous().view(batch, length, -1))

    def forward(self, x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        x = x + self._attention(self.before(x), turns)
        return x + self.feed(self.behind(x))


def _turned(x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    wide = x.double() if x.dtype == torch.float64 else x.float()
    pairs = torch.view_as_complex(wide.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns[None, :x.shape[1], None]).flatten(3).type_as(x)


class _Complex(_Decoder):
    """Computes the table of complex numbers in each call: a conversion of the model to another type
    would drop the imaginary part of a buffer."""

    def __init__(self) -> None:
        super().__init__([_ComplexBlock() for _ in range(LAYERS)], nn.RMSNorm(WIDTH, 1e-5), False)

    def _embedded(self, ids: torch.Tensor) -> tuple[torch.Tensor, tuple]:
        x = self.embedding(ids)
        rates = 10000.0 ** (-torch.arange(0, _SIZE, 2, device=ids.device).float() / _SIZE)
        angles = torch.outer(torch.arange(LENGTH, device=ids.device).float(), rates)
        if x.dtype == torch.float64:
            angles = angles.double()
        return x, (torch.polar(torch.ones_like(angles), angles),)


class _UnitNorm(nn.Module):
    """RMSNorm in fp32; the stored weight is the actual weight minus 1."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.double() if x.dtype == torch.float64 else x.float()
        normed = wide * torch.rsqrt(torch.mean(wide * wide, dim=-1, keepdim=True) + 1e-5)
        return normed.to(dtype=x.dtype) * (1 + self.weight)


class _ConfiguredBlock(nn.Module):
    """One linear layer for queries, keys and values, grouped by key head. RoPE rotates halves of a
    head, with tables in buffers. Attention and feed-forward are sequential or parallel."""

    def __init__(self, is_parallel: bool) -> None:
        super().__init__()
        self.before, self.behind = _UnitNorm(), _UnitNorm()
        self.qkv = nn.Linear(WIDTH, (HEADS + 2 * (HEADS // 2)) * _SIZE, bias=False)
        self.project, self.feed = nn.Linear(WIDTH, WIDTH, bias=False), _Gated()
        self.is_parallel = is_parallel

    def _attention(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.size()
        groups, each = HEADS // 2, HEADS // (HEADS // 2)
        qkv = self.qkv(x).view(batch, length, groups, each + 2, _SIZE).permute(0, 2, 3, 1, 4)
        q, k, v = qkv.split((each, 1, 1), dim=2)
        q, k, v = (part.reshape(batch, -1, length, _SIZE) for part in (q, k, v))
        q, k = _rotated(q, cos, sin), _rotated(k, cos, sin)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.project(y.transpose(1, 2).reshape(batch, length, -1))

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        normed = self.before(x)
        attended = self._attention(normed, cos, sin)
        if self.is_parallel:
            return self.feed(normed) + attended + x
        x = attended + x
        return self.feed(self.behind(x)) + x


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x[..., :_SIZE // 2], x[..., _SIZE // 2:]
    turned = torch.cat((-second, first), dim=-1)
    return ((x * cos) + (turned * sin)).to(dtype=x.dtype)


class _Configured(_Decoder):
    def __init__(self, is_parallel: bool) -> None:
        super().__init__([_ConfiguredBlock(is_parallel) for _ in range(LAYERS)], _UnitNorm(), False)
        rates = 10000.0 ** (-torch.arange(0, _SIZE, 2).float() / _SIZE)
        angles = torch.outer(torch.arange(LENGTH).float(), rates).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def _embedded(self, ids: torch.Tensor) -> tuple[torch.Tensor, tuple]:
        length = ids.size(1)
        return self.embedding(ids), (self.cos[:length], self.sin[:length])


class _Attended(nn.Module):
    """PyTorch's own encoder and decoder layers, whose attention has one weight for queries, keys
    and values."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        named = {"nhead": HEADS, "dim_feedforward": 96, "dropout": 0.0, "batch_first": True}
        self.body = nn.Transformer(WIDTH, num_encoder_layers=LAYERS, num_decoder_layers=LAYERS,
                                   norm_first=True, **named)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(
            ids.shape[1], ids.device, self.head.weight.dtype)
        x = self.embedding(ids)
        logits = self.head(self.body(x, x, tgt_mask=mask, tgt_is_causal=True))
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


class _Modulated(nn.Module):
    """A diffusion transformer: the condition scales and shifts the norms of each block."""

    def __init__(self) -> None:
        super().__init__()
        self.condition = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.blocks = nn.ModuleList(_ModulatedBlock() for _ in range(LAYERS))
        self.last, self.factors = nn.Linear(WIDTH, 16), nn.Linear(WIDTH, 2 * WIDTH)
        self.norm, self.first = nn.LayerNorm(WIDTH, elementwise_affine=False), nn.Linear(16, WIDTH)

    def forward(self, x: torch.Tensor, noise: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        c, y = self.condition(steps), self.first(x + noise)
        for block in self.blocks:
            y = block(y, c)
        shift, scale = self.factors(functional.silu(c)).chunk(2, dim=1)
        y = self.last(self.norm(y) * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1))
        return functional.mse_loss(y, noise)


class _ModulatedBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.behind = (nn.LayerNorm(WIDTH, elementwise_affine=False, eps=1e-6)
                                    for _ in range(2))
        self.qkv, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(approximate="tanh"),
                                  nn.Linear(4 * WIDTH, WIDTH))
        self.factors = nn.Sequential(nn.SiLU(), nn.Linear(WIDTH, 6 * WIDTH))

    def forward(self, x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        shift, scale, gate, shift2, scale2, gate2 = self.factors(c).chunk(6, dim=1)
        y = self.before(x) * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)
        batch, length, width = y.shape
        q, k, v = self.qkv(y).reshape(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4).unbind(0)
        y = functional.scaled_dot_product_attention(q, k, v)
        x = x + gate.unsqueeze(1) * self.project(y.transpose(1, 2).reshape(batch, length, width))
        y = self.behind(x) * (1 + scale2.unsqueeze(1)) + shift2.unsqueeze(1)
        return x + gate2.unsqueeze(1) * self.feed(y)


MODULES = {
    "GPT-2 as a script": lambda: _Script(True, True),
    "GPT-2 as a script, no biases": lambda: _Script(False, True),
    "GPT-2 as a script, scores": lambda: _Script(True, False),
    "LLaMA, complex rotations": _Complex,
    "LLaMA, configured": lambda: _Configured(False),
    "GPT-NeoX, configured": lambda: _Configured(True),
    "nn.Transformer": _Attended,
    "DiT": _Modulated,
}


def inputs(name: str) -> tuple[torch.Tensor, ...]:
    """The inputs of the module with this name. The module returns its loss."""
    if name == "DiT":
        return torch.randn(2, 16, 16), torch.randn(2, 16, 16), torch.randn(2, WIDTH)
    return torch.randint(0, VOCABULARY, (2, 24)), torch.randint(0, VOCABULARY, (2, 24))
