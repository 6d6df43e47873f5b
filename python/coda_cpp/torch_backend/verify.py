# SPDX-License-Identifier: Apache-2.0
"""verify() checks that a compiled model computes the right results and gradients.

Two computations differ by rounding. So the model is also run in float64, and the errors of the
compiled model are compared with those of eager: they must have the same magnitude.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from coda_cpp._core import Error
from coda_cpp.torch_backend import options as choices
from coda_cpp.torch_backend.coda import coda
from coda_cpp.torch_backend.messages import skip_messages
from coda_cpp.torch_backend.report import Report

_ALLOWED = 3.0  # times eager's error
_FLOOR = 2e-6  # always allowed: the difference between fp32 sums in different orders
_UNKNOWN = 0.25  # with this error of eager, eager and float64 do not compute the same
_SHOWN = 4  # the number of printed gradients
_GRADIENT = "gradient of"


@dataclasses.dataclass(frozen=True)
class _Row:
    """Relative errors of a tensor: the backend's, eager's, and the allowed error."""

    name: str
    ours: float
    eager: float
    allowed: float

    @property
    def is_bad(self) -> bool:
        return not self.ours <= self.allowed  # nan is bad


@dataclasses.dataclass(frozen=True)
class Verification:
    """The result of verify(). `is_good`: every result and gradient is as near to float64 as
    eager's. str() gives ten lines."""

    is_good: bool
    rows: tuple[_Row, ...]
    text: str

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    def __bool__(self) -> bool:
        return self.is_good


class _State:
    """A snapshot of parameters, buffers, inputs, gradients, modes and compiled calls of a model,
    and of the random generators."""

    def __init__(self, model: nn.Module, arguments: Any) -> None:
        self._tensors = [*model.parameters(), *model.buffers(), *_tensors(arguments)]
        self._values = [tensor.detach().clone() for tensor in self._tensors]
        self._gradients = [tensor.grad for tensor in self._tensors if tensor.is_leaf]
        self._modes = {module: (module.training, module._compiled_call_impl)
                       for module in model.modules()}
        self._python = random.getstate()
        self._cpu = torch.random.get_rng_state()
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []

    def run_eagerly(self) -> None:
        """Makes the model run eagerly, even if model.compile() was called."""
        for module in self._modes:
            module._compiled_call_impl = None

    def restore(self) -> None:
        random.setstate(self._python)
        torch.random.set_rng_state(self._cpu)
        if self._cuda:
            torch.cuda.set_rng_state_all(self._cuda)
        for module, (mode, compiled) in self._modes.items():
            module.training, module._compiled_call_impl = mode, compiled
        with torch.no_grad():
            for tensor, value in zip(self._tensors, self._values):
                if not torch.equal(tensor, value):
                    tensor.copy_(value)
        leaves = (tensor for tensor in self._tensors if tensor.is_leaf)
        for tensor, gradient in zip(leaves, self._gradients):
            tensor.grad = gradient


def _tensors(arguments: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]


