# SPDX-License-Identifier: Apache-2.0
"""The operations for functions over tiles. Such a function is called once, with placeholders for
its tensors, and the calls are traced as a program (docs/program-text.md defines each operation).

    @coda_cpp.program
    def scaled(x: "[M, K]", w: "[N, K]", r: "[M]"):
        return tiles.silu(tiles.gemm(x, w) * tiles.per_row(r))

The returned values are stored. `write_program` is for functions that store by effects, as the text
of programs does: they may be finalizers, and may use the whole language.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from coda_cpp import _core
from coda_cpp._core import Error

_SHAPE = re.compile(r"\[([^\],]+)(?:,([^\],]+))?\](?::(\w+))?|(scalar)")


class Trace:
    """The lines of a program that is being traced."""

    current: Trace | None = None  # of the function that is being called

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.products: set[str] = set()  # tensors that products read
        self.count = 0

    def call(self, function: Callable[..., Any], arguments: Sequence[Tensor]) -> Any:
        before, Trace.current = Trace.current, self
        try:
            return function(*arguments)
        finally:
            Trace.current = before

    def value(self, text: str) -> Tile:
        name = f"value_{self.count}"
        self.count += 1
        self.lines.append(f"  {name} = {text}")
        return Tile(self, name)


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A placeholder for a tensor. Loads such as tile() give values."""

    trace: Trace
    name: str
    text: str  # with shape and type


@dataclasses.dataclass(frozen=True)
class Annotation:
    """A function's annotation of a tensor argument: "[M, K]", "[M]:i32" or "scalar"."""

    name: str
    shape: str  # with its brackets; empty: a scalar
    dtype: str  # empty: not given
    is_matrix: bool


def annotations_of(function: Callable[..., Any]) -> Iterator[Annotation]:
    shapes = inspect.get_annotations(function)
    for parameter in inspect.signature(function).parameters:
        text = str(shapes.get(parameter, "")).strip("\"' ")  # annotations may be quoted twice
        match = _SHAPE.fullmatch(text)
        if match is None:
            raise Error(f"{function.__name__}: argument '{parameter}' needs a shape as its "
                        'annotation: "[M, K]", "[M]", "[M]:i32" or "scalar"')
        shape = "" if match[4] else text.partition(":")[0]
        yield Annotation(parameter, shape, match[3] or "", bool(match[2]))


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

    # Comparisons give 1 or 0. Use equal and not_equal for == and !=.
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
    """A reduction of each row or column of a value, which a function may return. The epilogue
    stores partials, and a second program combines them."""

    value: Tile
    by_row: bool
    kind: str
    result: str = ""  # which result, if the kind has several


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
    """Applies the elementwise operation with this name to values and numbers."""
    known = _core.language()["operations"]
    if name not in known:
        raise Error(f"there is no elementwise operation '{name}'; there are " + ", ".join(known))
    trace = _trace_of(operands)
    return trace.value(f"{name}({', '.join(_text(operand) for operand in operands)})")


def _loaded(how: str, tensor: Tensor, more: str = "") -> Tile:
    if not isinstance(tensor, Tensor):
        raise Error(f"{how}: give one of the function's tensors")
    return tensor.trace.value(f"{how}({tensor.text}{more})")


class Scaled:
    """An operand of a product with its scales."""

    def __init__(self, tensor: Tensor, scales: Tensor) -> None:
        self.trace, self.name = tensor.trace, tensor.name
        self.text = f"scaled({tensor.text}, {scales.text})"


def scaled(tensor: Tensor, scales: Tensor) -> Scaled:
    """An 8-bit operand of gemm, [rows, K], with a scale for each 128 elements of a row (scales
    [rows, K / 128]) or for each block of 128 x 128 ([rows / 128, K / 128])."""
    if not (isinstance(tensor, Tensor) and isinstance(scales, Tensor)):
        raise Error("scaled: give two of the function's tensors")
    return Scaled(tensor, scales)


def gemm(a: Tensor | Scaled, b: Tensor | Scaled, layout: str = "") -> Tile:
    """The product, which contracts the dimension that both operands have. If they share more than
    one dimension, give the layout: "nn", "nt", "tn" or "tt" (t: stored transposed)."""
    return gemm_sum((a, b, layout))


