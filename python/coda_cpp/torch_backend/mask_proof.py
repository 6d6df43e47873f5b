# SPDX-License-Identifier: Apache-2.0
"""Proves facts about a mask from the operations that compute it, without reading values.

An integer tensor is described as an affine function of its coordinates (Affine) or as elements of
another tensor (Element), a boolean tensor as the set of coordinates where it is True (Where), and a
floating-point tensor of zeros and minus infinities as the set where it is 0. The least finite
number of a type, and numbers of -10^9 and less, count as minus infinity: scores that they are added
to get the weight 0, unless all scores of a row are hidden (padded_formula.py). A rule for each
operation describes its result, or raises Unproven. Nothing is known about the values of an integer
or boolean tensor without a description, but equal elements of it are equal.

The rules are sound because:
- A dimension of size 1 has only the coordinate 0, so it has no factor, also after broadcasting.
- An affine result must fit the tensor's type over all coordinates. Sums and products wrap modulo a
  power of two, so a result that fits is exact even if an operand wrapped before. Comparisons use
  the promoted type, so their operands must fit it.
- An index must lie within [0, size), or be negative everywhere, if PyTorch counts it from the end.
- A symbolic size may be any number in [1, 2^40]: an empty tensor has no wrong elements, and a
  longer tensor does not fit into memory. Two sizes with the same text are equal.
- Nothing is known about a tensor that is written in place, directly or through a view.

One fact is assumed: positions that increase by 1 from token to token, and the sums of a position
and a window, do not exceed the range of int64.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import fx

from coda_cpp.torch_backend.layout import is_one, same

_aten = torch.ops.aten
_LONGEST = 2**40
# What masks add to hidden scores: this or less, minus infinity, or the least finite number of a
# type, as Hugging Face's "eager".
_LARGE = -1e9
_CONVERSIONS = (_aten.to.dtype, _aten.to.dtype_layout, _aten.to.device, _aten._to_copy.default)
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class Unproven(Exception):
    """Nothing is known about the tensor."""


@dataclasses.dataclass(frozen=True)
class Affine:
    """The function constant + sum of factor * coordinate, with a factor for each dimension."""

    constant: int
    factors: tuple[int, ...] = ()

    def over(self, shape: Sequence[Any]) -> Affine:
        """The function after broadcasting to this shape."""
        factors = (0,) * (len(shape) - len(self.factors)) + self.factors
        return Affine(self.constant, tuple(
            0 if is_one(size) else factor for size, factor in zip(shape, factors, strict=True)))

    def mapped(self, change: Callable[[Affine], Affine]) -> Affine:
        return change(self)

    def plus(self, other: Affine, times: int = 1) -> Affine:
        dims = max(len(self.factors), len(other.factors))
        a, b = ((0,) * (dims - len(of.factors)) + of.factors for of in (self, other))
        return Affine(self.constant + times * other.constant,
                      tuple(x + times * y for x, y in zip(a, b)))

    @property
    def is_constant(self) -> bool:
        return not any(self.factors)

    def least(self, shape: Sequence[Any], more: Any = 0) -> int:
        """A lower bound of the function, plus the size `more`, over all coordinates of the
        shape."""
        sizes: collections.Counter[str] = collections.Counter()
        least = self.constant
        for factor, size in [*zip(self.factors, shape, strict=True), (None, more)]:
            times = 1 if factor is None else min(factor, 0)  # of the coordinate size - 1
            if isinstance(size, int):
                least += times * size
            else:
                sizes[str(size)] += times
            least -= 0 if factor is None else times
        return least + sum(times * (1 if times > 0 else _LONGEST) for times in sizes.values())

    def fits(self, dtype: torch.dtype, shape: Sequence[Any]) -> bool:
        if dtype.is_floating_point or dtype.is_complex or dtype == torch.bool:
            return False
        info = torch.iinfo(dtype)
        negated = Affine(0, ()).plus(self, -1)
        return self.least(shape) >= info.min and -negated.least(shape) <= info.max


@dataclasses.dataclass(frozen=True)
class Element:
    """The element of the tensor `base` with these coordinates, plus a constant."""

    base: fx.Node
    place: tuple[Affine, ...]
    constant: int = 0

    def over(self, shape: Sequence[Any]) -> Element:
        return self.mapped(lambda one: one.over(shape))

    def mapped(self, change: Callable[[Affine], Affine]) -> Element:
        return Element(self.base, tuple(map(change, self.place)), self.constant)


@dataclasses.dataclass(frozen=True)
class Order:
    """One element of a tensor is at most another element of the same tensor."""

    one: Element
    other: Element

    def over(self, shape: Sequence[Any]) -> Order:
        return self.mapped(lambda one: one.over(shape))

    def mapped(self, change: Callable[[Affine], Affine]) -> Order:
        return Order(self.one.mapped(change), self.other.mapped(change))


@dataclasses.dataclass(frozen=True)
class Truth:
    """An element of a boolean tensor is True."""

    one: Element

    def over(self, shape: Sequence[Any]) -> Truth:
        return self.mapped(lambda one: one.over(shape))

    def mapped(self, change: Callable[[Affine], Affine]) -> Truth:
        return Truth(self.one.mapped(change))


class Where(frozenset):
    """The set of coordinates at which all of these affine functions are at least 0, and all of
    these orders and truths hold."""

    def over(self, shape: Sequence[Any]) -> Where:
        return _all(_holds(one.over(shape)) for one in self)

    def __invert__(self) -> Where:
        if not self:
            return NOWHERE
        if len(self) > 1:
            raise Unproven
        (one,) = self
        if not isinstance(one, Affine):
            raise Unproven
        return at_least_0(Affine(-1).plus(one, -1))

    def both(self, other: Where) -> Where:
        return NOWHERE if NOWHERE in (self, other) else Where(self | other)

    def either(self, other: Where) -> Where:
        if EVERYWHERE in (self, other):
            return EVERYWHERE
        if self == NOWHERE or self == other:
            return other
        if other == NOWHERE:
            return self
        raise Unproven


EVERYWHERE = Where()
NOWHERE = Where({Affine(-1)})


def _all(parts: Iterable[Where]) -> Where:
    return functools.reduce(Where.both, parts, EVERYWHERE)


def at_least_0(of: Affine) -> Where:
    """The coordinates at which the function is at least 0. Functions with the same set get the same
    form."""
    if of.is_constant:
        return EVERYWHERE if of.constant >= 0 else NOWHERE
    divisor = math.gcd(*of.factors)
    return Where({Affine(of.constant // divisor, tuple(f // divisor for f in of.factors))})


def _at_most(one: Element, other: Element) -> Where:
    if one.base is not other.base:
        raise Unproven
    return EVERYWHERE if one == other else Where({Order(one, other)})


def _holds(one: Affine | Order | Truth) -> Where:
    if isinstance(one, Truth):
        return Where({one})
    return at_least_0(one) if isinstance(one, Affine) else _at_most(one.one, one.other)


class Prover:
    """The known facts about the tensors of a graph."""

    def __init__(self, written: Iterable[fx.Node] = ()) -> None:
        """`written`: tensors that are written in place."""
        self._known: dict[fx.Node, Affine | Element | Where | None] = dict.fromkeys(written)
        self._written = set(self._known)

    def is_written(self, node: fx.Node) -> bool:
        return node in self._written

    def of(self, node: Any) -> Affine | Element | Where:
        if isinstance(node, bool):
            return EVERYWHERE if node else NOWHERE
        if isinstance(node, int):
            return Affine(node)
        if isinstance(node, float):
            return _zero_or_less(node)
        if not isinstance(node, fx.Node):
            raise Unproven
        if node not in self._known:
            try:
                self._known[node] = self._find(node)
            except Unproven:
                self._known[node] = None
        found = self._known[node]
        if found is None:
            raise Unproven
        return found

    def affine(self, node: Any) -> Affine:
        """The function of an integer tensor, or of a boolean tensor that is constant."""
        found = self.of(node)
        if found in (EVERYWHERE, NOWHERE) and _dtype(node) == torch.bool:
            return Affine(int(found == EVERYWHERE))
        if not isinstance(found, Affine):
            raise Unproven
        return found

    def where(self, node: Any) -> Where:
        """The set of a boolean tensor, or of a tensor of zeros and minus infinities."""
        found = self.of(node)
        if isinstance(found, Where):
            return found
        raise Unproven

    def _find(self, node: fx.Node) -> Affine | Element | Where:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            raise Unproven
        try:
            return self._derived(node, value)
        except Unproven:
            if value.dtype == torch.bool:
                return Where({Truth(whole(node))})
            if value.dtype not in _INTEGERS:
                raise
            return whole(node)

    def _derived(self, node: fx.Node, value: torch.Tensor) -> Affine | Element | Where:
        name, given = _called(node)
        rule = _RULES.get(name)
        if rule is None:
            raise Unproven
        found = rule(self, value, given).over(value.shape)
        if isinstance(found, Affine) and not found.fits(value.dtype, value.shape):
            raise Unproven
        return found


def _called(node: fx.Node) -> tuple[str, dict[str, Any]]:
    """The name of the operation, and its arguments."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        raise Unproven
    schema = node.target._schema
    given = {argument.name: argument.default_value for argument in schema.arguments}
    return schema.name.removeprefix("aten::"), given | dict(zip(given, node.args)) | node.kwargs