def _floats(made: Any) -> dict[str, torch.Tensor]:
    """The floating-point tensors of a result: only its loss if it has one."""
    loss = made.get("loss") if isinstance(made, Mapping) else getattr(made, "loss", None)
    if isinstance(loss, torch.Tensor):
        return {"loss": loss}
    leaves = [leaf for leaf in pytree.tree_leaves(made)
              if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
    if not leaves:
        raise Error("verify: the model returns no floating-point tensor")
    names = ["output"] if len(leaves) == 1 else [f"output {i}" for i in range(len(leaves))]
    return dict(zip(names, leaves))


def _outcome(called: Callable, trained: Mapping[str, torch.Tensor], arguments: Sequence[Any],
             named: Mapping[str, Any], grad: Callable = torch.autograd.grad
             ) -> dict[str, torch.Tensor]:
    """Results and gradients, in their own types. The gradients are those of the sum of the results
    times random weights, so they depend on all values. `grad` computes them."""
    found = _floats(called(*arguments, **named))
    generator = torch.Generator().manual_seed(0)
    total: Any = 0
    for tensor in found.values():
        if tensor.requires_grad:
            weights = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
            factor = weights / tensor.numel() ** 0.5 if tensor.dim() else torch.ones(())
            total = total + (tensor * factor.to(tensor)).sum()
    results = {name: tensor.detach() for name, tensor in found.items()}
    if isinstance(total, torch.Tensor) and trained:
        gradients = grad(total, list(trained.values()), allow_unused=True)
        results |= {f"{_GRADIENT} {name}": gradient
                    for name, gradient in zip(trained, gradients) if gradient is not None}
    return results


def _trained(model: nn.Module, arguments: Any) -> dict[str, torch.Tensor]:
    inputs = {f"input {i}": tensor for i, tensor in enumerate(_tensors(arguments))
              if tensor.requires_grad}
    return {**{name: p for name, p in model.named_parameters() if p.requires_grad}, **inputs}


def _error(found: torch.Tensor, exact: torch.Tensor, scale: float) -> float:
    """Norm of the difference, relative to the larger of the exact tensor's norm and `scale`,
    because a gradient that is zero except for rounding has no relative error."""
    difference = (found.double() - exact.double()).norm()
    return float(difference / max(float(exact.double().norm()), scale, 1e-300))


def _widened(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    return value.detach().double().requires_grad_(value.requires_grad)


def _grad_in_mode(total: torch.Tensor, trained: Sequence[torch.Tensor], allow_unused: bool
                  ) -> Sequence[torch.Tensor | None]:
    """Like torch.autograd.grad, but a TorchFunctionMode stays active, for what checkpointing
    recomputes."""
    return torch.autograd.Variable._execution_engine.run_backward(
        (total,), (torch.ones_like(total),), False, False, tuple(trained), allow_unused,
        accumulate_grad=False)


@contextlib.contextmanager
def _in_float64() -> Iterator[None]:
    """Without autocast, and without conversions to narrower types within the model."""
    usual = torch.get_default_dtype()
    with contextlib.ExitStack() as stack:
        stack.callback(torch.set_default_dtype, usual)
        torch.set_default_dtype(torch.float64)
        for device in ("cpu", "cuda"):
            stack.enter_context(torch.autocast(device, enabled=False))
        stack.enter_context(_Wide())
        yield


def _grouped_mm(rows: torch.Tensor, matrices: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    """torch._grouped_mm of the rows of each expert, in types for which PyTorch has no kernel. Rows
    behind the last expert's give zeros."""
    ends = [0, *offs.tolist()]
    made = [rows[begin:end] @ matrix for begin, end, matrix in zip(ends, ends[1:], matrices)]
    rest = rows.new_zeros(len(rows) - ends[-1], matrices.shape[-1])
    return torch.cat([*made, rest])


class _Wide(torch.overrides.TorchFunctionMode):
    """Makes x.float(), x.to(torch.bfloat16) and dtype=torch.float32 use float64."""

    _NARROW = {torch.float32, torch.bfloat16, torch.float16}
    _METHODS = {torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16}

    def __torch_function__(self, function: Callable, types: Any, args: Any = (),
                           kwargs: Any = None) -> Any:
        if function in self._METHODS:
            return args[0].double()
        if function is torch._grouped_mm and (args[0].dim(), args[1].dim()) == (2, 3):
            return _grouped_mm(args[0], args[1], kwargs["offs"])
        args, kwargs = pytree.tree_map(
            lambda leaf: torch.float64 if isinstance(leaf, torch.dtype) and leaf in self._NARROW
            else leaf, (args, kwargs or {}))
        return function(*args, **kwargs)


def _precision(tensors: Sequence[torch.Tensor]) -> float:
    """The unit in the last place of the type in which the model computes."""
    types = {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
    for device in ("cpu", "cuda"):
        if torch.is_autocast_enabled(device):
            types.add(torch.get_autocast_dtype(device))
    return max((torch.finfo(dtype).eps for dtype in types), default=0.0)


def verify(model: nn.Module, *arguments: Any, options: Mapping[str, Any] | None = None,
           **named: Any) -> Verification:
    """Runs the model, called with these arguments, eagerly in float64, eagerly, and compiled with
    backend="coda" and these options, from the same state, with gradients of its loss (its result's
    `loss`, else all of its results). Print the returned Verification. It is true if every result
    and gradient is as near to float64 as eager's.

    Works under torch.autocast and torch.no_grad(). Parameters, buffers, gradients, inputs, modes
    and random generators are restored; optimizers are not touched; compiled models compile again at
    their next call. verify() needs memory for a float64 copy of the model. Raises Error if `model`
    is not a module, or returns no floating-point tensor.

    By default the cost model is off, so that everything possible is fused, and the rest is not
    compiled, so that random numbers equal eager's; `options` can change both."""
    if not isinstance(model, nn.Module):
        raise Error(f"verify: it takes a module, and this is a {type(model).__name__}")
    model = getattr(model, "_orig_mod", model)
    given = options or {}
    inner = "inductor" if given.get("mode") else "aot_eager"
    chosen = choices.checked({"inner": inner, "cost_model": False, **given})
    reports: list[Report] = []

    def backend(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable:
        reports.append(Report())
        return coda(module, inputs, options=vars(chosen), report=reports[-1])

    given = (arguments, named)
    precision = _precision([*model.parameters(), *_tensors(given)])
    state = _State(model, given)
    runs = []
    torch._dynamo.reset()
    skip_messages()
    try:
        for called in (None, model, torch.compile(model, backend=backend)):
            state.restore()
            state.run_eagerly()
            if called is None:
                wide, wide_given = copy.deepcopy(model).double(), pytree.tree_map(_widened, given)
                with _in_float64():
                    runs.append(_outcome(wide, _trained(wide, wide_given), *wide_given,
                                         grad=_grad_in_mode))
                del wide
            else:
                runs.append(_outcome(called, _trained(model, given), *given))
    finally:
        state.restore()
        torch._dynamo.reset()
    return _judged(*runs, precision, Report.of(reports))


def _judged(exact: Mapping[str, torch.Tensor], eager: Mapping[str, torch.Tensor],
            ours: Mapping[str, torch.Tensor], precision: float, report: Report) -> Verification:
    largest = max((float(tensor.double().norm()) for name, tensor in exact.items()
                   if name.startswith(_GRADIENT)), default=0.0)
    rows = []
    for name, tensor in exact.items():
        # The error of a gradient that is much smaller than the others is relative to the others.
        scale = largest * precision if name.startswith(_GRADIENT) else 0.0
        own = _error(eager[name], tensor, scale)
        rows.append(_Row(name, _error(ours[name], tensor, scale) if name in ours else float("nan"),
                         own, max(_ALLOWED * own, precision / 2, _FLOOR)))
    bad = [row for row in rows if row.is_bad]
    results = [row for row in rows if not row.name.startswith(_GRADIENT)]
    gradients = sorted((row for row in rows if row.name.startswith(_GRADIENT)),
                       key=lambda row: (row.is_bad, row.ours / row.allowed), reverse=True)
    is_known = all(row.eager < _UNKNOWN for row in results)
    shown = results[:2] + gradients[:_SHOWN]
    width = max(len("relative error"), *(len(row.name) for row in shown))
    lines = [report.total(), f"{'relative error':{width}}      coda     eager"]
    lines += [f"{row.name:{width}}  {row.ours:8.1e}  {row.eager:8.1e}{'  BAD' * row.is_bad}"
              for row in shown]
    if len(rows) > len(shown):
        lines.append(f"{len(rows) - len(shown)} more, no worse than these relative to eager")
    if bad:
        lines.append(f"verdict: BAD: {len(bad)} of {len(rows)} tensors are farther from float64 "
                     "than eager's; please report this with the model")
    elif not is_known:
        lines.append("verdict: unknown: eager itself is far from float64, as where random numbers "
                     "differ; call model.eval() first")
    else:
        lines.append(f"verdict: good: all {len(rows)} tensors are as near to float64 as eager's"
                     + ("" if report.fused else ", as nothing is fused"))
    return Verification(is_known and not bad, tuple(rows), "\n".join(lines))
