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
import operator
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.utils.fuser_utils import fuse_by_partitions

from coda_cpp import _tensors, fx_autocast
from coda_cpp._core import Error
from coda_cpp.fx_import import PRODUCTS, RULES, Importer, NotUnderstood, value_of
from coda_cpp.fx_regions import propose
from coda_cpp.programs import GraphFunction

_LOG = logging.getLogger("coda_cpp")
_FREE = (torch.ops.aten.view.default, torch.ops.aten.reshape.default,
         torch.ops.aten._unsafe_view.default, torch.ops.aten.to.dtype,
         torch.ops.aten.alias.default, torch.ops.aten.contiguous.default,
         torch.ops.aten.flatten.using_ints)


@dataclasses.dataclass
class Report:
    """What was taken of a graph, and what not and why."""

    regions: list[str] = dataclasses.field(default_factory=list)
    left: list[str] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        left = [f"  {line}" for line in self.left] or ["  nothing"]
        return "\n".join([*self.regions, "left to PyTorch:", *left])


class Region(torch.nn.Module):
    """A region as PyTorch calls it: the function of a graph, and results in their shapes. None of
    `dtypes`: the result's type is what the function stores."""

    def __init__(self, function: GraphFunction, storage: torch.dtype, is_index: Sequence[bool],
                 shapes: Sequence[Sequence[Any]], dtypes: Sequence[torch.dtype | None]) -> None:
        super().__init__()
        self.function, self.storage = function, storage
        self._is_index, self._shapes, self._dtypes = is_index, shapes, dtypes

    def forward(self, *tensors: torch.Tensor) -> Any:
        given = [tensor.to(torch.int32) if is_index else tensor
                 for tensor, is_index in zip(tensors, self._is_index)]
        made = self.function(*given)
        made = made if isinstance(made, tuple) else (made,)
        results = []
        for result, dims, dtype in zip(made, self._shapes, self._dtypes):
            shape = [dim if isinstance(dim, int) else tensors[dim[0]].shape[dim[1]] for dim in dims]
            result = result.reshape(shape)
            results.append(result if dtype is None else result.to(dtype))
        return results[0] if len(results) == 1 else tuple(results)


def _refusals(graph: fx.Graph) -> dict[fx.Node, str]:
    """Of operations that a rule is there for, those that it does not take by themselves."""
    refused = {}
    for node in graph.nodes:
        if node.op != "call_function" or node.target not in RULES:
            continue
        region = Importer()
        try:
            if node.target is torch.ops.aten.cross_entropy_loss.default:
                region.known[node.args[0]] = region.operand(node.args[0])
            region.add(node)
        except (NotUnderstood, Error) as why:
            refused[node] = str(why)
    return refused


