# SPDX-License-Identifier: Apache-2.0
"""torch.compile(model, backend="coda"): regions of a model's graph as fused programs.

Dynamo's graph is normalised before autograd; regions of operations that are understood (fx_import)
and have a product become one operator each, with a derived backward; the rest, with these
operators, goes to Inductor. Attention and what else is not understood stays PyTorch's. Nothing here
knows a model.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.passes.utils.fuser_utils import fuse_by_partitions

from coda_cpp._core import Error
from coda_cpp.fx_import import FREE, PRODUCTS
from coda_cpp.fx_layout import NotUnderstood
from coda_cpp.fx_normal import Normal
from coda_cpp.fx_regions import propose
from coda_cpp.fx_replace import as_region, results_of, widen

_LOG = logging.getLogger("coda_cpp")
@dataclasses.dataclass
class Report:
    """What was taken of a graph, and what not and why."""

    regions: list[str] = dataclasses.field(default_factory=list)
    left: list[str] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        left = [f"  {line}" for line in self.left] or ["  nothing"]
        return "\n".join([*self.regions, "left to PyTorch:", *left])


def _short(node: fx.Node) -> str:
    return str(node.target).removeprefix("aten.").removesuffix(".default").removesuffix(".Tensor")


def fuse(module: fx.GraphModule, inputs: Sequence[Any], report: Report) -> fx.GraphModule:
    """The module with its regions as operators; itself where there is none."""
    try:
        normal = Normal(module, inputs)
    except NotUnderstood as why:
        report.left.append(f"all: {why}")
        return module
    narrowed: dict[fx.Node, torch.dtype] | None = {} if normal.had_autocast else None
    groups = [group for group in propose(normal.module.graph, normal.apart)
              if any(node.target in PRODUCTS for node in group)
              and sum(node.target not in FREE for node in group) > 1]
    fused = fuse_by_partitions(normal.module, [dict.fromkeys(group) for group in groups])
    is_gpu = any(isinstance(t, torch.Tensor) and t.device.type == "cuda" for t in inputs)
    left: collections.Counter[str] = collections.Counter()
    regions: set[fx.Node] = set()
    for node in list(fused.graph.nodes):
        if node.op == "call_module":
            part = fused.get_submodule(node.target)
            what = ", ".join(_short(n) for n in part.graph.nodes
                             if n.op == "call_function" and n.target not in FREE)
            try:
                region = as_region(
                    node.target, part, list(node.all_input_nodes), is_gpu, narrowed)
            except (NotUnderstood, Error) as why:
                left[f"{what}: {why}"] += 1
                continue
            setattr(fused, node.target, region)
            regions.add(node)
            for made, result in zip(results_of(node, len(region.results)), region.results):
                if result.is_narrow and narrowed is not None:
                    narrowed[made] = region.storage
            report.regions.append(f"{node.target}: {what}\n{region.function.explain()}")
        elif (node.op == "call_function" and node.target not in FREE
              and isinstance(node.target, torch._ops.OpOverload)):
            why = f": {normal.refused[node]}" if node in normal.refused else ""
            left[_short(node) + why] += 1
    report.left += [f"{count} x {what}" for what, count in left.items()]
    if not report.regions:
        return module
    if narrowed:
        widen(fused.graph, narrowed, regions)
    fused.recompile()
    return fused


def _inner(name: str) -> Callable[[fx.GraphModule, Sequence[Any]], Callable]:
    if name == "inductor":
        from torch._inductor.compile_fx import compile_fx

        return compile_fx
    from torch._dynamo import lookup_backend

    return lookup_backend(name)


def coda(module: fx.GraphModule, inputs: Sequence[Any], *, options: dict[str, Any] | None = None,
         report: Report | None = None, **_: Any) -> Callable:
    """The backend. Options: "inner", what compiles the rest ("inductor", "aot_eager");
    "strict": a graph of which nothing was taken is an Error."""
    settings = {"inner": "inductor", "strict": False, **(options or {})}
    unknown = set(settings) - {"inner", "strict"}
    if unknown:
        raise Error(f"backend coda: there is no option {', '.join(sorted(unknown))}; there are "
                    "'inner' and 'strict'")
    report = Report() if report is None else report
    try:
        fused = fuse(module, inputs, report)
    except Exception as why:  # noqa: BLE001 (fail closed: the model runs as without us)
        if settings["strict"]:
            raise
        _LOG.warning("coda: the graph is left to PyTorch: %s: %s", type(why).__name__, why)
        fused = module
    if settings["strict"] and not report.regions:
        raise Error("backend coda: nothing of the graph was taken\n" + str(report))
    _LOG.info("coda: %s", report)
    inner = _inner(settings["inner"])
    if fused is module:
        return inner(module, inputs)
    with contextlib.ExitStack() as stack:  # conversions are in the graph
        for device in ("cpu", "cuda"):
            stack.enter_context(torch.autocast(device, enabled=False))
        return inner(fused, inputs)


def explain(model: Callable, *arguments: Any, **named: Any) -> str:
    """What torch.compile(model, backend="coda") takes of the model, called so, and what it leaves
    and why, with the programs and their bytes. The model is run once."""
    reports: list[str] = []

    def backend(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable:
        report = Report()
        compiled = coda(module, inputs, options={"inner": "aot_eager"}, report=report)
        reports.append(str(report))
        return compiled

    torch._dynamo.reset()
    torch.compile(model, backend=backend)(*arguments, **named)
    torch._dynamo.reset()
    return "\n\n".join(reports) or "no graph was compiled"


torch._dynamo.register_backend(coda, name="coda")
