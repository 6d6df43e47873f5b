# SPDX-License-Identifier: Apache-2.0
"""Traces Dynamo's graph to aten before autograd, with make_fx.

Tracing a call takes a millisecond or more, and a model with many equal layers has many equal calls.
So each kind of call is traced once, and its operations are copied for equal calls. Each operation
keeps its place in the user's code (ORIGIN).
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import traceback
from torch.fx._lazy_graph_module import _make_graph_module
from torch.fx.experimental.proxy_tensor import make_fx

from coda_cpp.torch_backend.layout import NotUnderstood

ENTER_AUTOCAST = torch.amp.autocast_mode._enter_autocast
EXIT_AUTOCAST = torch.amp.autocast_mode._exit_autocast
SET_GRAD = torch._C._set_grad_enabled
_SWITCHES = {ENTER_AUTOCAST, EXIT_AUTOCAST, SET_GRAD}
ORIGIN = ("stack_trace", "nn_module_stack")  # in a node's meta, as Dynamo writes them
_NOTES = {torch._C._log_api_usage_once}  # they do not change tensors
MEMORY = "coda_memory"  # in a tensor's meta: equal for tensors in the same memory


def trace(module: fx.GraphModule, stand_ins: Sequence[Any],
          kinds: dict[Any, fx.GraphModule] | None = None) -> fx.GraphModule:
    """The traced module. `stand_ins` are the inputs, as fake tensors of the active mode. `kinds`:
    the calls traced for similar graphs; None if there are no similar graphs."""
    # Operations on a real tensor would be executed, and their writes would remain.
    if any(isinstance(operator.attrgetter(node.target)(module), torch.Tensor)
           for node in module.graph.find_nodes(op="get_attr")):
        raise NotUnderstood("the graph contains a tensor that is not an input, as the graph "
                            "of an optimizer's step does")
    nodes = module.graph.nodes
    modes = {id(value.fake_mode) for value in map(_tensor, nodes) if value is not None}
    if len(modes) == 1 and all(map(_is_plain, nodes)):
        calls = _calls(module.graph)
        # A call traced by itself takes twice as long as one in a graph.
        if kinds is not None or 2 * len({call.key for call in calls.values()}) <= len(calls):
            return _of_kinds(module.graph, calls, {} if kinds is None else kinds)
    entered: list[Any] = []
    with traceback.preserve_node_meta(), _switches_restored(entered):
        run = _Switching(module, entered).run
        made = make_fx(run, pre_dispatch=True)(*stand_ins)
    for node in made.graph.nodes:
        node.meta[MEMORY] = _memory(node.meta.get("val"))
    _constants(made)
    return made


def _constants(traced: fx.GraphModule) -> list[tuple[fx.Node, Any]]:
    """The tensors that the operations made of numbers, by the nodes that read them."""
    found = [(node, getattr(traced, node.target))
             for node in traced.graph.find_nodes(op="get_attr")]
    if any(isinstance(value, FakeTensor) for _, value in found):
        raise NotUnderstood("the graph reads a tensor that tracing cannot see")
    return found


def _origin(node: fx.Node) -> dict[str, Any]:
    return {key: node.meta[key] for key in ORIGIN if key in node.meta}


def _memory(value: Any) -> int | None:
    """An identifier of the tensor's memory, or None if the value is not a single tensor."""
    try:
        return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None
    except (RuntimeError, NotImplementedError):  # sparse tensors have no storage
        return id(value)


def _tensor(node: Any) -> FakeTensor | None:
    """The node's fake tensor, if it is a single tensor that _facts() describes completely."""
    value = node.meta.get("example_value") if isinstance(node, fx.Node) else None
    if type(value) is not FakeTensor or value.layout is not torch.strided:
        return None
    numbers = (*value.shape, *value.stride(), value.storage_offset())
    return value if all(type(number) is int for number in numbers) else None


def _facts(value: FakeTensor) -> tuple:
    return (tuple(value.shape), value.stride(), value.storage_offset(), value.dtype, value.device,
            value.requires_grad, value.is_conj(), value.is_neg())


def _is_plain(node: fx.Node) -> bool:
    """Whether the node depends only on tensors of known sizes, constants and switches."""
    if node.op == "placeholder":
        return _tensor(node) is not None
    if node.op == "output" or node.target in _SWITCHES or node.target in _NOTES:
        return True
    if node.op not in ("call_function", "call_method") or isinstance(
            node.target, torch._ops.HigherOrderOperator):
        return False
    return _is_part(node) or _makes_tensors(node) and all(
        _tensor(used) is not None for used in node.all_input_nodes)


def _is_part(node: fx.Node) -> bool:
    """Whether the node is one of the results of a call with several."""
    return (node.target is operator.getitem and isinstance(node.args[0], fx.Node)
            and isinstance(node.args[0].meta.get("example_value"), (tuple, list)))


def _makes_tensors(node: fx.Node) -> bool:
    value = node.meta.get("example_value")
    return all(isinstance(part, torch.Tensor)
               for part in (value if isinstance(value, (tuple, list)) else [value]))