def whole(node: fx.Node) -> Element:
    """The tensor as elements of itself."""
    shape = node.meta["val"].shape
    return Element(node, tuple(Affine(0, tuple(int(i == j) for j in range(len(shape))))
                               for i in range(len(shape)))).over(shape)


def _dtype(operand: Any) -> torch.dtype | None:
    if isinstance(operand, fx.Node):
        return getattr(operand.meta.get("val"), "dtype", None)
    return {bool: torch.bool, int: torch.int64}.get(type(operand))


def _tensor(operand: Any) -> torch.Tensor:
    value = operand.meta.get("val") if isinstance(operand, fx.Node) else None
    if not isinstance(value, torch.Tensor):
        raise Unproven
    return value


def _zero_or_less(number: Any) -> Where:
    if number == 0:
        return EVERYWHERE
    if is_least(number):
        return NOWHERE
    raise Unproven


def is_least(number: float) -> bool:
    """Whether a score to which this number is added has the weight 0 beside others."""
    return number <= _LARGE or number == torch.finfo(torch.float16).min


def _typed(number: Any, dtype: torch.dtype) -> Affine | Where:
    """A number as an element of a tensor of this type."""
    if dtype == torch.bool and isinstance(number, (bool, int, float)):
        return EVERYWHERE if number else NOWHERE
    if dtype.is_floating_point and isinstance(number, (bool, int, float)):
        return _zero_or_less(number)
    if isinstance(number, int) and not isinstance(number, bool):
        return Affine(number)
    raise Unproven


