# SPDX-License-Identifier: Apache-2.0
"""Moves transposes that permute only rows past linear layers. The result is the same, because a
linear layer computes each row separately.

nn.MultiheadAttention works on [tokens, batch, width]: with batch_first it transposes the input of
its first linear layer, and transposes the result of its last linear layer back. All operations in a
region have their rows in the same order, so such a transpose would end the region. After the move
the transpose stands between the linear layer and the attention, with the other views of heads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from coda_cpp.torch_backend import layout as layouts
from coda_cpp.torch_backend import mask_proof
from coda_cpp.torch_backend.graph_edits import insert, replace
from coda_cpp.torch_backend.layout import LINEAR, TURNS, value_of
from coda_cpp.torch_backend.rules import FREE, RULES

_aten = torch.ops.aten


def rewrite(graph: fx.Graph) -> None:
    # Nodes that an in-place operation writes to: a read of such a node is not moved past the write.
    written = mask_proof.written(graph)
    for node in list(graph.nodes):
        if _is_of_rows(node) and any(map(_is_understood, _readers(node))):
            _before_product(node, written)
    converted: dict[tuple[fx.Node, torch.dtype], fx.Node] = {}
    for node in graph.find_nodes(op="call_function", target=LINEAR):
        _behind_product(node, written, converted)


def _is_of_rows(node: fx.Node) -> bool:
    """Whether the node is a transpose that keeps the last dimension in its place."""
    return node.target in TURNS and value_of(node).dim() > 2 and (
        layouts.order_of(node)[-1] == value_of(node).dim() - 1)


def _is_understood(node: fx.Node) -> bool:
    return node.target in RULES and node.target not in FREE


def _readers(node: fx.Node) -> Iterator[fx.Node]:
    """The operations that read the node, directly or through views."""
    for user in node.users:
        if user.target in FREE:
            yield from _readers(user)
        else:
            yield user


def _views_of(node: fx.Node) -> tuple[list[fx.Node], fx.Node]:
    """The chain of row reshapes that ends in `node`, last reshape first, and the node that the
    first reshape reads. A row reshape keeps the size of the last dimension."""
    views = []
    while node.target is _aten.reshape.default and layouts.same(
            value_of(node).shape[-1], value_of(node.args[0]).shape[-1]):
        views.append(node)
        node = node.args[0]
    return views, node


def _add(before: fx.Node, like: fx.Node, *arguments: object) -> fx.Node:
    """Inserts the operation of `like`, with these arguments, in front of `before`."""
    return insert(before, like.target, *arguments, like=like)


def _reshaped(before: fx.Node, views: list[fx.Node], x: fx.Node) -> fx.Node:
    """Reshapes the rows of x as `views` do. The last dimension of x may have another size."""
    return _add(before, views[0], x, [*_row_sizes(views), -1]) if views else x


def _before_product(turn: fx.Node, written: set[fx.Node]) -> None:
    """Replaces turn(view(linear(x))) by linear(turn(view(x))), if the linear layer and the views
    have no other reader."""
    views, product = _views_of(turn.args[0])
    if product.target is not LINEAR or not written.isdisjoint(
            [turn, *views, product, *product.all_input_nodes]) or any(
                len(node.users) > 1 for node in (*views, product)) or _has_free_size(views):
        return
    x, *others = product.args
    made = _add(turn, turn, _reshaped(turn, views, x), *turn.args[1:])
    replace(turn, _add(turn, product, made, *others))
    for node in (*views, product):
        node.graph.erase_node(node)


def _behind_product(product: fx.Node, written: set[fx.Node],
                    converted: dict[tuple[fx.Node, torch.dtype], fx.Node]) -> None:
    """Replaces linear(view(turn(x))) by view(turn(linear(x))), if a supported operation computes
    x. Autocast may convert what the linear layer reads; then x is converted. `converted`: the
    conversions that this function has inserted."""
    read, *others = product.args
    is_converted = read.target is _aten.to.dtype
    views, turn = _views_of(read.args[0] if is_converted else read)
    if not _is_of_rows(turn) or _has_free_size(views) or not written.isdisjoint(
            [read, *views, turn, turn.args[0], product]):
        return
    source = turn.args[0]
    while source.target in FREE and source.all_input_nodes:
        source = source.all_input_nodes[0]
    if not _is_understood(source) or not layouts.same(
            value_of(source).shape[-1], value_of(turn).shape[-1]):  # else the columns are of a head
        return
    x = turn.args[0]
    if is_converted:
        key = x, read.args[1]
        if key not in converted:
            converted[key] = insert(turn, _aten.to.dtype, *key, like=read)
        x = converted[key]
    made = _add(product, turn, _add(product, product, x, *others), *turn.args[1:])
    replace(product, _reshaped(product, views, made))
    for node in ([read] if is_converted else []) + [*views, turn]:
        if not node.users:
            node.graph.erase_node(node)


def _row_sizes(views: list[fx.Node]) -> list[Any]:
    """The sizes of the rows behind the reshapes. A size that is inferred (-1) is written out,
    because the columns are inferred too; it stays if a size is symbolic."""
    given, sizes = views[0].args[1][:-1], value_of(views[0]).shape[:-1]
    return list(sizes if all(isinstance(size, int) for size in sizes) else given)


def _has_free_size(views: list[fx.Node]) -> bool:
    return bool(views) and -1 in _row_sizes(views)
