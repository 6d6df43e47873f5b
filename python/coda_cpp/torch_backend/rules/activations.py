# SPDX-License-Identifier: Apache-2.0
"""Activation functions, built from operations of the graph language. Their gradients are derived.
At a tie max and min give the gradient to their first operand, so the order of operands is chosen to
give PyTorch's gradient at each kink. """

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from coda_cpp import _core
from coda_cpp import builders as b
from coda_cpp.torch_backend.layout import NotUnderstood, last_dimension, value_of

if TYPE_CHECKING:
    from coda_cpp.torch_backend.importer import Importer

_aten = torch.ops.aten
Value = _core.Value


def _log1p_exp(x: Value) -> Value:
    """log(1 + exp(x)) for x <= 0. With e = exp(x) and s = e / (2 + e) it is 2 artanh(s). The series
    is exact to fp32, because s is at most 1/3; log(1 + e) would lose small values of e."""
    e = b.exp(x)
    s = e / (e + 2.0)
    square = s * s
    series = square * (1 / 15) + 1 / 13
    for odd in (11, 9, 7, 5, 3, 1):
        series = square * series + 1 / odd
    return s * series * 2.0


def _softplus(x: Value, beta: float = 1.0, threshold: float = 20.0) -> Value:
    scaled = x * beta
    # At 0 the derivatives of both terms are those for x: 1 - 1/2.
    made = b.maximum(scaled, 0.0) + _log1p_exp(b.minimum(-scaled, scaled))
    return b.select(b.less(threshold, scaled), x, made * (1 / beta))


def _log_sigmoid(x: Value) -> Value:
    return b.minimum(x, 0.0) - _log1p_exp(b.minimum(x, -x))  # also 1 - 1/2 at 0


def _mish(x: Value) -> Value:
    """With e = exp(x), tanh(log(1 + e)) is n / (n + 2) where n = e (e + 2); for x > 20 it is 1 in
    fp32."""
    e = b.exp(b.minimum(x, 20.0))
    n = e * (e + 2.0)
    return x * (n / (n + 2.0))


def _expm1(x: Value) -> Value:
    """exp(x) - 1 for x <= 0, where 1 - tanh does not cancel."""
    t = b.tanh(x * 0.5)
    return t * 2.0 / (1.0 - t)


def _elu(x: Value, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Value:
    low = _expm1(b.minimum(x, 0.0) * input_scale) * (alpha * scale)
    return b.select(b.less(0.0, x), x * scale, low)


def _selu(x: Value) -> Value:
    return _elu(x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


def _celu(x: Value, alpha: float = 1.0) -> Value:
    return _elu(x, alpha, 1.0, 1 / alpha)


def _leaky_relu(x: Value, slope: float = 0.01) -> Value:
    return b.select(b.less(0.0, x), x, x * slope)


def _hardtanh(x: Value, low: float = -1.0, high: float = 1.0) -> Value:
    return b.minimum(high, b.maximum(low, x))


def _hardsigmoid(x: Value) -> Value:
    """Computed from x and not from x + 3, which would lose digits of x if saved for the
    backward."""
    return _hardtanh(x, -3.0, 3.0) * (1 / 6) + 0.5


def _threshold(x: Value, threshold: float, value: float) -> Value:
    return b.select(b.less(threshold, x), x, value)


def _of(function: Callable[..., Value]) -> Callable[[Importer, fx.Node], Value]:
    """The rule for a function of one value and numbers."""
    def rule(region: Importer, node: fx.Node) -> Value:
        if node.kwargs or any(isinstance(arg, fx.Node) for arg in node.args[1:]):
            raise NotUnderstood("an argument of an activation is not a number")
        return function(region.operand(node.args[0]).value, *map(float, node.args[1:]))
    return rule


def _gelu(region: Importer, node: fx.Node) -> Value:
    name = {"none": "gelu", "tanh": "gelu_tanh"}[node.kwargs.get("approximate", "none")]
    return b.elementwise(name, [region.operand(node.args[0]).value])


def _glu(region: Importer, node: fx.Node) -> Value:
    x, dim = (*node.args, -1)[:2]
    if dim not in (-1, value_of(x).dim() - 1) or last_dimension(x)[0] % 2:
        raise NotUnderstood("a gate along other dimensions than the last")
    whole, size = region.operand(x), last_dimension(x)[0]
    return whole.half(size, 0) * b.sigmoid(whole.half(size, 1))


def _prelu(region: Importer, node: fx.Node) -> Value:
    x, slope = node.args
    if value_of(slope).numel() != 1:
        raise NotUnderstood("PReLU with a slope for each channel")
    value = region.operand(x).value
    return b.select(b.less(0.0, value), value, value * region.operand(slope, node).value)


RULES: dict[Any, Callable[[Importer, fx.Node], Any]] = {
    _aten.gelu.default: _gelu,
    _aten.glu.default: _glu,
    _aten.prelu.default: _prelu,
    **{getattr(_aten, name).default: _of(function) for name, function in {
        "softplus": _softplus, "log_sigmoid": _log_sigmoid, "mish": _mish, "elu": _elu,
        "selu": _selu, "celu": _celu, "leaky_relu": _leaky_relu, "hardtanh": _hardtanh,
        "relu6": lambda x: _hardtanh(x, 0.0, 6.0), "hardsigmoid": _hardsigmoid,
        "hardswish": lambda x: x * _hardsigmoid(x), "threshold": _threshold}.items()},
}
