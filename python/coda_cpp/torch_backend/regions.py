# SPDX-License-Identifier: Apache-2.0
"""Chooses the regions of a graph: maximal connected sets of supported operations that have the same
rows and can be run as one operation."""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Mapping, Sequence

import torch
from torch import fx
from torch.fx.passes.utils.fuser_utils import erase_nodes, fuse_as_graphmodule

from coda_cpp.torch_backend.graph_edits import insert_module
from coda_cpp.torch_backend.layout import (
    KEY, PRODUCTS, count, is_one, or_plain, rows_of, value_of)
from coda_cpp.torch_backend.rules import FREE

Before = Mapping[fx.Node, Iterable[fx.Node]]
_SLICE = torch.ops.aten.slice.Tensor


class _Group:
    """Nodes that run as one operation, and all nodes that must run before them, as bit masks."""

    def __init__(self, place: int, before: int) -> None:
        self.places, self.members, self.before = [place], 1 << place, before
        self.rows = ""
        self.dtype: torch.dtype | None = None  # of its products


class _Groups:
    """The groups of the added nodes. Nodes are added in the graph's order, so all nodes between the
    nodes of a group are added before the last of the group."""

    def __init__(self) -> None:
        self.of: dict[fx.Node, _Group] = {}
        self._nodes: list[fx.Node] = []
        self._with_operands: list[_Group] = []  # all other groups depend on nothing

    def add(self, node: fx.Node, others: Iterable[fx.Node] = ()) -> _Group:
        """`others`: nodes that must run before the node, in addition to its operands."""
        before = 0
        for used in (*node.all_input_nodes, *others):
            before |= self.of[used].before | self.of[used].members
        group = self.of[node] = _Group(len(self._nodes), before)
        self._nodes.append(node)
        if before:
            self._with_operands.append(group)
        return group

    def join(self, group: _Group, other: _Group) -> bool:
        """Merges the other group into the group, unless a node between them would have to run both
        before and after the merged group. Returns whether the groups were merged."""
        members = group.members | other.members
        before = (group.before | other.before) & ~members
        behind = [one for one in self._with_operands
                  if one.before & members and one is not group and one is not other]
        if any(one.members & before for one in behind):
            return False
        for one in behind:
            one.before |= before | members
        group.places += other.places
        group.members, group.before = members, before
        for place in other.places:
            self.of[self._nodes[place]] = group
        self._with_operands = [one for one in self._with_operands
                               if one is not group and one is not other]
        if before:
            self._with_operands.append(group)
        return True

    def is_alone(self, group: _Group) -> bool:
        """Whether the group has only one operation besides views."""
        return sum(self._nodes[place].target not in FREE for place in group.places) == 1


def propose(graph: fx.Graph, apart: Container[tuple[fx.Node, fx.Node]],
            before: Before = {}) -> list[list[fx.Node]]:  # noqa: B006 (it is only read)
    """The groups, each in the graph's order. Only nodes with a layout may be in a group. `apart`:
    pairs of a node and an operand that must not be in the same group. `before`: nodes that must run
    before a node, in addition to its operands."""
    nodes = list(graph.nodes)
    groups = _Groups()
    weights = {node.args[PRODUCTS[node.target]] for node in nodes if node.target in PRODUCTS}
    known: set[fx.Node] = set()
    for node in nodes:
        group = groups.add(node, before.get(node, ()))
        if KEY not in node.meta or node in weights:
            continue
        known.add(node)
        group.rows = rows_of(node)
        if node.target in PRODUCTS:
            group.dtype = value_of(node.args[PRODUCTS[node.target]]).dtype
        for used in node.all_input_nodes:
            other = groups.of[used]
            if used not in known or (node, used) in apart or other is group:
                continue
            of, dtypes = {group.rows, other.rows} - {""}, {group.dtype, other.dtype} - {None}
            if len(of) < 2 and len(dtypes) < 2 and groups.join(group, other):
                group.rows, group.dtype = "".join(of), next(iter(dtypes), None)
    _join_siblings(groups, known)
    found = {groups.of[node] for node in known}
    return [[nodes[place] for place in sorted(group.places)]
            for group in sorted(found, key=lambda group: group.members)]


