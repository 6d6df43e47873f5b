# SPDX-License-Identifier: Apache-2.0
"""Operators of PyTorch's made of graphs: forward, fake, autograd with our derived backward, and
autocast, for each operator that is declared.

Each is two operators of PyTorch's, coda_cpp::NAME and coda_cpp::NAME_backward. The first takes the
tensors that were given, the attributes as text and which tensors need gradients, and returns its
results and, behind them, what it saves; so autograd, AOTAutograd and checkpointing see plain
functions. What the text and the tensors' shapes say is all there is to one: another process makes
the same of it.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from coda_cpp import _core, _eight_bits, _precompile, _tensors
from coda_cpp._core import Error
from coda_cpp.function import Function, Input, Output, as_matrix, bind
from coda_cpp.session import shape_of

_LIBRARY = torch.library.Library("coda_cpp", "DEF")
_BY_NAME = {name: dtype for dtype, name in _tensors.torch_dtypes().items()}
_CHECKING = False


def checking(on: bool) -> None:
    """Whether indices (targets, positions) are looked at on a GPU before they are used, which waits
    for it. On a CPU they always are."""
    global _CHECKING
    _CHECKING = on


def is_checking() -> bool:
    return _CHECKING


@dataclasses.dataclass(frozen=True)
class Argument:
    """A tensor that an operator takes. What it is says its shape: "rows" [..., K] (a row for each
    token), "per_row" [...], "matrix" [N, K], "columns" [N], "table" [P, N], "index" [...] int32."""

    name: str
    kind: str
    optional: bool = False
    one_type: bool = True  # as the first argument's; autocast casts it

    @property
    def is_differentiable(self) -> bool:
        return self.kind not in ("table", "index")

    def shape(self, tensor: torch.Tensor) -> tuple[int, ...]:
        """The sizes that are no symbols."""
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


class Given(dict):
    """What a builder gets: values of the arguments (None: not given) and attributes, by name."""

    __getattr__ = dict.__getitem__


@dataclasses.dataclass(frozen=True)
class Operator:
    name: str
    arguments: tuple[Argument, ...]
    build: Callable[[Given], list[Output]]
    check: Callable[[dict[str, torch.Tensor], dict[str, Any]], None] | None = None
    chunk_rows: str | None = None  # the attribute that has them

    @property
    def forward(self) -> Any:
        return getattr(torch.ops.coda_cpp, self.name).default

    @property
    def backward(self) -> Any:
        return getattr(torch.ops.coda_cpp, self.name + "_backward").default

    def parse(self, spec: str, numbers: Sequence[float]) -> tuple[list[Argument], dict[str, Any]]:
        """The arguments that are given, and the attributes. `spec` is their names: "x,weight;eps",
        with the values of those that are texts: "reduction=mean"."""
        names, *attributes = spec.split(";")
        given = set(names.split(","))
        found: dict[str, Any] = {}
        rest = iter(numbers)
        for attribute in attributes:
            name, is_text, text = attribute.partition("=")
            found[name] = text if is_text else float(next(rest))
        return [a for a in self.arguments if a.name in given], found

    def key(self, tensors: Sequence[torch.Tensor], spec: str, numbers: Sequence[float]) -> str:
        """All that the function depends on, as text. Raises Error for what cannot be."""
        given, _ = self.parse(spec, numbers)
        facts = []
        for argument, tensor in zip(given, tensors, strict=True):
            dtype = _tensors.dtype_name(tensor)
            allowed = {"index": ("i32",), "per_row": ("f32",)}.get(
                argument.kind, ("f32", "bf16", "f16"))
            if dtype not in allowed:
                wanted = " or ".join(str(_BY_NAME[name]).removeprefix("torch.")
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
        for argument, (shape, dtype) in zip(arguments, facts, strict=True):
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
        chunk_rows = int(attributes[self.chunk_rows]) if self.chunk_rows else 0
        return Function(self.name, graph, inputs, outputs, storage=storage, chunk_rows=chunk_rows,
                        for_gpu=device == "cuda")

    def __call__(self, tensors: Mapping[str, torch.Tensor | None],
                 attributes: tuple[tuple[str, Any], ...]) -> list[torch.Tensor]:
        """The results, and behind them what was saved. Attributes are numbers, booleans
        and texts; for others of them another plan is compiled."""
        given = [tensor for tensor in tensors.values() if tensor is not None]
        names = [name for name, tensor in tensors.items() if tensor is not None]
        needs = 0
        if torch.is_grad_enabled():
            for i, tensor in enumerate(given):
                if tensor.requires_grad:
                    needs += 1 << i
        texts = [",".join(names)]
        numbers: list[float] = []
        for name, value in attributes:  # a number may be one of torch.compile's
            is_text = isinstance(value, str)
            texts.append(f"{name}={value}" if is_text else f"{name}")
            if not is_text:
                numbers.append(value)
        return self.forward(given, ";".join(texts), numbers, needs)


def empty_results(function: Function, tensors: Sequence[torch.Tensor], needs: int
                  ) -> tuple[list[torch.Tensor], dict[str, Any]]:
    """Results and what is saved, not yet written; and the sizes."""
    sizes, leads = function.match(tensors)
    made = [tensors[0].new_empty(function.output_shape(output, sizes, leads),
                                 dtype=_BY_NAME[output.dtype]) for output in function.outputs]
    made += [tensors[0].new_empty(shape_of(info, sizes), dtype=_BY_NAME[info.dtype])
             for info in function.phases(needs).saved]
    return made, sizes


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.contiguous()
    # Descriptors of a GPU's copies begin at multiples of 16 bytes; on a CPU an element's do.
    if tensor.device.type == "cuda" and tensor.data_ptr() % 16:
        return tensor.clone()
    return tensor


def run_forward(function: Function, tensors: Sequence[torch.Tensor], needs: int
                ) -> list[torch.Tensor]:
    made, sizes = empty_results(function, tensors, needs)
    phases = function.phases(needs)
    if 0 in sizes.values():
        for output, tensor in zip(function.outputs, made):
            tensor.fill_(output.of_no_rows)
        for tensor in made[len(function.outputs):]:
            tensor.zero_()
        return made
    memory = {given.name: _dense(tensor) for given, tensor in zip(function.inputs, tensors)}
    names = [output.name for output in function.outputs] + [info.name for info in phases.saved]
    memory.update(zip(names, made, strict=True))
    if phases.first_scales:
        scales = function.scales(needs, tensors[0].device)
        memory[_core.MAGNITUDES] = scales.largest

        def run(*vectors: torch.Tensor) -> None:
            _run(phases.forward, sizes, memory | dict(zip(_eight_bits.NAMES, vectors)))

        for name, vector in zip(_eight_bits.NAMES, scales.before_forward(run), strict=True):
            memory[name].copy_(vector)
    _run(phases.forward, sizes, memory)
    return made


def _run(runners: Any, sizes: dict[str, int], memory: dict[str, torch.Tensor]) -> None:
    tensors = [memory[info.name] for info in runners.tensors]
    runners.run(sizes, tensors[0].device, [tensor.data_ptr() for tensor in tensors])


def backward_inputs(function: Function, needs: int) -> list[str]:
    """What the backward takes, by name: what is kept, what was saved, upstream gradients."""
    phases = function.phases(needs)
    read = [info.name for info in phases.backward.tensors]
    upstream = [f"grad_of_{output.name}" for output in function.outputs]
    return [*phases.kept, *(info.name for info in phases.saved if info.name in read),
            *(name for name in upstream if name in read)]


def empty_gradients(function: Function, tensors: Sequence[torch.Tensor], needs: int
                    ) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """By name, not yet written, in rows and columns; and the sizes."""
    given = dict(zip(backward_inputs(function, needs), tensors, strict=True))
    infos = {info.name: info for info in function.phases(needs).backward.tensors}
    sizes: dict[str, Any] = {}
    for name, tensor in given.items():
        info = infos[name]
        if info.kind != "dense":
            continue
        _, found = as_matrix(tuple(tensor.shape), info.rows, info.cols)
        for terms, size in zip((info.rows, info.cols), found, strict=True):
            if not bind(terms, size, sizes):
                raise Error(f"{function.name}, backward: '{name}' has the shape "
                            f"{list(tensor.shape)}")
    return {info.name: tensors[0].new_empty(shape_of(info, sizes), dtype=_BY_NAME[info.dtype])
            for info in infos.values()
            if info.role == "output" and info.name != _core.MAGNITUDES}, sizes


def gradient_names(function: Function, needs: int) -> list[str]:
    return [f"grad_to_{given.name}" for i, given in enumerate(function.inputs) if needs >> i & 1]


def run_backward(function: Function, tensors: Sequence[torch.Tensor], needs: int
                 ) -> list[torch.Tensor]:
    made, sizes = empty_gradients(function, tensors, needs)
    if 0 in sizes.values():
        return [made[name].zero_() for name in gradient_names(function, needs)]
    given = dict(zip(backward_inputs(function, needs), tensors, strict=True))
    memory = {name: _dense(tensor) for name, tensor in given.items()} | made

    def run(*vectors: torch.Tensor) -> None:
        memory.update(zip(_eight_bits.NAMES, vectors))
        for name in made:
            if name in given:  # begun by the forward, completed in place
                made[name].copy_(given[name])
        _run(function.phases(needs).backward, sizes, memory)

    vectors: Sequence[torch.Tensor] = ()
    if function.phases(needs).first_scales:
        scales = function.scales(needs, tensors[0].device)
        memory[_core.MAGNITUDES] = scales.largest
        vectors = scales.before_backward(*(given[name] for name in _eight_bits.NAMES), run)
    run(*vectors)
    return [made[name] for name in gradient_names(function, needs)]


def declare(operator: Operator) -> Operator:
    """Makes it known to PyTorch."""

    def forward(tensors: list[torch.Tensor], spec: str, numbers: list[float], needs: int
                ) -> list[torch.Tensor]:
        if operator.check is not None and (tensors[0].device.type == "cpu" or _CHECKING):
            given, attributes = operator.parse(spec, numbers)
            operator.check({a.name: t for a, t in zip(given, tensors)}, attributes)
        return run_forward(operator.function(operator.key(tensors, spec, numbers)), tensors, needs)

    def fake(tensors: list[torch.Tensor], spec: str, numbers: list[float], needs: int
             ) -> list[torch.Tensor]:
        function = operator.function(operator.key(tensors, spec, numbers))
        made, sizes = empty_results(function, tensors, needs)
        if tensors[0].device.type == "cuda":
            gpu = torch.cuda.get_device_properties(tensors[0].device)
            _precompile.start(function.phases(needs).plan, sizes, gpu.multi_processor_count)
        return made

    def backward(tensors: list[torch.Tensor], key: str, needs: int) -> list[torch.Tensor]:
        return run_backward(operator.function(key), tensors, needs)

    def fake_backward(tensors: list[torch.Tensor], key: str, needs: int) -> list[torch.Tensor]:
        function = operator.function(key)
        made = empty_gradients(function, tensors, needs)[0]
        return [made[name] for name in gradient_names(function, needs)]

    def setup_context(ctx: Any, inputs: tuple, output: list[torch.Tensor]) -> None:
        tensors, spec, numbers, needs = inputs
        ctx.key, ctx.needs = operator.key(tensors, spec, numbers), needs
        ctx.shapes = [tensor.shape for tensor in tensors]
        ctx.of_numbers = None if numbers else []  # PyTorch takes an empty list for one of tensors
        ctx.set_materialize_grads(False)
        if not needs:
            return
        function = operator.function(ctx.key)
        names = [given.name for given in function.inputs]
        names += [result.name for result in function.outputs]
        names += [info.name for info in function.phases(needs).saved]
        known = dict(zip(names, [*tensors, *output], strict=True))
        ctx.save_for_backward(
            *(known[n] for n in backward_inputs(function, needs) if n in known))
        ctx.outputs = [tuple(tensor.shape) for tensor in output[:len(function.outputs)]]
        count = len(function.outputs)
        ctx.mark_non_differentiable(
            *(t for o, t in zip(function.outputs, output) if not o.differentiable),
            *output[count:])

    def derive(ctx: Any, gradients: list[torch.Tensor | None]) -> tuple:
        if not ctx.needs:
            raise Error(f"{operator.name}: called with needs=0: nothing was saved for a backward")
        function = operator.function(ctx.key)
        saved = ctx.saved_tensors
        given = list(saved)
        count = len(function.outputs)
        results: list[torch.Tensor | None] = [None] * len(ctx.shapes)
        if all(gradient is None for gradient in gradients[:count]):
            return results, None, ctx.of_numbers, None
        like = next(gradient for gradient in gradients[:count] if gradient is not None)
        names = backward_inputs(function, ctx.needs)
        for output, gradient, shape in zip(function.outputs, gradients, ctx.outputs):
            if f"grad_of_{output.name}" not in names:
                continue
            if gradient is None:
                gradient = like.new_zeros(shape, dtype=_BY_NAME[output.dtype])
            given.append(gradient)
        made = iter(operator.backward(given, ctx.key, ctx.needs))
        for i, shape in enumerate(ctx.shapes):
            if ctx.needs >> i & 1:
                results[i] = next(made).reshape(shape)
        return results, None, ctx.of_numbers, None

    name, tags = operator.name, (torch.Tag.pt2_compliant_tag,)
    for schema in (f"{name}(Tensor[] tensors, str spec, float[] numbers, int needs) -> Tensor[]",
                   f"{name}_backward(Tensor[] tensors, str key, int needs) -> Tensor[]"):
        _LIBRARY.define(schema, tags=tags)
    for device in ("CPU", "CUDA"):
        _LIBRARY.impl(name, forward, device)
        _LIBRARY.impl(f"{name}_backward", backward, device)
        _LIBRARY.impl(name, functools.partial(_autocast, operator, device), f"Autocast{device}")
    torch.library.register_fake(f"coda_cpp::{name}", fake, lib=_LIBRARY)
    torch.library.register_fake(f"coda_cpp::{name}_backward", fake_backward, lib=_LIBRARY)
    torch.library.register_autograd(
        f"coda_cpp::{name}", derive, setup_context=setup_context, lib=_LIBRARY)
    return operator


def _autocast(operator: Operator, device: str, tensors: list[torch.Tensor], spec: str,
              numbers: list[float], needs: int) -> list[torch.Tensor]:
    """Operands of products and what meets their results become autocast's type; statistics and
    norms' weights stay as they are."""
    dtype = torch.get_autocast_dtype(device.lower())
    key = getattr(torch._C.DispatchKey, f"Autocast{device}")
    arguments, _ = operator.parse(spec, numbers)
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
        cast = [tensor.to(dtype) if argument.one_type and tensor.is_floating_point() else tensor
                for argument, tensor in zip(arguments, tensors, strict=True)]
        return operator.forward(cast, spec, numbers, needs)


__all__ = ["Argument", "Given", "Operator", "checking", "declare"]
