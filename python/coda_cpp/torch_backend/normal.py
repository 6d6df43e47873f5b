# SPDX-License-Identifier: Apache-2.0
"""Brings Dynamo's graph into the normal form for cutting regions: aten before autograd, without
writes in place, with explicit conversions and reshapes, and with a layout for every node."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from coda_cpp._core import Error
from coda_cpp.torch_backend import (
    attention, autocast, canonical, higher_order, loss_forms, row_order, strides, trace,
    value_checks, writes)
from coda_cpp.torch_backend import layout as layouts
from coda_cpp.torch_backend.attention_choice import Choice
from coda_cpp.torch_backend.importer import Importer
from coda_cpp.torch_backend.layout import NEEDS, NotUnderstood
from coda_cpp.torch_backend.linears import WEIGHT
from coda_cpp.torch_backend.rules import RULES
from coda_cpp.torch_backend.values import EQUAL_HALVES, has_equal_halves

_aten = torch.ops.aten


class Normal:
    """The module in normal form; the reasons why operations are not supported; and the pairs of an
    operation and an operand that must not be in one region, because the operand is a table."""

    def __init__(self, module: fx.GraphModule, inputs: Sequence[Any],
                 facts: Sequence[dict[str, Any]] | None = None,
                 kinds: dict[Any, fx.GraphModule] | None = None, around: Sequence[fx.Node] = (),
                 checks: value_checks.Checks | None = None, choice: Choice | None = None) -> None:
        """`facts`: metadata of the inputs, if the module is a part of another module. `kinds`: see
        trace.trace(). `around`, `checks` and `choice`: see attention.Masks."""
        facts = facts or [{NEEDS: _requires_grad(given),
                           WEIGHT: isinstance(given, torch.nn.Parameter)} for given in inputs]
        # Dynamo's fake tensors, whose sizes may be symbols; the inputs themselves are real tensors.
        stand_ins = [node.meta.get("example_value", given) for node, given in
                     zip(module.graph.find_nodes(op="placeholder"), inputs, strict=True)]
        modes = [given.fake_mode for given in stand_ins if isinstance(given, FakeTensor)]
        if any(isinstance(given, torch.Tensor) and given.is_nested for given in stand_ins):
            raise NotUnderstood("an input of the graph is a nested tensor")
        shown, self.calls = higher_order.with_stand_ins(module)
        # Shared by all blocks.
        self.kinds: dict[Any, fx.GraphModule] = {} if kinds is None else kinds
        try:
            with modes[0] if modes else contextlib.nullcontext():
                self.module = trace.trace(shown, stand_ins, kinds)
        except RuntimeError as why:  # a class need not define the operations before autograd
            classes = {type(x).__name__ for x in filter(is_traceable_wrapper_subclass, inputs)}
            if classes:
                raise NotUnderstood(f"inputs are of {', '.join(sorted(classes))}") from why
            raise
        finally:
            higher_order.forget(self.calls)
        graph = self.module.graph
        for node, known in zip(graph.find_nodes(op="placeholder"), facts, strict=True):
            node.meta.update(known)
        strides.note(graph)
        _mark_needs(graph, {})
        writes.name_what_is_written(graph)
        _drop_grad_switches(graph)
        _mark_needs(graph, {})
        written = writes.Writes(graph, self.calls)
        self.had_autocast = autocast.write_out(graph, inputs, written.is_kept)
        canonical.rewrite(graph)
        canonical.merge_conversions(graph)
        row_order.rewrite(graph)
        loss_forms.rewrite(graph)
        self.masks = attention.Masks(graph, self.calls, around, checks or value_checks.Checks(),
                                     choice or Choice())
        self.told = self.masks.tell()
        _mark_needs(graph, written.memory())
        self.refused: dict[fx.Node, str] = {}
        self.apart: set[tuple[fx.Node, fx.Node]] = set()
        for node in list(graph.nodes):
            if node.op == "call_function":
                for made in canonical.where_known(node):
                    self._annotate(made)
        self.before, fixed = written.order()
        for node in fixed:
            if node.meta.pop(layouts.KEY, None) is not None:
                self.refused[node] = "other operations see writes into its memory"
        self.apart |= loss_forms.heads_apart(graph)

    def facts(self, node: Any) -> dict[str, Any]:
        """The metadata of a value, for a part of the graph that reads the value."""
        if not isinstance(node, fx.Node) or not isinstance(node.meta.get("val"), torch.Tensor):
            return {}
        return {NEEDS: node.meta.get(NEEDS, False), WEIGHT: node.meta.get(WEIGHT, False),
                EQUAL_HALVES: has_equal_halves(node),
                attention.FULL: self.masks.is_full(node),
                attention.CAUSAL: self.masks.is_causal(node),
                attention.PACKED: self.masks.packed(node),
                attention.PADDED: self.masks.padded(node)}

    def _annotate(self, node: fx.Node) -> None:
        if node.target not in RULES:
            return
        region = Importer()
        try:
            if node.target is layouts.LOSS or node.target in layouts.OVER_ROWS:
                region.known[node.args[0]] = region.operand(node.args[0])
            region.add(node)
            region.known[node].value  # evaluates lazy reads
        except (NotUnderstood, Error) as why:
            self.refused[node] = str(why)
            node.meta.pop(layouts.KEY, None)
            return
        for operand, source in region.inputs:
            if source.form == "table":
                self.apart.add((node, operand))
                operand.meta[EQUAL_HALVES] = has_equal_halves(operand)


def _drop_grad_switches(graph: fx.Graph) -> None:
    """Removes torch.no_grad() sections from the graph, so that operations may move past them:
    operations inside read detached operands instead. Raises NotUnderstood for torch.enable_grad()
    if gradients are off around the graph."""
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
    """Marks the nodes that need gradients. `memory` maps each tensor to the first tensor in its
    memory. A write into memory may give its tensors a gradient."""
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
