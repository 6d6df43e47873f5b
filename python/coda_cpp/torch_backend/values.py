# SPDX-License-Identifier: Apache-2.0
"""Values of a region, and the ways in which a region reads PyTorch's tensors.

A value that consists of halves of heads (a rotation) is represented by its halves, and values that
are combined with it are split into halves too. So both members of a pair are computed in one tile.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from coda_cpp import _core
from coda_cpp import builders as b
from coda_cpp._operators import is_checking

EQUAL_HALVES = "coda_equal_halves"  # in a node's meta


class Imported:
    """A value, and the narrowest type that it has been rounded to since it was computed."""

    def __init__(self, dtype: torch.dtype, value: _core.Value | None = None) -> None:
        self.dtype = dtype
        self._value = value
        self._halves: dict[tuple[int, int], _core.Value] = {}

    @property
    def value(self) -> _core.Value:
        if self._value is None:
            self._value = self._make()
        return self._value

    @property
    def group(self) -> int | None:
        """The number of columns of a head, if the value consists of halves of heads."""
        return None

    @property
    def is_pushed(self) -> bool:
        """Whether a half of the value is computed from halves of its operands."""
        return self.group is not None

    def half(self, group: int, which: int) -> _core.Value:
        if (group, which) not in self._halves:
            self._halves[group, which] = self._make_half(group, which)
        return self._halves[group, which]

    def _make(self) -> _core.Value:
        raise NotImplementedError

    def _make_half(self, group: int, which: int) -> _core.Value:
        if self.value.shape[1] == 1:
            return self.value
        return b.split_pair(self.value, group, which)


class Number(Imported):
    def __init__(self, number: float) -> None:
        super().__init__(torch.float32)
        self._number = number

    @property
    def value(self) -> Any:
        return self._number

    def _make_half(self, group: int, which: int) -> Any:
        return self._number


class Pair(Imported):
    """Two halves of each `group` columns, side by side."""

    def __init__(self, dtype: torch.dtype, halves: Sequence[Imported], group: int) -> None:
        super().__init__(dtype)
        self._members, self._group = halves, group

    @property
    def group(self) -> int | None:
        return self._group

    def _make(self) -> _core.Value:
        return b.merge_pairs(*(member.value for member in self._members), self._group)

    def _make_half(self, group: int, which: int) -> _core.Value:
        if group == self._group:
            return self._members[which].value
        return super()._make_half(group, which)


class Computed(Imported):
    """An elementwise operation."""

    def __init__(self, dtype: torch.dtype, name: str, operands: Sequence[Imported]) -> None:
        super().__init__(dtype)
        self._name, self._operands = name, operands

    @property
    def group(self) -> int | None:
        return next((o.group for o in self._operands if o.group is not None), None)

    @property
    def is_pushed(self) -> bool:
        return any(operand.is_pushed for operand in self._operands)

    def _make(self) -> _core.Value:
        group = self.group
        if group is not None:
            return b.merge_pairs(self.half(group, 0), self.half(group, 1), group)
        return b.elementwise(self._name, [operand.value for operand in self._operands])

    def _make_half(self, group: int, which: int) -> _core.Value:
        if self.is_pushed:
            return b.elementwise(
                self._name, [operand.half(group, which) for operand in self._operands])
        return super()._make_half(group, which)


def permuted(tensor: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """The permuted tensor. An identity permutation creates no view, because PyTorch would trace and
    compile it."""
    return tensor if list(order) == list(range(tensor.dim())) else tensor.permute(order)


def with_ones(order: Sequence[int], rank: int) -> list[int]:
    """The order of all dimensions, of which the given ones have other sizes than 1. Dimensions of
    size 1 stay in their places if the others do, so their strides are those of PyTorch."""
    if list(order) == sorted(order):
        return list(range(rank))
    return [*order, *(i for i in range(rank) if i not in order)]


@dataclasses.dataclass(frozen=True)
class Source:
    """How a region reads a tensor."""

    form: str  # "as it is", "turned", "matrix", "index", "table", "positions", "groups"
    order: tuple[int, ...] = ()  # of the tensor's dimensions, rows first, without sizes of 1
    columns: int = 0
    half: int | None = None  # which half of a table's columns
    dtype: torch.dtype | None = None  # the type to which it is rounded
    within: tuple[int, int | None] | None = None  # indices: upper bound, ignored index

    def read(self, tensor: torch.Tensor, rows: Any) -> torch.Tensor:
        if self.form == "index":
            if self.within is not None and (tensor.device.type == "cpu" or is_checking()):
                size, ignored = self.within
                is_right, besides = (tensor >= 0) & (tensor < size), ""
                if ignored is not None:
                    is_right, besides = is_right | (tensor == ignored), f" and is not {ignored}"
                torch._assert_async(is_right.all(), f"backend coda: a target lies outside of "
                                                    f"[0, {size}){besides}")
            if tensor.dtype == torch.int32:
                return tensor
            return tensor.clamp(-2**31, 2**31 - 1).to(torch.int32)
        if self.form == "as it is":
            return tensor
        if self.form == "turned":
            return tensor.t()
        if self.form in ("positions", "groups"):  # indices into the tensor as a table
            count = tensor.numel() // self.columns
            index = torch.arange(count, dtype=torch.int32, device=tensor.device)
            if self.form == "positions":  # consecutive rows read consecutive rows of the table
                return index.repeat(rows // count)
            return index.unsqueeze(1).expand(count, rows // count).reshape(-1)
        matrix = self._matrix(tensor)
        if self.dtype is not None and self.dtype != matrix.dtype:
            matrix = matrix.to(self.dtype)
        if self.half is None:
            return matrix
        middle = self.columns // 2
        return matrix[:, middle:] if self.half else matrix[:, :middle]

    def _matrix(self, tensor: torch.Tensor) -> torch.Tensor:
        turned = permuted(tensor, with_ones(self.order, tensor.dim()))
        if not self.columns:
            return turned if turned.dim() == 1 else turned.reshape(-1)
        count = turned.shape[1] if turned.dim() == 2 else None
        is_there = isinstance(count, int) and count == self.columns
        return turned if is_there else turned.reshape(-1, self.columns)


class Rounded(Imported):
    """The same value, rounded to a narrower type where it is stored."""

    def __init__(self, dtype: torch.dtype, of: Imported) -> None:
        super().__init__(dtype)
        self._of = of

    @property
    def group(self) -> int | None:
        return self._of.group

    @property
    def is_pushed(self) -> bool:
        return self._of.is_pushed

    def _make(self) -> _core.Value:
        return self._of.value

    def _make_half(self, group: int, which: int) -> _core.Value:
        return self._of.half(group, which)


class Table(Imported):
    """A tensor that is not differentiated. Each row of the region reads one of its rows, which all
    heads share. `read(half)` is the part that a row reads."""

    def __init__(self, dtype: torch.dtype, read: Any, heads: int, columns: int) -> None:
        super().__init__(dtype)
        self._read, self._heads, self._columns = read, heads, columns

    @property
    def is_pushed(self) -> bool:
        return True

    def _make(self) -> _core.Value:
        return b.repeat_columns(self._read(None), self._heads)

    def _make_half(self, group: int, which: int) -> _core.Value:
        if group != self._columns:
            return super()._make_half(group, which)
        return b.repeat_columns(self._read(which), self._heads)


def has_equal_halves(node: fx.Node) -> bool:
    """Whether the operation that computes the node makes both halves of the last dimension
    equal."""
    aten = torch.ops.aten
    plain = {aten.cos.default, aten.sin.default, aten.to.dtype, aten._to_copy.default,
             aten.neg.default, aten.unsqueeze.default, aten.alias.default,
             aten.contiguous.default, aten.type_as.default}
    while isinstance(node, fx.Node):
        if node.op != "call_function":
            return bool(node.meta.get(EQUAL_HALVES))
        last = node.meta["val"].dim() - 1
        if node.target is aten.cat.default:
            parts = node.args[0]
            dim = node.args[1] if len(node.args) > 1 else 0
            return len(parts) == 2 and parts[0] is parts[1] and dim in (-1, last)
        scaled = node.target is aten.mul.Tensor and not isinstance(node.args[1], fx.Node)
        if node.target is aten.unsqueeze.default and node.args[1] in (-1, last):
            return False
        if node.target not in plain and not scaled:
            return False
        node = node.args[0]
    return False