def _arange(_: Prover, value: torch.Tensor, given: dict) -> Affine:
    start, step = given.get("start", 0), given.get("step", 1)
    if type(start) is not int or type(step) is not int:
        raise Unproven
    return Affine(start, (step,))


def _filled(of: Any = None) -> Callable[[Prover, torch.Tensor, dict], Affine | Where]:
    return lambda _, value, given: _typed(given["fill_value"] if of is None else of, value.dtype)


def _constant(prover: Prover, value: torch.Tensor, given: dict) -> Affine | Where:
    """A number that torch.tensor() made a tensor."""
    return _typed(_number(prover, given["self"]), value.dtype)


def _number(prover: Prover, node: Any) -> bool | int | float:
    """The number in a tensor of the module."""
    if not isinstance(node, fx.Node) or node.op != "get_attr" or prover.is_written(node):
        raise Unproven
    number = operator.attrgetter(node.target)(node.graph.owning_module)
    if type(number) is not torch.Tensor or number.numel() != 1:
        raise Unproven
    return number.item()


def _same_values(prover: Prover, value: torch.Tensor, given: dict) -> Affine | Element | Where:
    """Also for conversions that change no value. (Every integer result is checked to fit its
    type.)"""
    before = _tensor(given["self"]).dtype
    if before == value.dtype or before.is_floating_point and value.dtype.is_floating_point:
        return prover.of(given["self"])
    return prover.affine(given["self"])


def _moved(prover: Prover, x: Any, order: Sequence[int | None],
           change: Callable[[Affine], Affine] = lambda found: found) -> Affine | Element | Where:
    """Dimension i of the result is dimension order[i] of x; None: a new dimension, along which x is
    repeated."""
    found, shape = prover.of(x), _tensor(x).shape

    def moved(one: Affine) -> Affine:
        one = change(one.over(shape))
        return Affine(one.constant, tuple(0 if i is None else one.factors[i] for i in order))

    if isinstance(found, Where):
        return _all(_holds(one.mapped(moved)) for one in found)
    return found.mapped(moved)


def _unsqueeze(prover: Prover, value: torch.Tensor, given: dict) -> Affine | Element | Where:
    new = given["dim"] % value.dim()
    return _moved(prover, given["self"], [
        None if i == new else i - (i > new) for i in range(value.dim())])


def _expand(prover: Prover, value: torch.Tensor, given: dict) -> Affine | Element | Where:
    shift = value.dim() - _tensor(given["self"]).dim()
    return _moved(prover, given["self"], [
        None if i < shift else i - shift for i in range(value.dim())])


def _viewed(prover: Prover, value: torch.Tensor, given: dict) -> Affine | Element | Where:
    """A view that only adds and drops dimensions of size 1."""
    before = _tensor(given["self"]).shape
    kept = [i for i, size in enumerate(before) if not is_one(size)]
    now = [i for i, size in enumerate(value.shape) if not is_one(size)]
    if len(kept) != len(now) or not all(
            same(before[i], value.shape[j]) for i, j in zip(kept, now)):
        raise Unproven
    places = dict(zip(now, kept))
    return _moved(prover, given["self"], [places.get(i) for i in range(value.dim())])


def _transpose(prover: Prover, value: torch.Tensor, given: dict) -> Affine | Element | Where:
    order = list(range(value.dim()))
    a, b = given["dim0"], given["dim1"]
    order[a], order[b] = order[b], order[a]
    return _moved(prover, given["self"], order)


