# SPDX-License-Identifier: Apache-2.0
"""Transposes of rows among themselves, moved past linear layers, which compute each row by itself.

nn.MultiheadAttention takes [tokens, batch, width]: with batch_first it transposes what its products
read, and transposes what the last product makes back. A region has its rows in one order, so such a
transpose ends it. Moved to the attention's side of the product, it is one of the views there.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import fx

from coda_cpp.torch_backend import layout as layouts
from coda_cpp.torch_backend import mask_proof
from coda_cpp.torch_backend.layout import LINEAR, TURNS, value_of
from coda_cpp.torch_backend.rules import FREE, RULES

_aten = torch.ops.aten


def rewrite(graph: fx.Graph) -> None:
    # What others write to is read where it was read: nothing is moved behind a write.
    written = mask_proof.written(graph)
    for node in list(graph.nodes):
        if _is_of_rows(node) and any(map(_is_understood, _readers(node))):
            _before_product(node, written)
    for node in graph.find_nodes(op="call_function", target=LINEAR):
        _behind_product(node, written)


def _is_of_rows(node: fx.Node) -> bool:
    """Whether it is a transpose that leaves the last dimension where it is."""
    return node.target in TURNS and value_of(node).dim() > 2 and (
        layouts.order_of(node)[-1] == value_of(node).dim() - 1)


def _is_understood(node: fx.Node) -> bool:
    return node.target in RULES and node.target not in FREE


def _readers(node: fx.Node) -> Iterator[fx.Node]:
    """Behind views."""
    for user in node.users:
        if user.target in FREE:
            yield from _readers(user)
        else:
            yield user


def _views_of(node: fx.Node) -> tuple[list[fx.Node], fx.Node]:
    """Reshapes of the rows that end in the node, the last first, and what they are of."""
    views = []
    while node.target is _aten.reshape.default and layouts.same(
            value_of(node).shape[-1], value_of(node.args[0]).shape[-1]):
        views.append(node)
        node = node.args[0]
    return views, node


def _add(before: fx.Node, like: fx.Node, *arguments: object) -> fx.Node:
    """The operation of `like`, with other arguments, before `before`."""
    with before.graph.inserting_before(before):
        made = before.graph.call_function(like.target, arguments)
    made.meta = {**like.meta, "val": like.target(
        *fx.map_arg(arguments, lambda used: used.meta["val"]))}
    return made


def _reshaped(before: fx.Node, views: list[fx.Node], x: fx.Node) -> fx.Node:
    """x, whose last dimension may be of another size, in the rows of the views' result."""
    return _add(before, views[0], x, [*views[0].args[1][:-1], -1]) if views else x


def _replace(node: fx.Node, made: fx.Node) -> None:
    node.replace_all_uses_with(made)
    node.graph.erase_node(node)


def _before_product(turn: fx.Node, written: set[fx.Node]) -> None:
    """turn(view(linear(x)))  is  linear(turn(view(x))), if nobody else reads what is between."""
    views, product = _views_of(turn.args[0])
    if product.target is not LINEAR or not written.isdisjoint(
            [turn, *views, product, *product.all_input_nodes]) or any(
                len(node.users) > 1 for node in (*views, product)) or _has_free_size(views):
        return
    x, *others = product.args
    made = _add(turn, turn, _reshaped(turn, views, x), *turn.args[1:])
    _replace(turn, _add(turn, product, made, *others))
    for node in (*views, product):
        node.graph.erase_node(node)


def _behind_product(product: fx.Node, written: set[fx.Node]) -> None:
    """linear(view(turn(x)))  is  view(turn(linear(x))), where x is made by what is understood."""
    x, *others = product.args
    views, turn = _views_of(x)
    if not _is_of_rows(turn) or _has_free_size(views) or not written.isdisjoint(
            [*views, turn, turn.args[0], product]):
        return
    source = turn.args[0]
    while source.target in FREE and source.all_input_nodes:
        source = source.all_input_nodes[0]
    if not _is_understood(source) or not layouts.same(
            value_of(source).shape[-1], value_of(turn).shape[-1]):  # else it is of heads
        return
    made = _add(product, turn, _add(product, product, turn.args[0], *others), *turn.args[1:])
    _replace(product, _reshaped(product, views, made))
    for node in (*views, turn):
        if not node.users:
            node.graph.erase_node(node)


def _has_free_size(views: list[fx.Node]) -> bool:
    """Whether -1 stands for a size of the rows, so that it cannot stand for that of the columns."""
    return bool(views) and -1 in views[0].args[1][:-1]