class _Call:
    """A call: its operands, and its kind, which determines its operations. Nodes with the same fake
    tensor are one operand, because a trace cannot distinguish them."""

    def __init__(self, node: fx.Node, switched: tuple) -> None:
        self._node = node
        self._place: dict[int, int] = {}  # the operand's number, by the tensor's identity
        self.operands: list[fx.Node] = []
        for used in node.all_input_nodes:
            if id(_tensor(used)) not in self._place:
                self._place[id(_tensor(used))] = len(self.operands)
                self.operands.append(used)
        self._given = [_tensor(used) for used in self.operands]
        memories = list(map(_memory, self._given))
        self.key = (node.op, node.target, switched, tuple(map(_facts, self._given)),
                    tuple(map(memories.index, memories)),
                    repr(self._arguments(lambda place: f"%{place}")))

    def _arguments(self, of: Callable[[int], Any]) -> Any:
        return fx.map_arg((self._node.args, self._node.kwargs),
                          lambda used: of(self._place[id(_tensor(used))]))

    def traced(self) -> fx.GraphModule:
        def run(*tensors: torch.Tensor) -> Any:
            arguments, named = self._arguments(tensors.__getitem__)
            if self._node.op == "call_function":
                return self._node.target(*arguments, **named)
            return getattr(arguments[0], self._node.target)(*arguments[1:], **named)

        return make_fx(run, pre_dispatch=True)(*self._given)


def _calls(graph: fx.Graph) -> dict[fx.Node, _Call]:
    """The calls of a plain graph."""
    found: dict[fx.Node, _Call] = {}
    around = [(torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
              for device in ("cpu", "cuda")]
    is_on, sections = None, [repr(around)]
    for node in graph.nodes:
        if node.target is SET_GRAD:
            is_on = node.args[0]
        elif node.target is ENTER_AUTOCAST:
            sections.append(repr((node.args, node.kwargs)))
        elif node.target is EXIT_AUTOCAST:
            sections.pop()
        elif (node.op in ("call_function", "call_method") and node.target not in _NOTES
              and not _is_part(node)):
            found[node] = _Call(node, (is_on, *sections))
    return found


@contextlib.contextmanager
def _switches_restored(entered: list[Any]) -> Iterator[None]:
    """Restores the switches at the end. `entered`: open sections of autocast."""
    is_on = torch.is_grad_enabled()
    try:
        yield
    finally:
        while entered:
            EXIT_AUTOCAST(entered.pop())
        SET_GRAD(is_on)


def _switch(node: fx.Node, entered: list[Any]) -> None:
    if node.target is ENTER_AUTOCAST:
        entered.append(ENTER_AUTOCAST(*node.args, **node.kwargs))
    elif node.target is EXIT_AUTOCAST:
        EXIT_AUTOCAST(entered.pop())
    else:
        SET_GRAD(*node.args)


def _copy_memories(operations: fx.Graph, copies: Mapping[fx.Node, Any]) -> None:
    """Marks results of the copy that share memory with an operand or another result, as in
    `operations`."""
    of: dict[int | None, Any] = {None: None}
    for node in operations.nodes:
        memory = _memory(node.meta.get("val"))
        if node.op == "placeholder":
            of.setdefault(memory, copies[node].meta[MEMORY])
        elif node.op != "output":
            copies[node].meta[MEMORY] = of.setdefault(memory, object())


class _Switching(fx.Interpreter):
    """Executes switches of autocast and gradients. make_fx, which works above autocast and
    autograd, only records them, but the types of later operations depend on them."""

    def __init__(self, module: fx.GraphModule, entered: list[Any]) -> None:
        super().__init__(module)
        self._entered = entered

    def run_node(self, n: fx.Node) -> Any:
        made = super().run_node(n)
        if n.target in _SWITCHES:
            with torch._C.DisableTorchFunction():
                _switch(n, self._entered)
        return made


def _of_kinds(plain: fx.Graph, calls: Mapping[fx.Node, _Call], traced: dict[Any, fx.GraphModule]
              ) -> fx.GraphModule:
    """The graph, assembled from the traced calls."""
    graph = fx.Graph()
    constants: dict[str, Any] = {}
    made: dict[fx.Node, Any] = {}  # nodes of the new graph, or tuples of them
    entered: list[Any] = []
    with _switches_restored(entered):
        for node in plain.nodes:
            if node.op == "placeholder":
                made[node] = graph.placeholder(node.name)
                made[node].meta["val"] = node.meta["example_value"]
                made[node].meta[MEMORY] = _memory(node.meta["example_value"])
            elif node.op == "output":
                graph.output(fx.map_arg(node.args[0], made.__getitem__))
            elif node.target in _SWITCHES:
                made[node] = graph.node_copy(node, made.__getitem__)
                made[node].meta["val"] = None
                _switch(node, entered)
            elif node in calls:
                call = calls[node]
                if call.key not in traced:
                    traced[call.key] = call.traced()
                operations = traced[call.key].graph
                copies = dict(zip(operations.find_nodes(op="placeholder"),
                                  map(made.__getitem__, call.operands), strict=True))
                made[node] = graph.graph_copy(operations, copies)
                for operation in operations.nodes:
                    if operation.op == "call_function":
                        copies[operation].meta.update(_origin(node))
                for reader, value in _constants(traced[call.key]):
                    copies[reader].target = f"_tensor_constant{len(constants)}"
                    constants[copies[reader].target] = value
                _copy_memories(operations, copies)
            elif _is_part(node):
                made[node] = made[node.args[0]][node.args[1]]
    return _make_graph_module(constants, graph)