def _permute(prover: Prover, value: torch.Tensor, given: dict) -> Affine | Element | Where:
    return _moved(prover, given["self"], [dim % value.dim() for dim in given["dims"]])


def _begin(start: Any, size: Any) -> int:
    """The first index of a slice with the argument `start`, which PyTorch clamps to the size."""
    if start is None:
        return 0
    if type(start) is not int or start < 0 and not isinstance(size, int):
        raise Unproven
    return max(start + size, 0) if start < 0 else start


def _slice(prover: Prover, value: torch.Tensor, given: dict) -> Affine | Element | Where:
    dim, step = given["dim"] % value.dim(), given["step"]
    start = _begin(given["start"], _tensor(given["self"]).shape[dim])
    if type(step) is not int:
        raise Unproven

    def change(found: Affine) -> Affine:
        factors = list(found.factors)
        factors[dim] *= step
        return Affine(found.constant + start * found.factors[dim], tuple(factors))

    return _moved(prover, given["self"], range(value.dim()), change)


def _select(prover: Prover, value: torch.Tensor, given: dict) -> Affine | Element | Where:
    dim, index = given["dim"] % (value.dim() + 1), given["index"]
    start = _begin(index, _tensor(given["self"]).shape[dim])
    return _moved(prover, given["self"], [i + (i >= dim) for i in range(value.dim())],
                  lambda found: found.plus(Affine(start * found.factors[dim])))


def _sum(sign: int) -> Callable[[Prover, torch.Tensor, dict], Affine | Element]:
    def rule(prover: Prover, value: torch.Tensor, given: dict) -> Affine | Element:
        alpha = given.get("alpha", 1)
        if type(alpha) is not int:
            raise Unproven
        one, other = prover.of(given["self"]), prover.affine(given["other"])
        if not isinstance(one, Element):
            return prover.affine(given["self"]).plus(other, sign * alpha)
        constant = one.constant + sign * alpha * other.constant
        if not other.is_constant or abs(constant) > _LONGEST or {
                value.dtype, _dtype(given["self"])} != {torch.int64}:
            raise Unproven
        return dataclasses.replace(one, constant=constant)
    return rule


def _negated(prover: Prover, _: torch.Tensor, given: dict) -> Affine:
    return Affine(0).plus(prover.affine(given["self"]), -1)


def _product(prover: Prover, value: torch.Tensor, given: dict) -> Affine | Where:
    if value.dtype == torch.bool:
        return _both(prover, value, given)
    a, b = prover.affine(given["self"]), prover.affine(given["other"])
    if not a.is_constant:
        a, b = b, a
    if not a.is_constant:
        raise Unproven
    return Affine(0).plus(b, a.constant)


def _unknown(one: Element, other: Element) -> Where:
    raise Unproven


def _comparison(of: Callable[[Affine], Where], of_elements: Callable[[Element, Element], Where]
                = _unknown) -> Callable[[Prover, torch.Tensor, dict], Where]:
    """The rule of a comparison. `of` maps the difference of the operands to the set where it
    holds, `of_elements` operands that are elements."""
    def rule(prover: Prover, value: torch.Tensor, given: dict) -> Where:
        operands = given["self"], given["other"]
        elements = [prover.of(x) for x in operands]
        if all(isinstance(one, Element) for one in elements):
            return of_elements(*(one.over(value.shape) for one in elements))
        values = [_tensor(x) if isinstance(x, fx.Node) else x for x in operands]
        found = [prover.affine(x).over(value.shape) for x in operands]
        compared = torch.result_type(*values)
        if compared != torch.bool and not all(
                one.fits(compared, value.shape) for one in found):
            raise Unproven
        return of(found[0].plus(found[1], -1))
    return rule


def _distance(rule: Callable[[Prover, torch.Tensor, dict], Where], least: int
              ) -> Callable[[Prover, torch.Tensor, dict], Where]:
    """The rule of a comparison for abs(x) <= number - least too."""
    def with_distances(prover: Prover, value: torch.Tensor, given: dict) -> Where:
        absolute, most = given["self"], given["other"]
        if not isinstance(most, int) or absolute.target is not _aten.abs.default:
            return rule(prover, value, given)
        if prover.is_written(absolute):
            raise Unproven
        x = prover.affine(absolute.args[0]).over(value.shape)
        negated = Affine(0).plus(x, -1)
        if not negated.fits(_tensor(absolute).dtype, value.shape):
            raise Unproven
        return _all(at_least_0(Affine(most - least).plus(one)) for one in (x, negated))
    return with_distances


def _less(one: Element, other: Element) -> Where:
    return _at_most(dataclasses.replace(one, constant=one.constant + 1), other)


def _same_elements(one: Element, other: Element) -> Where:
    return _at_most(one, other).both(_at_most(other, one))


