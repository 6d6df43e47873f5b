# SPDX-License-Identifier: Apache-2.0
"""torch.compile(model, backend="coda"): regions of a model's graph as fused programs.

Dynamo's graph is normalised before autograd; regions of operations that are understood (import)
and have a product become one operator each, with a derived backward; the rest, with these
operators, goes to Inductor. Attention and what else is not understood stays PyTorch's. Nothing here
knows a model.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._functorch import config as functorch_config
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.fx.passes.utils.fuser_utils import fuse_by_partitions

from coda_cpp import _core
from coda_cpp._core import Error, InternalError, Plan
from coda_cpp.torch_backend import checkpoint
from coda_cpp.torch_backend.ddp_buckets import too_small_buckets
from coda_cpp.torch_backend.inline import inline
from coda_cpp.torch_backend.layout import PRODUCTS, NotUnderstood
from coda_cpp.torch_backend.normal import Normal
from coda_cpp.torch_backend.regions import propose, without_parts
from coda_cpp.torch_backend.replace import Region, as_region, results_of, widen
from coda_cpp.torch_backend.rules import FREE

_LOG = logging.getLogger("coda_cpp")

# What a call of an operator costs the host, in seconds, with eight tensors and PyTorch's dispatch
# (bench/peers/host_time_torch.py): a region that gains less is left to PyTorch.
_CALL_SECONDS = 25e-6
_OPTIONS = {"inner": "inductor", "strict": False, "cost_model": True, "products": "",
            "objective": "memory"}
_CHOICES = {"products": ("", *_core.eight_bits_names()),
            "objective": ("memory", "speed")}


@dataclasses.dataclass
class Taken:
    """A region that became an operator, or that was left since it would gain nothing."""

    name: str
    operations: str
    region: Region

    @functools.cached_property
    def costs(self) -> tuple[tuple, tuple]:
        return self.region.function.function.costs(self.region.needs)

    @property
    def gains(self) -> bool:
        (_, _, ours), (_, _, theirs) = self.costs
        return ours + _CALL_SECONDS * (2 if self.region.needs else 1) < theirs

    @property
    def plan(self) -> Plan:
        return self.region.function.function.phases(self.region.needs).plan

    def summary(self) -> str:
        (_, moved, seconds), (_, moved_apart, seconds_apart) = self.costs
        kept = self.plan.saved_bytes(self.region.function.function.nominal_sizes())
        return (f"{self.name}: {self.operations}\n"
                f"  {len(self.plan.programs)} programs; {moved / 1e6:.2f} MB moved, "
                f"{moved_apart / 1e6:.2f} MB without epilogues; {kept / 1e6:.2f} MB kept for the "
                f"backward; {seconds * 1e3:.3f} ms predicted, {seconds_apart * 1e3:.3f} ms without")

    def __str__(self) -> str:
        return self.summary() + "\n" + self.region.function.function.explain(self.region.needs)


@dataclasses.dataclass
class Report:
    """What was taken of a graph, and what not and why."""

    taken: list[Taken] = dataclasses.field(default_factory=list)
    without_gain: list[Taken] = dataclasses.field(default_factory=list)
    left: list[str] = dataclasses.field(default_factory=list)  # with counts
    refused: list[str] = dataclasses.field(default_factory=list)  # of those, what has products
    causal: int = 0  # calls of attention that were told that their mask is causal

    @property
    def regions(self) -> list[str]:
        return [taken.operations for taken in self.taken]

    @property
    def programs(self) -> int:
        return sum(len(taken.plan.programs) for taken in self.taken)

    def text(self, with_plans: bool = False) -> str:
        lines = [str(taken) if with_plans else taken.summary() for taken in self.taken]
        if self.causal:
            lines.append(f"{self.causal} calls of attention have a causal mask, and were told so")
        if self.without_gain:
            lines.append("left to PyTorch, since fusion would gain nothing at these sizes:")
            lines += ["  " + taken.summary().replace("\n", "\n  ") for taken in self.without_gain]
        lines.append("left to PyTorch:")
        return "\n".join(lines + [f"  {line}" for line in self.left or ["nothing"]])

    __str__ = text


def _short(node: fx.Node) -> str:
    return str(node.target).removeprefix("aten.").removesuffix(".default").removesuffix(".Tensor")


@_use_lazy_graph_module(True)  # graphs on the way are read, and only the last is called
def fuse(module: fx.GraphModule, inputs: Sequence[Any], report: Report, cost_model: bool = True,
         products: str = "", objective: str = "memory",
         facts: Sequence[dict[str, Any]] | None = None,
         kinds: dict[Any, fx.Graph] | None = None) -> fx.GraphModule:
    """The module with its regions as operators; itself where nothing changes. facts and kinds: see
    Normal."""
    try:
        normal = Normal(module, inputs, facts, kinds)
    except NotUnderstood as why:
        report.left.append(f"all: {why}")
        report.refused.append(f"all: {why}")
        return module
    report.causal += normal.told_causal
    narrowed: dict[fx.Node, torch.dtype] | None = {} if normal.had_autocast else None
    proposed = map(without_parts, propose(normal.module.graph, normal.apart))
    groups = [group for group in proposed
              if any(node.target in PRODUCTS for node in group)
              and sum(node.target not in FREE for node in group) > 1]
    fused = fuse_by_partitions(normal.module, [dict.fromkeys(group) for group in groups])
    is_gpu = any(isinstance(t, torch.Tensor) and t.device.type == "cuda" for t in inputs)
    left: collections.Counter[str] = collections.Counter()
    regions: set[fx.Node] = set()
    changes = bool(normal.told_causal)
    for node in list(fused.graph.nodes):
        if node.op == "call_module":
            part = fused.get_submodule(node.target)
            what = ", ".join(_short(n) for n in part.graph.nodes
                             if n.op == "call_function" and n.target not in FREE)
            try:
                region, rounded = as_region(part, list(node.all_input_nodes), is_gpu, narrowed,
                                            products, objective)
            except (NotUnderstood, Error, InternalError) as why:
                left[f"{what}: {why}"] += 1
                report.refused.append(f"{what}: {why}")
                continue
            taken = Taken(node.target, what, region)
            if cost_model and not taken.gains:
                report.without_gain.append(taken)
                continue
            report.taken.append(taken)
            changes = True
            setattr(fused, node.target, region)
            node.args = (*node.args, *rounded)
            regions.add(node)
            for made, result in zip(results_of(node, len(region.results)), region.results):
                if result.is_narrow and narrowed is not None:
                    narrowed[made] = region.storage
        elif node.target is checkpoint.SUBGRAPH:
            changes |= _fuse_block(normal, fused, node, report, cost_model, products,
                                   objective)
        elif (node.op == "call_function" and node.target not in FREE
              and isinstance(node.target, torch._ops.OpOverload)):
            why = f": {normal.refused[node]}" if node in normal.refused else ""
            left[_short(node) + why] += 1
            if node in normal.refused and node.target in PRODUCTS:
                report.refused.append(_short(node) + why)
    report.left += [f"{count} x {what}" for what, count in left.items()]
    if not changes:
        return module
    if narrowed:
        widen(fused.graph, narrowed, regions)
    fused.recompile()
    return fused


def _fuse_block(normal: Normal, fused: fx.GraphModule, node: fx.Node, report: Report,
                cost_model: bool, products: str, objective: str) -> bool:
    """Puts the block that the node stands for back, fused by itself; whether that changed it."""
    call = normal.blocks[node.args[2]]
    block = call.graph.owning_module.get_submodule(call.args[0].target)
    operands = checkpoint.operands(node, call)
    inputs = [operand.meta["val"] if isinstance(operand, fx.Node) else operand
              for operand in operands]
    made = fuse(block, inputs, report, cost_model, products, objective,
                [normal.facts(o) for o in operands], normal.kinds)
    checkpoint.put_back(fused, node, call, made)
    return made is not block


def _inner(name: str) -> Callable[[fx.GraphModule, Sequence[Any]], Callable]:
    if name == "inductor":
        from torch._inductor.compile_fx import compile_fx

        return compile_fx
    from torch._dynamo import lookup_backend

    return lookup_backend(name)


def _settings(options: dict[str, Any] | None) -> dict[str, Any]:
    unknown = set(options or {}) - set(_OPTIONS)
    if unknown:
        raise Error(f"backend coda: there is no option {', '.join(sorted(unknown))}; there are "
                    + ", ".join(f"'{name}'" for name in _OPTIONS))
    settings = {**_OPTIONS, **(options or {})}
    for name, choices in _CHOICES.items():
        if settings[name] not in choices:
            raise Error(f"backend coda: the option '{name}' is {settings[name]!r}; it may be "
                        + ", ".join(repr(choice) for choice in choices))
    return settings


@functools.cache
def _warn_once(text: str) -> None:
    _LOG.warning("coda: %s", text)


def coda(module: fx.GraphModule, inputs: Sequence[Any], *, options: dict[str, Any] | None = None,
         report: Report | None = None, **_: Any) -> Callable:
    """The backend. Options: "inner", what compiles the rest ("inductor", "aot_eager");
    "strict": what would be left to PyTorch with a product in it is an Error;
    "cost_model": regions that would gain nothing are left to PyTorch;
    "products": "fp8" has the products of bf16 regions in 8 bits in training (docs/fp8.md);
    "objective": "speed" keeps for the backward what is read faster than made again."""
    settings = _settings(options)
    report = Report() if report is None else report
    try:
        fused = fuse(module, inputs, report, settings["cost_model"], settings["products"],
                     settings["objective"])
    except Exception as why:  # noqa: BLE001 (fail closed: the model runs as without us)
        if settings["strict"]:
            raise
        _warn_once(f"left to PyTorch: all: {type(why).__name__}: {why}")
        fused = module
    if settings["strict"] and report.refused:
        raise Error("backend coda: products are left to PyTorch: " + "; ".join(report.refused))
    for refused in report.refused:
        _warn_once(f"left to PyTorch: {refused}")
    with contextlib.suppress(AttributeError):  # what it reads is PyTorch's own, as Dynamo reads it
        if slow := too_small_buckets():
            _warn_once(slow)
    _LOG.info("coda: %s", report)
    inner = _inner(settings["inner"])
    if fused is module:
        return inner(module, inputs)
    with contextlib.ExitStack() as stack:
        for device in ("cpu", "cuda"):
            stack.enter_context(torch.autocast(device, enabled=False))
        if not inline(fused):
            stack.enter_context(functorch_config.patch(enable_autograd_cache=False))
        compiled = inner(fused, inputs)
    return _without_autocast(compiled) if torch._C._is_any_autocast_enabled() else compiled


def _without_autocast(compiled: Callable) -> Callable:
    """Conversions are in the graph already."""
    def called(*arguments: Any) -> Any:
        with torch._C._DisableAutocast():
            return compiled(*arguments)

    return called


def explain(model: Callable, *arguments: Any, with_plans: bool = False,
            options: dict[str, Any] | None = None, **named: Any) -> str:
    """What torch.compile(model, backend="coda", options=options) takes of the model, called with
    these arguments, and what it leaves and why, with bytes; `with_plans`: with all programs too.
    The model is run once."""
    reports: list[str] = []
    settings = {**_settings(options), "inner": "aot_eager", "strict": False}

    def backend(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable:
        report = Report()
        compiled = coda(module, inputs, options=settings, report=report)
        reports.append(report.text(with_plans))
        return compiled

    torch._dynamo.reset()
    torch.compile(model, backend=backend)(*arguments, **named)
    torch._dynamo.reset()
    return "\n\n".join(reports) or "no graph was compiled"


def tune(model: Callable, *arguments: Any, most: int = 24, seconds: float = 0.6,
         options: dict[str, Any] | None = None, **named: Any) -> list[str]:
    """Times tile configurations of the kernels that torch.compile(model, backend="coda",
    options=options), called with these arguments, runs on this GPU, and keeps the times for later
    processes (docs/configurations.md). A line for each kernel: class, sizes, what was chosen, its
    microseconds, the fastest, its microseconds. What was timed here before is left out. `most` and
    `seconds` as of `coda tune`. The model is run once, unfused."""
    lines: list[str] = []
    settings = _settings(options)

    def backend(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable:
        report = Report()
        fuse(module, inputs, report, settings["cost_model"], settings["products"],
             settings["objective"])
        for taken in report.taken:
            sizes = taken.region.function.function.nominal_sizes()
            lines.extend(" | ".join(map(str, kernel))
                         for kernel in _core.tune(taken.plan, sizes, most, seconds))
        return module.forward

    torch._dynamo.reset()
    torch.compile(model, backend=backend)(*arguments, **named)
    torch._dynamo.reset()
    return lines


def without_logits(model: torch.nn.Module) -> torch.nn.Module:
    """The model, which from now on returns no logits where it returns a loss.

    They are then no result of the compiled graph, and need not be stored: M * V values. The model's
    result has the fields `loss` and `logits`, as Hugging Face's have; without labels it stays as it
    is. Raises Error, at the call, for a result that has no such fields.
    """
    forward = model.forward

    @functools.wraps(forward)
    def without(*arguments: Any, **named: Any) -> Any:
        made = forward(*arguments, **named)
        if not hasattr(made, "loss") or not hasattr(made, "logits"):
            raise Error("without_logits: the model's result has no fields 'loss' and 'logits'; "
                        "give a model that returns them, as Hugging Face's do with return_dict")
        if made.loss is None:
            return made
        # A new one: Dynamo would return what a changed one has held.
        return type(made)(**{name: made[name] for name in made.keys() if name != "logits"})

    model.forward = without
    return model


torch._dynamo.register_backend(coda, name="coda")
