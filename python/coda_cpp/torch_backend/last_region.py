# SPDX-License-Identifier: Apache-2.0
"""The region that ends in the loss and also returns logits, as Hugging Face's models do.

Mostly only the loss is differentiated. AOTAutograd would then pass zeros as the logits' upstream
gradient, so the backward would store two more tensors as large as the logits. Therefore the region
is not compiled by the inner compiler: it is called eagerly, behind the compiled rest of the graph.
The operator then learns from PyTorch's autograd that the logits have no upstream gradient. Only a
short last region of a graph that CUDA graphs record stays in that graph: see equal_layers.
"""

from __future__ import annotations

import operator

import torch
from torch import fx

from coda_cpp.function import ONLY_LOSSES
from coda_cpp.programs import GRAPH
from coda_cpp.torch_backend.replace import Region
from coda_cpp.torch_backend.rules import FREE

_EAGER = {*FREE, operator.getitem, torch.ops.aten.to.dtype}


def mark(node: fx.Node, region: Region) -> None:
    """Sets ONLY_LOSSES if the region is such a region. `node`: its call in the graph. If the region
    also has another head, whose weights the losses do not read, that head is differentiated too."""
    seeded = [result for result in region.function.function.outputs if result.differentiable]
    if (region.needs and region.has_targets and region.losses_need_all and _ends_graph(node)
            and len({result.is_number for result in seeded}) == 2):
        region.needs |= ONLY_LOSSES


def nodes_of(module: fx.GraphModule) -> list[fx.Node]:
    """The call of the marked region, and all nodes that depend on it. Empty if there is none."""
    for node in module.graph.nodes:
        if _flags(module, node):
            return [node, *_behind(node)]
    return []


def unmark(module: fx.GraphModule) -> None:
    """Removes the mark, for a graph that is compiled as a whole."""
    for node in module.graph.nodes:
        if not _flags(module, node):
            continue
        if node.op == "call_function":
            node.update_arg(3, node.args[3] & ~ONLY_LOSSES)
        else:
            module.get_submodule(node.target).needs &= ~ONLY_LOSSES


def _flags(module: fx.GraphModule, node: fx.Node) -> int:
    if node.target is GRAPH.forward:
        return node.args[3] & ONLY_LOSSES
    region = module.get_submodule(node.target) if node.op == "call_module" else None
    return region.needs & ONLY_LOSSES if isinstance(region, Region) else 0


def _behind(node: fx.Node) -> list[fx.Node]:
    found: dict[fx.Node, None] = {}
    pending = list(node.users)
    while pending:
        user = pending.pop()
        if user.op != "output" and user not in found:
            found[user] = None
            pending += user.users
    return sorted(found)


def _ends_graph(node: fx.Node) -> bool:
    """Whether behind the node there are only views, conversions and operations on numbers."""
    return all(user.target in _EAGER or isinstance(user.meta.get("val"), torch.Tensor)
               and user.meta["val"].dim() == 0 and isinstance(user.target, torch._ops.OpOverload)
               for user in _behind(node))
