# SPDX-License-Identifier: Apache-2.0
"""torch.compile(model, backend="coda"): replaces regions of a model's graph by fused programs.

Dynamo's graph is normalised before autograd. Each region of supported operations with at least one
product becomes one operator with a derived backward. Inductor compiles the graph with these
operators. PyTorch runs all unsupported operations, and attention where its kernels are the fastest
(attention.py). There is no model-specific code.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import logging
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Any

import torch
from torch import fx
from torch._dynamo.exc import RestartAnalysis
from torch._dynamo.utils import _disable_saved_tensors_hooks_during_tracing
from torch._functorch import config as functorch_config
from torch.fx._lazy_graph_module import _use_lazy_graph_module

import coda_cpp_autoload
from coda_cpp._core import Error, InternalError
from coda_cpp.function import ONLY_LOSSES
from coda_cpp.session import is_new_gpu
from coda_cpp.torch_backend import (
    attention, cuda_graphs, equal_layers, flex, floats, higher_order, last_region, linears, measure,
    options as choices, region_times, strides, value_checks)
from coda_cpp.torch_backend.attention_choice import Choice
from coda_cpp.torch_backend.ddp_buckets import too_small_buckets
from coda_cpp.torch_backend.inline import inline, prepare
from coda_cpp.torch_backend.layout import PRODUCTS, NotUnderstood
from coda_cpp.torch_backend.normal import Normal
from coda_cpp.torch_backend.notices import (
    StrictError, eight_bits_that_do_nothing, reason, warn_of_layers, warn_once, why_no_eight_bits,
    why_no_kernels)
from coda_cpp.torch_backend.regions import cut, of_one_type, propose, without_parts
from coda_cpp.torch_backend.options import Options
from coda_cpp.torch_backend.replace import (
    Region, as_region, detach_rounded, results_of, widen)
from coda_cpp.torch_backend.report import RegionReport, Report
from coda_cpp.torch_backend.rules import FREE

_MASKS = "coda_masks"  # in a block's meta: inputs whose bounds it reads (see attention.Masks)
_LOG = logging.getLogger("coda_cpp")


def _short(node: fx.Node) -> str:
    return str(node.target).removeprefix("aten.").removesuffix(".default").removesuffix(".Tensor")


@_use_lazy_graph_module(True)  # intermediate graphs are read; only the last one is called
def fuse(module: fx.GraphModule, inputs: Sequence[Any], report: Report, options: Options,
         facts: Sequence[dict[str, Any]] | None = None,
         kinds: dict[Any, fx.GraphModule] | None = None, around: Sequence[fx.Node] = (),
         checks: value_checks.Checks | None = None) -> fx.GraphModule:
    """The module with its regions as operators, or the module itself if nothing changes. facts,
    kinds, around and checks: see Normal."""
    def compiler(part: fx.GraphModule, given: Sequence[Any]) -> Callable:  # of what is timed
        return _compiler(options.inner, {}, options, may_record=False)(part, given)

    choice = Choice(compiler, options.inner, bool(options.cost_model))
    try:
        normal = Normal(module, inputs, facts, kinds, around, checks, choice)
    except NotUnderstood as why:
        report.left.append(f"all: {why}")
        report.layers += linears.unseen(module, str(why))
        return module
    for calls, count in vars(normal.told).items():
        setattr(report, calls, getattr(report, calls) + count)
    report.notes += [note for note in choice.notes if note not in report.notes]
    report.layers += linears.mark(normal.module, normal.refused)
    narrowed: dict[fx.Node, torch.dtype] | None = {} if normal.had_autocast else None
    proposed = map(without_parts, propose(normal.module.graph, normal.apart, normal.before))
    groups = [part for group in proposed
              for part in ([group] if normal.had_autocast else of_one_type(group))
              if any(node.target in PRODUCTS for node in part)
              and sum(node.target not in FREE for node in part) > 1]
    fused = normal.module
    cut(fused, groups, normal.before)
    strides.keep_operands(fused.graph)
    is_gpu = any(isinstance(t, torch.Tensor) and t.device.type == "cuda" for t in inputs)
    is_new = bool(options.cost_model) and any(
        is_new_gpu(t.device) for t in inputs if isinstance(t, torch.Tensor))
    left: collections.Counter[str] = collections.Counter()
    regions: dict[fx.Node, Region] = {}
    changes = any(vars(normal.told).values())
    for node in list(fused.graph.nodes):
        if node.op == "call_module":
            part = fused.get_submodule(node.target)
            what = ", ".join(_short(n) for n in part.graph.nodes
                             if n.op == "call_function" and n.target not in FREE)
            try:
                operands = floats.with_tensors(part, node)
                region, rounded = as_region(part, operands, is_gpu, narrowed, options.products,
                                            options.objective)
                if facts is None:
                    last_region.mark(node, region)
                entry = RegionReport(node.target, what, region)
                # prepare() starts to compile the region's kernels in the background. During the
                # measurement below, the inner compiler compiles the other version.
                if entry.gains or not options.cost_model:
                    prepare(region, normal.kinds)
                may_time = not region.needs & ONLY_LOSSES  # that is not called by compiled code
                if (options.cost_model == "measure" or is_new) and entry.gains and may_time:
                    entry.measured = region_times.measured(
                        part, region, compiler,
                        repr((options.inner, options.products, options.objective, options.mode)),
                        measure.SECONDS_OF_NEW_GPUS if is_new else None)
                # Where no other region was right and fast, none is fused untimed.
                entry.lacks_time = is_new and entry.measured is None and (
                    may_time or not any(other.measured for other in report.fused))
                is_left = bool(options.cost_model) and (not entry.gains or entry.lacks_time)
            except Exception as why:  # noqa: BLE001 (only this region is left to PyTorch)
                text = reason(why)
                left[f"{what}: {text}"] += 1
                for layer in linears.marked(part.graph):
                    layer.reason = f"in a region of {what}: {text}"
                continue
            for layer in linears.marked(part.graph):
                layer.by_cost_model = is_left
                layer.reason = entry.why_left if is_left else ""
            if is_left:
                report.without_gain.append(entry)
                continue
            report.fused.append(entry)
            changes = True
            setattr(fused, node.target, region)
            node.args = (*operands, *rounded)
            regions[node] = region
            for made, result in zip(results_of(node, len(region.results)), region.results):
                if result.is_narrow and narrowed is not None:
                    narrowed[made] = region.storage
        elif node.target is higher_order.SUBGRAPH:
            if node in normal.masks.refused:
                left[f"flex_attention: {normal.masks.refused[node]}"] += 1
                flex.copy_operands(node, normal.calls[node.args[2]])
            changes |= _put_back(normal, fused, node, report, options, around, checks)
        elif (node.op == "call_function" and node.target not in FREE
              and isinstance(node.target, torch._ops.OpOverload)):
            why = f": {normal.refused[node]}" if node in normal.refused else ""
            left[_short(node) + why] += 1
    report.left += [f"{count} x {what}" for what, count in left.items()]
    if not changes:
        return module
    if narrowed:
        widen(fused.graph, narrowed, regions)
    detach_rounded(fused.graph, regions)
    strides.keep_results(fused.graph, module.graph)
    fused.meta[_MASKS] = normal.masks.given
    fused.recompile()
    return fused


def _put_back(normal: Normal, fused: fx.GraphModule, node: fx.Node, report: Report,
              options: Options, around: Sequence[fx.Node], checks: value_checks.Checks | None
              ) -> bool:
    """Replaces the stand-in node by its call. A block of checkpointing is fused separately. Returns
    whether the block changed."""
    call = normal.calls[node.args[2]]
    made = block = None
    operands: list[Any] = []
    if call.target is higher_order.CHECKPOINT:
        block = call.graph.owning_module.get_submodule(call.args[0].target)
        operands = higher_order.operands(node, call)
        inputs = [operand.meta["val"] if isinstance(operand, fx.Node) else operand
                  for operand in operands]
        with higher_order.as_called(node):
            made = fuse(block, inputs, report, options, [normal.facts(o) for o in operands],
                        normal.kinds, (call, *around), checks)
    changes = made is not block
    back = higher_order.put_back(fused, node, call, made if changes else None)
    if changes:
        _pass_bounds(normal, made, operands, back)
    return changes


def _pass_bounds(normal: Normal, block: fx.GraphModule, operands: Sequence[Any], call: fx.Node
                 ) -> None:
    """Passes the bounds of packed documents, or the spans of padding, to a block that reads them
    instead of a mask."""
    inputs = dict(zip(block.graph.find_nodes(op="placeholder"), operands))
    masks = block.meta[_MASKS]
    bounds = [one for mask, kind in masks
              for one in normal.masks.bounds(inputs[mask], kind)]
    for mask in dict(masks):
        if not mask.users:
            block.graph.erase_node(mask)
            del inputs[mask]
    call.args = (call.args[0], *inputs.values(), *bounds)
    block.recompile()


def _inner(name: str, module: fx.GraphModule, options: Options, may_record: bool = True
           ) -> Callable[[fx.GraphModule, Sequence[Any]], Callable]:
    """The function that compiles the module. `may_record`: into CUDA graphs, if these are asked
    for."""
    is_dynamic = any(isinstance(node.meta.get("example_value"), torch.SymInt)
                     for node in module.graph.find_nodes(op="placeholder"))
    if not is_dynamic:
        return _compiler(name, {}, options, may_record)
    compiler = _compiler(name, _settings_of_varying_sizes(module), options, may_record)

    def compiled(*arguments: Any) -> Callable:
        with attention.without_cudnn():
            return compiler(*arguments)

    return compiled


def _settings_of_varying_sizes(module: fx.GraphModule) -> dict[str, bool]:
    """Settings of Inductor for a graph whose sizes are symbols."""
    from torch._inductor import config

    made: dict[str, bool] = {}
    # With this option Inductor recompiles the graph for other ranges of a symbol's values.
    if hasattr(config.triton, "mix_order_reduction"):
        made["triton.mix_order_reduction"] = False
    # Near a convolution on a CPU, Inductor sorts the strides of tensors with the channels last. It
    # cannot sort them if the length or the size of an image is a symbol.
    if any(not isinstance(size, int) for part in module.modules()
           if isinstance(part, fx.GraphModule) for node in part.graph.nodes
           if linears.name_of(node).startswith("conv")
           for size in getattr(node.meta.get("example_value"), "shape", ())[1:]):
        made["layout_optimization"] = False
    return made


def _compiler(name: str, varying: dict[str, bool], options: Options, may_record: bool) -> Callable:
    """The inner compiler; `varying`: Inductor's settings for sizes that vary."""
    if name == "inductor":
        from torch._inductor.compile_fx import compile_fx

        settings = options.inductor_settings(may_record) | varying
        return functools.partial(compile_fx, config_patches=settings) if settings else compile_fx
    from torch._dynamo import lookup_backend

    return lookup_backend(name)


