# SPDX-License-Identifier: Apache-2.0
"""Equal layers are handed to the inner compiler once. The graph is cut in front of each region and
each block of checkpointing. Parts that differ only in which tensors they read share one compiled
callable, so the inner compiler's time grows with the number of distinct parts, not of layers. A
last part may be called eagerly: see last_region.

PyTorch's own nested compile regions (invoke_subgraph) are not used: AOTAutograd and Inductor take
as long for such a call as for the twenty operations of a layer.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import operator
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from coda_cpp.programs import GRAPH
from coda_cpp.torch_backend import cuda_graphs, higher_order, last_region
from coda_cpp.torch_backend.graph_edits import replace
from coda_cpp.torch_backend.layout import NEEDS, NotUnderstood
from coda_cpp.torch_backend.replace import Region

LEAST = 4  # equal parts: a call of a part costs the host some microseconds more
SHORT = 1e-3  # seconds
_MOST_OF_A_LAYER = 16  # parts of a layer
_SAVED_POLICY = "_checkpoint_context_fn"  # in a block's meta, as Dynamo writes it


@dataclasses.dataclass
class _Part:
    """Nodes that follow each other, what they read, and what later nodes read of them."""

    nodes: list[fx.Node]
    read: list[fx.Node]
    made: list[fx.Node]
    text: str  # all that its operations depend on, but for the tensors that it reads
    is_eager: bool = False


def compiled(module: fx.GraphModule, inner: Callable, is_shared: bool = True) -> Callable | None:
    """The module, of which each distinct part was compiled by `inner` once; unless `is_shared`, all
    but a long last region is one part. None: the graph has fewer than LEAST equal parts and no last
    region apart, or cannot be cut."""
    outer = TracingContext.try_get()
    if not _may_be_cut(module.graph) or outer is not None and outer.fakify_first_call:
        return None  # the latter: DistributedDataParallel cuts the graph, and asks each piece
    _drop_repeated(module.graph)
    parts = _parts(module, is_shared)
    if not parts:
        return None
    given = module.graph.find_nodes(op="placeholder")
    fake_mode = next(node.meta["val"].fake_mode for node in given
                     if isinstance(node.meta["val"], FakeTensor))
    values = {node: _stand_in(node.meta["val"], fake_mode, node.meta[NEEDS]) for node in given}
    found: dict[Any, tuple[Callable, list[Any]]] = {}
    calls = []
    for part in parts:
        given = [_stand_in(value, fake_mode, getattr(value, "requires_grad", False))
                 for value in map(values.__getitem__, part.read)]
        key = part.text, tuple(map(_facts, given))
        if key not in found:
            found[key] = _compiled_part(_module(module, part), given, fake_mode,
                                        None if part.is_eager else inner)
        call, made = found[key]
        values.update(zip(part.made, made, strict=True))
        calls.append((call, part))
    return _in_turn(module, calls)


def _compiled_part(module: fx.GraphModule, given: Sequence[Any], fake_mode: Any,
                   inner: Callable | None) -> tuple[Callable, list[Any]]:
    """The part as compiled by `inner` (None: as it is), and its results for the stand-ins `given`.

    The results come from the part itself if all sizes are numbers, since AOTAutograd's cache does
    not take what is compiled with fakify_first_call. Of symbolic sizes the part's own operations
    would fix some, so there the compiled part is called."""
    has_symbols = any(not isinstance(size, (int, float)) for x in given
                      for size in (x.shape if isinstance(x, torch.Tensor) else (x,)))
    context = TracingContext(fake_mode)
    context.fakify_first_call = has_symbols
    call, made = module, []
    with tracing(context):
        if not has_symbols:
            with fake_mode:
                made = list(module(*given))
        if inner is not None:
            call = inner(module, given)
        if has_symbols:
            with fake_mode:
                made = list(call(*given))
    context.fakify_first_call = False
    return call, made


def _drop_repeated(graph: fx.Graph) -> None:
    """Merges equal operations on equal operands, so that no part recomputes a value of another
    part, for example the tables of rotary embeddings. Operations with gradients stay: their order
    of summation is that of the calls."""
    graph.eliminate_dead_code()
    known: dict[Any, fx.Node] = {}
    needs: set[fx.Node] = set()
    for node in list(graph.nodes):
        if node.op == "placeholder":
            if node.meta[NEEDS]:
                needs.add(node)
        elif not isinstance(node.target, torch._ops.OpOverload) or needs.intersection(
                node.all_input_nodes):
            needs.add(node)
        elif node.target.namespace == "aten" and not node.is_impure() and (
                torch.Tag.nondeterministic_seeded not in node.target.tags):
            key = node.target, repr((node.args, node.kwargs))
            if key in known:
                replace(node, known[key])
            else:
                known[key] = node


def _parts(module: fx.GraphModule, is_shared: bool) -> list[_Part]:
    """In their order; none: no last region is apart, and fewer than LEAST of them are equal."""
    groups: list[list[fx.Node]] = [[]]
    last = last_region.nodes_of(module)
    if not is_shared and _gpu_seconds(last) < SHORT:
        last = []  # an eager call costs the host more than its gain
    for node in module.graph.nodes:
        if _is_own(node) or node.op in ("placeholder", "output") or node in last:
            continue
        if is_shared and _is_first(node, module):
            groups.append([])
        groups[-1].append(node)
    whole = _whole_layers(module, [_part(module, group) for group in groups if group])
    counts = Counter(part.text for part in whole)
    if max(counts.values(), default=0) < LEAST and not last:
        return []
    joined: list[_Part] = []
    rest: list[fx.Node] = []
    for text, run in itertools.groupby(whole, key=lambda part: part.text):
        calls, left = _calls(module, list(run)) if counts[text] >= LEAST else ([], list(run))
        if calls and rest:
            joined.append(_part(module, rest))
            rest = []
        joined += calls
        rest += [node for part in left for node in part.nodes]
    if rest:
        joined.append(_part(module, rest))
    if last:
        joined.append(dataclasses.replace(_part(module, last), is_eager=True))
    are_tensors = all(isinstance(node.meta.get("val"), torch.Tensor)
                      for part in joined for node in part.made)
    return joined if are_tensors and all(part.made for part in joined) else []


def _whole_layers(module: fx.GraphModule, parts: list[_Part]) -> list[_Part]:
    """The parts, in which each layer of several parts is one part, if LEAST such layers or more
    follow each other: a decoder's layer has a part with self-attention and one with
    cross-attention."""
    texts = [part.text for part in parts]
    made: list[_Part] = []
    while len(made) < len(texts):
        begin = len(made)
        for size in range(2, _MOST_OF_A_LAYER + 1):
            layer = texts[begin:begin + size]
            count = 1
            while texts[begin + count * size:begin + (count + 1) * size] == layer:
                count += 1
            if count < LEAST or len(set(layer)) == 1:
                continue
            layers = [_part(module, [node for part in parts[i:i + size] for node in part.nodes])
                      for i in range(begin, begin + count * size, size)]
            if all(one.text == layers[0].text for one in layers):
                parts[begin:begin + count * size] = layers
                texts[begin:begin + count * size] = [one.text for one in layers]
                made += layers
                break
        else:
            made.append(parts[begin])
    return made


def _calls(module: fx.GraphModule, run: list[_Part]) -> tuple[list[_Part], list[_Part]]:
    """Groups of equal parts that are called together, and the parts of the run that are left over.

    A call of a part costs the host some 0.3 ms, forward and backward, more than the same operations
    within one graph. If a GPU works for less than SHORT on a part's regions, it would wait for the
    host. Then the size of the groups minimises the number of parts compiled plus that of calls."""
    count = len(run)
    if _gpu_seconds(run[0].nodes) > SHORT:
        return run, []
    of_each = min(range(1, count + 1), key=lambda size: size + count % size + count // size)
    end = count - count % of_each
    calls = [_part(module, [node for part in run[i:i + of_each] for node in part.nodes])
             for i in range(0, end, of_each)]
    are_equal = all(call.text == calls[0].text for call in calls)
    return (calls, run[end:]) if are_equal else (run, [])


def _gpu_seconds(nodes: Sequence[fx.Node]) -> float:
    """The predicted time of the nodes' regions on a GPU, forward and backward; infinite if no
    region is for a GPU."""
    calls = [node.args for node in nodes if node.target is GRAPH.forward]
    functions = [(GRAPH.function(spec), needs) for _, spec, _, needs in calls]
    if not functions or not all(function.is_for_gpu for function, _ in functions):
        return math.inf
    return sum(function.costs(needs)[0][2] for function, needs in functions)


def _may_be_cut(graph: fx.Graph) -> bool:
    """Whether nothing but its operands determines what a node computes: nothing is written, and no
    switch (autocast, gradients) is in force over a range of nodes."""
    for node in graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder" and type(value) not in (
                FakeTensor, torch.SymInt, torch.SymFloat):
            return False
        if node.op == "call_method" or node.op == "call_function" and not (
                isinstance(node.target, torch._ops.OperatorBase) or _is_own(node)
                or node.target is operator.getitem):
            return False  # sections of torch.func and of autocast begin and end with such calls
        if higher_order.node_may_write(node):
            return False
    return not any(_is_own(node) for node in graph.output_node().all_input_nodes)


def _is_first(node: fx.Node, module: fx.GraphModule) -> bool:
    if node.op == "call_module":
        return isinstance(module.get_submodule(node.target), Region)
    return node.target in (GRAPH.forward, higher_order.CHECKPOINT)


def _is_own(node: fx.Node) -> bool:
    """Whether each part that reads the node has it itself: sizes, and subgraphs."""
    return node.op == "get_attr" or node.op == "call_function" and isinstance(
        node.meta.get("val"), (int, float, torch.SymInt, torch.SymFloat, torch.SymBool))


def _part(module: fx.GraphModule, nodes: Sequence[fx.Node]) -> _Part:
    """The part with the sizes and subgraphs that its nodes read."""
    inside: dict[fx.Node, None] = {}

    def add(node: fx.Node) -> None:
        for used in node.all_input_nodes:
            if _is_own(used) and used not in inside:
                add(used)
        inside[node] = None

    for node in nodes:
        add(node)
    whole = list(inside)
    read = list(dict.fromkeys(used for node in whole for used in node.all_input_nodes
                              if used not in inside))
    made = [node for node in dict.fromkeys(nodes)
            if not _is_own(node) and any(user not in inside for user in node.users)]
    place = {node: f"%{i}" for i, node in enumerate((*read, *whole))}
    text = repr([(node.op, _target(module, node),
                  fx.map_arg((node.args, node.kwargs), lambda used: place[used]))
                 for node in whole])
    return _Part(whole, read, made, repr((text, [place[node] for node in made],
                                          [_facts(node.meta.get("val")) for node in read])))


def _target(module: fx.GraphModule, node: fx.Node) -> str:
    """What the node calls, as text that is equal for equal ones."""
    if node.op not in ("call_module", "get_attr"):
        return str(node.target)
    found = operator.attrgetter(node.target)(module)
    if isinstance(found, Region):
        return repr((found.key(), found.function.spec))
    if not isinstance(found, fx.GraphModule):
        return node.target
    nodes = list(found.graph.nodes)
    place = {inner: f"%{i}" for i, inner in enumerate(nodes)}
    return repr((found.meta.get(_SAVED_POLICY),
                 [(inner.op, "" if inner.op == "placeholder" else _target(found, inner),
                   fx.map_arg((inner.args, inner.kwargs), lambda used: place[used]))
                  for inner in nodes]))


def _facts(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return str(value)
    return (str(value.shape), str(value.stride()), value.dtype, value.device,
            value.requires_grad)


def _stand_in(value: Any, fake_mode: Any, needs: bool) -> Any:
    """A tensor of its own for each operand."""
    if not isinstance(value, torch.Tensor):
        return value
    if value.is_conj() or value.is_neg():
        raise NotUnderstood("a part reads a conjugated view")
    with fake_mode:
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype,
                                   device=value.device, requires_grad=needs)


def _module(module: fx.GraphModule, part: _Part) -> fx.GraphModule:
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for i, node in enumerate(part.read):
        copies[node] = graph.placeholder(f"read_{i}")
        copies[node].meta.update(node.meta)
    for node in part.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[node] for node in part.made))
    made = fx.GraphModule(module, graph)
    cuda_graphs.mark_inputs_of_part(made, part.read, module)
    return made


def _in_turn(module: fx.GraphModule, calls: Sequence[tuple[Callable, _Part]]) -> Callable:
    """Calls the parts one after another; a value is dropped behind its last reader."""
    given = module.graph.find_nodes(op="placeholder")
    place: dict[fx.Node, int] = {node: i for i, node in enumerate(given)}
    for _, part in calls:
        for node in part.made:
            place[node] = len(place)
    returned = set(module.graph.output_node().all_input_nodes)
    flat, spec = pytree.tree_flatten(module.graph.output_node().args[0])
    places = [place[x] if isinstance(x, fx.Node) else None for x in flat]
    last = {node: i for i, (_, part) in enumerate(calls) for node in part.read}
    steps = []
    for i, (call, part) in enumerate(calls):
        dead = [place[node] for node in (*part.read, *part.made)
                if last.get(node, i) == i and node not in returned]
        steps.append((call, [place[node] for node in part.read],
                      [place[node] for node in part.made], dead))

    def called(*arguments: Any) -> Any:
        values = [*arguments, *[None] * (len(place) - len(given))]
        for call, read, made, dead in steps:
            results = call(*[values[i] for i in read])
            for i, value in zip(made, results):
                values[i] = value
            del results, value  # what is dead is freed before the next part runs
            for i in dead:
                values[i] = None
        return pytree.tree_unflatten([x if i is None else values[i]
                                      for i, x in zip(places, flat)], spec)

    return called
