# SPDX-License-Identifier: Apache-2.0
"""Edits of a graph whose nodes carry values: a new node gets the value that its operation makes."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx


def insert(before: fx.Node, target: Any, *arguments: Any, like: fx.Node | None = None,
           **named: Any) -> fx.Node:
    """Inserts a call in front of `before`. The call gets the metadata of `like`, or of `before`,
    such as the user's line."""
    with before.graph.inserting_before(before):
        made = before.graph.call_function(target, arguments, named)
    made.meta = {**(like or before).meta, "val": target(
        *fx.map_arg(arguments, lambda used: used.meta["val"]), **named)}
    return made


def insert_module(module: fx.GraphModule, part: fx.GraphModule, inputs: Sequence[fx.Node],
                  outputs: Sequence[fx.Node], behind: fx.Node) -> fx.Node:
    """Inserts a call of the part behind a node, and lets its results stand in for the nodes
    `outputs`. Returns the call. PyTorch's insert_subgm takes the place of the call only since
    PyTorch 2.12."""
    name = type(part).__name__
    module.add_submodule(name, part)
    with module.graph.inserting_after(behind):
        call = module.graph.call_module(name, tuple(inputs))
    if isinstance(part.graph.output_node().args[0], fx.Node):
        outputs[0].replace_all_uses_with(call, propagate_meta=True)
        return call
    with module.graph.inserting_before(call.next):
        for i, output in enumerate(outputs):
            one = module.graph.call_function(operator.getitem, (call, i))
            output.replace_all_uses_with(one, propagate_meta=True)
    call.meta["val"] = tuple(output.meta.get("val") for output in outputs)
    return call


def replace(node: fx.Node, made: fx.Node) -> None:
    """Lets `made` stand in for `node`, and erases `node`."""
    node.replace_all_uses_with(made)
    node.graph.erase_node(node)


def size_argument(before: fx.Node, size: int | torch.SymInt) -> int | fx.Node | None:
    """The size as an argument of a call in front of `before`. A symbolic size is computed from the
    sizes among the graph's inputs; None if it is not a sum or a product of them."""
    if isinstance(size, int):
        return size
    inputs = {node.meta["val"].node.expr: node for node in before.graph.find_nodes(op="placeholder")
              if isinstance(node.meta.get("val"), torch.SymInt)}

    def computed(expression: Any) -> int | fx.Node | None:
        if expression.is_Integer:
            return int(expression)
        terms = [computed(term) for term in expression.args]
        if not terms or None in terms or not (expression.is_Add or expression.is_Mul):
            return inputs.get(expression)
        combined = operator.add if expression.is_Add else operator.mul
        return functools.reduce(functools.partial(insert, before, combined), terms)

    return computed(size.node.expr)