def start_workers(inner: str) -> None:
    """Starts the processes in which Inductor compiles Triton kernels, as PyTorch's own backend does
    before it compiles. They take seconds to start, and until then it compiles in this process."""
    if inner != "inductor":
        return
    with contextlib.suppress(ImportError):
        from torch._inductor.async_compile import maybe_warm_pool

        maybe_warm_pool()


@_disable_saved_tensors_hooks_during_tracing()  # those of the call run around the compiled graph
def coda(module: fx.GraphModule, inputs: Sequence[Any], *, options: dict[str, Any] | None = None,
         mode: str = "", report: Report | None = None, run_by: str = "", **_: Any) -> Callable:
    """The backend. `options`: values for the fields of Options, by name. `mode`: torch.compile's
    argument. `run_by`: the backend that compiles the graph instead of the inner one, with which
    regions are still compared."""
    chosen = choices.checked(options, mode)
    report = Report() if report is None else report
    run_by = run_by or chosen.inner
    start_workers(run_by)
    if why := why_no_kernels(inputs):
        report.layers += linears.unseen(module, why)
        report.notes.append(f"everything is left to PyTorch: {why}")
        if chosen.strict:
            raise StrictError(report.notes[-1])
        warn_once(report.notes[-1])
        return _inner(run_by, module, chosen)(module, inputs)
    if why := why_no_eight_bits(inputs, chosen):
        report.notes.append(why)
        warn_once(why)
        chosen = dataclasses.replace(chosen, products="")
    checks = value_checks.Checks(inputs, module)
    try:
        fused = fuse(module, inputs, report, chosen, checks=checks)
    except Exception as why:  # noqa: BLE001 (fail closed: the model runs unchanged)
        if chosen.strict:
            raise
        fused, text = module, reason(why)
        layers = linears.unseen(module, text)
        vars(report).update(vars(Report(layers=layers, left=["all: " + text])))
    if report.not_fused:
        if chosen.strict:
            raise StrictError(f"linear layers are left to PyTorch: {report.why_not()}")
        warn_of_layers(f"{report.total()}; left to PyTorch: {report.why_not()}")
    with contextlib.suppress(Error, InternalError):  # a failing plan raises at its call
        if why := eight_bits_that_do_nothing(report, chosen):
            report.notes.append(why)
            warn_once(why)
    with contextlib.suppress(AttributeError):  # it reads private attributes of PyTorch
        if slow := too_small_buckets():
            warn_once(slow)
    _LOG.info("coda: %s", report)
    if fused is module:
        return _inner(run_by, module, chosen)(module, inputs)
    is_recorded = run_by == "inductor" and chosen.has_cuda_graphs
    if is_recorded and chosen.products:
        is_recorded = False
        warn_once("CUDA graphs are off for a graph with products in 8 bits, whose scales change "
                  "from call to call")
    try:
        if is_recorded:
            cuda_graphs.mark_inputs(fused, module)
        # "eager" compiles nothing that equal layers could share.
        compiled = fused if run_by == "eager" else _compiled(
            fused, inputs, _inner(run_by, module, chosen, is_recorded), is_recorded)
    except RestartAnalysis:  # not an error: Dynamo makes another graph
        raise
    except Exception as why:  # noqa: BLE001
        if chosen.strict:
            raise
        # Raises if the inner compiler itself does not work.
        unfused = _inner(run_by, module, chosen)(module, inputs)
        warn_once(f"left to PyTorch: all: {reason(why)}")
        return unfused
    if torch._C._is_any_autocast_enabled():
        compiled = _without_autocast(compiled)
    return checks.guarded(compiled, lambda given: _inner(run_by, module, chosen)(module, given))


