# SPDX-License-Identifier: Apache-2.0
"""A graph of Dynamo's in the form that regions are cut from: aten before autograd, nothing written
in place, conversions and reshapes explicit, and every node marked with its layout.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from coda_cpp._core import Error
from coda_cpp.torch_backend import (
    attention, autocast, canonical, higher_order, loss_forms, row_order, trace, writes)
from coda_cpp.torch_backend import layout as layouts
from coda_cpp.torch_backend.importer import Importer
from coda_cpp.torch_backend.layout import NEEDS, NotUnderstood
from coda_cpp.torch_backend.linears import WEIGHT
from coda_cpp.torch_backend.rules import RULES
from coda_cpp.torch_backend.values import EQUAL_HALVES, has_equal_halves

_aten = torch.ops.aten


class Normal:
    """The module in that form, what its operations would be refused for, and which operands may not
    be of one region with them: those are tables to them."""

    def __init__(self, module: fx.GraphModule, inputs: Sequence[Any],
                 facts: Sequence[dict[str, Any]] | None = None,
                 kinds: dict[Any, fx.Graph] | None = None) -> None:
        """`facts`: what is known of the inputs, where the module is a part of another. `kinds`: see
        trace.trace()."""
        facts = facts or [{NEEDS: _requires_grad(given),
                           WEIGHT: isinstance(given, torch.nn.Parameter)} for given in inputs]
        # Dynamo's stand-ins, whose sizes may be symbols; the inputs themselves are real.
        stand_ins = [node.meta.get("example_value", given) for node, given in
                     zip(module.graph.find_nodes(op="placeholder"), inputs, strict=True)]
        modes = [given.fake_mode for given in stand_ins if isinstance(given, FakeTensor)]
        shown, self.calls = higher_order.with_stand_ins(module)
        self.kinds: dict[Any, fx.Graph] = {} if kinds is None else kinds  # which blocks share
        try:
            with modes[0] if modes else contextlib.nullcontext():
                self.module = trace.trace(shown, stand_ins, kinds)
        finally:
            higher_order.forget(self.calls)
        graph = self.module.graph
        for node, known in zip(graph.find_nodes(op="placeholder"), facts, strict=True):
            node.meta.update(known)
        _mark_needs(graph, {})
        writes.name_what_is_written(graph)
        _drop_grad_switches(graph)
        _mark_needs(graph, {})
        written = writes.Writes(graph, self.calls)
        self.had_autocast = autocast.write_out(graph, inputs, written.is_kept)
        canonical.rewrite(graph)
        row_order.rewrite(graph)
        loss_forms.rewrite(graph)
        self.causal = attention.Causal(graph)
        self.told_causal = self.causal.tell(graph)
        _mark_needs(graph, written.memory())
        self.refused: dict[fx.Node, str] = {}
        self.apart: set[tuple[fx.Node, fx.Node]] = set()
        for node in list(graph.nodes):
            if node.op == "call_function":  # its operands are those that it was given
                for made in canonical.where_known(node):
                    self._annotate(made)
        self.before, fixed = written.order()
        for node in fixed:
            if node.meta.pop(layouts.KEY, None) is not None:
                self.refused[node] = "others see what is written into its memory"
        self.apart |= loss_forms.heads_apart(graph)

    def facts(self, node: Any) -> dict[str, Any]:
        """What is known of a value, for a part of the graph that reads it."""
        if not isinstance(node, fx.Node) or not isinstance(node.meta.get("val"), torch.Tensor):
            return {}
        return {NEEDS: node.meta.get(NEEDS, False), WEIGHT: node.meta.get(WEIGHT, False),
                EQUAL_HALVES: has_equal_halves(node), attention.CAUSAL: self.causal.is_mask(node)}

    def _annotate(self, node: fx.Node) -> None:
        if node.target not in RULES:
            return
        region = Importer()
        try:
            if node.target is layouts.LOSS or node.target in layouts.OVER_ROWS:
                region.known[node.args[0]] = region.operand(node.args[0])
            region.add(node)
            region.known[node].value  # what is read only now is read
        except (NotUnderstood, Error) as why:
            self.refused[node] = str(why)
            node.meta.pop(layouts.KEY, None)
            return
        for operand, source in region.inputs:
            if source.form == "table":
                self.apart.add((node, operand))
                operand.meta[EQUAL_HALVES] = has_equal_halves(operand)


def _drop_grad_switches(graph: fx.Graph) -> None:
    """Takes torch.no_grad() sections out of the graph, so that operations may move past them: what
    is run there reads what it is given without its gradient. Raises NotUnderstood for
    torch.enable_grad() where gradients are off around the graph."""
    is_on, switches = torch.is_grad_enabled(), []
    for node in list(graph.nodes):
        if node.target is trace.SET_GRAD:
            is_on = node.args[0]
            if is_on and not torch.is_grad_enabled():
                raise NotUnderstood("torch.enable_grad() within torch.no_grad()")
            switches.append(node)
        elif node.op == "call_function" and is_on != torch.is_grad_enabled():
            for used in node.all_input_nodes:
                if used.meta[NEEDS] and isinstance(used.meta.get("val"), torch.Tensor):
                    with graph.inserting_before(node):
                        stopped = graph.call_function(_aten.detach.default, (used,))
                    stopped.meta.update(used.meta)
                    node.replace_input_with(used, stopped)
    for node in switches:
        graph.erase_node(node)


def _requires_grad(given: Any) -> bool:
    return isinstance(given, torch.Tensor) and given.requires_grad


def _mark_needs(graph: fx.Graph, memory: Mapping[fx.Node, fx.Node]) -> None:
    """`memory`: the first tensor of that of each. What is written there may have a gradient."""
    gained: set[fx.Node] = set()
    for node in graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder":
            node.meta[NEEDS] = node.meta.get(NEEDS, False) and torch.is_grad_enabled()
            continue
        is_there = not isinstance(value, torch.Tensor) or value.is_floating_point() or (
            value.is_complex())
        node.meta[NEEDS] = is_there and node.target is not _aten.detach.default and any(
            arg.meta.get(NEEDS) or memory.get(arg) in gained for arg in node.all_input_nodes)
        if node.meta[NEEDS] and writes.is_in_place(node):
            gained.add(memory.get(node.args[0], node))
