# SPDX-License-Identifier: Apache-2.0
"""User-defined functions on tensors, with autograd: over tiles (`program`) and from graphs
(`GraphFunction`)."""

from __future__ import annotations

import ast
import copy
import functools
import hashlib
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from coda_cpp import _core, _tensors, tiles
from coda_cpp._core import Error
from coda_cpp._operators import Argument, Operator, declare, require_tensors
from coda_cpp.function import Function, Input, Output

def _unused(given: Any) -> list[Output]:
    raise NotImplementedError


class _ProgramOperator(Operator):
    """One PyTorch operator for all programs; its text argument selects the program."""

    @staticmethod
    @functools.cache
    def _facts(spec: str) -> tuple:
        return ast.literal_eval(spec)

    def parse(self, spec: str, numbers: Sequence[float]) -> tuple[list[Argument], dict[str, Any]]:
        _, arguments, _, _ = self._facts(spec)
        return [Argument(name, "rows", False, in_product and not dtype)
                for name, _, dtype, in_product in arguments], {}

    def key(self, tensors: Sequence[torch.Tensor], spec: str, numbers: Sequence[float]) -> str:
        name, arguments, _, _ = self._facts(spec)
        if len(tensors) != len(arguments):
            raise Error(f"{name}: takes {len(arguments)} tensors, but {len(tensors)} were given")
        dtypes = []
        for (argument, _, dtype, _), tensor in zip(arguments, tensors):
            found = _tensors.dtype_name(tensor)
            if found not in ([dtype] if dtype else ["f32", "bf16", "f16"]):
                raise Error(f"{name}: argument '{argument}' must be {dtype or 'f32, bf16 or f16'}, "
                            f"but it is {tensor.dtype}; convert it by .to()")
            dtypes.append(found)
        return repr((spec, dtypes, tensors[0].device.type))

    @functools.cache  # noqa: B019 (the only instance lives as long as the process)
    def function(self, key: str) -> Function:
        spec, dtypes, device = ast.literal_eval(key)
        name, arguments, outputs, texts = self._facts(spec)
        types = {argument[0]: dtype for argument, dtype in zip(arguments, dtypes)}
        programs = [_core.Program.parse(text.format(**types)) for text in texts]
        graph, inputs, stored = _core.lift(programs)
        storage = next((dtype for argument, dtype in zip(arguments, dtypes) if argument[1]), "f32")
        made = []
        for output in outputs:
            value = stored[output]
            is_vector = any(terms == (1, {}) for terms in value.terms)
            made.append(Output(output, value, "f32" if is_vector else storage))
        given = [Input(argument[0], inputs[argument[0]], types[argument[0]],
                       not inputs[argument[0]].is_table) for argument in arguments]
        return Function(name, graph, given, made, storage=storage, for_gpu=device == "cuda")


_PROGRAM = declare(_ProgramOperator("program", (), _unused))


