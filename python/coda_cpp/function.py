# SPDX-License-Identifier: Apache-2.0
"""Graphs as functions of tensors: converts tensors with any leading dimensions to the [rows,
columns] of plans and back.

A plan is compiled once for each set of inputs that need gradients, and runs at any sizes of its
symbols. For each set of sizes a session is prepared (well below a millisecond on a CPU), and the
last RUNNERS sessions of a plan are cached. So a new number of tokens compiles nothing.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from coda_cpp import _core, _eight_bits, _tensors
from coda_cpp import builders as b
from coda_cpp._core import Error
from coda_cpp._eight_bits import Scales
from coda_cpp.session import Runners, TensorFacts, size_of

_NOMINAL = 4096  # the default value of a symbol when costs are compared
_PLAIN_RATE = 4e11  # operations a second of an H200's GEMMs in fp32; PyTorch's have 1e13 and more
# Flags in the bit mask of inputs that need gradients.
EIGHT_BITS = 1 << 62  # products are in 8 bits
ONLY_LOSSES = 1 << 61  # only results that are numbers have upstream gradients: see Function.seeded
_ROWS = 16  # sizes of 8-bit operands must be multiples of this


@dataclasses.dataclass(frozen=True)
class _Named:
    """A tensor of a function and its value in the graph."""

    name: str
    value: _core.Value
    dtype: str = "f32"
    differentiable: bool = True

    @functools.cached_property
    def terms(self) -> Any:
        return self.value.terms


class Input(_Named):
    """An input, which a caller passes."""


@dataclasses.dataclass(frozen=True)
class Output(_Named):
    """A result of a call."""

    of_no_rows: float = 0  # the value if there are no rows

    @property
    def is_number(self) -> bool:
        return self.terms == ((1, {}), (1, {}))


@dataclasses.dataclass
class Phases:
    """A compiled function: its forward and, if any input needs a gradient, its backward."""

    plan: _core.Plan  # forward and backward; if `again` is given, only the backward
    forward: Runners
    backward: Runners | None
    saved: list[TensorFacts]  # results of the forward that only the backward reads
    # The tensors that the backward takes, by name: first those in `kept`, which are places in the
    # list of inputs, results and saved tensors; then the gradients of the results in `upstream`.
    backward_inputs: list[str]
    kept: list[int]
    upstream: list[int]
    first_scales: list[float]  # of operands in 8 bits; empty if there are none
    again: _core.Plan | None = None  # the forward, if the backward recomputes it

    @property
    def plans(self) -> list[_core.Plan]:
        return [self.plan] if self.again is None else [self.again, self.plan]


class Function:
    """Outputs of a graph as a function of its inputs, with the derived backward.

    `storage` is the type of stored matrices. `loss_rows` is as in CompileOptions of C++: -1
    computes values as wide as a vocabulary in blocks of rows, and -n gives a block as many rows as
    if there were at least n. `nominal` are the sizes of symbols for comparing costs. `products`
    selects 8 bits ("fp8", docs/fp8.md), which calls with gradients use if all sizes are multiples
    of 16; other calls use 16 bits. The scales belong to one use of the function: see another_use.

    `objective` "speed" saves a value for the backward if reading it is faster than recomputing it.

    `rounded` are the numbers of inputs that were rounded from an fp32 tensor. A caller passes these
    fp32 tensors too, after the inputs. They are not read, but they get the inputs' gradients, in
    fp32.
    """

    def __init__(self, name: str, graph: _core.Graph, inputs: Sequence[Input],
                 outputs: Sequence[Output], *, storage: str = "f32", loss_rows: int = 0,
                 for_gpu: bool = False, nominal: Mapping[str, int] | None = None,
                 products: str = "", rounded: Sequence[int] = (),
                 objective: str = "memory") -> None:
        self.name = name
        self.graph = graph
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self._storage, self._loss_rows, self._for_gpu = storage, loss_rows, for_gpu
        self._nominal, self._objective = dict(nominal or {}), objective
        self.products = products
        self._rounded = list(rounded)
        # The tensors that a caller passes, and for each input the number of the tensor that gets
        # its gradient.
        self.given = [*self.inputs, *(self.inputs[i] for i in self._rounded)]
        self.gradient_places = [len(self.inputs) + self._rounded.index(i)
                                if i in self._rounded else i for i in range(len(self.inputs))]
        self._scales: dict[Any, Scales] = {}
        self._phases: dict[int, Phases] = {}
        self._costs: dict[int, tuple[tuple, tuple]] = {}
        self._upstream: dict[str, _core.Value] = {}
        self._lock = threading.Lock()

    def another_use(self) -> Function:
        """The same function, with separate scales."""
        other = copy.copy(self)
        other._scales = {}
        return other

    def scales(self, needs: int, device: Any) -> Scales:
        key = (needs, device)
        if key not in self._scales:
            self._scales[key] = Scales(self.phases(needs).first_scales, device)
        return self._scales[key]

    def with_products(self, needs: int, tensors: Sequence[Any]) -> int:
        """`needs`, plus EIGHT_BITS if the products are in 8 bits."""
        if not self.products or not needs:
            return needs
        sizes = self.match(tensors)[0].values()
        fits = all(isinstance(size, int) and size % _ROWS == 0 and size > 0 for size in sizes)
        return needs | EIGHT_BITS if fits else needs

    def phases(self, needs: int) -> Phases:
        """The compiled function. Bit i of `needs` is set if input i needs a gradient; EIGHT_BITS
        and ONLY_LOSSES may be set."""
        with self._lock:
            if needs not in self._phases:
                self._phases[needs] = self._compile(needs)
            return self._phases[needs]

    def seeded(self, needs: int) -> list[bool]:
        """For each result, whether the backward takes its upstream gradient."""
        return [output.differentiable and (not needs & ONLY_LOSSES or output.is_number)
                for output in self.outputs]

    def _seeds(self, needs: int) -> list[tuple[_core.Value, _core.Value]]:
        """The results with upstream gradients, and these gradients."""
        seeds = []
        for output, is_seeded in zip(self.outputs, self.seeded(needs)):
            if is_seeded:
                if output.name not in self._upstream:
                    self._upstream[output.name] = self.graph.input(
                        f"grad_of_{output.name}", output.value.shape, output.dtype)
                seeds.append((output.value, self._upstream[output.name]))
        return seeds

    def _gradients(self, needs: int) -> list[tuple[_core.Value, str, str]]:
        return [(given.value, f"grad_to_{given.name}",
                 "f32" if i in self._rounded else given.dtype)
                for i, given in enumerate(self.inputs) if needs >> i & 1]

    def _plan(self, needs: int, fuse: bool = True) -> tuple[_core.Plan, list[float]]:
        seeds, gradients = (self._seeds(needs), self._gradients(needs)) if needs else ([], [])
        outputs = [(output.name, output.value) for output in self.outputs]
        if needs & EIGHT_BITS and fuse:
            return _core.compile_in_eight_bits(
                self.graph, outputs, seeds, gradients, self.nominal_sizes(), self.products,
                self._objective, loss_rows=self._loss_rows, for_gpu=self._for_gpu)
        return _core.compile(
            self.graph, outputs, seeds, gradients, self.nominal_sizes(), self._storage,
            self._objective, loss_rows=self._loss_rows if fuse else 0, fuse=fuse,
            for_gpu=self._for_gpu), []

    def _compile(self, needs: int) -> Phases:
        plan, first_scales = self._plan(needs)
        parts = plan.split() if needs else (plan,)
        again = self._recompute(plan, needs) if needs else None
        if again is not None:
            plan, parts = again, (self._plan(0)[0], again)
        forward, backward = Runners(parts[0]), Runners(parts[1]) if needs else None
        declared = {output.name for output in self.outputs}
        saved = [tensor for tensor in forward.tensors
                 if tensor.role == "output" and tensor.name not in declared
                 and tensor.name != _core.MAGNITUDES or tensor.name in _eight_bits.NAMES]
        read = {tensor.name for tensor in backward.tensors} if backward else set()
        known = [value.name for value in [*self.inputs, *self.outputs, *saved]]
        kept = [i for i, name in enumerate(known) if name in read]
        gradients = [f"grad_of_{output.name}" for output in self.outputs]
        upstream = [i for i, name in enumerate(gradients) if name in read]
        names = [known[i] for i in kept] + [gradients[i] for i in upstream]
        return Phases(plan, forward, backward, saved, names, kept, upstream, first_scales,
                      parts[0] if again is not None else None)

    def _recompute(self, plan: _core.Plan, needs: int) -> _core.Plan | None:
        """A backward that recomputes the whole forward in blocks of rows, so that no wide values
        (logits) are stored. `plan` stores them because their gradient needs an upstream gradient
        for each row, which is known only when the backward begins. None if recomputation saves
        nothing.

        The upstream gradients are ordinary inputs of this plan, which differentiates the sum of the
        results, each times its upstream gradient."""
        seeds = self._seeds(needs)
        if (not self._loss_rows or self._objective != "memory" or needs & EIGHT_BITS
                or not any(_is_whole(note) and "waits" in note for note in plan.notes)
                or any(value.shape[1] != 1 for value, _ in seeds)):
            return None
        kinds: dict[bool, _core.Value] = {}  # one sum over rows, which ends the blocks' loop
        for value, gradient in seeds:
            product, is_scalar = value * gradient, value.shape == (1, 1)
            kinds[is_scalar] = kinds[is_scalar] + product if is_scalar in kinds else product
        sums = [kind if is_scalar else b.col_sum(kind) for is_scalar, kind in kinds.items()]
        total = sums[0] if len(sums) == 1 else sums[0] + sums[1]
        made = _core.compile(
            self.graph, [("sum_of_results", total)], [(total, self.graph.constant(1.0))],
            self._gradients(needs), self.nominal_sizes(), self._storage, self._objective,
            loss_rows=self._loss_rows, for_gpu=self._for_gpu)
        return None if any(map(_is_whole, made.notes)) else made.in_one_phase()

    @property
    def is_for_gpu(self) -> bool:
        return self._for_gpu

    def costs(self, needs: int) -> tuple[tuple, tuple]:
        """Operations, bytes moved and predicted seconds at the nominal sizes: of the plan, and of
        the unfused plan, whose products have no epilogues."""
        phases, sizes = self.phases(needs), self.nominal_sizes()
        with self._lock:
            if needs not in self._costs:
                unfused = self._plan(needs, fuse=False)[0]
                fused = [plan.cost(sizes, self._for_gpu) for plan in phases.plans]
                flops, moved, seconds = map(sum, zip(*fused))
                if self.has_plain_products:
                    seconds += flops / _PLAIN_RATE
                self._costs[needs] = (flops, moved, seconds), unfused.cost(sizes, self._for_gpu)
            return self._costs[needs]

    @property
    def has_plain_products(self) -> bool:
        """Whether GEMMs run without tensor cores: a GPU's in fp32."""
        return self._for_gpu and self._storage == "f32"

    def nominal_sizes(self) -> dict[str, int]:
        symbols: set[str] = set()
        for given in self.inputs:
            for terms in given.terms:
                symbols.update(terms[1])
        return {symbol: self._nominal.get(symbol, _NOMINAL) for symbol in sorted(symbols)}

    def explain(self, needs: int = -1, sizes: Mapping[str, int] | None = None) -> str:
        """What was fused and why, with bytes and predicted times. needs: see phases(); -1: all
        inputs."""
        if needs < 0:
            needs = sum(1 << i for i, given in enumerate(self.inputs) if given.differentiable)
        return "\n".join(plan.explain({**self.nominal_sizes(), **(sizes or {})}, self._for_gpu)
                         for plan in self.phases(needs).plans)

    def match(self, tensors: Sequence[Any]) -> tuple[dict[str, Any], dict[Any, tuple]]:
        """The sizes of the symbols, and for each number of rows the leading dimensions of the
        tensors.

        Raises Error for shapes, types and devices that do not fit, naming the argument.
        """
        sizes: dict[str, Any] = {}
        leads: dict[Any, tuple] = {}
        for given, tensor in zip(self.inputs, tensors[:len(self.inputs)], strict=True):
            rows, cols = given.terms
            shape = tuple(tensor.shape)
            lead, found = as_matrix(shape, rows, cols)
            for terms, size in zip((rows, cols), found, strict=True):
                if not bind(terms, size, sizes):
                    expected = f"[{_text(rows)}, {_text(cols)}]"
                    known = ", ".join(f"{symbol} = {size}" for symbol, size in sizes.items())
                    raise Error(f"{self.name}: argument '{given.name}' must be {expected}"
                                f"{' where ' + known if known else ''}, but its shape is "
                                f"{list(shape)}")
            if _tensors.dtype_name(tensor) != given.dtype:
                raise Error(f"{self.name}: argument '{given.name}' must be {given.dtype}, but it "
                            f"is {tensor.dtype}; convert it by .to()")
            if tensor.device != tensors[0].device:
                raise Error(f"{self.name}: argument '{given.name}' lies on {tensor.device}, but "
                            f"'{self.inputs[0].name}' on {tensors[0].device}")
            if rows[1]:
                leads.setdefault(_text(rows), lead)
        return sizes, leads

    def output_shape(self, output: Output, sizes: Mapping[str, Any],
                     leads: Mapping[Any, tuple]) -> tuple:
        """The shape in PyTorch: rows become the leading dimensions of an input; a row vector has
        one dimension."""
        rows, cols = output.terms
        lead = leads.get(_text(rows), (size_of(rows, sizes),))
        if rows == (1, {}):
            lead = ()
        return lead if cols == (1, {}) else (*lead, size_of(cols, sizes))


