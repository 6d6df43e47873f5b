# SPDX-License-Identifier: Apache-2.0
"""Elementwise arithmetic, comparisons, and selections by a condition. A condition is 1 or 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from coda_cpp import _core
from coda_cpp import builders as b
from coda_cpp.torch_backend.layout import NotUnderstood, value_of
from coda_cpp.torch_backend.values import Computed, Number

if TYPE_CHECKING:
    from coda_cpp.torch_backend.importer import Importer

_aten = torch.ops.aten
# At a bound clamp's gradient goes to the bound since PyTorch 2.14, before to the clamped operand.
_BOUND_FIRST = torch.__version__ >= "2.14"


def _elementwise(name: str, is_reversed: bool = False) -> Callable[[Importer, fx.Node], Any]:
    def rule(region: Importer, node: fx.Node) -> Any:
        arguments = list(node.args)
        alpha = node.kwargs.get("alpha", 1)
        if len(arguments) > 2:
            alpha = arguments.pop()
        if set(node.kwargs) - {"alpha"}:
            raise NotUnderstood("an option such as the rounding mode of a division")
        dtype = value_of(node).dtype
        operands = [region.operand(arg, node) for arg in
                    (reversed(arguments) if is_reversed else arguments)]
        if isinstance(alpha, fx.Node) or alpha != 1:
            factor = region.operand(alpha)
            operands[1] = (Number(factor.value * operands[1].value)
                           if isinstance(factor, Number) and isinstance(operands[1], Number)
                           else Computed(dtype, "mul", [operands[1], factor]))
        return Computed(dtype, name, operands)
    return rule


def _pow(region: Importer, node: fx.Node) -> Any:
    """Powers that are exact as products and roots. Other powers would need logarithms, which are
    less exact than PyTorch's pow."""
    x, power = region.operand(node.args[0]).value, node.args[1]
    if power in (0.5, -0.5):
        return b.sqrt(x) if power > 0 else b.rsqrt(x)
    if isinstance(power, fx.Node) or power != int(power) or not 1 <= abs(power) <= 8:
        raise NotUnderstood(f"the power {power}")
    product, rest, square = None, abs(int(power)), x
    while rest:
        if rest % 2:
            product = square if product is None else product * square
        rest //= 2
        square = square * square if rest else square
    return product if power > 0 else b.recip(product)


def _square(region: Importer, node: fx.Node) -> Any:
    x = region.operand(node.args[0]).value
    return x * x


def _bounded(name: str, value: Any, bound: Any) -> Any:
    """The maximum or minimum. If both are equal, the gradient goes to the first operand."""
    return b.elementwise(name, [bound, value] if _BOUND_FIRST else [value, bound])


def _clamp(region: Importer, node: fx.Node) -> Any:
    x, low, high = (*node.args, None, None)[:3]
    low, high = node.kwargs.get("min", low), node.kwargs.get("max", high)
    value = region.operand(x).value
    if low is not None:
        value = _bounded("max", value, region.operand(low).value)
    return value if high is None else _bounded("min", value, region.operand(high).value)


def _clamp_max(region: Importer, node: fx.Node) -> Any:
    return _bounded("min", region.operand(node.args[0]).value, region.operand(node.args[1]).value)


def _extreme(name: str) -> Callable[[Importer, fx.Node], Any]:
    """At a tie each operand gets half of the gradient."""
    def rule(region: Importer, node: fx.Node) -> Any:
        one, other = (region.operand(arg, node).value for arg in node.args)
        return b.select(b.equal(one, other), one * 0.5 + other * 0.5,
                        b.elementwise(name, [one, other]))
    return rule


def _addcmul(region: Importer, node: fx.Node) -> Any:
    x, one, other = (region.operand(arg, node).value for arg in node.args)
    return x + one * other * region.operand(node.kwargs.get("value", 1)).value


def _lerp(region: Importer, node: fx.Node) -> Any:
    start, end, weight = (region.operand(arg, node).value for arg in node.args)
    return start + weight * (end - start)


def _comparison(name: str, is_swapped: bool = False) -> Callable[[Importer, fx.Node], Any]:
    def rule(region: Importer, node: fx.Node) -> Any:
        operands = [region.operand(arg, node).value for arg in node.args]
        return b.elementwise(name, operands[::-1] if is_swapped else operands)
    return rule


def _logical(name: str) -> Callable[[Importer, fx.Node], Any]:
    def rule(region: Importer, node: fx.Node) -> Any:
        if any(value_of(arg).dtype != torch.bool for arg in node.args):
            raise NotUnderstood("a bitwise operation on integers")
        return b.elementwise(name, [region.operand(arg, node).value for arg in node.args])
    return rule


def _not(region: Importer, node: fx.Node) -> Any:
    if value_of(node.args[0]).dtype != torch.bool:
        raise NotUnderstood("a bitwise operation on integers")
    return b.equal(region.operand(node.args[0]).value, 0.0)


def _where(region: Importer, node: fx.Node) -> Any:
    condition, one, other = (region.operand(arg, node).value for arg in node.args)
    return _choice(node, condition, one, other)


def _masked_fill(region: Importer, node: fx.Node) -> Any:
    x, condition, filled = (region.operand(arg, node).value for arg in node.args)
    return _choice(node, condition, filled, x)


def _choice(node: fx.Node, condition: _core.Value, one: Any, other: Any) -> Any:
    if len(node.args) != 3 or any(
            getattr(arg.meta["val"], "dtype", None) == torch.float64
            for arg in node.all_input_nodes):
        raise NotUnderstood("torch.where in float64, or with one argument")
    return b.select(condition, one, other)


RULES = {
    _aten.pow.Tensor_Scalar: _pow,
    _aten.square.default: _square,
    _aten.reciprocal.default: _elementwise("recip"),
    _aten.rsub.Scalar: _elementwise("sub", is_reversed=True),
    _aten.rsub.Tensor: _elementwise("sub", is_reversed=True),
    _aten.clamp.default: _clamp,
    _aten.clamp_min.default: _clamp,
    _aten.clamp_max.default: _clamp_max,
    _aten.maximum.default: _extreme("max"),
    _aten.minimum.default: _extreme("min"),
    _aten.addcmul.default: _addcmul,
    _aten.lerp.Scalar: _lerp,
    _aten.lerp.Tensor: _lerp,
    _aten.where.self: _where,
    _aten.where.ScalarSelf: _where,
    _aten.where.ScalarOther: _where,
    _aten.masked_fill.Scalar: _masked_fill,
    _aten.masked_fill.Tensor: _masked_fill,
    _aten.bitwise_and.Tensor: _logical("min"),
    _aten.bitwise_or.Tensor: _logical("max"),
    _aten.bitwise_xor.Tensor: _logical("not_equal"),
    _aten.bitwise_not.default: _not,
    **{getattr(_aten, name).default: _elementwise(name) for name in (
        "silu", "rsqrt", "sqrt", "sigmoid", "tanh", "exp", "log", "erf", "neg", "relu", "abs")},
    **{getattr(getattr(_aten, name), kind): _elementwise(name)
       for name in ("add", "sub", "mul", "div") for kind in ("Tensor", "Scalar")},
    **{getattr(getattr(_aten, name), kind): _comparison(*how)
       for name, how in {"lt": ("less",), "gt": ("less", True), "le": ("less_equal",),
                         "ge": ("less_equal", True), "eq": ("equal",),
                         "ne": ("not_equal",)}.items() for kind in ("Tensor", "Scalar")},
}
