# SPDX-License-Identifier: Apache-2.0
"""What a function over tiles is written in: it is called once, with stand-ins for its tensors, and
what it does is written down as a program (docs/program-text.md says what each means).

    @coda_cpp.program
    def scaled(x: "[M, K]", w: "[N, K]", r: "[M]"):
        return tiles.silu(tiles.gemm(x, w) * tiles.per_row(r))
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from coda_cpp._core import Error

_ELEMENTWISE = ("add", "sub", "mul", "div", "neg", "max", "min", "equal", "less", "less_equal",
                "not_equal", "select", "exp", "log", "rsqrt", "sqrt", "recip", "sigmoid", "tanh",
                "erf", "abs", "random", "relu", "silu", "gelu", "gelu_tanh")


class Trace:
    """The lines of a program that is being written."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.products: set[str] = set()  # tensors that products read
        self.count = 0

    def value(self, text: str) -> Tile:
        name = f"value_{self.count}"
        self.count += 1
        self.lines.append(f"  {name} = {text}")
        return Tile(self, name)


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A stand-in for a tensor: what is loaded of it is a value."""

    trace: Trace
    name: str
    text: str  # with shape and type


class Tile:
    """A value of a program: a tile, a vector or a scalar, which broadcast in + - * /."""

    def __init__(self, trace: Trace, text: str) -> None:
        self.trace, self.text = trace, text

    def __add__(self, other: Operand) -> Tile:
        return elementwise("add", self, other)

    def __radd__(self, other: float) -> Tile:
        return elementwise("add", other, self)

    def __sub__(self, other: Operand) -> Tile:
        return elementwise("sub", self, other)

    def __rsub__(self, other: float) -> Tile:
        return elementwise("sub", other, self)

    def __mul__(self, other: Operand) -> Tile:
        return elementwise("mul", self, other)

    def __rmul__(self, other: float) -> Tile:
        return elementwise("mul", other, self)

    def __truediv__(self, other: Operand) -> Tile:
        return elementwise("div", self, other)

    def __rtruediv__(self, other: float) -> Tile:
        return elementwise("div", other, self)

    def __neg__(self) -> Tile:
        return elementwise("neg", self)

    # Comparisons are 1 or 0; for == and != there are equal and not_equal.
    def __lt__(self, other: Operand) -> Tile:
        return elementwise("less", self, other)

    def __le__(self, other: Operand) -> Tile:
        return elementwise("less_equal", self, other)

    def __gt__(self, other: Operand) -> Tile:
        return elementwise("less", other, self)

    def __ge__(self, other: Operand) -> Tile:
        return elementwise("less_equal", other, self)

    def __abs__(self) -> Tile:
        return elementwise("abs", self)

    def __bool__(self) -> bool:
        raise Error("a tile has no truth value while its program is written: use tiles.select")


Operand = Tile | float


@dataclasses.dataclass(frozen=True)
class Reduced:
    """A reduction of each row or column of a value, which a function returns: partial sums in the
    epilogue, combined by a program of their own."""

    value: Tile
    by_row: bool
    kind: str


def _trace_of(operands: Sequence[Any]) -> Trace:
    for operand in operands:
        if isinstance(operand, Tensor):
            raise Error(f"'{operand.name}' is a tensor; load it by tile, per_row, per_column or "
                        "scalar")
    for operand in operands:
        if isinstance(operand, Tile):
            return operand.trace
    raise Error("give at least one value of a tile")


def _text(operand: Operand) -> str:
    return operand.text if isinstance(operand, Tile) else repr(float(operand))


def elementwise(name: str, *operands: Operand) -> Tile:
    """The operation of that name of values and numbers."""
    if name not in _ELEMENTWISE:
        raise Error(f"there is no elementwise operation '{name}'; there are "
                    + ", ".join(_ELEMENTWISE))
    trace = _trace_of(operands)
    return trace.value(f"{name}({', '.join(_text(operand) for operand in operands)})")


def _loaded(how: str, tensor: Tensor, more: str = "") -> Tile:
    if not isinstance(tensor, Tensor):
        raise Error(f"{how}: give one of the function's tensors")
    return tensor.trace.value(f"{how}({tensor.text}{more})")


def gemm(a: Tensor, b: Tensor, layout: str = "") -> Tile:
    """The product along the dimension that both have; where they have more in common, layout says
    which: "nn", "nt", "tn" or "tt" (t: stored transposed)."""
    for tensor in (a, b):
        if not isinstance(tensor, Tensor):
            raise Error("gemm: give two of the function's tensors")
        tensor.trace.products.add(tensor.name)
    return _loaded("gemm", a, f", {b.text}" + (f", {layout}" if layout else ""))


def tile(tensor: Tensor, rows: Tensor | None = None, repeat: int = 1) -> Tile:
    """A stored matrix; rows: row i is row rows[i] (an i32 vector); repeat: side by side."""
    more = f", rows={rows.text}" if rows is not None else ""
    return _loaded("tile", tensor, more + (f", repeat={repeat}" if repeat != 1 else ""))


def per_row(tensor: Tensor) -> Tile:
    """A vector with a value for each row."""
    return _loaded("per_row", tensor)


def per_column(tensor: Tensor, repeat: int = 1) -> Tile:
    """A vector with a value for each column; repeat: side by side, as a weight of each head."""
    return _loaded("per_column", tensor, f", repeat={repeat}" if repeat != 1 else "")


def scalar(tensor: Tensor) -> Tile:
    return _loaded("scalar", tensor)


def split_pairs(value: Tile, pairs: str | int) -> tuple[Tile, Tile]:
    """Members of pairs of columns: "concatenated" (j and N/2 + j), "interleaved" (2j and 2j + 1),
    or halves of each so many columns. Use both."""
    trace = _trace_of([value])
    first, second = f"value_{trace.count}", f"value_{trace.count + 1}"
    trace.count += 2
    trace.lines.append(f"  {first}, {second} = split_pairs({value.text}, {pairs})")
    return Tile(trace, first), Tile(trace, second)


def merge_pairs(first: Tile, second: Tile, pairs: str | int) -> Tile:
    """The inverse of split_pairs."""
    return _trace_of([first]).value(f"merge_pairs({first.text}, {second.text}, {pairs})")


def reduce_group(value: Tile, group: int) -> Tile:
    """Sums over each `group` columns."""
    return _trace_of([value]).value(f"reduce_group({value.text}, {group})")


def repeat_group(value: Tile, group: int) -> Tile:
    """Each column `group` times."""
    return _trace_of([value]).value(f"repeat_group({value.text}, {group})")


def select_column(value: Tile, index: Tile) -> Tile:
    """value[i, index[i]] of each row, 0 where there is no such column; can only be returned."""
    return _trace_of([value]).value(f"select_column({value.text}, {index.text})")


def row_sum(value: Tile) -> Reduced:
    """The sum of each row, which the function returns."""
    return Reduced(value, True, "sum")


def column_sum(value: Tile) -> Reduced:
    return Reduced(value, False, "sum")


def row_max(value: Tile) -> Reduced:
    return Reduced(value, True, "max")


def select(condition: Tile, a: Operand, b: Operand) -> Tile:
    """a where the condition is not 0, else b."""
    return elementwise("select", condition, a, b)


def maximum(a: Operand, b: Operand) -> Tile:
    return elementwise("max", a, b)


def minimum(a: Operand, b: Operand) -> Tile:
    return elementwise("min", a, b)


def equal(a: Operand, b: Operand) -> Tile:
    """1 or 0."""
    return elementwise("equal", a, b)


def less(a: Operand, b: Operand) -> Tile:
    """a < b: 1 or 0."""
    return elementwise("less", a, b)


def less_equal(a: Operand, b: Operand) -> Tile:
    """a <= b: 1 or 0."""
    return elementwise("less_equal", a, b)


def not_equal(a: Operand, b: Operand) -> Tile:
    """1 or 0."""
    return elementwise("not_equal", a, b)


def random(seed: Operand, row: Operand, column: Operand) -> Tile:
    """In [0, 1), the same for the same three whole numbers: a mask of dropout that the backward
    makes again."""
    return elementwise("random", seed, row, column)


def relu(x: Tile) -> Tile:
    return elementwise("relu", x)


def exp(x: Tile) -> Tile:
    return elementwise("exp", x)


def log(x: Tile) -> Tile:
    return elementwise("log", x)


def rsqrt(x: Tile) -> Tile:
    return elementwise("rsqrt", x)


def sqrt(x: Tile) -> Tile:
    return elementwise("sqrt", x)


def recip(x: Tile) -> Tile:
    return elementwise("recip", x)


def sigmoid(x: Tile) -> Tile:
    return elementwise("sigmoid", x)


def tanh(x: Tile) -> Tile:
    return elementwise("tanh", x)


def erf(x: Tile) -> Tile:
    return elementwise("erf", x)


def silu(x: Tile) -> Tile:
    return elementwise("silu", x)


def gelu(x: Tile) -> Tile:
    """Exact, by erf."""
    return elementwise("gelu", x)


def gelu_tanh(x: Tile) -> Tile:
    return elementwise("gelu_tanh", x)