def _equal(difference: Affine) -> Where:
    if difference.is_constant:
        return NOWHERE if difference.constant else EVERYWHERE
    raise Unproven


def _both(prover: Prover, value: torch.Tensor, given: dict) -> Where:
    if value.dtype != torch.bool or any(
            _dtype(given[name]) != torch.bool for name in ("self", "other")):
        raise Unproven
    return prover.where(given["self"]).over(value.shape).both(
        prover.where(given["other"]).over(value.shape))


def _either(prover: Prover, value: torch.Tensor, given: dict) -> Where:
    if value.dtype != torch.bool or any(
            _dtype(given[name]) != torch.bool for name in ("self", "other")):
        raise Unproven
    return prover.where(given["self"]).over(value.shape).either(
        prover.where(given["other"]).over(value.shape))


def _negated_by(prover: Prover, node: fx.Node) -> fx.Node | None:
    """The boolean tensor that the node negates. Its set may be known when that of its negation is
    not."""
    if node.target in (_aten.bitwise_not.default, _aten.logical_not.default) and (
            not prover.is_written(node) and _tensor(node.args[0]).dtype == torch.bool):
        return node.args[0]
    return None


def _not(prover: Prover, value: torch.Tensor, given: dict) -> Where:
    negated = given["self"]
    if _tensor(negated).dtype != torch.bool:
        raise Unproven
    original = _negated_by(prover, negated)
    return ~prover.where(negated) if original is None else prover.where(original)


def _chosen(condition: Where, a: Where, b: Where) -> Where:
    """a where the condition holds, b elsewhere."""
    if b == NOWHERE:
        return condition.both(a)
    if a == NOWHERE:
        return (~condition).both(b)
    if a == EVERYWHERE:
        return condition.either(b)
    if b == EVERYWHERE:
        return (~condition).either(a)
    raise Unproven


def _chosen_by(prover: Prover, value: torch.Tensor, node: fx.Node, a: Where, b: Where) -> Where:
    """a where the boolean tensor is True, b elsewhere."""
    if _tensor(node).dtype != torch.bool:
        raise Unproven
    original = _negated_by(prover, node)
    if original is not None:
        node, a, b = original, b, a
    return _chosen(prover.where(node).over(value.shape), a, b)


def _element(prover: Prover, operand: Any, value: torch.Tensor) -> Where:
    """The set of an operand whose values become elements of a mask."""
    if not isinstance(operand, fx.Node):
        found = _typed(operand, value.dtype)
        if isinstance(found, Affine):
            raise Unproven
        return found
    before = _tensor(operand).dtype
    if before != value.dtype and not (before.is_floating_point and value.dtype.is_floating_point):
        raise Unproven
    return prover.where(operand).over(value.shape)


def _where(prover: Prover, value: torch.Tensor, given: dict) -> Where:
    if len(given) != 3:
        raise Unproven
    return _chosen_by(prover, value, given["condition"],
                      *(_element(prover, given[name], value) for name in ("self", "other")))


def _masked_fill(prover: Prover, value: torch.Tensor, given: dict) -> Where:
    return _chosen_by(prover, value, given["mask"],
                      *(_element(prover, given[name], value) for name in ("value", "self")))


def _triangle(is_lower: bool) -> Callable[[Prover, torch.Tensor, dict], Where]:
    """tril and triu: elements outside the triangle become False, or 0.0."""
    def rule(prover: Prover, value: torch.Tensor, given: dict) -> Where:
        if type(given["diagonal"]) is not int:
            raise Unproven
        rest = (0,) * (value.dim() - 2)
        below = Affine(given["diagonal"], (*rest, 1, -1)).over(value.shape)
        inside = at_least_0(below) if is_lower else at_least_0(Affine(0).plus(below, -1))
        outside = NOWHERE if value.dtype == torch.bool else EVERYWHERE
        return _chosen(inside, prover.where(given["self"]), outside)
    return rule


def _cumulated(prover: Prover, value: torch.Tensor, given: dict) -> Affine:
    each = prover.affine(given["self"])
    if not each.is_constant or not value.dim():
        raise Unproven
    dim = given["dim"] % value.dim()
    return Affine(each.constant, tuple(
        each.constant if i == dim else 0 for i in range(value.dim())))


def _difference(prover: Prover, value: torch.Tensor, given: dict) -> Affine:
    """diff(x, 1, dim, prepend): constant if all steps of x along dim are equal, the first
    included."""
    x, before = given["self"], given["prepend"]
    if given["n"] != 1 or before is None or given["append"] is not None or not value.dim():
        raise Unproven
    dim = given["dim"] % value.dim()
    if not is_one(_tensor(before).shape[dim]) or value.dtype == torch.bool:
        raise Unproven
    found = prover.affine(x).over(value.shape)
    step = found.factors[dim]
    # At coordinate 0 the difference is x minus the prepended tensor; elsewhere it is the step.
    first = found.plus(prover.affine(before), -1)
    first = Affine(first.constant, tuple(
        0 if i == dim else factor for i, factor in enumerate(first.factors)))
    if not is_one(value.shape[dim]) and first != Affine(step, (0,) * value.dim()):
        raise Unproven
    return first


