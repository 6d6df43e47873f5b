# SPDX-License-Identifier: Apache-2.0
"""Operations that compute each element by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from coda_cpp import builders as b
from coda_cpp.torch_backend.layout import NotUnderstood, value_of
from coda_cpp.torch_backend.values import Computed

if TYPE_CHECKING:
    from coda_cpp.torch_backend.importer import Importer

_aten = torch.ops.aten


def _elementwise(name: str) -> Callable[[Importer, fx.Node], Any]:
    def rule(region: Importer, node: fx.Node) -> Any:
        if node.kwargs.get("alpha", 1) != 1 or len(node.args) > 2:
            raise NotUnderstood("it has an alpha, or a rounding mode")
        if node.kwargs.get("rounding_mode") is not None:
            raise NotUnderstood("a division that rounds")
        return Computed(value_of(node).dtype, name,
                        [region.operand(arg, node) for arg in node.args])
    return rule


def _reversed_sub(region: Importer, node: fx.Node) -> Any:
    if len(node.args) != 2 or node.kwargs:
        raise NotUnderstood("it has an alpha")
    return Computed(value_of(node).dtype, "sub",
                    [region.operand(arg, node) for arg in reversed(node.args)])


def _gelu(region: Importer, node: fx.Node) -> Any:
    name = {"none": "gelu", "tanh": "gelu_tanh"}[node.kwargs.get("approximate", "none")]
    return b.elementwise(name, [region.operand(node.args[0]).value])


def _pow(region: Importer, node: fx.Node) -> Any:
    x = region.operand(node.args[0]).value
    powers = {2: lambda: x * x, 3: lambda: x * x * x, 0.5: lambda: b.sqrt(x),
              -0.5: lambda: b.rsqrt(x), -1: lambda: b.recip(x)}
    if node.args[1] not in powers:
        raise NotUnderstood(f"the power {node.args[1]}")
    return powers[node.args[1]]()


RULES = {
    _aten.gelu.default: _gelu,
    _aten.pow.Tensor_Scalar: _pow,
    _aten.rsub.Scalar: _reversed_sub,
    **{getattr(_aten, name).default: _elementwise(name) for name in (
        "silu", "rsqrt", "sqrt", "sigmoid", "tanh", "exp", "log", "erf", "neg")},
    **{getattr(_aten, name).Tensor: _elementwise(name) for name in ("add", "sub", "mul", "div")},
    **{getattr(_aten, name).Scalar: _elementwise(name) for name in ("add", "sub", "mul", "div")},
}
