# SPDX-License-Identifier: Apache-2.0
"""What moves or renames elements: views, transposes, conversions, parts of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from coda_cpp import builders as b
from coda_cpp.torch_backend import layout as layouts
from coda_cpp.torch_backend.layout import NotUnderstood, last_dimension, value_of
from coda_cpp.torch_backend.values import Imported, Pair, Rounded

if TYPE_CHECKING:
    from coda_cpp.torch_backend.importer import Importer

_aten = torch.ops.aten


def _view(region: Importer, node: fx.Node) -> Any:
    return region.operand(node.args[0])


def _convert(region: Importer, node: fx.Node) -> Any:
    """Arithmetic is fp32 between what is stored; what is rounded is what is stored."""
    made = value_of(node).dtype
    if value_of(node.args[0]).device != value_of(node).device:
        raise NotUnderstood("it moves to another device")
    x = region.operand(node.args[0])
    narrow = min(made, x.dtype, key=lambda dtype: dtype.itemsize)
    return x if narrow == x.dtype else Rounded(narrow, x)


def _dropout(region: Importer, node: fx.Node) -> Any:
    if node.args[2] and node.args[1] != 0:
        raise NotUnderstood("it draws random numbers")
    return region.operand(node.args[0])


def _slice(region: Importer, node: fx.Node) -> Any:
    x, dim, start, end, step = (*node.args, *(0, None, None, 1)[len(node.args) - 1:])[:5]
    before, after = value_of(x).shape, value_of(node).shape
    if all(map(layouts.same, before, after)):
        return region.operand(x)
    if dim % len(before) != len(before) - 1 or layouts.or_plain(x)[-1] != "c":
        raise NotUnderstood("a part of the rows")
    size, has_heads = last_dimension(x)
    whole, first, count = region.operand(x), int(start or 0), int(after[-1])
    if first < 0:
        first += size
    if step == 1 and 2 * count == size and first in (0, count):
        return Imported(whole.dtype, whole.half(size, first // count))
    if step == 2 and 2 * count == size:
        return Imported(whole.dtype, whole.half(2, first))
    if step != 1 or has_heads:
        raise NotUnderstood("a part of each head that is no half")
    return Imported(whole.dtype, b.slice_columns(whole.value, first, count))


def _cat(region: Importer, node: fx.Node) -> Any:
    parts, dim = (*node.args, 0)[:2]
    rank = value_of(node).dim()
    if dim % rank != rank - 1 or layouts.or_plain(node)[-1] != "c":
        raise NotUnderstood("rows behind rows")
    operands = [region.operand(part) for part in parts]
    sizes = {int(value_of(part).shape[-1]) for part in parts}
    dtype = value_of(node).dtype
    if len(parts) == 2 and len(sizes) == 1:
        return Pair(dtype, operands, 2 * sizes.pop())
    if "c" in layouts.or_plain(node)[:-1]:
        raise NotUnderstood("parts of heads that are no halves")
    return Imported(dtype, b.concat_columns([operand.value for operand in operands]))


_CONVERSIONS = (_aten.to.dtype, _aten._to_copy.default, _aten.alias.default,
                _aten.contiguous.default, _aten.type_as.default)
RULES = {
    _aten.dropout.default: _dropout,
    _aten.slice.Tensor: _slice,
    _aten.cat.default: _cat,
    **{op: _view for op in (*layouts.VIEWS, *layouts.TURNS)},
    **{op: _convert for op in _CONVERSIONS},
}
# What costs nothing by itself: a region needs something besides.
FREE = {*layouts.VIEWS, *layouts.TURNS, *_CONVERSIONS, _aten.slice.Tensor, _aten.dropout.default}