def gemm_sum(*products: tuple[Any, ...]) -> Tile:
    """The sum of products (a, b) or (a, b, layout), in one GEMM."""
    texts = []
    for a, b, *layout in products:
        for operand in (a, b):
            if not isinstance(operand, (Tensor, Scaled)):
                raise Error("gemm: give two of the function's tensors")
            operand.trace.products.add(operand.name)
        texts.append(", ".join([a.text, b.text, *filter(None, layout)]))
    if not texts:
        raise Error("gemm_sum: give at least one product")
    return products[0][0].trace.value(f"gemm({'; '.join(texts)})")


def tile(tensor: Tensor, rows: Tensor | None = None, repeat: int | str = 1) -> Tile:
    """Loads a stored matrix. With rows (an i32 vector) row i is row rows[i] of the tensor. repeat:
    the number of copies side by side, which may be a symbol ("H")."""
    more = f", rows={rows.text}" if rows is not None else ""
    return _loaded("tile", tensor, more + (f", repeat={repeat}" if repeat != 1 else ""))


def per_row(tensor: Tensor) -> Tile:
    """A vector with a value for each row."""
    return _loaded("per_row", tensor)


def per_column(tensor: Tensor, repeat: int | str = 1) -> Tile:
    """A vector with a value for each column. repeat: the number of copies side by side, for example
    one for each head."""
    return _loaded("per_column", tensor, f", repeat={repeat}" if repeat != 1 else "")


def scalar(tensor: Tensor) -> Tile:
    return _loaded("scalar", tensor)


def column_index(columns: str | int = "") -> Tile:
    """0, 1, ..., columns - 1 along the columns. Without `columns` the number follows from the value
    that it is combined with."""
    return _current("column_index").value(f"column_index({columns})")


def size(of: str | int) -> Tile:
    """The value of a size when the program runs, for arithmetic: size("N"), size("2*I + 4")."""
    return _current("size").value(f"size({of})")


def as_stored(value: Tile, dtype: str) -> Tile:
    """The value, rounded as by a store to this type."""
    return _trace_of([value]).value(f"as_stored({value.text}, {dtype})")


def constants(*tensors: Tensor) -> None:
    """Declares tensors that have no gradient."""
    _current("constants").lines.append(
        f"  constants({', '.join(tensor.name for tensor in tensors)})")


def split_pairs(value: Tile, pairs: str | int) -> tuple[Tile, Tile]:
    """Members of pairs of columns: "concatenated" (j and N/2 + j), "interleaved" (2j and 2j + 1),
    or a number g: columns j and g/2 + j of each group of g columns. Use both members."""
    trace = _trace_of([value])
    first, second = f"value_{trace.count}", f"value_{trace.count + 1}"
    trace.count += 2
    trace.lines.append(f"  {first}, {second} = split_pairs({value.text}, {pairs})")
    return Tile(trace, first), Tile(trace, second)


def merge_pairs(first: Tile, second: Tile, pairs: str | int) -> Tile:
    """The inverse of split_pairs."""
    return _trace_of([first]).value(f"merge_pairs({first.text}, {second.text}, {pairs})")


def reduce_group(value: Tile, group: int | str) -> Tile:
    """Sums over each `group` columns."""
    return _trace_of([value]).value(f"reduce_group({value.text}, {group})")


def abs_max_group(value: Tile, group: int | str) -> Tile:
    """The largest magnitude of each `group` columns."""
    return _trace_of([value]).value(f"abs_max_group({value.text}, {group})")


def repeat_group(value: Tile, group: int | str) -> Tile:
    """Each column `group` times."""
    return _trace_of([value]).value(f"repeat_group({value.text}, {group})")


def select_column(value: Tile, index: Tile) -> Tile:
    """value[i, index[i]] of each row i, or 0 if there is no such column. The result can only be
    returned or stored."""
    return _trace_of([value]).value(f"select_column({value.text}, {index.text})")


def row_reduction(value: Tile, kind: str, result: str = "") -> Reduced:
    """A reduction of each row, for the function to return: "sum", "max", "abs_max" (the largest
    magnitude), "log_sum_exp", "mean_m2" or "entropy". The last three have several results, and
    `result` selects one ("log_sum_exp", "max", "log_sum"; "mean", "m2"; "entropy", and those of
    "log_sum_exp")."""
    return Reduced(value, True, kind, result)


def column_reduction(value: Tile, kind: str, result: str = "") -> Reduced:
    """Like row_reduction, for each column."""
    return Reduced(value, False, kind, result)


def row_sum(value: Tile) -> Reduced:
    return row_reduction(value, "sum")


def column_sum(value: Tile) -> Reduced:
    return column_reduction(value, "sum")


def row_max(value: Tile) -> Reduced:
    return row_reduction(value, "max")