def _is_whole(note: str) -> bool:
    """Whether a plan's note says why values as wide as logits are stored for all rows."""
    return note.startswith("not in blocks of rows: ")


def as_matrix(shape: tuple, rows: Any, cols: Any) -> tuple[tuple, tuple]:
    """The leading dimensions, and the shape as rows and columns."""
    if rows == (1, {}):
        return (), (1, math.prod(shape)) if len(shape) <= 1 else (math.prod(shape[:-1]), shape[-1])
    if cols == (1, {}):
        if shape and len(shape) > 1 and shape[-1] == 1:
            return shape[:-1], (math.prod(shape[:-1]), 1)
        return shape, (math.prod(shape), 1)
    if len(shape) < 2:
        return (), (1, math.prod(shape)) if shape else (1, 1)
    return shape[:-1], (math.prod(shape[:-1]), shape[-1])


def bind(terms: Any, size: Any, sizes: dict[str, Any]) -> bool:
    """Whether the size fits. If a symbol of the size has no value yet, `sizes` gets it."""
    constant, factors = terms
    unknown = [symbol for symbol in factors if symbol not in sizes]
    if unknown:
        symbol, factor = unknown[0], factors[unknown[0]]
        rest = size - constant - sum(n * sizes[s] for s, n in factors.items() if s != symbol)
        if len(unknown) > 1 or rest % factor != 0:
            return False
        sizes[symbol] = rest // factor
        return True
    return size == size_of(terms, sizes)


def _text(terms: Any) -> str:
    constant, factors = terms
    parts = [symbol if n == 1 else f"{n}*{symbol}" for symbol, n in factors.items()]
    return " + ".join(parts + ([str(constant)] if constant or not parts else []))
