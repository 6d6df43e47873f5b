# SPDX-License-Identifier: Apache-2.0
"""Makes the conversions of torch.autocast explicit operations of the graph, so that regions see the
types of products. Afterwards autocast has no effect."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.functional import linear

from coda_cpp._operators import DECLARED, under_autocast
from coda_cpp.torch_backend import higher_order
from coda_cpp.torch_backend.trace import ENTER_AUTOCAST, EXIT_AUTOCAST

_aten = torch.ops.aten
_FAKE_LOG = logging.getLogger("torch._subclasses.fake_tensor")  # it logs each failing call


def _gru(x: torch.Tensor, state: torch.Tensor, w: torch.Tensor, v: torch.Tensor,
         *biases: torch.Tensor | None) -> torch.Tensor:
    b, c = biases or (None, None)
    of_x, of_state = linear(x, w, b).chunk(3, 1), linear(state, v, c).chunk(3, 1)
    reset, update = (torch.sigmoid(one + other) for one, other in zip(of_state[:2], of_x))
    new = torch.tanh(of_x[2] + of_state[2] * reset)
    return (state - new) * update + new


def _lstm(x: torch.Tensor, states: list[torch.Tensor], w: torch.Tensor, v: torch.Tensor,
          *biases: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    b, c = biases or (None, None)
    kept, forgotten, new, shown = (linear(states[0], v, c) + linear(x, w, b)).chunk(4, 1)
    cell = torch.sigmoid(forgotten) * states[1] + torch.sigmoid(kept) * torch.tanh(new)
    return torch.sigmoid(shown) * torch.tanh(cell), cell


def _rnn(activation: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, state: torch.Tensor,
         w: torch.Tensor, v: torch.Tensor, *biases: torch.Tensor | None) -> torch.Tensor:
    b, c = biases or (None, None)
    return activation(linear(state, v, c) + linear(x, w, b))


# Cells of recurrent networks, with the formulas of PyTorch's documentation. Each has two linear
# layers. On a CPU, autocast converts the operands of the linear layers, not those of the cell.
_CELLS = {_aten.gru_cell.default: _gru, _aten.lstm_cell.default: _lstm,
          _aten.rnn_tanh_cell.default: functools.partial(_rnn, torch.tanh),
          _aten.rnn_relu_cell.default: functools.partial(_rnn, torch.relu)}


def _is_cast_by(node: fx.Node, device: str) -> bool:
    return (isinstance(node.target, torch._ops.OpOverload)
            and torch._C._dispatch_has_kernel_for_dispatch_key(
                node.target.name(), f"Autocast{device.upper()}"))


def _result(value: Any) -> Any:
    """The first of several results."""
    return value[0] if isinstance(value, (tuple, list)) and value else value


def _is_cast_inside(node: fx.Node) -> bool:
    """Whether autocast changes the type of the result of an operation for which it has no kernel.
    It does so for operations composed of others: on a GPU cross_entropy_loss, whose log_softmax is
    in fp32, and convolutions with a padding that is named."""
    result = _result(node.meta.get("val"))
    if (not isinstance(node.target, torch._ops.OpOverload)
            or not torch._C._dispatch_has_kernel_for_dispatch_key(
                node.target.name(), "CompositeImplicitAutograd")
            or not isinstance(result, torch.Tensor) or not any(_differs(used, result.dtype)
                                                               for used in node.all_input_nodes)):
        return False
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda used: used.meta["val"])
    was_disabled, _FAKE_LOG.disabled = _FAKE_LOG.disabled, True
    try:
        with torch._C._DisableAutocast():
            return _result(node.target(*args, **kwargs)).dtype != result.dtype
    except Exception:  # noqa: BLE001 (it does not take operands of these types together)
        return True
    finally:
        _FAKE_LOG.disabled = was_disabled


def _differs(operand: fx.Node, dtype: torch.dtype) -> bool:
    value = operand.meta.get("val")
    return (isinstance(value, torch.Tensor) and value.is_floating_point()
            and value.dtype not in (dtype, torch.float64))


def write_out(graph: fx.Graph, inputs: Sequence[Any],
              changes: Callable[[fx.Node], bool] = lambda node: False) -> bool:
    """Makes the conversions explicit, and returns whether there were any. The graph must be as
    make_fx traced it. Both the current torch.autocast and the model's own sections apply; calls of
    subgraphs get the autocast state in their metadata. `changes`: whether a tensor is written in
    place."""
    devices = {tensor.device.type for tensor in inputs if isinstance(tensor, torch.Tensor)}
    device = "cuda" if "cuda" in devices else "cpu"
    states = [(torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))]
    made = _Conversions(graph, changes)
    for node in list(graph.nodes):
        if node.target is ENTER_AUTOCAST:
            of, dtype, is_enabled = node.args[:3]
            states.append((is_enabled, dtype or states[-1][1]) if of == device else states[-1])
        elif node.target is EXIT_AUTOCAST:
            states.pop()
        elif states[-1][0] and node.target is higher_order.SUBGRAPH:
            node.meta[higher_order.AUTOCAST] = (device, states[-1][1], True, True)
        elif states[-1][0] and node.target in DECLARED:
            _convert_ours(node, states[-1][1], made)
        elif states[-1][0]:
            parts = [node]
            if node.target in _CELLS and not _is_cast_by(node, device):
                parts = _take_apart(node, device, states[-1][1])
            for part in parts:
                if _is_cast_by(part, device) or _is_cast_inside(part):
                    _convert_operands(part, states[-1][1], made)
    for node in reversed(list(graph.nodes)):
        if node.target in (ENTER_AUTOCAST, EXIT_AUTOCAST):
            graph.erase_node(node)
    return made.is_any


def _take_apart(cell: fx.Node, device: str, low: torch.dtype) -> list[fx.Node]:
    """Replaces the cell by the operations that it consists of, and returns them."""
    given = cell.all_input_nodes

    def run(*tensors: torch.Tensor) -> Any:
        args, kwargs = fx.map_arg((cell.args, cell.kwargs),
                                  lambda used: tensors[given.index(used)])
        return _CELLS[cell.target](*args, **kwargs)

    with torch.autocast(device, low):
        traced = make_fx(run, pre_dispatch=True)(*(used.meta["val"] for used in given)).graph
    copies = dict(zip(traced.find_nodes(op="placeholder"), given, strict=True))
    parts = [node for node in traced.nodes if node.op == "call_function"]
    for part in parts:
        with cell.graph.inserting_before(cell):
            copies[part] = cell.graph.node_copy(part, copies.__getitem__)
        copies[part].meta = {**cell.meta, "val": part.meta["val"]}
    results = traced.output_node().args[0]
    if isinstance(results, fx.Node):
        cell.replace_all_uses_with(copies[results])
    else:
        for taken in list(cell.users):  # operator.getitem
            taken.replace_all_uses_with(copies[results[taken.args[1]]])
            cell.graph.erase_node(taken)
    cell.graph.erase_node(cell)
    return [copies[part] for part in parts]


def _convert_operands(node: fx.Node, low: torch.dtype,
                      made: _Conversions) -> None:
    """Operations that autocast handles run in its type or in fp32; the type of the result shows
    which."""
    result = _result(node.meta.get("val"))
    if not isinstance(result, torch.Tensor) or result.dtype not in (low, torch.float32):
        return
    for operand in list(node.all_input_nodes):
        if _differs(operand, result.dtype):
            node.replace_input_with(operand, made.of(operand, result.dtype, node))


def _convert_ours(node: fx.Node, low: torch.dtype,
                  made: _Conversions) -> None:
    tensors, spec, numbers, needs = node.args
    cast, rounded, spec = under_autocast(
        DECLARED[node.target], [tensor.meta["val"].dtype for tensor in tensors], spec, numbers,
        needs, low)
    given = [made.of(tensor, low, node)
             if is_low and tensor.meta["val"].dtype != low else tensor
             for tensor, is_low in zip(tensors, cast)]
    node.args = ([*given, *(tensors[i] for i in rounded)], spec, numbers, needs)


class _Conversions:
    """Inserts each conversion only once, like autocast's cache for weights, except for tensors that
    are written in place."""

    def __init__(self, graph: fx.Graph, changes: Callable[[fx.Node], bool]) -> None:
        self._graph, self._changes, self.is_any = graph, changes, False
        self._made: dict[tuple[fx.Node, torch.dtype], fx.Node] = {}

    def of(self, operand: fx.Node, dtype: torch.dtype, reader: fx.Node) -> fx.Node:
        self.is_any, key = True, (operand, dtype)
        if key in self._made:
            return self._made[key]
        changes = self._changes(operand)
        with (self._graph.inserting_before(reader) if changes
              else self._graph.inserting_after(operand)):
            made = self._graph.call_function(torch.ops.aten.to.dtype, key)
        made.meta["val"] = operand.meta["val"].to(dtype)
        if not changes:
            self._made[key] = made
        return made