class TileFunction:
    """The result of `program`: a callable on tensors that returns the function's results."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.name = function.__name__
        trace = tiles.Trace()
        stand_ins, self._arguments = [], []
        for given in tiles.annotations_of(function):
            stand_ins.append(
                tiles.Tensor(trace, given.name, f"{given.name}{given.shape}:{{{given.name}}}"))
            self._arguments.append([given.name, given.is_matrix, given.dtype])
        returned = trace.call(function, stand_ins)
        self._outputs, self._texts = self._written(trace, returned)
        arguments = [(*argument, argument[0] in trace.products) for argument in self._arguments]
        self._is_tuple = isinstance(returned, tuple)
        self._spec = repr((self.name, arguments, self._outputs, self._texts))
        self.text()  # raises the error of a wrong program here

    def _written(self, trace: tiles.Trace, returned: Any) -> tuple[list[str], list[str]]:
        """The names of the returned values, and the programs as format strings with placeholders
        for types."""
        results = returned if isinstance(returned, tuple) else (returned,)
        outputs, lines, finalizers = [], list(trace.lines), []
        for i, result in enumerate(results):
            output = "out" if len(results) == 1 else f"out{i}"
            outputs.append(output)
            if isinstance(result, tiles.Tile):
                lines.append(f"  store({output}, {result.text})")
            elif isinstance(result, tiles.Reduced):
                along = "row" if result.by_row else "column"
                partial = f"{output}_partial"
                lines.append(f"  {along}_partial({partial}, {result.kind}({result.value.text}))")
                more = f", {result.result}" if result.result else ""
                finalizers.append((output, along, partial, result.kind, more))
            else:
                raise Error(f"{self.name}: returns {type(result).__name__}; a function over tiles "
                            "returns values, row_sum and the like, or a tuple of these")
        texts = [f"program {self.name} {{{{\n" + "\n".join(lines) + "\n}}\n"]
        if finalizers:
            shapes = self._partial_shapes(texts[0])
            body = [f"  store({output}, combine_{along}s({kind}({partial}{shapes[partial]}){more}))"
                    for output, along, partial, kind, more in finalizers]
            texts.append(f"program {self.name}_final {{{{\n" + "\n".join(body) + "\n}}\n")
        return outputs, texts

    def _partial_shapes(self, text: str) -> dict[str, str]:
        program = _core.Program.parse(text.format(**self._types()))
        return {tensor.name: f"[{_size(tensor.rows)}, {_size(tensor.cols)}]"
                for tensor in program.plan().tensors}

    def _types(self) -> dict[str, str]:
        return {name: dtype or "f32" for name, _, dtype in self._arguments}

    def text(self) -> str:
        """The text of the programs as traced, for fp32 tensors."""
        return "\n".join(_core.Program.parse(text.format(**self._types())).text()
                         for text in self._texts)

    def explain(self, sizes: Mapping[str, int] | None = None, dtype: str = "f32",
                for_gpu: bool = False) -> str:
        """The plan of forward and backward: what was fused and why, with bytes and times."""
        dtypes = [fixed or dtype for _, _, fixed in self._arguments]
        key = repr((self._spec, dtypes, "cuda" if for_gpu else "cpu"))
        return _PROGRAM.function(key).explain(-1, sizes)

    def __call__(self, *tensors: torch.Tensor) -> Any:
        """Raises Error for tensors that do not fit, naming the argument."""
        require_tensors(self.name, [argument[0] for argument in self._arguments], tensors)
        made = _PROGRAM.forward(list(tensors), self._spec, [], _needs(tensors))
        return tuple(made[:len(self._outputs)]) if self._is_tuple else made[0]


def _size(terms: tuple[int, Mapping[str, int]]) -> str:
    constant, factors = terms
    parts = [f"{factor}*{symbol}" for symbol, factor in factors.items()]
    return " + ".join(parts + ([str(constant)] if constant or not parts else []))


def _needs(tensors: Sequence[torch.Tensor]) -> int:
    """A bit mask: bit i is set if tensor i needs a gradient."""
    if not torch.is_grad_enabled():
        return 0
    return sum(1 << i for i, tensor in enumerate(tensors) if tensor.requires_grad)


def program(function: Callable[..., Any]) -> TileFunction:
    """Turns a plain function over tiles into a function of tensors with a derived backward.

        @coda_cpp.program
        def scaled(x: "[M, K]", w: "[N, K]", r: "[M]"):
            return tiles.silu(tiles.gemm(x, w) * tiles.per_row(r))

        y = scaled(x, w, r)     # PyTorch's tensors, with autograd
        print(scaled.text())

    Annotations are the tensors' shapes, and the type if only one type is allowed ("[M]:i32").
    Leading dimensions of a tensor are its rows; symbols get their values at the call. `program`
    calls the function once, so Python's control flow is evaluated at that time. The function
    returns a value, a reduction or a tuple of values and reductions; matrices have the first
    matrix's type, vectors are fp32. Raises Error, with the program's line, if the traced program is
    not valid.
    """
    return TileFunction(function)


class _GraphOperator(_ProgramOperator):
    """One PyTorch operator for all graphs. Its text argument is a digest of the computation and of
    this package's files, because PyTorch's caches of compiled graphs may call the operator in
    another process."""

    made: dict[str, Function] = {}

    def parse(self, spec: str, numbers: Sequence[float]) -> tuple[list[Argument], dict[str, Any]]:
        return [Argument(given.name, "rows", False, False)
                for given in self.made[spec].given], {}

    def key(self, tensors: Sequence[torch.Tensor], spec: str, numbers: Sequence[float]) -> str:
        return spec

    def function(self, key: str) -> Function:
        return self.made[key]


GRAPH = declare(_GraphOperator("graph", (), _unused))


@functools.cache
def _build() -> bytes:
    """The digest of all files that this package runs."""
    digest = hashlib.sha256()
    for path in sorted(pathlib.Path(__file__).parent.rglob("*.*")):
        if path.suffix in (".py", ".so"):
            digest.update(path.read_bytes())
    return digest.digest()


class GraphFunction:
    """Values of a graph as a function of its inputs, on PyTorch's tensors, with its backward.

        f = coda_cpp.GraphFunction([x, w], {"y": y}, name="layer")
        out = f(x_tensor, w_tensor)

    Stored matrices have the type `storage`, vectors are fp32. Results are in the order of
    `outputs`: a single tensor or a tuple. Tables are not differentiated. With `products` "fp8" (or
    another recipe of docs/fp8.md) and bf16 storage, products are in 8 bits in calls with gradients
    whose numbers of rows are multiples of 16. `rounded` and `objective`: see Function.
    """

    def __init__(self, inputs: Sequence[_core.Value], outputs: Mapping[str, _core.Value], *,
                 storage: str = "f32", name: str = "graph", loss_rows: int = 0,
                 for_gpu: bool = False, nominal: Mapping[str, int] | None = None,
                 products: str = "", rounded: Sequence[int] = (),
                 objective: str = "memory") -> None:
        if not inputs or not outputs:
            raise Error(f"{name}: give at least one input and one output")
        for value in inputs:
            if not value.name:
                raise Error(f"{name}: {value!r} is no input of a graph")
        given = [Input(value.name, value, value.dtype, not value.is_table) for value in inputs]
        made = []
        for output, value in outputs.items():
            is_vector = any(terms == (1, {}) for terms in value.terms)
            made.append(Output(output, value, "f32" if is_vector else storage))
        self.function = Function(name, inputs[0].graph, given, made, storage=storage,
                                 loss_rows=loss_rows, for_gpu=for_gpu, nominal=nominal,
                                 products=products, rounded=rounded, objective=objective)
        digest = hashlib.sha256(_build())
        digest.update(inputs[0].graph.text(dict(outputs)).encode())
        digest.update(repr((
            [(value.name, value.shape, value.dtype, value.is_table) for value in inputs],
            list(outputs), storage, loss_rows, for_gpu, sorted((nominal or {}).items()), products,
            list(rounded), objective)).encode())
        self.kind = f"{name}#{digest.hexdigest()[:32]}"
        self._register()

    def _register(self) -> None:
        """Each use with products in 8 bits has its own scales, and so its own name: a number that
        counts the functions of this process. A graph from a cache of another process calls the uses
        with the same numbers in this process."""
        made = _GraphOperator.made
        self.spec = f"{self.kind}#{len(made)}" if self.function.products else self.kind
        self.function = made.setdefault(self.spec, self.function)

    def another_use(self) -> GraphFunction:
        """The same function, with separate scales if products are in 8 bits."""
        other = copy.copy(self)
        other.function = self.function.another_use()
        other._register()
        return other

    def __call__(self, *tensors: torch.Tensor, flags: int = 0) -> Any:
        """Raises Error for tensors that do not fit, naming the argument. `flags`: of function.py,
        for a call with gradients."""
        given = self.function.given
        if len(tensors) != len(given):
            raise Error(f"{self.function.name}: takes {len(given)} tensors, but {len(tensors)} "
                        "were given")
        require_tensors(self.function.name, [tensor.name for tensor in given], tensors)
        needs = _needs([tensors[place] for place in self.function.gradient_places])
        needs = self.function.with_products(needs, tensors) | (flags if needs else 0)
        made = GRAPH.forward(list(tensors), self.spec, [], needs)[:len(self.function.outputs)]
        return made[0] if len(made) == 1 else tuple(made)

    def explain(self, sizes: Mapping[str, int] | None = None) -> str:
        """The plan of forward and backward: what was fused and why, with bytes and times."""
        return self.function.explain(-1, sizes)
