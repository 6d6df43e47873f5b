# SPDX-License-Identifier: Apache-2.0
"""PyTorch operators made from graphs: forward, fake, autograd with the derived backward, and
autocast for each declared operator.

An Operator is registered as two PyTorch operators, coda_cpp::NAME and coda_cpp::NAME_backward. The
first takes the given tensors, the attributes as text and a bit mask of the tensors that need
gradients. It returns the results and then the saved tensors, so autograd, AOTAutograd and
checkpointing see plain functions. The text and the tensors' shapes define the function completely,
so another process can call it.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from coda_cpp import _core, _precompile, _tensors
from coda_cpp._calls import (
    TORCH_DTYPES, Backward, Bounded, Forward, facts, gradient_names, gradient_shapes, result_shapes)
from coda_cpp._core import Error
from coda_cpp._registration import LIBRARY, below, is_plain, needs_gradients, register
from coda_cpp.function import EIGHT_BITS, ONLY_LOSSES, Function, Input, Output
from coda_cpp.session import gpu_of

DECLARED: dict[Any, Operator] = {}  # by the call target in a graph
_CHECKING = False


def checking(on: bool) -> None:
    """Sets whether indices (targets, positions) on a GPU are checked before use. A check waits for
    the GPU. On a CPU indices are always checked."""
    global _CHECKING
    _CHECKING = on


def is_checking() -> bool:
    return _CHECKING


@dataclasses.dataclass(frozen=True)
class Argument:
    """A tensor argument of an operator. The kind defines the shape: "rows" [..., K] (a row for each
    token), "per_row" [...], "matrix" [N, K], "columns" [N], "table" [P, N], "index" [...] int32."""

    name: str
    kind: str
    optional: bool = False
    one_type: bool = True  # must have the first argument's type; autocast casts it
    sizes: str = ""  # names of the fixed sizes, "N K"; equal names are equal sizes

    @property
    def is_differentiable(self) -> bool:
        return self.kind not in ("table", "index")

    def shape(self, tensor: torch.Tensor) -> tuple[int, ...]:
        """The fixed sizes (not symbols)."""
        dims = {"rows": 1, "per_row": 0, "matrix": 2, "columns": 1, "table": 1, "index": 0}
        least = {"matrix": 2, "table": 2}.get(self.kind, dims[self.kind])
        if tensor.dim() < least or self.kind in ("matrix", "table") and tensor.dim() > least:
            raise Error(f"argument '{self.name}' must have {least} dimensions, but its shape is "
                        f"{list(tensor.shape)}")
        count = dims[self.kind]
        return tuple(int(size) for size in tensor.shape[tensor.dim() - count:])

    def declare(self, graph: _core.Graph, shape: tuple[int, ...], dtype: str) -> _core.Value:
        if self.kind == "rows":
            return graph.input(self.name, ("M", shape[0]), dtype)
        if self.kind == "per_row":
            return graph.input(self.name, ("M", 1), dtype)
        if self.kind == "matrix":
            return graph.parameter(self.name, shape, dtype)
        if self.kind == "columns":
            return graph.parameter(self.name, (1, shape[0]), dtype)
        if self.kind == "table":
            return graph.table(self.name, ("P", shape[0]), dtype)
        return graph.table(self.name, ("M", 1), dtype)


def require_tensors(name: str, arguments: Sequence[str], tensors: Sequence[Any]) -> None:
    """Raises Error for an object that is not a tensor, or for a tensor without strides."""
    for argument, tensor in zip(arguments, tensors):
        if not isinstance(tensor, torch.Tensor):
            raise Error(f"{name}: argument '{argument}' must be a tensor of PyTorch's, but it is "
                        f"{type(tensor).__name__}")
        if tensor.layout is not torch.strided:
            raise Error(f"{name}: argument '{argument}' is {tensor.layout}; convert it by "
                        ".to_dense()")


def require_numbers(name: str, numbers: Mapping[str, Any]) -> None:
    """Raises Error for an object that is not a finite number. torch.compile's symbolic numbers are
    allowed."""
    for attribute, number in numbers.items():
        if (not isinstance(number, (int, float, torch.SymInt, torch.SymFloat))
                or number - number != 0):  # Dynamo does not support isfinite
            raise Error(f"{name}: {attribute} must be a finite number, but it is {number!r}")


class Given(dict):
    """The input of a builder: values of the arguments (None: not given) and attributes, by name."""

    __getattr__ = dict.__getitem__


@dataclasses.dataclass(frozen=True)
class Operator:
    name: str
    arguments: tuple[Argument, ...]
    build: Callable[[Given], list[Output]]
    check: Callable[[dict[str, torch.Tensor], dict[str, Any]], None] | None = None
    loss_rows: str | None = None  # the name of the attribute with loss_rows

    @property
    def forward(self) -> Any:
        return getattr(torch.ops.coda_cpp, self.name).default

    @property
    def backward(self) -> Any:
        return getattr(torch.ops.coda_cpp, self.name + "_backward").default

    def parse(self, spec: str, numbers: Sequence[float]) -> tuple[list[Argument], dict[str, Any]]:
        """The given arguments, and the attributes. `spec` has their names, "x,weight;eps", and the
        values of text attributes, "reduction=mean". In "x,weight/weight;eps" one more tensor
        follows the arguments: the fp32 tensor from which the weight was rounded (Function's
        `rounded`)."""
        names, *attributes = spec.split(";")
        given = set(names.partition("/")[0].split(","))
        found: dict[str, Any] = {}
        rest = iter(numbers)
        for attribute in attributes:
            name, is_text, text = attribute.partition("=")
            found[name] = text if is_text else float(next(rest))
        return [a for a in self.arguments if a.name in given], found

    @staticmethod
    def rounded(spec: str) -> list[int]:
        names, _, rounded = spec.partition(";")[0].partition("/")
        return [names.split(",").index(name) for name in rounded.split(",") if name]

    def key(self, tensors: Sequence[torch.Tensor], spec: str, numbers: Sequence[float]) -> str:
        """Everything on which the function depends, as text. Raises Error for types and shapes that
        do not fit."""
        given, _ = self.parse(spec, numbers)
        facts = []
        of_arguments = tensors[:len(tensors) - len(self.rounded(spec))]
        for argument, tensor in zip(given, of_arguments, strict=True):
            dtype = _tensors.dtype_name(tensor)
            allowed = {"index": ("i32",), "per_row": ("f32",)}.get(
                argument.kind, ("f32", "bf16", "f16"))
            if dtype not in allowed:
                wanted = " or ".join(str(TORCH_DTYPES[name]).removeprefix("torch.")
                                     for name in allowed)
                raise Error(f"{self.name}: argument '{argument.name}' must be {wanted}, but it is "
                            f"{tensor.dtype}; convert it by .to()")
            if argument.one_type and tensor.dtype != tensors[0].dtype:
                raise Error(f"{self.name}: argument '{argument.name}' is {tensor.dtype}, but "
                            f"'{given[0].name}' is {tensors[0].dtype}; convert one by .to(), or "
                            "use torch.autocast")
            try:
                facts.append((argument.shape(tensor), dtype))
            except Error as error:
                raise Error(f"{self.name}: {error}") from None
        return repr((spec, [float(number) for number in numbers], facts, tensors[0].device.type))

    @functools.cache  # noqa: B019 (operators live as long as the process)
    def function(self, key: str) -> Function:
        spec, numbers, facts, device = ast.literal_eval(key)
        arguments, attributes = self.parse(spec, numbers)
        graph = _core.Graph()
        values: dict[str, Any] = {argument.name: None for argument in self.arguments}
        inputs = []
        known: dict[str, tuple[int, str]] = {}
        for argument, (shape, dtype) in zip(arguments, facts, strict=True):
            for symbol, size in zip(argument.sizes.split(), shape):
                of, first = known.setdefault(symbol, (size, argument.name))
                if of != size:
                    dims = ["..."] * (argument.kind == "rows")
                    wanted, got = (", ".join([*dims, *sizes]) for sizes in (
                        argument.sizes.split(), map(str, shape)))
                    raise Error(f"{self.name}: argument '{argument.name}' must be [{wanted}] where "
                                f"{symbol} = {of}, as '{first}' has it, but it is [{got}]")
            if 0 in shape:
                raise Error(f"{self.name}: argument '{argument.name}' has a size of 0 besides its "
                            f"rows: {list(shape)}; only the number of rows may be 0")
            value = argument.declare(graph, shape, dtype)
            values[argument.name] = value
            inputs.append(Input(argument.name, value, dtype, argument.is_differentiable))
        storage = facts[0][1]
        try:
            outputs = self.build(Given(values, **attributes, graph=graph, storage=storage))
        except Error as error:
            raise Error(f"{self.name}: {error}") from None
        loss_rows = int(attributes[self.loss_rows]) if self.loss_rows else 0
        return Function(self.name, graph, inputs, outputs, storage=storage, loss_rows=loss_rows,
                        for_gpu=device == "cuda", rounded=self.rounded(spec))

    def __call__(self, tensors: Mapping[str, torch.Tensor | None], numbers: Mapping[str, float],
                 texts: Mapping[str, str] | None = None) -> list[torch.Tensor]:
        """The results, then the saved tensors. Numbers (including booleans) and texts are
        attributes; each combination of attributes has its own plan."""
        names = [argument.name for argument in self.arguments
                 if not argument.optional or tensors[argument.name] is not None]
        given = [tensors[name] for name in names]
        require_tensors(self.name, names, given)
        require_numbers(self.name, numbers)
        needs = 0
        if torch.is_grad_enabled():
            for i, tensor in enumerate(given):
                if tensor.requires_grad:
                    needs += 1 << i
        spec = [",".join(names), *numbers]
        spec += [f"{name}={text}" for name, text in (texts or {}).items()]
        return self.forward(given, ";".join(spec), list(numbers.values()), needs)


def _differentiated(operator: Operator, known: Callable[..., Forward]
                    ) -> type[torch.autograd.Function]:
    """The operator with its derived backward. `known` is the call for plain tensors.

    With ONLY_LOSSES, the inputs are saved too. If a result that is not a number has an upstream
    gradient nevertheless, the backward recomputes the forward, and later forwards expect it."""
    with_others: set[str] = set()  # texts of the functions where this happened

    def forward(ctx: Any, keyset: Any, spec: str, numbers: list[float], needs: int,
                *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if spec in with_others:
            needs &= ~ONLY_LOSSES
        if is_plain(keyset):
            call = known(tensors, spec, numbers, needs)
            function, ctx.key, made = call.function, call.key, call.run(tensors)
        else:
            made = below(operator.forward, keyset, list(tensors), spec, numbers, needs)
            ctx.key = operator.key(tensors, spec, numbers)
            function = operator.function(ctx.key)
        ctx.needs, ctx.function = needs, function
        ctx.shapes = [tensor.shape for tensor in tensors]
        ctx.set_materialize_grads(False)
        if needs:
            count = len(function.outputs)
            phases = function.phases(needs)
            inputs = len(function.inputs)
            kept = [tensors[i] if i < inputs else made[i - inputs] for i in phases.kept]
            if needs & ONLY_LOSSES:  # an input that was rounded from a given tensor is rounded anew
                kept += [tensors[place] for place in function.gradient_places]
                ctx.spec, ctx.numbers = spec, numbers
            ctx.save_for_backward(*kept)
            ctx.outputs = [tensor.shape for tensor in made[:count]]
            ctx.mark_non_differentiable(
                *[t for o, t in zip(function.outputs, made) if not o.differentiable],
                *made[count:])
        return tuple(made)

    def recomputed(ctx: Any, tensors: Sequence[torch.Tensor], needs: int) -> list[torch.Tensor]:
        """What the backward for `needs` takes of the forward. `tensors`: for each input, the tensor
        that gets its gradient."""
        function = ctx.function
        rounded = [i for i, place in enumerate(function.gradient_places) if place != i]
        inputs = list(tensors)
        for i in rounded:
            inputs[i] = tensors[i].to(TORCH_DTYPES[function.inputs[i].dtype])
        given = [*inputs, *(tensors[i] for i in rounded)]
        made = operator.forward(given, ctx.spec, ctx.numbers, needs)
        return [[*inputs, *made][i] for i in function.phases(needs).kept]

    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple:
        if not ctx.needs:
            raise Error(f"{operator.name}: called with needs=0: nothing was saved for a backward")
        function, needs = ctx.function, ctx.needs
        given = list(ctx.saved_tensors)
        results: list[torch.Tensor | None] = [None] * len(ctx.shapes)
        like = next((g for g in gradients[:len(function.outputs)] if g is not None), None)
        if like is None:
            return None, None, None, None, *results
        if needs & ONLY_LOSSES:
            kept = len(function.phases(needs).kept)
            given, tensors = given[:kept], given[kept:]
            if any(gradient is not None and not is_seeded
                   for gradient, is_seeded in zip(gradients, function.seeded(needs))):
                with_others.add(ctx.spec)
                needs &= ~(ONLY_LOSSES | EIGHT_BITS)
                given = recomputed(ctx, tensors, needs)
        for i in function.phases(needs).upstream:
            gradient = gradients[i]
            if gradient is None:
                gradient = like.new_zeros(
                    ctx.outputs[i], dtype=TORCH_DTYPES[function.outputs[i].dtype])
            given.append(gradient)
        made = iter(operator.backward(given, ctx.key, needs))
        for i, place in enumerate(function.gradient_places):
            if needs >> i & 1:
                gradient, shape = next(made), ctx.shapes[place]
                results[place] = gradient if gradient.shape == shape else gradient.reshape(shape)
        return None, None, None, None, *results

    return type(operator.name, (torch.autograd.Function,),
                {"forward": staticmethod(forward), "backward": staticmethod(backward)})


def declare(operator: Operator) -> Operator:
    """Registers the operator with PyTorch."""
    forwards, backwards = Bounded(), Bounded()

    def known(tensors: Sequence[torch.Tensor], spec: str, numbers: list[float], needs: int
              ) -> Forward:
        like = (spec, needs, tuple(numbers), facts(tensors))
        call = forwards.get(like)
        if call is None:
            key = operator.key(tensors, spec, numbers)
            call = Forward(operator.function(key), key, tensors, needs)
            forwards.put(like, call)
        if operator.check is not None and (_CHECKING or tensors[0].is_cpu):
            given, attributes = operator.parse(spec, numbers)
            operator.check({a.name: t for a, t in zip(given, tensors)}, attributes)
        return call

    def forward(tensors: list[torch.Tensor], spec: str, numbers: list[float], needs: int
                ) -> list[torch.Tensor]:
        return known(tensors, spec, numbers, needs).run(tensors)

    def backward(tensors: list[torch.Tensor], key: str, needs: int) -> list[torch.Tensor]:
        like = (key, needs, facts(tensors))
        call = backwards.get(like)
        if call is None:
            call = Backward(operator.function(key), tensors, needs)
            backwards.put(like, call)
        return call.run(tensors)

    def fake(tensors: list[torch.Tensor], spec: str, numbers: list[float], needs: int
             ) -> list[torch.Tensor]:
        function = operator.function(operator.key(tensors, spec, numbers))
        made, sizes = result_shapes(function, tensors, needs)
        if tensors[0].device.type == "cuda":
            for plan in function.phases(needs).plans:
                _precompile.start(plan, sizes, gpu_of(tensors[0].device))
        return [tensors[0].new_empty(shape, dtype=dtype) for shape, dtype in made]

    def fake_backward(tensors: list[torch.Tensor], key: str, needs: int) -> list[torch.Tensor]:
        function = operator.function(key)
        made = gradient_shapes(function, tensors, needs)[0]
        return [tensors[0].new_empty(made[name][0], dtype=made[name][1])
                for name in gradient_names(function, needs)]

    differentiated = _differentiated(operator, known)

    def autograd(keyset: Any, tensors: list[torch.Tensor], spec: str, numbers: list[float],
                 needs: int) -> list[torch.Tensor]:
        if needs_gradients(tensors):
            return list(differentiated.apply(keyset, spec, numbers, needs, *tensors))
        # Calls the function below autograd directly, without the dispatcher.
        run = forward if is_plain(keyset) else functools.partial(below, operator.forward, keyset)
        return run(tensors, spec, numbers, needs)

    name = operator.name
    register(name, forward, fake,
             "(Tensor[] tensors, str spec, float[] numbers, int needs) -> Tensor[]")
    register(f"{name}_backward", backward, fake_backward,
             "(Tensor[] tensors, str key, int needs) -> Tensor[]")
    for device in ("CPU", "CUDA"):
        LIBRARY.impl(name, functools.partial(_autocast, operator, device), f"Autocast{device}")
    LIBRARY.impl(name, autograd, "Autograd", with_keyset=True)
    DECLARED[operator.forward] = operator
    return operator


def under_autocast(operator: Operator, dtypes: Sequence[torch.dtype], spec: str,
                   numbers: list[float], needs: int, low: torch.dtype
                   ) -> tuple[list[bool], list[int], str]:
    """Which tensors autocast converts to its type `low`; which of these are also passed
    unconverted, after all others; and the text that encodes both.

    Operands of products, and tensors that are combined with the products' results, get autocast's
    type; statistics and norms' weights keep theirs. The gradients of fp32 weights are the products'
    fp32 sums, unrounded.
    """
    arguments, _ = operator.parse(spec, numbers)
    cast = [argument.one_type and dtype.is_floating_point
            for argument, dtype in zip(arguments, dtypes, strict=True)]
    rounded = [i for i, (argument, dtype) in enumerate(zip(arguments, dtypes))
               if argument.kind == "matrix" and needs >> i & 1 and dtype == torch.float32 != low]
    if rounded:
        names, semicolon, rest = spec.partition(";")
        spec = f"{names}/{','.join(arguments[i].name for i in rounded)}{semicolon}{rest}"
    return cast, rounded, spec


def _autocast(operator: Operator, device: str, tensors: list[torch.Tensor], spec: str,
              numbers: list[float], needs: int) -> list[torch.Tensor]:
    low = torch.get_autocast_dtype(device.lower())
    key = getattr(torch._C.DispatchKey, f"Autocast{device}")
    is_cast, rounded, spec = under_autocast(
        operator, [tensor.dtype for tensor in tensors], spec, numbers, needs, low)
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
        cast = [tensor.to(low) if is_low else tensor for tensor, is_low in zip(tensors, is_cast)]
        return operator.forward([*cast, *(tensors[i] for i in rounded)], spec, numbers, needs)


__all__ = ["DECLARED", "Argument", "Given", "Operator", "checking", "declare", "under_autocast"]
