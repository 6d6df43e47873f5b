# SPDX-License-Identifier: Apache-2.0
"""torch.autocast written out: the conversions that it makes while a model runs, as operations of
the graph, so that regions see the types that products have. Autocast has nothing left to do then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from coda_cpp._operators import DECLARED, under_autocast
from coda_cpp.torch_backend.trace import ENTER_AUTOCAST, EXIT_AUTOCAST


def _is_cast_by(node: fx.Node, device: str) -> bool:
    return (isinstance(node.target, torch._ops.OpOverload)
            and torch._C._dispatch_has_kernel_for_dispatch_key(
                node.target.name(), f"Autocast{device.upper()}"))


def write_out(graph: fx.Graph, inputs: Sequence[Any]) -> bool:
    """Makes the conversions explicit; whether there were any. The graph is as make_fx traced it,
    under what torch.autocast is now and with the sections that the model has itself."""
    devices = {tensor.device.type for tensor in inputs if isinstance(tensor, torch.Tensor)}
    device = "cuda" if "cuda" in devices else "cpu"
    states = [(torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))]
    made: dict[tuple[fx.Node, torch.dtype], fx.Node] = {}  # as autocast keeps those of weights
    for node in list(graph.nodes):
        if node.target is ENTER_AUTOCAST:
            of, dtype, is_enabled = node.args[:3]
            states.append((is_enabled, dtype or states[-1][1]) if of == device else states[-1])
        elif node.target is EXIT_AUTOCAST:
            states.pop()
        elif states[-1][0] and node.target in DECLARED:
            _convert_ours(graph, node, states[-1][1], made)
        elif states[-1][0] and _is_cast_by(node, device):
            _convert_operands(graph, node, states[-1][1], made)
    for node in reversed(list(graph.nodes)):
        if node.target in (ENTER_AUTOCAST, EXIT_AUTOCAST):
            graph.erase_node(node)
    return bool(made)


def _convert_operands(graph: fx.Graph, node: fx.Node, low: torch.dtype,
                      made: dict[tuple[fx.Node, torch.dtype], fx.Node]) -> None:
    """Operations that autocast knows run in its type or in fp32; what they made says in which."""
    result = node.meta.get("val")
    if not isinstance(result, torch.Tensor) or result.dtype not in (low, torch.float32):
        return
    for operand in list(node.all_input_nodes):
        value = operand.meta.get("val")
        if (isinstance(value, torch.Tensor) and value.is_floating_point()
                and value.dtype not in (result.dtype, torch.float64)):
            node.replace_input_with(operand, _converted(graph, operand, result.dtype, made))


def _convert_ours(graph: fx.Graph, node: fx.Node, low: torch.dtype,
                  made: dict[tuple[fx.Node, torch.dtype], fx.Node]) -> None:
    tensors, spec, numbers, needs = node.args
    cast, rounded, spec = under_autocast(
        DECLARED[node.target], [tensor.meta["val"].dtype for tensor in tensors], spec, numbers,
        needs, low)
    given = [_converted(graph, tensor, low, made)
             if is_low and tensor.meta["val"].dtype != low else tensor
             for tensor, is_low in zip(tensors, cast)]
    node.args = ([*given, *(tensors[i] for i in rounded)], spec, numbers, needs)


def _converted(graph: fx.Graph, operand: fx.Node, dtype: torch.dtype,
               made: dict[tuple[fx.Node, torch.dtype], fx.Node]) -> fx.Node:
    key = operand, dtype
    if key not in made:
        with graph.inserting_after(operand):
            made[key] = graph.call_function(torch.ops.aten.to.dtype, key)
        made[key].meta["val"] = operand.meta["val"].to(dtype)
    return made[key]
