# SPDX-License-Identifier: Apache-2.0
"""Which operations of a graph become one: maximal sets that are understood, hang together, have
rows in common and can be run at once."""

from __future__ import annotations

from collections.abc import Container

import torch
from torch import fx

from coda_cpp.fx_import import FREE, PRODUCTS
from coda_cpp.fx_layout import KEY, rows_of

_SLICE = torch.ops.aten.slice.Tensor


class _Groups:
    """Groups of nodes, and what comes before and behind each node when every group is run at once:
    sets of nodes as the bits of numbers."""

    def __init__(self, nodes: list[fx.Node]) -> None:
        self.nodes = nodes
        self.index = {node: i for i, node in enumerate(nodes)}
        self.before = [0] * len(nodes)
        self.behind = [0] * len(nodes)
        self.members = [1 << i for i in range(len(nodes))]
        for i, node in enumerate(nodes):
            for used in node.all_input_nodes:
                j = self.index[used]
                self.before[i] |= self.before[j] | 1 << j
        for i in reversed(range(len(nodes))):
            for user in nodes[i].users:
                j = self.index[user]
                self.behind[i] |= self.behind[j] | 1 << j

    def join(self, a: int, b: int) -> bool:
        """Makes the groups of both nodes one, unless something between them had to be run both
        before and behind it."""
        group = self.members[a] | self.members[b]
        if group == self.members[a]:
            return True
        before, behind = self.before[a] | self.before[b], self.behind[a] | self.behind[b]
        if before & behind & ~group:
            return False
        before, behind = before & ~group, behind & ~group
        for i in range(len(self.nodes)):
            if group >> i & 1:
                self.members[i], self.before[i], self.behind[i] = group, before, behind
            elif self.before[i] & group:
                self.before[i] |= before | group
            elif self.behind[i] & group:
                self.behind[i] |= behind | group
        return True


def propose(graph: fx.Graph, apart: Container[tuple[fx.Node, fx.Node]]) -> list[list[fx.Node]]:
    """The groups, each in the graph's order. Nodes that may be in one have a layout; `apart` are
    nodes and operands that may not be in one together."""
    nodes = list(graph.nodes)
    groups = _Groups(nodes)
    rows: dict[int, str] = {}  # of a group, by its members
    weights = {node.args[PRODUCTS[node.target]] for node in nodes if node.target in PRODUCTS}
    taken = [node for node in nodes if KEY in node.meta and node not in weights]
    known = set(taken)
    for node in taken:
        i = groups.index[node]
        rows[groups.members[i]] = rows_of(node)
        for used in node.all_input_nodes:
            if used not in known or (node, used) in apart:
                continue
            j = groups.index[used]
            of = {rows[groups.members[i]], rows[groups.members[j]]} - {""}
            if len(of) < 2 and groups.join(i, j):
                rows[groups.members[i]] = "".join(of)
    found = {groups.members[groups.index[node]] for node in taken}
    return [[node for i, node in enumerate(nodes) if group >> i & 1] for group in sorted(found)]


def without_parts(group: list[fx.Node]) -> list[fx.Node]:
    """Without the parts of a value whose readers in the group are all parts that leave it, as of
    the queries, keys and values that one product makes. So the product stores the value whole, and
    PyTorch's views of it cost nothing."""
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
