# SPDX-License-Identifier: Apache-2.0
"""torch.autocast written out: the conversions that it makes while a model runs, as operations of
the graph, so that regions see the types that products have. Autocast has nothing left to do then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

_ENTER = torch.amp.autocast_mode._enter_autocast
_EXIT = torch.amp.autocast_mode._exit_autocast


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
        if node.target is _ENTER:
            of, dtype, is_enabled = node.args[:3]
            states.append((is_enabled, dtype or states[-1][1]) if of == device else states[-1])
        elif node.target is _EXIT:
            states.pop()
        elif states[-1][0] and _is_cast_by(node, device):
            _convert_operands(graph, node, states[-1][1], made)
    for node in reversed(list(graph.nodes)):
        if node.target in (_ENTER, _EXIT):
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
        if (not isinstance(value, torch.Tensor) or not value.is_floating_point()
                or value.dtype in (result.dtype, torch.float64)):
            continue
        key = operand, result.dtype
        if key not in made:
            with graph.inserting_after(operand):
                made[key] = graph.call_function(
                    torch.ops.aten.to.dtype, (operand, result.dtype))
            made[key].meta["val"] = value.to(result.dtype)
        node.replace_input_with(operand, made[key])