def _index(prover: Prover, value: torch.Tensor, given: dict) -> Affine | Element:
    """x[i, j, ...] with an index for each dimension."""
    x, indices = given["self"], given["indices"]
    shape = _tensor(x).shape
    if None in indices or len(indices) != len(shape):
        raise Unproven
    read = prover.of(x).over(shape)
    places = []
    for size, index in zip(shape, indices):
        if _tensor(index).dtype not in (torch.int64, torch.int32):
            raise Unproven  # a mask
        where = prover.affine(index).over(value.shape)
        if where.least(value.shape) < 0:  # counted from the end
            if not isinstance(size, int) or -Affine(0).plus(where, -1).least(value.shape) >= 0:
                raise Unproven
            where = where.plus(Affine(size))
        beyond = Affine(-1).plus(where, -1)  # plus the size: the distance to the end
        if where.least(value.shape) < 0 or beyond.least(value.shape, size) < 0:
            raise Unproven
        places.append(where)

    def at_places(one: Affine) -> Affine:
        made = Affine(one.constant, (0,) * value.dim())
        for factor, place in zip(one.factors, places):
            made = made.plus(place, factor)
        return made

    if isinstance(read, Where):
        return _all(_holds(one.mapped(at_places)) for one in read)
    return read.mapped(at_places)


_RULES: dict[str, Callable[[Prover, torch.Tensor, dict], Affine | Where]] = {
    "arange": _arange, "cumsum": _cumulated, "diff": _difference, "index": _index,
    "lift_fresh_copy": _constant,
    **dict.fromkeys(("ones", "new_ones", "ones_like"), _filled(1)),
    **dict.fromkeys(("zeros", "new_zeros", "zeros_like"), _filled(0)),
    **dict.fromkeys(("full", "new_full", "full_like"), _filled()),
    **dict.fromkeys(("to", "_to_copy", "alias", "contiguous", "clone", "detach"), _same_values),
    "unsqueeze": _unsqueeze, "expand": _expand, "transpose": _transpose, "permute": _permute,
    **dict.fromkeys(("view", "reshape", "_unsafe_view", "squeeze"), _viewed),
    "slice": _slice, "select": _select,
    "add": _sum(1), "sub": _sum(-1), "neg": _negated, "mul": _product,
    "ge": _comparison(at_least_0, lambda one, other: _at_most(other, one)),
    "gt": _comparison(lambda difference: at_least_0(difference.plus(Affine(-1))),
                      lambda one, other: _less(other, one)),
    "le": _distance(_comparison(
        lambda difference: at_least_0(Affine(0).plus(difference, -1)), _at_most), 0),
    "lt": _distance(_comparison(
        lambda difference: at_least_0(Affine(-1).plus(difference, -1)), _less), 1),
    "eq": _comparison(_equal, _same_elements),
    "ne": _comparison(lambda difference: ~_equal(difference)),
    **dict.fromkeys(("__and__", "bitwise_and", "logical_and"), _both),
    **dict.fromkeys(("__or__", "bitwise_or", "logical_or"), _either),
    **dict.fromkeys(("bitwise_not", "logical_not"), _not),
    "where": _where, "masked_fill": _masked_fill,
    "tril": _triangle(True), "triu": _triangle(False),
}


def written(graph: fx.Graph) -> set[fx.Node]:
    """Tensors that an operation writes in place, directly or through a view."""
    def shares(node: fx.Node) -> list[fx.Node]:
        """Operands with which the result may share memory."""
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            return node.all_input_nodes
        schema = node.target._schema
        if any(given.alias_info is not None for given in schema.arguments):
            return node.all_input_nodes
        return []

    nodes = list(graph.nodes)
    found = {used for node in nodes if node.op == "call_function"
             and isinstance(node.target, torch._ops.OpOverload)
             and node.target._schema.is_mutable for used in node.all_input_nodes}
    if found:
        names: dict[fx.Node, set[fx.Node]] = {}
        for node in nodes:
            group = {node}.union(*(names[used] for used in shares(node)))
            for one in group:
                names[one] = group
        found = set().union(*(names[node] for node in found))
    return found


