# SPDX-License-Identifier: Apache-2.0
"""Inlines regions as operations into the graph around them, because PyTorch's cache of compiled
graphs supports operations but not modules of ours."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.fx.experimental.proxy_tensor import make_fx

from coda_cpp.programs import GRAPH
from coda_cpp.torch_backend.layout import NotUnderstood
from coda_cpp.torch_backend.replace import Region


@_use_lazy_graph_module(True)  # the graphs of regions are read, not called
def inline(module: fx.GraphModule) -> bool:
    """Replaces the call of each region by its operations, and the call of each part that is left to
    PyTorch by the part's operations, in subgraphs too. Calls of regions with symbolic sizes stay.
    Returns whether no call is left."""
    graph, is_whole = module.graph, True
    for node in list(graph.nodes):
        if node.op == "get_attr":
            subgraph = getattr(module, node.target, None)
            if isinstance(subgraph, fx.GraphModule) and not inline(subgraph):
                is_whole = False
        if node.op != "call_module":
            continue
        part = module.get_submodule(node.target)
        if isinstance(part, fx.GraphModule):
            _put(graph, node, part.graph)
        elif isinstance(part, Region) and part.operations is not None:
            for call in _put(graph, node, part.operations):
                call.update_arg(1, part.function.spec)
        else:
            is_whole = False
            continue
        module.delete_submodule(node.target)
    module.recompile()
    return is_whole


def prepare(region: Region, traced: dict[Any, fx.Graph]) -> None:
    """Runs the region once with fake tensors, so that errors occur while the region can still be
    left to PyTorch. If no size is symbolic, the traced operations are stored. `traced` caches them
    for equal layers."""
    values = [value for value, _, _ in region.operands]
    modes = [value.fake_mode for value in values if isinstance(value, FakeTensor)]
    if not modes:
        classes = {type(value).__name__ for value in values}
        raise NotUnderstood(f"its operands are of {', '.join(sorted(classes))}")
    is_static = all(isinstance(value, FakeTensor)
                    and all(isinstance(size, int) for size in value.shape) for value in values)
    key = region.key() if is_static else None
    if key in traced:
        region.operations = traced[key]
        return
    with modes[0]:
        stand_ins = [torch.empty_strided(value.shape, value.stride(), dtype=dtype,
                                         device=value.device, requires_grad=needs)
                     if isinstance(value, FakeTensor) else value
                     for value, dtype, needs in region.operands]
        if is_static:
            region.operations = traced[key] = make_fx(region, pre_dispatch=True)(*stand_ins).graph
        else:
            region(*stand_ins)


def _put(graph: fx.Graph, node: fx.Node, operations: fx.Graph) -> list[fx.Node]:
    """Replaces the node by the operations. Returns the inserted calls of the operator GRAPH."""
    copies = dict(zip(operations.find_nodes(op="placeholder"), node.args, strict=True))
    with graph.inserting_before(node):
        results = graph.graph_copy(operations, copies)
    if isinstance(results, (tuple, list)):
        for user in list(node.users):
            assert user.target is operator.getitem
            user.replace_all_uses_with(results[user.args[1]])
            graph.erase_node(user)
    else:
        node.replace_all_uses_with(results)
    graph.erase_node(node)
    return [copy for copy in copies.values()
            if isinstance(copy, fx.Node) and copy.target is GRAPH.forward]
