# SPDX-License-Identifier: Apache-2.0
"""Sums, means and variances along rows, and the norms made of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from coda_cpp import _core
from coda_cpp import builders as b
from coda_cpp.torch_backend.layout import NotUnderstood, last_dimension, number, or_plain

if TYPE_CHECKING:
    from coda_cpp.torch_backend.importer import Importer

_aten = torch.ops.aten


def _group_mean(x: _core.Value, group: int) -> _core.Value:
    return b.group_sum(x, group) / float(group)


def _group_m2(x: _core.Value, group: int) -> _core.Value:
    deviations = x - b.group_repeat(_group_mean(x, group), group)
    return b.group_sum(deviations * deviations, group)


def _along_rows(whole: Callable, of_heads: Callable) -> Callable[[Importer, fx.Node], Any]:
    def rule(region: Importer, node: fx.Node) -> Any:
        columns, has_heads = last_dimension(node.args[0])
        value = region.operand(node.args[0]).value
        return of_heads(value, columns) if has_heads else whole(value)
    return rule


def _variance(is_deviation: bool) -> Callable[[Importer, fx.Node], Any]:
    def rule(region: Importer, node: fx.Node) -> Any:
        columns, has_heads = last_dimension(node.args[0])
        correction = node.kwargs.get("correction", 1)
        if node.target in (_aten.var.dim, _aten.std.dim):
            correction = int((*node.args, True)[2])
        if correction is None:
            correction = 1
        if columns <= correction:
            raise NotUnderstood("a variance of fewer numbers than its correction")
        value = region.operand(node.args[0]).value
        squares = _group_m2(value, columns) if has_heads else b.row_m2(value)
        variance = squares * (1 / (columns - correction))
        return b.sqrt(variance) if is_deviation else variance
    return rule


def _rms_norm(region: Importer, node: fx.Node) -> Any:
    x, shape, weight, eps = (*node.args, None, None)[:4]
    # PyTorch computes in fp32 and uses the epsilon of fp32, for 16-bit types too.
    epsilon = torch.finfo(torch.float32).eps if eps is None else eps
    value = region.operand(x, node).value
    columns, has_heads = _normed(node)
    if has_heads:
        scale = b.rsqrt(_group_mean(value * value, columns) + epsilon)
        value = value * b.group_repeat(scale, columns)
        return value if weight is None else value * region.operand(weight, node).value
    if weight is None:
        return value * b.rms_reciprocal(value, epsilon)
    return b.rms_norm(value, region.operand(weight, node).value, epsilon)


def _layer_norm(region: Importer, node: fx.Node) -> Any:
    x, shape, weight, bias, eps = (*node.args, *(None, None, None, None, 1e-5)[len(node.args):])[:5]
    value = region.operand(x, node).value
    columns, has_heads = _normed(node)
    factor, term = (None if operand is None else region.operand(operand, node).value
                    for operand in (weight, bias))
    if not has_heads and factor is not None and term is not None:
        return b.layer_norm(value, factor, term, eps)
    if has_heads:
        mean, squares = _group_mean(value, columns), _group_m2(value, columns)
        scale = b.group_repeat(b.rsqrt(squares * (1 / columns) + eps), columns)
        normed = (value - b.group_repeat(mean, columns)) * scale
    else:
        scale = b.rsqrt(b.row_m2(value) * (1 / columns) + eps)
        normed = (value - b.row_mean(value)) * scale
    normed = normed if factor is None else normed * factor
    return normed if term is None else normed + term


def _normed(node: fx.Node) -> tuple[int, bool]:
    """The number of columns in the normed dimensions, and whether there are other columns."""
    shape = node.args[1]
    return math.prod(map(number, shape)), "c" in or_plain(node)[:-len(shape)]


RULES = {
    _aten.mean.dim: _along_rows(b.row_mean, _group_mean),
    _aten.sum.dim_IntList: _along_rows(b.row_sum, b.group_sum),
    _aten.var.dim: _variance(is_deviation=False),
    _aten.var.correction: _variance(is_deviation=False),
    _aten.std.dim: _variance(is_deviation=True),
    _aten.std.correction: _variance(is_deviation=True),
    _aten.rms_norm.default: _rms_norm,
    _aten.layer_norm.default: _layer_norm,
}
