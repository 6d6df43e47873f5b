# SPDX-License-Identifier: Apache-2.0
"""Edits of a graph whose nodes carry values: a new node gets the value that its operation makes."""

from __future__ import annotations

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


def replace(node: fx.Node, made: fx.Node) -> None:
    """Lets `made` stand in for `node`, and erases `node`."""
    node.replace_all_uses_with(made)
    node.graph.erase_node(node)