def row_abs_max(value: Tile) -> Reduced:
    return row_reduction(value, "abs_max")


def row_log_sum_exp(value: Tile) -> Reduced:
    """log(sum(exp(value))) of each row."""
    return row_reduction(value, "log_sum_exp", "log_sum_exp")


def row_mean(value: Tile) -> Reduced:
    return row_reduction(value, "mean_m2", "mean")


def row_squared_deviations(value: Tile) -> Reduced:
    """The sum of (x - mean)² of each row."""
    return row_reduction(value, "mean_m2", "m2")


# ---- Only for write_program: effects, and the values of finalizers.


def store(tensor: Tensor | str, value: Tile) -> None:
    """Stores in a new tensor, "y:bf16", or in one of the function's tensors."""
    _effect("store", tensor, value.text)


def store_transposed(tensor: Tensor | str, value: Tile) -> None:
    _effect("store_transposed", tensor, value.text)


def abs_max_into(scalar: Tensor | str, value: Tile) -> None:
    """Sets the scalar to the maximum of itself and the largest magnitude of the value."""
    _effect("abs_max_into", scalar, value.text)


def row_partial(tensor: str, kind: str, value: Tile) -> None:
    """Reduces each row to one partial for each 64 columns."""
    _effect("row_partial", tensor, f"{kind}({value.text})")


def column_partial(tensor: str, kind: str, value: Tile) -> None:
    _effect("column_partial", tensor, f"{kind}({value.text})")


def combine_rows(kind: str, partial: Tensor, result: str = "") -> Tile:
    """The reduction of each row, from its partials. `partial` has the shape of the reduced
    value."""
    return partial.trace.value(f"combine_rows({kind}({partial.text}){_more(result)})")


def combine_columns(kind: str, partial: Tensor, result: str = "") -> Tile:
    return partial.trace.value(f"combine_columns({kind}({partial.text}){_more(result)})")


def reduce_vector(value: Tile) -> Tile:
    """The sum of a vector."""
    return _trace_of([value]).value(f"reduce_vector({value.text})")


def transpose_vector(value: Tile) -> Tile:
    """Turns [1, M] into [M, 1], and [M, 1] into [1, M]."""
    return _trace_of([value]).value(f"transpose_vector({value.text})")


def _more(result: str) -> str:
    return f", {result}" if result else ""


def _current(what: str) -> Trace:
    if Trace.current is None:
        raise Error(f"{what}: call it in a function that becomes a program")
    return Trace.current


def _effect(word: str, tensor: Tensor | str, text: str) -> None:
    name = tensor.name if isinstance(tensor, Tensor) else tensor
    _current(word).lines.append(f"  {word}({name}, {text})")


def write_program(function: Callable[..., Any]) -> _core.Program:
    """Traces a function with effects as a program, with one line of text for each call.

        @tiles.write_program
        def residual(y: "[M, K]:bf16", w: "[N, K]:bf16", x0: "[M, N]:bf16"):
            x = tiles.gemm(y, w) + tiles.tile(x0)
            tiles.store("x:bf16", x)
            tiles.row_partial("squares", "sum", x * x)

    Raises Error, with the program's line, if the traced program is not valid.
    """
    trace = Trace()
    tensors = [Tensor(trace, given.name, given.name + given.shape
                      + (f":{given.dtype}" if given.dtype else ""))
               for given in annotations_of(function)]
    if trace.call(function, tensors) is not None:
        raise Error(f"{function.__name__}: stores by tiles.store, and returns nothing")
    lines = "\n".join(trace.lines)
    return _core.Program.parse(f"program {function.__name__} {{\n{lines}\n}}\n")


def select(condition: Tile, a: Operand, b: Operand) -> Tile:
    """a where the condition is not 0, else b."""
    return elementwise("select", condition, a, b)


where = select


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
    """A number in [0, 1) that depends only on the three whole numbers, so the backward can
    recompute the mask of dropout."""
    return elementwise("random", seed, row, column)


def stochastic_bf16(x: Tile, u: Operand) -> Tile:
    """x rounded to one of the two bf16 numbers around it. With u of random(...) the result is x on
    average."""
    return elementwise("stochastic_bf16", x, u)


def relu(x: Tile) -> Tile:
    return elementwise("relu", x)


def absolute(x: Tile) -> Tile:
    """The same as abs(x)."""
    return elementwise("abs", x)


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
    """Exact, with erf."""
    return elementwise("gelu", x)


def gelu_tanh(x: Tile) -> Tile:
    return elementwise("gelu_tanh", x)
