# SPDX-License-Identifier: Apache-2.0
"""From operations of PyTorch's (a torch.fx graph of aten, before autograd) to values of a Graph.

A value is a matrix, and its layout says how a tensor lies in it (fx_layout). What is not understood
raises NotUnderstood with the reason, and stays PyTorch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from coda_cpp import _core, _tensors
from coda_cpp import builders as b
from coda_cpp import fx_layout as layouts
from coda_cpp.fx_layout import NotUnderstood, value_of
from coda_cpp.fx_values import (
    EQUAL_HALVES, Computed, Imported, Number, Pair, Rounded, Source, Table)

_aten = torch.ops.aten
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)
PRODUCTS = {layouts.LINEAR: 1, layouts.ADDMM: 2, layouts.MM: 1}  # which operand is the weight
NEEDS = "coda_needs_gradient"  # in a node's meta


class Importer:
    """A region of nodes as a graph: what is not of the region becomes an input when it is read."""

    def __init__(self, narrowed: Mapping[fx.Node, torch.dtype] | None = None,
                 products: torch.dtype | None = None) -> None:
        self._narrowed = narrowed or {}  # inputs that come in another type than their node says
        self._may_narrow = narrowed is not None  # to the type that the products will have
        self._products = products
        self.graph = _core.Graph()
        self.inputs: dict[tuple[fx.Node, Source], _core.Value] = {}
        self.known: dict[fx.Node, Imported] = {}
        self.rows: Any = None  # of all matrices and row vectors
        self.whole: fx.Node | None = None  # an operand that has all rows
        self.storage: torch.dtype | None = None  # of the products' operands

    def require_rows(self, rows: Any, node: fx.Node | None = None) -> None:
        if layouts.same(rows, 0):
            raise NotUnderstood("there are no rows")
        if self.rows is None:
            self.rows = rows
        if not layouts.same(rows, self.rows):
            raise NotUnderstood(f"its tensors have {rows} and {self.rows} rows")
        if self.whole is None:
            self.whole = node

    def _input(self, node: fx.Node, source: Source, declare: Callable, shape: tuple,
               dtype: str) -> _core.Value:
        key = node, source
        if key not in self.inputs:  # names by place, so that equal layers are one function
            letter = {"index": "i", "positions": "p", "table": "t"}.get(
                source.form, "x" if shape[0] == "M" else "w")
            self.inputs[key] = declare(f"{letter}{len(self.inputs)}", shape, dtype)
        return self.inputs[key]

    def dtype_of(self, node: fx.Node) -> torch.dtype:
        dtype = self._narrowed.get(node, value_of(node).dtype)
        if dtype not in _FLOATS:
            raise NotUnderstood(f"an operand is {dtype}")
        return dtype

    def weight(self, node: fx.Node) -> _core.Value:
        """A matrix that a product reads as its weight."""
        value = value_of(node)
        if node in self.known or value.dim() != 2:
            raise NotUnderstood("a product's weight is computed, or is no matrix")
        return self._input(node, Source("as it is"), self.graph.parameter,
                           tuple(int(size) for size in value.shape), _name(value.dtype))

    def index(self, node: fx.Node, within: tuple[int, int]) -> _core.Value:
        value = value_of(node)
        if value.dtype not in (torch.int64, torch.int32):
            raise NotUnderstood(f"indices of {value.dtype}")
        self.require_rows(math.prod(value.shape))
        return self._input(node, Source("index", within=within), self.graph.table, ("M", 1), "i32")

    def operand(self, node: Any, whole: fx.Node | None = None) -> Imported:
        """A value of the region or an input of it, as the result `whole` reads it; none: in its own
        layout."""
        number = node.meta.get("val") if isinstance(node, fx.Node) else node
        if isinstance(number, (int, float, torch.SymFloat)):
            return Number(float(number))  # Dynamo guards what it took for a symbol
        shape = value_of(node).shape
        if whole is None:
            layout, sizes = layouts.or_plain(node), shape
        else:
            layout, sizes = layouts.or_plain(whole), value_of(whole).shape
        if node not in self.known:
            return self._outside(node, layout, sizes)
        made = self.known[node]
        return self._over_columns(made, layouts.or_plain(node), layout, sizes)

    def _over_columns(self, made: Imported, own: str, layout: str, sizes: Sequence[Any]
                      ) -> Imported:
        """A value that has some of the columns' dimensions, over all of them."""
        columns = [i for i, kind in enumerate(layout) if kind == "c"]
        shift = len(layout) - len(own)
        has = [i >= shift and own[i - shift] == "c" for i in columns]
        if not any(has) or all(has):
            return made
        missing = math.prod(int(sizes[i]) for i, there in zip(columns, has) if not there)
        if has == sorted(has, reverse=True):
            return Imported(made.dtype, b.group_repeat(made.value, missing))
        if has == sorted(has) and made.value.shape[0] == 1:
            return Imported(made.dtype, b.repeat_columns(made.value, missing))
        raise NotUnderstood("a value is repeated along columns")

    def _outside(self, node: fx.Node, layout: str, sizes: Sequence[Any]) -> Imported:
        value, dtype = value_of(node), self.dtype_of(node)
        shift = len(layout) - value.dim()
        dims = {kind: [i for i in range(value.dim())
                       if layout[i + shift] == kind and not layouts.is_one(value.shape[i])]
                for kind in "rc"}
        columns = math.prod(int(value.shape[i]) for i in dims["c"])
        order = tuple(dims["r"] + dims["c"])
        own = "".join(layout[i + shift] if i in order else "1" for i in range(value.dim()))
        if not dims["r"]:
            made = self._input(node, Source("matrix", order, columns) if len(dims["c"]) > 1
                               else Source("as it is"), self.graph.parameter, (1, columns),
                               _name(dtype))
            return self._over_columns(Imported(dtype, made), own, layout, sizes)
        rows = [i - shift for i, kind in enumerate(layout) if kind == "r"]
        heads = [i - shift for i, kind in enumerate(layout) if kind == "c"]
        if rows == dims["r"] and (not dims["c"] or heads[:len(dims["c"])] == dims["c"]):
            self.require_rows(math.prod(value.shape[i] for i in rows), node)
            rounded = None
            if columns > 1 and self._products not in (None, dtype) and dtype == torch.float32:
                if not self._may_narrow:
                    raise NotUnderstood(f"a matrix of {dtype} enters products of {self._products}")
                rounded = dtype = self._products  # autocast's residual stream
            source = Source("matrix", order, columns if dims["c"] else 0, dtype=rounded)
            made = self._input(node, source, self.graph.input,
                               ("M", columns if dims["c"] else 1), _name(dtype))
            return self._over_columns(Imported(dtype, made), own, layout, sizes)
        return self._table(node, dtype, layout, sizes, dims, shift)

    def _table(self, node: fx.Node, dtype: torch.dtype, layout: str, sizes: Sequence[Any],
               dims: Mapping[str, list[int]], shift: int) -> Imported:
        """A tensor that is broadcast along rows, or of which all heads read the same columns."""
        value = value_of(node)
        if node.meta.get(NEEDS):
            raise NotUnderstood("a tensor with a gradient is broadcast along rows or heads")
        rows = [i - shift for i, kind in enumerate(layout) if kind == "r"]
        heads = [i - shift for i, kind in enumerate(layout) if kind == "c"]
        if rows[-len(dims["r"]):] != dims["r"] or len(dims["c"]) != 1 or (
                heads[-1:] != dims["c"]):
            raise NotUnderstood("a tensor is broadcast along rows")
        columns = int(value.shape[dims["c"][0]])
        others = math.prod(int(sizes[i + shift]) for i in heads[:-1])
        order = tuple(dims["r"] + dims["c"])
        symbol = f"P{len(self.inputs)}"

        def read(half: int | None) -> _core.Value:
            if half is not None and node.meta.get(EQUAL_HALVES):
                half = 0
            table = self._input(
                node, Source("table", order, columns, half), self.graph.table,
                (symbol, columns if half is None else columns // 2), _name(dtype))
            positions = self._input(
                node, Source("positions", order, columns), self.graph.table, ("M", 1), "i32")
            return b.gather_rows(table, positions)

        return Table(dtype, read, others, columns)

    def add(self, node: fx.Node) -> None:
        rule = RULES.get(node.target)
        if rule is None:
            raise NotUnderstood(f"there is no rule for {node.target}")
        made = value_of(node)
        if made.dtype not in _FLOATS:
            raise NotUnderstood(f"it makes {made.dtype}")
        layout = layouts.layout_of(node)
        node.meta[layouts.KEY] = layout
        found = rule(self, node)
        self.known[node] = found if isinstance(found, Imported) else Imported(made.dtype, found)
        if "r" in layout:
            self.require_rows(layouts.count(layout, made.shape, "r"))


def _name(dtype: torch.dtype) -> str:
    return _tensors.torch_dtypes()[dtype]


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


def _product(region: Importer, node: fx.Node) -> Any:
    x, weight = (node.args[1], node.args[2]) if node.target is layouts.ADDMM else node.args[:2]
    bias = node.args[0] if node.target is layouts.ADDMM else (*node.args, None)[2]
    types = {region.dtype_of(x), value_of(weight).dtype}
    if x in region.known:
        types = {value_of(x).dtype, value_of(weight).dtype}
    if len(types) != 1 or region.storage not in (None, *types):
        raise NotUnderstood("its products have operands of several types")
    if node.kwargs:
        raise NotUnderstood("a product with factors")
    region.storage = types.pop()
    make = b.linear if node.target is layouts.LINEAR else b.conv1d
    y = make(region.operand(x).value, region.weight(weight))
    return y if bias is None else y + region.operand(bias, node).value


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


def _last(node: fx.Node) -> tuple[int, bool]:
    """Columns of the last dimension, and whether there are other columns."""
    return int(value_of(node).shape[-1]), "c" in layouts.or_plain(node)[:-1]


def _group_mean(x: _core.Value, group: int) -> _core.Value:
    return b.group_sum(x, group) / float(group)


def _along_rows(whole: Callable, of_heads: Callable) -> Callable[[Importer, fx.Node], Any]:
    def rule(region: Importer, node: fx.Node) -> Any:
        columns, has_heads = _last(node.args[0])
        value = region.operand(node.args[0]).value
        return of_heads(value, columns) if has_heads else whole(value)
    return rule


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
    size, has_heads = _last(x)
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


def _cross_entropy(region: Importer, node: fx.Node) -> Any:
    logits, targets, weight, reduction, ignored, smoothing = (
        *node.args, *(None, None, None, 1, -100, 0.0)[len(node.args):])
    if weight is not None or reduction not in (1, 2) or value_of(logits).dim() != 2:
        raise NotUnderstood("a loss of each row, with class weights or of several dimensions")
    if logits not in region.known:
        raise NotUnderstood("its logits are not made beside it")
    rows, mean = b.cross_entropy(
        region.operand(logits).value,
        region.index(targets, (int(value_of(logits).shape[-1]), int(ignored))),
        ignore_index=int(ignored), label_smoothing=float(smoothing))
    return mean if reduction == 1 else b.col_sum(rows)


def _rms_norm(region: Importer, node: fx.Node) -> Any:
    x, shape, weight, eps = (*node.args, None, None)[:4]
    if len(shape) != 1:
        raise NotUnderstood("a norm over several dimensions")
    epsilon = torch.finfo(value_of(x).dtype).eps if eps is None else float(eps)
    value = region.operand(x).value
    columns, has_heads = _last(x)
    if has_heads:
        scale = b.rsqrt(_group_mean(value * value, columns) + epsilon)
        value = value * b.group_repeat(scale, columns)
        return value if weight is None else value * region.operand(weight, node).value
    if weight is None:
        return value * b.rms_reciprocal(value, epsilon)
    return b.rms_norm(value, region.operand(weight).value, epsilon)


def _layer_norm(region: Importer, node: fx.Node) -> Any:
    x, shape, weight, bias, eps = (*node.args, *(None, None, None, None, 1e-5)[len(node.args):])[:5]
    if len(shape) != 1 or weight is None or bias is None or _last(x)[1]:
        raise NotUnderstood("a layer norm over several dimensions, or without weight and bias")
    operands = [region.operand(operand).value for operand in (x, weight, bias)]
    return b.layer_norm(*operands, float(eps))


RULES: dict[Any, Callable[[Importer, fx.Node], Any]] = {
    **{op: _product for op in PRODUCTS},
    _aten.gelu.default: _gelu,
    _aten.pow.Tensor_Scalar: _pow,
    _aten.mean.dim: _along_rows(b.row_mean, _group_mean),
    _aten.sum.dim_IntList: _along_rows(b.row_sum, b.group_sum),
    _aten.cross_entropy_loss.default: _cross_entropy,
    _aten.rms_norm.default: _rms_norm,
    _aten.layer_norm.default: _layer_norm,
    _aten.dropout.default: _dropout,
    _aten.slice.Tensor: _slice,
    _aten.cat.default: _cat,
    _aten.rsub.Scalar: _reversed_sub,
    **{op: _view for op in (*layouts.VIEWS, *layouts.TURNS)},
    **{op: _convert for op in (_aten.to.dtype, _aten._to_copy.default, _aten.alias.default,
                               _aten.contiguous.default, _aten.type_as.default)},
    **{getattr(_aten, name).default: _elementwise(name) for name in (
        "silu", "rsqrt", "sqrt", "sigmoid", "tanh", "exp", "log", "erf", "neg")},
    **{getattr(_aten, name).Tensor: _elementwise(name) for name in ("add", "sub", "mul", "div")},
    **{getattr(_aten, name).Scalar: _elementwise(name) for name in ("add", "sub", "mul", "div")},
}
FREE = {*layouts.VIEWS, *layouts.TURNS, _aten.to.dtype, _aten._to_copy.default,
        _aten.alias.default, _aten.contiguous.default, _aten.type_as.default,
        _aten.slice.Tensor, _aten.dropout.default}
