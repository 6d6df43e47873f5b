# SPDX-License-Identifier: Apache-2.0
"""Sums and means along rows, and the norms made of them."""

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


def _group_mean(x: _core.Value, group: int) -> _core.Value:
    return b.group_sum(x, group) / float(group)


def _along_rows(whole: Callable, of_heads: Callable) -> Callable[[Importer, fx.Node], Any]:
    def rule(region: Importer, node: fx.Node) -> Any:
        columns, has_heads = last_dimension(node.args[0])
        value = region.operand(node.args[0]).value
        return of_heads(value, columns) if has_heads else whole(value)
    return rule


def _rms_norm(region: Importer, node: fx.Node) -> Any:
    x, shape, weight, eps = (*node.args, None, None)[:4]
    if len(shape) != 1:
        raise NotUnderstood("a norm over several dimensions")
    epsilon = torch.finfo(value_of(x).dtype).eps if eps is None else float(eps)
    value = region.operand(x).value
    columns, has_heads = last_dimension(x)
    if has_heads:
        scale = b.rsqrt(_group_mean(value * value, columns) + epsilon)
        value = value * b.group_repeat(scale, columns)
        return value if weight is None else value * region.operand(weight, node).value
    if weight is None:
        return value * b.rms_reciprocal(value, epsilon)
    return b.rms_norm(value, region.operand(weight).value, epsilon)


def _layer_norm(region: Importer, node: fx.Node) -> Any:
    x, shape, weight, bias, eps = (*node.args, *(None, None, None, None, 1e-5)[len(node.args):])[:5]
    if len(shape) != 1 or weight is None or bias is None or last_dimension(x)[1]:
        raise NotUnderstood("a layer norm over several dimensions, or without weight and bias")
    operands = [region.operand(operand).value for operand in (x, weight, bias)]
    return b.layer_norm(*operands, float(eps))


RULES = {
    _aten.mean.dim: _along_rows(b.row_mean, _group_mean),
    _aten.sum.dim_IntList: _along_rows(b.row_sum, b.group_sum),
    _aten.rms_norm.default: _rms_norm,
    _aten.layer_norm.default: _layer_norm,
}