def is_full(prover: Prover, node: fx.Node) -> bool:
    """Whether all elements of a mask are True (or 0.0, for an added mask)."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or (
            value.dtype != torch.bool and not value.dtype.is_floating_point):
        return False
    try:
        found = prover.where(node)
    except Unproven:
        return False
    return found != NOWHERE and all(
        isinstance(one, Affine) and one.least(value.shape) >= 0 for one in found)


def is_causal(prover: Prover, node: fx.Node) -> bool:
    """Whether node[..., i, j] is True (or 0.0, for an added mask) for j <= i, and False (or minus
    infinity) otherwise, for all i and j. There must be more than one i and more than one j."""
    rest = _besides_causal(prover, node)
    return rest is not None and not rest


def _besides_causal(prover: Prover, node: fx.Node) -> set[Affine | Order | Truth] | None:
    """What the mask requires besides j <= i. None if it does not require j <= i, or not only."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dim() < 2 or is_one(value.shape[-1]) or (
            not same(*value.shape[-2:])):
        return None
    if value.dtype != torch.bool and not value.dtype.is_floating_point:
        return None
    try:
        found = prover.where(node)
    except Unproven:
        return None
    found = _by_documents(prover, found)
    causal = Affine(0, (0,) * (value.dim() - 2) + (1, -1))
    if causal not in found or found == NOWHERE:
        return None
    return {one for one in found - {causal} if not isinstance(one, Affine) or not (
        one.least(value.shape) >= 0 or one.plus(causal, -1).least(value.shape) >= 0)}


@dataclasses.dataclass(frozen=True)
class Packed:
    """A causal mask of documents that follow each other: node[..., i, j] requires j <= i, that no
    document begins behind j up to i, and i - j <= window, unless the window is None. So the
    elements [i, i - 1] say where documents begin. Without documents there is a window."""

    window: int | None
    has_documents: bool = True


def packed(prover: Prover, node: fx.Node) -> Packed | None:
    """What the mask is, if that is proven and it is not just causal. The mask is a matrix, or has a
    matrix for each batch, the same for all heads."""
    rest = _besides_causal(prover, node)
    dims = node.meta["val"].dim() if rest else 0
    if dims not in (2, 4) or any(isinstance(one, Truth) for one in rest):
        return None
    row, column = (Affine(0, tuple(int(i == dim) for i in range(dims)))
                   for dim in (dims - 2, dims - 1))
    orders = {one for one in rest if isinstance(one, Order)}
    for one in orders:
        if Order(one.other, one.one) not in orders or not _is_contiguous(prover, one, row, column):
            return None
    windows = [one.constant for one in rest - orders
               if one == Affine(one.constant, column.plus(row, -1).factors)]
    if len(windows) < len(rest - orders) or min(windows, default=1) < 1:
        return None
    return Packed(min(windows, default=None), bool(orders))


def _is_contiguous(prover: Prover, equal: Order, row: Affine, column: Affine) -> bool:
    """Whether all elements between two equal ones, of the coordinates i and j, equal them. Their
    other coordinates may only depend on the batch."""
    places = list(zip(equal.one.place, equal.other.place))
    apart = [dim for dim, (one, other) in enumerate(places) if one != other]
    batch = len(row.factors) - 3
    return len(apart) == 1 and {*places[apart[0]]} == {row, column} and (
        equal.one.constant == equal.other.constant) and not any(
        any(one.factors[max(batch, 0):]) for dim, (one, _) in enumerate(places)
        if dim != apart[0]) and _is_sorted(prover, equal.one.base, apart[0])


def _is_sorted(prover: Prover, node: Any, dim: int) -> bool:
    """Whether the elements never decrease along the dimension."""
    if not isinstance(node, fx.Node) or prover.is_written(node) or _dtype(node) != torch.int64:
        return False
    if node.target is _aten.sub.Tensor and not node.kwargs:
        # The sum of all elements before one: the end of a document belongs to the document.
        counts = node.args[0]
        return (_is_sorted(prover, counts, dim) and counts.target is _aten.cumsum.default
                and _counted(prover, counts) is _counted(prover, node))
    if node.target is not _aten.cumsum.default or node.args[1] % node.meta["val"].dim() != dim:
        return False
    return _counted(prover, node) is not None


def _counted(prover: Prover, node: fx.Node) -> fx.Node | None:
    """The boolean tensor that is the last operand of the node, or its operand as integers."""
    found = node.args[1] if node.target is _aten.sub.Tensor else node.args[0]
    while isinstance(found, fx.Node) and not prover.is_written(found):
        if _dtype(found) == torch.bool:
            return found
        if _dtype(found) not in _INTEGERS or found.target not in _CONVERSIONS:
            break
        found = found.args[0]
    return None


