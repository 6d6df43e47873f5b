# SPDX-License-Identifier: Apache-2.0
"""Activation checkpointing within a graph: its blocks are subgraphs, and each is fused by itself.

While the graph around is brought into its normal form an operator stands for each of them, which
says only what shapes it makes. Then the block is put back, with what is known of its operands.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import fx

_CHECKPOINT = torch.ops.higher_order.tag_activation_checkpoint
_LIBRARY = torch.library.Library("coda_cpp", "FRAGMENT")
_LIBRARY.define("subgraph(Tensor[] tensors, SymInt[] sizes, int which) -> Tensor[]")
SUBGRAPH = torch.ops.coda_cpp.subgraph.default
_numbers = itertools.count()
_blocks: dict[int, fx.Node] = {}  # while a graph is traced: Dynamo's call of each


@torch.library.impl(_LIBRARY, "subgraph", "CompositeExplicitAutograd")
def _shapes(tensors: list[torch.Tensor], sizes: list[int], which: int) -> list[torch.Tensor]:
    made = _blocks[which].meta["example_value"]
    return [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device)
            for t in (made if isinstance(made, (tuple, list)) else [made])]


def with_stand_ins(module: fx.GraphModule) -> tuple[fx.GraphModule, dict[int, fx.Node]]:
    """The module with operators for its blocks, and those by their operators' number."""
    calls = [node for node in module.graph.nodes if node.target is _CHECKPOINT]
    blocks: dict[int, fx.Node] = {}
    if not calls:
        return module, blocks
    graph, copies = fx.Graph(), {}
    graph.output(graph.graph_copy(module.graph, copies))
    for call in calls:
        which, node = next(_numbers), copies[call]
        blocks[which] = _blocks[which] = call
        operands = node.args[1:]
        is_size = [not isinstance(arg.meta.get("example_value"), torch.Tensor)
                   if isinstance(arg, fx.Node) else True for arg in call.args[1:]]
        with graph.inserting_before(node):
            stand_in = graph.call_function(SUBGRAPH, (
                [arg for arg, size in zip(operands, is_size) if not size],
                [arg for arg, size in zip(operands, is_size) if size], which))
        node.replace_all_uses_with(stand_in)
        graph.erase_node(node)
    return fx.GraphModule(module, graph), blocks


def forget(blocks: dict[int, fx.Node]) -> None:
    for which in blocks:
        del _blocks[which]


def operands(node: fx.Node, call: fx.Node) -> list[Any]:
    """What the block of a stand-in is called with, in its order."""
    tensors, sizes = (iter(given) for given in node.args[:2])
    return [next(tensors) if isinstance(arg, fx.Node)
            and isinstance(arg.meta.get("example_value"), torch.Tensor) else next(sizes)
            for arg in call.args[1:]]


def put_back(module: fx.GraphModule, node: fx.Node, call: fx.Node, block: fx.GraphModule) -> None:
    """The block in place of its stand-in, by Dynamo's name for it: caches know graphs by text."""
    name = str(call.args[0].target)
    setattr(module, name, block)
    with module.graph.inserting_before(node):
        body = module.graph.get_attr(name)
        back = module.graph.call_function(
            _CHECKPOINT, (body, *operands(node, call)), dict(call.kwargs))
    back.meta.update(call.meta)
    back.meta["val"] = node.meta.get("val")
    node.replace_all_uses_with(back)
    module.graph.erase_node(node)
