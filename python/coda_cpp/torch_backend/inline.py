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
def inline(module: fx.GraphModule) -> bool:
    """Puts the operations of each region in place of its call, and those of what was cut out but is
    left to PyTorch back, in subgraphs too; whether no call is left. Regions with sizes that are
    symbols stay."""
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
    """Runs the region once with stand-ins, so that whatever fails does so while it can be given
    back; its operations are kept where no size is a symbol. `traced`: equal layers have equal
    ones."""
    values = [value for value, _, _ in region.operands]
    mode = next(value.fake_mode for value in values if isinstance(value, FakeTensor))
    is_static = all(isinstance(value, FakeTensor)
                    and all(isinstance(size, int) for size in value.shape) for value in values)
    key = region.key() if is_static else None
    if key in traced:
        region.operations = traced[key]
        return
    with mode:
        stand_ins = [torch.empty_strided(value.shape, value.stride(), dtype=dtype,
                                         device=value.device, requires_grad=needs)
                     if isinstance(value, FakeTensor) else value
                     for value, dtype, needs in region.operands]
        if is_static:
            region.operations = traced[key] = make_fx(region, pre_dispatch=True)(*stand_ins).graph
        else:
            region(*stand_ins)


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