def _drop_grad_switches(module: fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """Takes torch.no_grad() sections out of the graph where nothing in them could have a gradient,
    so that operations may move past them. False: they mean something."""
    needs: dict[fx.Node, bool] = {}
    given = iter(inputs)
    is_on, switches = torch.is_grad_enabled(), []
    for node in module.graph.nodes:
        if node.op == "placeholder":
            tensor = next(given)
            needs[node] = isinstance(tensor, torch.Tensor) and tensor.requires_grad
        elif node.target is torch._C._set_grad_enabled:
            is_on = node.args[0]
            switches.append(node)
        else:
            needs[node] = any(needs.get(arg, False) for arg in node.all_input_nodes)
            if needs[node] and is_on != torch.is_grad_enabled():
                return False
    for node in switches:
        module.graph.erase_node(node)
    return True


def _dims(value: torch.Tensor, inputs: Sequence[fx.Node]) -> list[Any]:
    """A shape as numbers and, for a size that is not known, the input and dimension that has it."""
    known = {str(size): (i, j) for i, node in enumerate(inputs)
             for j, size in enumerate(value_of(node).shape) if not isinstance(size, int)}
    dims: list[Any] = []
    for size in value.shape:
        if isinstance(size, int):
            dims.append(size)
        elif str(size) in known:
            dims.append(known[str(size)])
        else:
            raise NotUnderstood(f"the size {size} of a result is no input's")
    return dims


def _hint(size: Any) -> int:
    """Of a size that may be a symbol, what it is now."""
    return int(size) if isinstance(size, int) else int(size.node.hint)


def _import(name: str, module: fx.GraphModule, inputs: Sequence[fx.Node], for_gpu: bool,
            narrowed: Mapping[fx.Node, torch.dtype] | None) -> tuple[Region, list[bool]]:
    """The region's module as one function, and which of its results are in the products' type
    where the module's are fp32. `inputs` are its operands, in the order of its placeholders.
    `narrowed`: those of `inputs` that are such results; None: there may be no such results."""
    nodes = list(module.graph.nodes)
    placeholders = [node for node in nodes if node.op == "placeholder"]
    region = Importer({inside: narrowed[outside] for inside, outside in zip(placeholders, inputs)
                       if outside in narrowed} if narrowed is not None else None)
    for node in nodes:
        if node.op == "call_function":
            region.add(node)
    if region.storage is None:
        raise NotUnderstood("it has no product")
    returned = nodes[-1].args[0]
    returned = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    outputs, shapes, dtypes = {}, [], []
    for node in returned:
        if node not in region.known:
            raise NotUnderstood("it returns what it was given")
        known, made = region.known[node], value_of(node)
        is_matrix = "M" == known.value.shape[0] and known.value.shape[1] != 1
        is_narrow = is_matrix and known.dtype != region.storage
        if is_narrow and (narrowed is None or known.dtype != torch.float32):
            raise NotUnderstood(
                f"a result of {known.dtype} leaves products of {region.storage}")
        outputs[f"{node.name}_result"] = known.value
        shapes.append(_dims(made, inputs))
        dtypes.append(None if is_narrow else made.dtype)
    if len(region.inputs) != len(placeholders):
        raise NotUnderstood("it does not read all that it is given")
    storage = _tensors.torch_dtypes()[region.storage]
    function = GraphFunction([region.inputs[node] for node in placeholders], outputs,
                             storage=storage, name=name, for_gpu=for_gpu, chunk_rows=-1,
                             nominal={"M": _hint(region.rows)})
    function.function.phases(0)  # what cannot be planned is known now
    made_region = Region(
        function, region.storage, [region.inputs[node].is_table for node in placeholders], shapes, dtypes)
    return made_region, [dtype is None for dtype in dtypes]


def _results_of(node: fx.Node, count: int) -> list[fx.Node]:
    """The nodes that are the results of a region with so many."""
    if count == 1:
        return [node]
    of = {user.args[1]: user for user in node.users if user.target is operator.getitem}
    return [of[i] for i in range(count)]


def _widen(graph: fx.Graph, narrowed: Mapping[fx.Node, torch.dtype],
           regions: Container[fx.Node]) -> None:
    """Those of no region read results that were left narrow as the fp32 that they expect."""
    for node in narrowed:
        readers = [user for user in node.users
                   if user not in regions and user.target is not operator.getitem]
        if readers:
            with graph.inserting_after(node):
                wide = graph.call_function(torch.ops.aten.to.dtype, (node, torch.float32))
            for reader in readers:
                reader.replace_input_with(node, wide)


def _short(node: fx.Node) -> str:
    return str(node.target).removeprefix("aten.").removesuffix(".default").removesuffix(".Tensor")


def fuse(module: fx.GraphModule, inputs: Sequence[Any], report: Report) -> fx.GraphModule:
    """The module with its regions as operators; itself where there is none."""
    # Dynamo's stand-ins, whose sizes may be symbols; the inputs themselves are real.
    stand_ins = [node.meta.get("example_value", given) for node, given in
                 zip(module.graph.find_nodes(op="placeholder"), inputs, strict=True)]
    modes = [given.fake_mode for given in stand_ins if isinstance(given, FakeTensor)]
    with modes[0] if modes else contextlib.nullcontext():
        normal = make_fx(module, pre_dispatch=True)(*stand_ins)
    if any(node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)
           and node.target._schema.is_mutable for node in normal.graph.nodes):
        report.left.append("all: an operation writes into a tensor that it is given")
        return module
    if not _drop_grad_switches(normal, inputs):
        report.left.append("all: torch.no_grad() within the graph stops gradients")
        return module
    narrowed: dict[fx.Node, torch.dtype] | None = (
        {} if fx_autocast.write_out(normal.graph, inputs) else None)
    refused = _refusals(normal.graph)
    groups = [group for group in propose(normal.graph, refused)
              if any(node.target in PRODUCTS for node in group)
              and sum(node.target not in _FREE for node in group) > 1]
    fused = fuse_by_partitions(normal, [dict.fromkeys(group) for group in groups])
    is_gpu = any(isinstance(t, torch.Tensor) and t.device.type == "cuda" for t in inputs)
    left: collections.Counter[str] = collections.Counter()
    regions: set[fx.Node] = set()
    for node in list(fused.graph.nodes):
        if node.op == "call_module":
            part = fused.get_submodule(node.target)
            what = ", ".join(_short(n) for n in part.graph.nodes
                             if n.op == "call_function" and n.target not in _FREE)
            try:
                region, is_narrow = _import(
                    node.target, part, list(node.all_input_nodes), is_gpu, narrowed)
            except (NotUnderstood, Error) as why:
                left[f"{what}: {why}"] += 1
                continue
            setattr(fused, node.target, region)
            regions.add(node)
            for result, is_low in zip(_results_of(node, len(is_narrow)), is_narrow):
                if is_low:
                    narrowed[result] = region.storage
            report.regions.append(f"{node.target}: {what}\n{region.function.explain()}")
        elif (node.op == "call_function" and node.target not in _FREE
              and isinstance(node.target, torch._ops.OpOverload)):
            why = f": {refused[node]}" if node in refused else ""
            left[_short(node) + why] += 1
    report.left += [f"{count} x {what}" for what, count in left.items()]
    if not report.regions:
        return module
    if narrowed:
        _widen(fused.graph, narrowed, regions)
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