def _by_documents(prover: Prover, found: Where) -> Where:
    """The same set, with orders of positions as orders of tokens. A document begins where the
    position does not increase by 1, so tokens of one document are in the order of their
    positions."""
    documents = [one.one for one in found if isinstance(one, Order)
                 and Order(one.other, one.one) in found]
    made = EVERYWHERE
    for one in found:
        if isinstance(one, Order) and one.one.base not in {of.base for of in documents}:
            for of in documents:
                dim = _dim_of_positions(prover, of.base, one.one.base)
                equal = [o for o in found if isinstance(o, Order) and o.one.base is of.base]
                if dim is not None and any(
                        (o.one.place, o.other.place) == (one.one.place, one.other.place)
                        for o in equal):
                    made = made.both(at_least_0(
                        one.other.place[dim].plus(one.one.place[dim], -1).plus(
                            Affine(one.other.constant - one.one.constant))))
                    break
            else:
                made = made.both(Where({one}))
        else:
            made = made.both(_holds(one))
    return made


def _dim_of_positions(prover: Prover, documents: fx.Node, positions: fx.Node) -> int | None:
    """The dimension along which `documents` counts how often the positions do not increase by 1."""
    if documents.target is not _aten.cumsum.default:
        return None
    dim = documents.args[1] % documents.meta["val"].dim()
    differs = _counted(prover, documents)
    if differs is None or differs.target is not _aten.ne.Scalar or differs.args[1] != 1:
        return None
    steps = differs.args[0]
    if steps.target is not _aten.diff.default or steps.kwargs or len(steps.args) != 4:
        return None
    x, count, along, before = steps.args
    value = x.meta["val"]
    if any(map(prover.is_written, (documents, steps, x))) or (
            count != 1 or along % value.dim() != dim or not is_one(_tensor(before).shape[dim])
            or {value.dtype, _dtype(documents)} != {torch.int64}
            or prover.of(x) != whole(positions)):
        return None
    return dim


@dataclasses.dataclass(frozen=True)
class Padded:
    """A mask, boolean or added, the same for all heads, that hides keys of each sequence from all
    queries, or keys that are too far away: node[b, 0, i, j] requires that key j of sequence b is
    seen, i - j <= before, and j - i <= behind (None: any distance). So the elements [b, 0, i, i]
    say which keys are seen. hidden: the number in all other elements of an added mask; None: there
    are several, or nothing is known about them."""

    before: int | None
    behind: int | None
    hidden: float | None = None


def padded(prover: Prover, node: fx.Node) -> Padded | None:
    """What the mask is, if that is proven."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dim() != 4 or (
            is_one(value.shape[-1]) or not is_one(value.shape[1]) or not same(*value.shape[-2:])):
        return None
    if value.dtype != torch.bool and not value.dtype.is_floating_point:
        return None
    try:
        found = prover.where(node)
    except Unproven:
        return None
    truths = {one for one in found if isinstance(one, Truth)}
    if any(place.factors[2] for truth in truths for place in truth.one.place):
        return None
    rest = [one for one in found - truths
            if not isinstance(one, Affine) or one.least(value.shape) < 0]
    bounds = [[one.constant for one in rest if one == Affine(one.constant, factors)]
              for factors in ((0, 0, -1, 1), (0, 0, 1, -1))] if all(
                  isinstance(one, Affine) for one in rest) else [[], []]
    if sum(map(len, bounds)) < len(rest) or min(itertools.chain(*bounds), default=0) < 0:
        return None
    return Padded(*(min(of, default=None) for of in bounds), hidden_number(prover, node))


def hidden_number(prover: Prover, node: fx.Node) -> float | None:
    """The only number besides 0 that elements of an added mask may have, if that is known."""
    if not node.meta["val"].dtype.is_floating_point:
        return None
    try:
        (found,) = _numbers(prover, node) - {0.0}
    except (Unproven, ValueError):
        return None
    return found


def _numbers(prover: Prover, node: Any) -> set[float]:
    """Numbers of which all elements of a tensor are."""
    if isinstance(node, (int, float)):
        return {float(node)}
    if not isinstance(node, fx.Node) or prover.is_written(node):
        raise Unproven
    name, given = _called(node)
    if name == "lift_fresh_copy":
        found = {_number(prover, given["self"])}
    else:
        names = _CHOSEN.get(name, ("self",) if _RULES.get(name) in _MOVES else None)
        if names is None:
            raise Unproven
        found = set().union(*(_numbers(prover, given.get(of, of)) for of in names))
    return set(torch.tensor(sorted(found), dtype=_tensor(node).dtype).tolist())


# The elements of the results are numbers, or elements of arguments.
_CHOSEN: dict[str, tuple] = {
    "where": ("self", "other"), "masked_fill": ("self", "value"), "tril": ("self", 0),
    "triu": ("self", 0),
    **dict.fromkeys(("ones", "new_ones", "ones_like"), (1,)),
    **dict.fromkeys(("zeros", "new_zeros", "zeros_like"), (0,)),
    **dict.fromkeys(("full", "new_full", "full_like"), ("fill_value",))}
_MOVES = {_same_values, _unsqueeze, _expand, _transpose, _permute, _viewed, _slice, _select}