def _compiled(fused: fx.GraphModule, inputs: Sequence[Any], inner: Callable, is_recorded: bool
              ) -> Callable:
    """Compiles without autocast, because its conversions are already in the graph. What is recorded
    into CUDA graphs is one part: shared parts would have a recording for each layer."""
    with contextlib.ExitStack() as stack:
        if torch._C._is_any_autocast_enabled():
            # AOTAutograd disables autocast in the backward only if autocast is enabled for some
            # device during compilation. No tensor is on this device.
            stack.callback(torch.set_autocast_enabled, "ipu", torch.is_autocast_enabled("ipu"))
            torch.set_autocast_enabled("ipu", True)
        for device in ("cpu", "cuda"):
            stack.enter_context(torch.autocast(device, enabled=False))
        if not inline(fused):
            stack.enter_context(functorch_config.patch(enable_autograd_cache=False))
        shared = None  # the parts of the graph, if it can be cut
        try:
            shared = equal_layers.compiled(fused, inner, is_shared=not is_recorded)
        except RestartAnalysis:
            raise
        except Exception as why:  # noqa: BLE001 (then equal layers are compiled one by one)
            _LOG.info("coda: equal layers are not shared: %s: %s", type(why).__name__, why)
        if shared is None:
            last_region.unmark(fused)
        return shared or inner(fused, inputs)


def _without_autocast(compiled: Callable) -> Callable:
    """Calls without autocast, because its conversions are already in the graph."""
    def called(*arguments: Any) -> Any:
        with torch._C._DisableAutocast():
            return compiled(*arguments)

    return called


if not entry_points(group="torch_dynamo_backends", name="coda"):
    torch._dynamo.register_backend(coda, name="coda")  # else PyTorch does
coda_cpp_autoload.prepare()
