# SPDX-License-Identifier: Apache-2.0
"""Edits of a graph whose nodes carry values: a new node gets the value that its operation makes."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

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