def _join_siblings(groups: _Groups, known: Iterable[fx.Node]) -> None:
    """Joins the groups of two successive GEMMs with the same input, if one of these groups has no
    other operation: for example the GEMMs of queries, keys and values without a norm before them.
    """
    before: fx.Node | None = None
    for node in sorted((n for n in known if n.target in PRODUCTS)):
        group = groups.of[node]
        other = None if before is None else groups.of[before]
        if (other is not None and node.args[0] is before.args[0] and other is not group
                and other.rows == group.rows and other.dtype == group.dtype
                and (groups.is_alone(group) or groups.is_alone(other))):
            groups.join(other, group)
        before = node


def without_parts(group: list[fx.Node]) -> list[fx.Node]:
    """The group without the slices of a value that is only read by slices that leave the group,
    such as queries, keys and values of one product. The product then stores the whole value, and
    PyTorch's views of the value cost nothing."""
    inside, leaving = set(group), set()
    for node in reversed(group):
        if node.target in FREE and all(u in leaving for u in node.users if u in inside):
            leaving.add(node)
    apart: set[fx.Node] = set()
    for node in group:
        source = node.args[0] if node.target is _SLICE else None
        if source in apart or source in inside and all(
                u.target is _SLICE and u in leaving for u in source.users if u in inside):
            apart.add(node)
        elif node in leaving and any(used in apart for used in node.all_input_nodes):
            apart.add(node)
    return [node for node in group if node not in apart]


def _is_matrix(node: fx.Node) -> bool:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return False
    layout = or_plain(node)
    return "r" in layout and not is_one(count(layout, value.shape, "c"))


def _rounded(group: Sequence[fx.Node]) -> dict[fx.Node, torch.dtype]:
    """For each node, the narrowest type to which its value has been rounded since it was
    computed."""
    found: dict[fx.Node, torch.dtype] = {}
    for node in group:
        dtypes = [value_of(node).dtype]
        if node.target in FREE:
            used = node.all_input_nodes[0]
            dtypes.append(found.get(used, value_of(used).dtype))
        found[node] = min(dtypes, key=lambda dtype: dtype.itemsize)
    return found


def of_one_type(group: list[fx.Node]) -> list[list[fx.Node]]:
    """Splits the group into parts whose results have the type of the group's GEMMs. An operation
    with an fp32 result that leaves a group with 16-bit GEMMs belongs to no part. Inputs in fp32 are
    read as they are."""
    storage = next((value_of(node.args[PRODUCTS[node.target]]).dtype for node in group
                    if node.target in PRODUCTS), None)
    if storage is None:
        return []
    rounded = _rounded(group)
    kept: list[fx.Node] = list(group)
    later: set[fx.Node] = set()
    while True:
        here = set(kept)
        wrong = {node for node in kept if _is_matrix(node) and rounded[node] != storage
                 and any(user not in here for user in node.users)}
        if not wrong:
            break
        for node in kept:
            if node in wrong or any(used in wrong for used in node.all_input_nodes):
                wrong.add(node)
        kept = [node for node in kept if node not in wrong]
        later |= wrong
    rest = [node for node in group if node in later]
    if len(rest) == len(group):  # the first node fits into no part
        rest = rest[1:]
    return [kept] * bool(kept) + of_one_type(rest)


def cut(module: fx.GraphModule, groups: Sequence[Sequence[fx.Node]], before: Before) -> None:
    """Replaces each group by a call of a module with its nodes, and sorts the graph's nodes into an
    executable order, as close to the graph's order as possible."""
    graph, of = module.graph, {}
    for i, group in enumerate(groups):
        part, inputs, outputs = fuse_as_graphmodule(module, list(group), f"fused_{i}",
                                                    dict.fromkeys(group))
        call = insert_module(module, part, inputs, outputs, group[-1])
        of.update(dict.fromkeys(group, call))
        erase_nodes(module, list(group))
    place = {node: i for i, node in enumerate(graph.nodes)}
    behind: dict[fx.Node, list[fx.Node]] = {node: list(node.users) for node in place}
    for node, earlier in before.items():
        for one in earlier:
            if of.get(one, one) is not of.get(node, node):
                behind[of.get(one, one)].append(of.get(node, node))
    waits = dict.fromkeys(place, 0)
    for users in behind.values():
        for node in users:
            waits[node] += 1
    output = graph.output_node()
    ready = [place[node] for node, count in waits.items() if count == 0]
    nodes = list(place)
    while ready:
        node = nodes[heapq.heappop(ready)]
        if node is not output:
            output.prepend(node)
        for user in behind[node]:
            waits[user] -= 1
            if not waits[user]:
                heapq.heappush(ready, place[user])
    assert not any(waits.values()), "what is to be run needs itself"
