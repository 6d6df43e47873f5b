# SPDX-License-Identifier: Apache-2.0
"""Replaces writes in place by values. The resulting graph writes only at its end, into its inputs.

Each write gives a new value of the tensor and of its views: `x[a:b].add_(y)` becomes
slice_scatter(x, x[a:b] + y), and later reads of a view of x read a view of the new value. Autograd
must not change: a write through detach(), or under no_grad(), changes a tensor but not its
gradient, which a new value cannot express. Such writes, and unsupported ones, stay. Tensors in the
memory of such a write are in no region, and their readers keep their places before or after the
write.
"""

from __future__ import annotations

import functools
import operator
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from coda_cpp.torch_backend import higher_order, trace
from coda_cpp.torch_backend import layout as layouts
from coda_cpp.torch_backend.layout import NEEDS, NotUnderstood

_aten = torch.ops.aten
_RESHAPES = layouts.VIEWS | {_aten.unflatten.int, _aten.view_as.default, _aten.squeeze.dims,
                             _aten.reshape_as.default, _aten.ravel.default}
_MADE = "coda_made_of_a_write"
_OTHER_NAMES = {"normal_": "normal_functional"}
Emit = Callable[..., fx.Node]


def written(node: fx.Node, calls: dict[int, fx.Node]) -> list[fx.Node]:
    """The operands that the node may write."""
    if node.target is higher_order.SUBGRAPH:
        return list(node.args[0]) if higher_order.may_write(calls[node.args[2]]) else []
    if node.target in higher_order.WRITING_NORMS:
        return [arg for arg in node.args[3:5] if isinstance(arg, fx.Node)]
    if not isinstance(node.target, torch._ops.OpOverload) or not node.target._schema.is_mutable:
        return []
    found = []
    for i, argument in enumerate(node.target._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = node.args[i] if i < len(node.args) else node.kwargs.get(argument.name)
            found += given if isinstance(given, (tuple, list)) else [given]
    return [arg for arg in found if isinstance(arg, fx.Node)]


def _is_random(node: fx.Node) -> bool:
    if node.target is higher_order.SUBGRAPH:
        return True
    if not isinstance(node.target, torch._ops.OpOverload) or (
            torch.Tag.nondeterministic_seeded not in node.target.tags):
        return False
    if node.target is _aten.dropout.default:
        return bool(node.args[2] and node.args[1])
    if node.target is _aten.scaled_dot_product_attention.default:
        return bool(node.args[4] if len(node.args) > 4 else node.kwargs.get("dropout_p"))
    return True


def _functional(node: fx.Node) -> torch._ops.OpOverload | None:
    """The operation that computes what the node writes."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return None
    name = target._schema.name.removeprefix("aten::")
    is_first = [arg.alias_info is not None and arg.alias_info.is_write
                for arg in target._schema.arguments]
    if is_first != [True] + [False] * (len(is_first) - 1):
        return None
    if name in ("copy_", "fill_", "zero_"):
        return target
    if name.startswith("__i"):
        name = "__" + name[3:]
    elif name.endswith("_"):
        name = _OTHER_NAMES.get(name, name[:-1])
    return _with_arguments_of(target, name)


@functools.cache
def _with_arguments_of(target: torch._ops.OpOverload, name: str) -> torch._ops.OpOverload | None:
    """The overload of aten's operation `name` that takes what `target` takes. Their overloads may
    have other names: pow.Tensor_Scalar for pow_.Scalar."""
    def arguments(of: torch._ops.OpOverload) -> list[tuple[str, str]]:
        return [(argument.name, str(argument.type)) for argument in of._schema.arguments]

    packet = getattr(_aten, name, None)
    for overload in packet.overloads() if packet is not None else ():
        if arguments(found := getattr(packet, overload)) == arguments(target):
            return found
    return None


class Memories:
    """The tensors of a graph that share memory, and the tensors of which they are views."""

    def __init__(self, graph: fx.Graph, calls: dict[int, fx.Node]) -> None:
        self.root: dict[fx.Node, fx.Node] = {}  # for each tensor, the first one in its memory
        first: dict[Any, fx.Node] = {}
        for node in graph.nodes:
            memory = node.meta.get(trace.MEMORY)
            if memory is not None:
                self.root[node] = first.setdefault(memory, node)
            if node.target is operator.getitem and node.args[0].target is higher_order.SUBGRAPH:
                stand_in, which = node.args
                i = higher_order.aliases(calls[stand_in.args[2]], which)
                if i is not None:
                    self.root[node] = first[memory] = self.root[stand_in.args[0][i]]
        # For each tensor, the tensor of which it is a view, if known.
        self.parent = {node: self._parent(node) for node in self.root}

    def _parent(self, node: fx.Node) -> fx.Node | None:
        made = node.args[0] if node.target is operator.getitem else node
        source = made.args[0] if made.args and made.target is not higher_order.SUBGRAPH else None
        if isinstance(source, fx.Node) and source is not node and (
                self.root.get(source) is self.root[node] and self.root[node] is not node):
            return source
        return None

    def chain(self, node: fx.Node) -> list[fx.Node] | None:
        """The views from the node to the first tensor of its memory; None if unknown."""
        found = [node]
        while found[-1] is not self.root[node]:
            parent = self.parent[found[-1]]
            if parent is None:
                return None
            found.append(parent)
        return found


def _put(view: fx.Node, parent: fx.Node) -> Callable[[Emit, fx.Node, fx.Node], fx.Node] | None:
    """A function that returns a copy of the parent in which the view has another value. Its
    arguments are a function that emits an operation, the parent and the value. None if unknown."""
    target, args, shown, whole = view.target, view.args, view.meta["val"], parent.meta["val"]
    if shown.dtype != whole.dtype:
        return None
    dims = [layouts.same(a, b) for a, b in zip((*shown.shape, *shown.stride()),
                                               (*whole.shape, *whole.stride()))]
    if shown.dim() == whole.dim() and all(dims) and layouts.same(
            shown.storage_offset(), whole.storage_offset()):
        return lambda emit, before, value: value
    if view.kwargs:
        return None
    if target in _RESHAPES:
        return lambda emit, before, value: _reshaped(emit, value, before)
    if target in (*layouts.TURNS, _aten.t.default):
        order = [1, 0] if target is _aten.t.default else layouts.order_of(view)
        return lambda emit, before, value: emit(
            _aten.permute.default, value, [order.index(i) for i in range(len(order))])
    scatter = {_aten.slice.Tensor: _aten.slice_scatter.default,
               _aten.select.int: _aten.select_scatter.default,
               _aten.diagonal.default: _aten.diagonal_scatter.default}.get(target)
    if scatter is not None:
        return lambda emit, before, value: emit(scatter, before, value, *args[1:])
    if target is _aten.narrow.default:
        dim, start, size = args[1:]
        return lambda emit, before, value: emit(
            _aten.slice_scatter.default, before, value, dim, start, start + size)
    if target is operator.getitem:
        return _put_part(view)
    return None


def _put_part(view: fx.Node) -> Callable[[Emit, fx.Node, fx.Node], fx.Node] | None:
    """Like _put, for a part of a split."""
    split, which = view.args
    dim = split.args[2] if len(split.args) > 2 else split.kwargs.get("dim", 0)
    if split.target in (_aten.unbind.int,):
        dim = split.args[1] if len(split.args) > 1 else 0
        return lambda emit, before, value: emit(
            _aten.select_scatter.default, before, value, dim, which)
    if split.target not in (_aten.split.Tensor, _aten.split_with_sizes.default,
                            _aten.chunk.default, _aten.split.sizes):
        return None
    start = sum(part.shape[dim] for part in split.meta["val"][:which])
    return lambda emit, before, value: emit(
        _aten.slice_scatter.default, before, value, dim, start,
        start + split.meta["val"][which].shape[dim])


def _is_static(value: torch.Tensor) -> bool:
    return all(isinstance(size, int) for size in value.shape)


def _reshaped(emit: Emit, value: fx.Node, like: fx.Node) -> fx.Node:
    if _is_static(like.meta["val"]):
        return emit(_aten.reshape.default, value, list(like.meta["val"].shape))
    return emit(_aten.reshape_as.default, value, like)


class _Values:
    """The state of the graph while its writes are replaced in order. `views` gets the new views,
    with their operands."""

    def __init__(self, graph: fx.Graph, memories: Memories, views: dict[fx.Node, fx.Node]) -> None:
        self._graph, self._memories, self._views = graph, memories, views
        self._version: defaultdict[fx.Node, int] = defaultdict(int)  # of each memory, by its root
        self._known: dict[fx.Node, tuple[int, fx.Node]] = {}  # the tensor's value in a version

    def emit(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        made = self._graph.call_function(target, args, kwargs)
        args, kwargs = fx.map_arg((args, kwargs), lambda node: node.meta["val"])
        with torch._C._DisableAutocast(), torch.no_grad():
            value = made.meta["val"] = target(*args, **kwargs)
        made.meta[_MADE] = True
        source = made.args[0].args[0] if target is operator.getitem else made.args[0]
        if isinstance(value, torch.Tensor) and (
                value.untyped_storage()._cdata == source.meta["val"].untyped_storage()._cdata):
            self._views[made] = source
        return made

    def read_now(self, node: fx.Node) -> None:
        for used in node.all_input_nodes:
            if (now := self.now(used)) is not used:
                node.replace_input_with(used, now)

    def now(self, node: fx.Node) -> fx.Node:
        """The tensor's value at this place of the graph."""
        root = self._memories.root.get(node)
        version = self._version.get(root, 0) if root is not None else 0
        known_in, known = self._known.get(node, (0, node))
        if known_in == version:
            return known
        parent = self._memories.parent.get(node)
        made = node.args[0] if node.target is operator.getitem else node
        args = (self.now(parent), *made.args[1:])
        again = self.emit(made.target, *args, **made.kwargs)
        if made is not node:
            again = self.emit(operator.getitem, again, node.args[1])
        self._known[node] = version, again
        return again

    def seen(self, node: fx.Node) -> None:
        """Records that the node has the current version of its memory."""
        root = self._memories.root.get(node)
        if root is not None and self._version.get(root):
            self._known[node] = self._version[root], node

    def write(self, node: fx.Node) -> None:
        """Replaces the node's write by a value."""
        target, given = _functional(node), node.args[0]
        args = fx.map_arg(node.args, self.now)
        kwargs = fx.map_arg(node.kwargs, self.now)
        value = self._value(target, args, kwargs, given.meta["val"])
        root = self._memories.root[given]
        version = self._version[root] + 1
        known = {given: value}
        for view in self._memories.chain(given)[:-1]:
            parent = self._memories.parent.get(view)
            value = _put(view, parent)(self.emit, self.now(parent), value)
            known[parent] = value
        if target is node.target:  # a copy, which may share memory with its operand
            known[root] = self.emit(_aten.clone.default, known[root])
            known[given] = known[root] if given is root else known[given]
        self._version[root] = version
        self._known.update({tensor: (version, now) for tensor, now in known.items()})

    def _value(self, target: Any, args: Sequence[Any], kwargs: dict[str, Any],
               like: torch.Tensor) -> fx.Node:
        name = target._schema.name
        if name in ("aten::fill_", "aten::zero_"):
            number = args[1] if len(args) > 1 else 0
            if not isinstance(number, fx.Node):
                return self.emit(_aten.full_like.default, args[0], number)
        if name in ("aten::copy_", "aten::fill_"):
            value = args[1]
        else:
            value = self.emit(target, *args, **kwargs)
        made = value.meta["val"]
        if made.device != like.device:
            value = self.emit(_aten.to.device, value, like.device, like.dtype)
        elif made.dtype != like.dtype:
            value = self.emit(_aten.to.dtype, value, like.dtype)
        if made.dim() != like.dim() or not all(map(layouts.same, made.shape, like.shape)):
            value = (self.emit(_aten.expand.default, value, list(like.shape))
                     if _is_static(like) else self.emit(_aten.expand_as.default, value, args[0]))
        return value

    def store(self, given: fx.Node) -> None:
        """Writes the last value of an input into the input, at the graph's end."""
        if self._version.get(given):
            self.emit(_aten.copy_.default, given, self.now(given))
            self._version[given] += 1
            self._known[given] = self._version[given], given


def _understood(node: fx.Node, memories: Memories, needs: dict[fx.Node, bool]) -> bool:
    """Whether the node's write may be replaced by a value. `needs`: whether any tensor in a memory
    needs a gradient, by the memory's root."""
    if not is_in_place(node) or _functional(node) is None:
        return False
    chain = memories.chain(node.args[0])
    if chain is None or chain[-1].op == "get_attr":
        return False
    if needs[chain[-1]] and any(view.target is _aten.detach.default for view in chain):
        return False
    return all(_put(view, memories.parent.get(view)) is not None for view in chain[:-1])


def is_in_place(node: fx.Node) -> bool:
    """Whether the node writes into its first operand and returns it."""
    if not isinstance(node.target, torch._ops.OpOverload) or not node.target._schema.is_mutable:
        return False
    first = node.target._schema.arguments[0].alias_info
    return first is not None and first.is_write and isinstance(node.args[0], fx.Node)


def name_what_is_written(graph: fx.Graph) -> None:
    """Lets readers of a write's result read the written tensor. Raises NotUnderstood for an
    operation that gives a tensor another shape or memory."""
    for node in list(graph.nodes):
        if not is_in_place(node):
            continue
        name = node.target._schema.name
        if name == "aten::detach_" and not node.args[0].meta[NEEDS]:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
        elif torch.Tag.inplace_view in node.target.tags or name in (
                "aten::set_", "aten::resize_", "aten::resize_as_", "aten::requires_grad_"):
            raise NotUnderstood(f"{node.target} changes the shape or the memory of a tensor")
        else:
            node.replace_all_uses_with(node.args[0])


def _may_be_view(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and any(
        made.alias_info is not None for made in node.target._schema.returns)


class Writes:
    """The writes that remain in the graph."""

    def __init__(self, graph: fx.Graph, calls: dict[int, fx.Node]) -> None:
        """Replaces the supported writes by values. `calls`: the calls of stand-ins. The metadata of
        nodes must say whether they need a gradient."""
        self._graph, self._calls = graph, calls
        self._memories = memories = Memories(graph, calls)
        self._views: dict[fx.Node, fx.Node] = {}
        nodes = list(graph.nodes)
        writes = {node: found for node in nodes if (found := written(node, calls))}
        self._kept = kept = self._not_understood(writes) if writes else set()
        if not writes:
            return
        values = _Values(graph, memories, self._views)
        replaced = []
        for node in nodes[:-1]:
            with graph.inserting_before(node):
                if node in writes and is_in_place(node) and (
                        memories.root[node.args[0]] not in kept):
                    values.write(node)
                    replaced.append(node)
                    continue
                values.read_now(node)
            values.seen(node)
        with graph.inserting_before(nodes[-1]):
            for node in nodes:
                if node.op == "placeholder":
                    values.store(node)
            values.read_now(nodes[-1])
        for node in reversed(replaced):
            graph.erase_node(node)

    def _not_understood(self, writes: dict[fx.Node, list[fx.Node]]) -> set[fx.Node]:
        """The roots of the memories whose writes stay."""
        root, chain = self._memories.root, self._memories.chain
        needs: defaultdict[fx.Node, bool] = defaultdict(bool)
        opaque = set()
        for node in root:
            needs[root[node]] |= node.meta[NEEDS]
            if chain(node) is None:
                opaque.add(root[node])
        for node, tensors in writes.items():
            for tensor in tensors:
                needs[root[tensor]] |= any(used.meta[NEEDS] for used in node.all_input_nodes)
        return opaque | {root[tensor] for node, tensors in writes.items() for tensor in tensors
                         if not _understood(node, self._memories, needs)}

    def is_kept(self, node: fx.Node) -> bool:
        """Whether the tensor is in a memory with writes that stay."""
        return self._memories.root.get(node) in self._kept

    def memory(self) -> dict[fx.Node, fx.Node]:
        """For each tensor of the current graph, the first tensor in its memory."""
        found: dict[fx.Node, fx.Node] = {}
        root = self._memories.root
        for node in self._graph.nodes:
            made = node.args[0] if node.target is operator.getitem else node
            source = made.args[0] if made.args and isinstance(made.args[0], fx.Node) else None
            value = node.meta.get("val")
            if not isinstance(value, torch.Tensor):
                continue
            if node in root:
                is_view = root[node] is not node
                viewed = source if self._memories.parent[node] is not None else root[node]
            elif node.meta.get(_MADE):
                viewed = self._views.get(node)
                is_view = viewed is not None
            else:  # added by other rewrites
                viewed, is_view = source, source is not None and _may_be_view(made) and (
                    source.meta["val"].dtype == value.dtype)
            found[node] = found.get(viewed, viewed) if is_view else node
        return found

    def order(self) -> tuple[dict[fx.Node, set[fx.Node]], set[fx.Node]]:
        """The nodes that must run before each node, in addition to its operands; and the nodes that
        may be in no region, because other tensors share their memory and depend on writes there."""
        memory, before = self.memory(), {}
        writes = {node: {memory[tensor] for tensor in written(node, self._calls)}
                  for node in self._graph.nodes}
        shared = {one for found in writes.values() for one in found}
        last: dict[Any, fx.Node] = {}
        read: defaultdict[fx.Node, set[fx.Node]] = defaultdict(set)
        for node in self._graph.nodes:
            if node.op != "call_function":
                continue
            behind = set()
            for one in {memory[used] for used in node.all_input_nodes if used in memory} & shared:
                behind |= {last[one]} if one in last else set()
                if one in writes[node]:
                    behind |= read.pop(one, set())
                    last[one] = node
                else:
                    read[one].add(node)
            if _is_random(node):
                behind |= {last[_is_random]} if _is_random in last else set()
                last[_is_random] = node
            if behind:
                before[node] = behind
        apart = {node for node, one in memory.items() if one in shared and node.op != "placeholder"}
        outputs = self._graph.output_node().all_input_nodes
        for node in outputs:
            one = memory.get(node)
            if one is not None and (one.op != "call_function" or 1 < sum(
                    memory.get(other) is one for other in outputs)):
                while node is not one and node.op == "call_function":
                    apart.add(node)
                    node = self._viewed(node)
        return before, apart

    def _viewed(self, node: fx.Node) -> fx.Node:
        """The tensor of which the node is a view, or a split of which it is a part."""
        source = node.args[0]
        if source.target is not higher_order.SUBGRAPH:
            return source
        return source.args[0][higher_order.aliases(self._calls[source.args[2]], node.args[1])]
