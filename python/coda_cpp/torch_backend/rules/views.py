# SPDX-License-Identifier: Apache-2.0
"""Rules for views, transposes, conversions, and slices and concatenations of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from coda_cpp import builders as b
from coda_cpp.torch_backend import layout as layouts
from coda_cpp.torch_backend.layout import NotUnderstood, value_of
from coda_cpp.torch_backend.values import Imported, Pair, Rounded

if TYPE_CHECKING:
    from coda_cpp.torch_backend.importer import Importer

_aten = torch.ops.aten


def _view(region: Importer, node: fx.Node) -> Any:
    return region.operand(node.args[0])


def _convert(region: Importer, node: fx.Node) -> Any:
    """A conversion rounds a value only if the value is stored; all other arithmetic is fp32."""
    made = value_of(node).dtype
    if value_of(node.args[0]).device != value_of(node).device:
        raise NotUnderstood("it moves to another device")
    x = region.operand(node.args[0])
    if made == torch.bool != x.dtype:
        return b.elementwise("not_equal", [x.value, 0.0])
    if x.dtype == torch.bool:
        return Imported(made, x.value)
    narrow = min(made, x.dtype, key=lambda dtype: dtype.itemsize)
    return x if narrow == x.dtype else Rounded(narrow, x)


def _detach(region: Importer, node: fx.Node) -> Any:
    if node.args[0].meta.get(layouts.NEEDS):
        raise NotUnderstood("it stops a gradient")
    return region.operand(node.args[0])


def _dropout(region: Importer, node: fx.Node) -> Any:
    raise NotUnderstood("it draws random numbers")  # otherwise canonical.py removes it


def _around(node: fx.Node, dim: int) -> tuple[int, int]:
    """The numbers of columns in the dimensions before and after a dimension."""
    layout, shape = layouts.or_plain(node), value_of(node).shape
    if layout[dim] != "c":
        raise NotUnderstood("it selects some of the rows")
    return (layouts.number(layouts.count(layout[:dim], shape[:dim], "c")),
            layouts.number(layouts.count(layout[dim + 1:], shape[dim + 1:], "c")))


def _slice(region: Importer, node: fx.Node) -> Any:
    x, dim, start, end, step = (*node.args, *(0, None, None, 1)[len(node.args) - 1:])[:5]
    before, after = value_of(x).shape, value_of(node).shape
    if all(map(layouts.same, before, after)):
        return region.operand(x)
    dim %= len(before)
    heads, rest = _around(x, dim)
    whole, first = region.operand(x), layouts.number(start or 0)
    size, count = layouts.number(before[dim]), layouts.number(after[dim])
    first = max(first + size, 0) if first < 0 else first
    if step == 1 and 2 * count == size and first in (0, count):
        return Imported(whole.dtype, whole.half(size * rest, first // count))
    if step == 2 and 2 * count == size:
        return Imported(whole.dtype, whole.half(2 * rest, first))
    if step != 1 or heads != 1 or count == 0:
        raise NotUnderstood("a part of each head other than a half")
    return Imported(whole.dtype, b.slice_columns(whole.value, first * rest, count * rest))


def _side_by_side(region: Importer, node: fx.Node) -> Any:
    """Concatenates values along a dimension of columns, or stacks them along a new one."""
    parts, dim = (*node.args, 0)[:2]
    dim %= value_of(node).dim()
    heads, rest = _around(node, dim)
    operands = [region.operand(part) for part in parts]
    dtype = value_of(node).dtype
    if len(parts) == 2 and value_of(parts[0]).shape == value_of(parts[1]).shape:
        return Pair(dtype, operands, layouts.number(value_of(node).shape[dim]) * rest)
    if heads != 1:
        raise NotUnderstood("parts of heads other than halves")
    return Imported(dtype, b.concat_columns([operand.value for operand in operands]))


_CONVERSIONS = (_aten.to.dtype, _aten._to_copy.default, _aten.alias.default,
                _aten.contiguous.default, _aten.clone.default)
RULES = {
    _aten.dropout.default: _dropout,
    _aten.slice.Tensor: _slice,
    _aten.cat.default: _side_by_side,
    _aten.stack.default: _side_by_side,
    _aten.detach.default: _detach,
    **{op: _view for op in (*layouts.VIEWS, *layouts.TURNS)},
    **{op: _convert for op in _CONVERSIONS},
}
# Operations that cost nothing. A region must have another operation too.
FREE = {*layouts.VIEWS, *layouts.TURNS, *_CONVERSIONS, _aten.slice.Tensor, _aten.dropout.default,
        _aten.detach.default}
