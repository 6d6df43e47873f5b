# SPDX-License-Identifier: Apache-2.0
"""Converts PyTorch's operations (a torch.fx graph of aten, before autograd) to values of a Graph.

A value is a matrix, and the layout (layout.py) maps the tensor to the matrix. An unsupported
operation raises NotUnderstood with the reason, and PyTorch runs it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from coda_cpp import _core, _tensors
from coda_cpp import builders as b
from coda_cpp.torch_backend import floats
from coda_cpp.torch_backend import layout as layouts
from coda_cpp.torch_backend.layout import NEEDS, NotUnderstood, value_of
from coda_cpp.torch_backend.rules import RULES
from coda_cpp.torch_backend.values import EQUAL_HALVES, Imported, Number, Source, Table

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class Importer:
    """Builds the graph of a region. Nodes outside the region become inputs when they are read."""

    def __init__(self, narrowed: Mapping[fx.Node, torch.dtype] | None = None,
                 products: torch.dtype | None = None) -> None:
        self._narrowed = narrowed or {}  # inputs whose type differs from their node's type
        self._may_narrow = narrowed is not None  # to the type of the products
        self._products = products
        self.graph = _core.Graph()
        self.inputs: dict[tuple[fx.Node, Source], _core.Value] = {}
        self.known: dict[fx.Node, Imported] = {}
        self.rows: Any = None  # of all matrices and row vectors
        self.whole: fx.Node | None = None  # an operand with all rows
        self.storage: torch.dtype | None = None  # of the products' operands
        self._device: torch.device | None = None

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
        if key not in self.inputs:  # named by position, so that equal layers share a function
            letter = {"index": "i", "positions": "p", "groups": "p", "table": "t"}.get(
                source.form, "x" if shape[0] == "M" else "w")
            self.inputs[key] = declare(f"{letter}{len(self.inputs)}", shape, dtype)
        return self.inputs[key]

    def dtype_of(self, node: fx.Node) -> torch.dtype:
        dtype = self._narrowed.get(node, value_of(node).dtype)
        if dtype not in _FLOATS:
            raise NotUnderstood(f"an operand is {dtype}")
        return dtype

    def weight(self, node: fx.Node, is_turned: bool = False) -> _core.Value:
        """The weight of a product. `is_turned`: the node is its transpose."""
        value = value_of(node)
        if node in self.known or value.dim() != 2:
            raise NotUnderstood("a GEMM's weight is computed, or is not a matrix")
        shape = tuple(layouts.number(size) for size in value.shape)
        return self._input(node, Source("turned" if is_turned else "as it is"),
                           self.graph.parameter, shape[::-1] if is_turned else shape,
                           _name(value.dtype))

    def index(self, node: fx.Node, within: tuple[int, int | None]) -> _core.Value:
        value = value_of(node)
        if value.dtype not in (torch.int64, torch.int32):
            raise NotUnderstood(f"indices of {value.dtype}")
        self.require_rows(math.prod(value.shape))
        return self._input(node, Source("index", within=within), self.graph.table, ("M", 1), "i32")

    def operand(self, node: Any, whole: fx.Node | None = None) -> Imported:
        """A value or an input of the region, as the operation with the result `whole` reads it;
        without `whole`, in its own layout."""
        if floats.is_changing(node):
            return Imported(torch.float32, self._input(
                node, Source("as it is"), self.graph.parameter, (1, 1), "f32"))
        number = node.meta.get("val") if isinstance(node, fx.Node) else node
        if isinstance(number, (int, float, torch.SymFloat)):
            return Number(float(number))
        shape = value_of(node).shape
        if whole is None:
            layout, sizes = layouts.or_plain(node), shape
        else:
            layout, sizes = layouts.or_plain(whole), value_of(whole).shape
        if node not in self.known:
            return self._outside(node, layout, sizes, whole)
        made = self.known[node]
        return self._over_columns(made, layouts.or_plain(node), layout, sizes)

    def _over_columns(self, made: Imported, own: str, layout: str, sizes: Sequence[Any]
                      ) -> Imported:
        """Repeats a value that has only some of the column dimensions over all of them."""
        columns = [i for i, kind in enumerate(layout) if kind == "c"]
        shift = len(layout) - len(own)
        has = [i >= shift and own[i - shift] == "c" for i in columns]
        if not any(has) or all(has):
            return made
        missing = math.prod(layouts.number(sizes[i]) for i, there in zip(columns, has) if not there)
        if has == sorted(has, reverse=True):
            return Imported(made.dtype, b.group_repeat(made.value, missing))
        if has == sorted(has):
            return Imported(made.dtype, b.repeat_columns(made.value, missing))
        raise NotUnderstood("a value is repeated along columns")

    def _outside(self, node: fx.Node, layout: str, sizes: Sequence[Any], whole: fx.Node | None
                 ) -> Imported:
        value = value_of(node)
        if self._device not in (None, value.device):
            raise NotUnderstood("its operands are on several devices")
        self._device = value.device
        rounded, declare = None, self.graph.input
        if value.dtype == torch.bool:
            dtype, declare = torch.bool, self.graph.table
        elif value.dtype in _INTEGERS and whole is not None and value_of(whole).dtype in _FLOATS:
            rounded = dtype = value_of(whole).dtype  # PyTorch converts it to this type
        else:
            dtype = self.dtype_of(node)
        shift = len(layout) - value.dim()
        dims = {kind: [i for i in range(value.dim())
                       if layout[i + shift] == kind and not layouts.is_one(value.shape[i])]
                for kind in "rc"}
        columns = math.prod(layouts.number(value.shape[i]) for i in dims["c"])
        order = tuple(dims["r"] + dims["c"])
        own = "".join(layout[i + shift] if i in order else "1" for i in range(value.dim()))
        if not dims["r"]:
            is_row = value.dim() < 2 and rounded is None
            source = (Source("as it is") if is_row
                      else Source("matrix", order, columns, None, rounded))
            made = self._input(
                node, source, self.graph.parameter if declare == self.graph.input else declare,
                (1, columns), _name(dtype))
            return self._over_columns(Imported(dtype, made), own, layout, sizes)
        rows = [i - shift for i, kind in enumerate(layout) if kind == "r"]
        heads = [i - shift for i, kind in enumerate(layout) if kind == "c"]
        if rows == dims["r"] and (not dims["c"] or heads[:len(dims["c"])] == dims["c"]):
            self.require_rows(math.prod(value.shape[i] for i in rows), node)
            if self._may_narrow and columns > 1 and dtype == torch.float32 and (
                    self._products not in (None, dtype)) and self._is_rounded(node):
                rounded = dtype = self._products
            source = Source("matrix", order, columns if dims["c"] else 0, dtype=rounded)
            made = self._input(node, source, declare, ("M", columns if dims["c"] else 1),
                               _name(dtype))
            return self._over_columns(Imported(dtype, made), own, layout, sizes)
        return self._table(node, dtype, rounded, layout, sizes, dims, shift)

    def _is_rounded(self, node: fx.Node) -> bool:
        """Whether an fp32 operand is rounded to the products' type when it is read. So are tensors
        with a gradient, which are autocast's residual stream, and tensors that the region only
        converts to this type. Other tensors are data or random numbers: the difference of two large
        numbers, for example, would be lost."""
        return node.meta.get(NEEDS) or all(
            user.target is torch.ops.aten.to.dtype and user.args[1] is self._products
            for user in node.users)

    def _table(self, node: fx.Node, dtype: torch.dtype, rounded: torch.dtype | None, layout: str,
               sizes: Sequence[Any], dims: Mapping[str, list[int]], shift: int) -> Imported:
        """A tensor that is broadcast along rows, or whose columns are the same for all heads. Rows
        gather it by an index; the adjoint of the gather sums the gradients of all rows that read
        it."""
        value = value_of(node)
        rows = [i - shift for i, kind in enumerate(layout) if kind == "r"]
        heads = [i - shift for i, kind in enumerate(layout) if kind == "c"]
        count = len(dims["r"])
        is_last, is_first = rows[-count:] == dims["r"], rows[:count] == dims["r"]
        if not is_last and not is_first or len(dims["c"]) > 1 or (
                dims["c"] and heads[-1:] != dims["c"]):
            raise NotUnderstood("a tensor is broadcast along rows")
        columns = math.prod(layouts.number(value.shape[i]) for i in dims["c"])
        others = math.prod(layouts.number(sizes[i + shift]) for i in heads[:-1]) if dims["c"] else 1
        order = tuple(dims["r"] + dims["c"])
        needs, read_rows = node.meta.get(NEEDS), math.prod(value.shape[i] for i in dims["r"])
        if needs and not isinstance(read_rows, int):
            raise NotUnderstood("a tensor with a gradient is broadcast along rows that vary")
        size = read_rows if needs else f"P{len(self.inputs)}"  # the backward has no table sizes
        declare = self.graph.parameter if needs else self.graph.table

        def read(half: int | None) -> _core.Value:
            if half is not None and node.meta.get(EQUAL_HALVES):
                half = 0
            table = self._input(
                node, Source("table", order, columns, half, rounded), declare,
                (size, columns if half is None else columns // 2), _name(dtype))
            positions = self._input(node, Source("positions" if is_last else "groups", order,
                                                 columns), self.graph.table, ("M", 1), "i32")
            return b.gather_rows(table, positions)

        return Table(dtype, read, others, columns) if dims["c"] else Imported(dtype, read(None))

    def add(self, node: fx.Node) -> None:
        rule = RULES.get(node.target)
        if rule is None:
            raise NotUnderstood(f"there is no rule for {node.target}")
        made = value_of(node)
        if made.dtype not in (*_FLOATS, torch.bool):
            raise NotUnderstood(f"its result has the type {made.dtype}")
        layout = layouts.layout_of(node)
        node.meta[layouts.KEY] = layout
        found = rule(self, node)
        self.known[node] = found if isinstance(found, Imported) else Imported(made.dtype, found)
        if "r" in layout:
            self.require_rows(layouts.count(layout, made.shape, "r"))


def _name(dtype: torch.dtype) -> str:
    return _tensors.torch_dtypes()[dtype]
