# SPDX-License-Identifier: Apache-2.0
"""Regions as operations of the graph around them: PyTorch's cache of compiled graphs sees what an
operation is called with, but not what a module is."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.fx.experimental.proxy_tensor import make_fx

from coda_cpp.programs import GRAPH
from coda_cpp.torch_backend.replace import Region


@_use_lazy_graph_module(True)  # operations of regions are read, not called
def inline(module: fx.GraphModule, traced: dict[Any, fx.Graph] | None = None) -> bool:
    """Puts the operations of each region in place of its call, and those of what was cut out but is
    left to PyTorch back, in subgraphs too; whether no call is left. Regions with sizes that are
    symbols stay. `traced`: equal layers have equal operations."""
    graph, is_whole = module.graph, True
    traced = {} if traced is None else traced
    for node in list(graph.nodes):
        if node.op == "get_attr":
            subgraph = getattr(module, node.target, None)
            if isinstance(subgraph, fx.GraphModule) and not inline(subgraph, traced):
                is_whole = False
        if node.op != "call_module":
            continue
        part = module.get_submodule(node.target)
        if isinstance(part, fx.GraphModule):
            _put(graph, node, part.graph)
        elif isinstance(part, Region) and _is_static(part):
            key = part.key()
            if key not in traced:
                traced[key] = _operations(part)
            for call in _put(graph, node, traced[key]):
                call.update_arg(1, part.function.spec)
        else:
            is_whole = False
            continue
        module.delete_submodule(node.target)
    module.recompile()
    return is_whole


def _is_static(region: Region) -> bool:
    return all(
        isinstance(value, FakeTensor) and all(isinstance(size, int) for size in value.shape)
        for value, _, _ in region.operands)


def _operations(region: Region) -> fx.Graph:
    with region.operands[0][0].fake_mode:
        stand_ins = [torch.empty_strided(value.shape, value.stride(), dtype=dtype,
                                         device=value.device, requires_grad=needs)
                     for value, dtype, needs in region.operands]
        return make_fx(region, pre_dispatch=True)(*stand_ins).graph


def _put(graph: fx.Graph, node: fx.Node, operations: fx.Graph) -> list[fx.Node]:
    """The calls of functions of graphs among what is put there."""
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
