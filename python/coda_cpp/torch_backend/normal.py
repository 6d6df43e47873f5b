# SPDX-License-Identifier: Apache-2.0
"""A graph of Dynamo's in the form that regions are cut from: aten before autograd, nothing written
in place, conversions and reshapes explicit, and every node marked with its layout.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from coda_cpp._core import Error
from coda_cpp.torch_backend import attention, autocast, canonical, checkpoint, loss_forms, trace
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
        shown, self.blocks = checkpoint.with_stand_ins(module)
        self.kinds: dict[Any, fx.Graph] = {} if kinds is None else kinds  # which blocks share
        try:
            with modes[0] if modes else contextlib.nullcontext():
                self.module = trace.trace(shown, stand_ins, kinds)
        finally:
            checkpoint.forget(self.blocks)
        graph = self.module.graph
        for node in graph.nodes:
            if _writes(node):
                raise NotUnderstood(f"{node.target} writes into a tensor that it is given")
        for node, known in zip(graph.find_nodes(op="placeholder"), facts, strict=True):
            node.meta.update(known)
        _drop_grad_switches(graph)
        self.had_autocast = autocast.write_out(graph, inputs)
        canonical.rewrite(graph)
        loss_forms.rewrite(graph)
        self.causal = attention.Causal(graph)
        self.told_causal = self.causal.tell(graph)
        _mark_needs(graph)
        self.refused: dict[fx.Node, str] = {}
        self.apart: set[tuple[fx.Node, fx.Node]] = set()
        for node in list(graph.nodes):
            if node.op == "call_function":  # its operands are those that it was given
                for made in canonical.where_known(node):
                    self._annotate(made)

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


def _writes(node: fx.Node) -> bool:
    return (node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)
            and node.target._schema.is_mutable)


def _drop_grad_switches(graph: fx.Graph) -> None:
    """Takes torch.no_grad() sections out of the graph where nothing in them could have a gradient,
    so that operations may move past them."""
    needs: dict[fx.Node, bool] = {}
    is_on, switches = torch.is_grad_enabled(), []
    for node in graph.nodes:
        if node.op == "placeholder":
            needs[node] = node.meta.get(NEEDS, False)
        elif node.target is trace.SET_GRAD:
            is_on = node.args[0]
            switches.append(node)
        else:
            needs[node] = any(needs.get(arg, False) for arg in node.all_input_nodes)
            if needs[node] and is_on != torch.is_grad_enabled():
                raise NotUnderstood("torch.no_grad() within the graph stops gradients")
    for node in switches:
        graph.erase_node(node)


def _requires_grad(given: Any) -> bool:
    return isinstance(given, torch.Tensor) and given.requires_grad


def _mark_needs(graph: fx.Graph) -> None:
    for node in graph.nodes:
        if node.op == "placeholder":
            node.meta[NEEDS] = node.meta.get(NEEDS, False) and torch.is_grad_enabled()
        else:
            node.meta[NEEDS] = node.target is not _aten.detach.default and any(
                arg.meta.get(NEEDS) for arg in node.all_input_nodes)
