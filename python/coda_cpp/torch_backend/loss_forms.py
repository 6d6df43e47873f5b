# SPDX-License-Identifier: Apache-2.0
"""Rewrites losses of logits to a few forms that rules cover.

- A loop over parts of the rows (a batch's sequences, chunks), whose results are concatenated,
  becomes one operation on all rows: the plan chooses its own chunks.
- A slice of rows of a product's result becomes the product of the slice of rows: only the logits
  that are read (shifted logits) are computed.
- The logits of a cross-entropy become [rows, classes]; nll_loss and gather of a log_softmax become
  cross-entropies.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from coda_cpp.torch_backend import layout as layouts
from coda_cpp.torch_backend import mask_proof
from coda_cpp.torch_backend.graph_edits import insert, replace
from coda_cpp.torch_backend.layout import LINEAR, LOSS, is_one, same, value_of

_aten = torch.ops.aten
_LOG_SOFTMAX, _GATHER = _aten.log_softmax.int, _aten.gather.default
_SPLITS = {_aten.split.Tensor, _aten.split_with_sizes.default, _aten.chunk.default,
           _aten.unbind.int}
_ELEMENTWISE = {
    _aten.to.dtype, _aten.clone.default, _aten.contiguous.default, _aten.neg.default,
    _aten.exp.default, _aten.log.default, _aten.tanh.default, _aten.detach.default,
    *(getattr(getattr(_aten, name), kind) for name in ("add", "sub", "mul", "div")
      for kind in ("Tensor", "Scalar"))}
_PASSED_ON = {*_ELEMENTWISE, layouts.KL_DIV}
# Operations on one dimension, or a list of dimensions, by the place of that argument.
_ALONG = {_LOG_SOFTMAX: 1, _aten.softmax.int: 1, _GATHER: 1, _aten.logsumexp.default: 1,
          _aten.sum.dim_IntList: 1, _aten.unsqueeze.default: 1, _aten.squeeze.dim: 1}
REDUCED = "coda_reduced"  # in a softmax's meta
NO_INDEX = -2**31  # the ignored index if none is ignored: PyTorch allows no such index


def rewrite(graph: fx.Graph) -> None:
    # Reads of tensors that are written in place are not moved.
    written = mask_proof.written(graph)
    for node in list(graph.nodes):
        if node.target in (_aten.stack.default, _aten.cat.default):
            _reroll(node, written)
        elif node.target is _aten.slice.Tensor:
            _slice_before(node, written)
        elif node.target is _aten.broadcast_tensors.default:
            _without_broadcast(node)
    graph.eliminate_dead_code()
    for node in list(graph.nodes):
        if node.target is _aten.nll_loss_nd.default:
            _nll_as_cross_entropy(node, written)
        elif node.target is _GATHER:
            _gather_as_cross_entropy(node, written)
    for node in graph.find_nodes(op="call_function", target=LOSS):
        _of_rows(node)
    graph.eliminate_dead_code()
    for node in graph.nodes:
        if node.target in layouts.SOFTMAXES:
            node.meta[REDUCED] = _ends_in_reductions(node)


# Loops over parts of the rows.


class _Different(Exception):
    """The parts are computed by different operations, or do not cover all rows."""


def _reroll(node: fx.Node, written: set[fx.Node]) -> None:
    """stack([f(x[0]), f(x[1]), ...]) is f(x), and cat([f(a), f(b)]) where a and b are all of x."""
    parts, dim = (*node.args, 0)[:2]
    if dim != 0 or not parts or not all(isinstance(part, fx.Node) for part in parts) or (
            parts[0].target in (_aten.select.int, operator.getitem)):
        return
    is_stack = node.target is _aten.stack.default
    if written and not written.isdisjoint(_operands(list(parts))):
        return
    try:
        made = _of_all(list(parts), is_stack, node, {})
    except _Different:
        return
    if made is not None and all(map(same, value_of(made).shape, value_of(node).shape)):
        replace(node, made)


def _operands(nodes: list[fx.Node]) -> set[fx.Node]:
    """The nodes, and all nodes on which they depend."""
    found = set(nodes)
    while nodes:
        more = [used for used in nodes.pop().all_input_nodes if used not in found]
        found.update(more)
        nodes += more
    return found


def _of_all(parts: list[fx.Node], is_stack: bool, before: fx.Node,
            made: dict[fx.Node, fx.Node]) -> fx.Node:
    """The node of which all parts are parts, inserted before `before`. `made` caches these nodes by
    their first part."""
    first = parts[0]
    if first in made:
        return made[first]
    if any(part.target is not first.target or part.op != "call_function" for part in parts):
        raise _Different
    whole = _whole(parts, is_stack)
    if whole is None:
        if first.target not in _ELEMENTWISE and first.target not in _ALONG:
            raise _Different
        arguments = [_argument(given, is_stack, before, made)
                     for given in zip(*(_dims_from_end(part) for part in parts), strict=True)]
        if len({value_of(a).dim() for a in arguments if isinstance(a, fx.Node)}) > 1 or (
                any(part.kwargs != first.kwargs for part in parts)):
            raise _Different
        if first.target in _ALONG and not is_stack and not _keeps_first(first):
            raise _Different
        whole = insert(before, first.target, *arguments, **first.kwargs)
    made[first] = whole
    return whole


def _argument(given: Sequence[Any], is_stack: bool, before: fx.Node,
              made: dict[fx.Node, fx.Node]) -> Any:
    if all(isinstance(one, fx.Node) for one in given):
        return _of_all(list(given), is_stack, before, made)
    if any(isinstance(one, fx.Node) for one in given) or any(one != given[0] for one in given):
        raise _Different
    return given[0]


def _rank_along(node: fx.Node) -> int:
    """The rank to which the operation's dimension arguments refer."""
    return value_of(node.args[0]).dim() + (node.target is _aten.unsqueeze.default)


def _dims_from_end(node: fx.Node) -> list[Any]:
    """The arguments, with dimensions counted from the end, because these are the same for the parts
    and the whole."""
    arguments = list(node.args)
    if node.target in _ALONG and len(arguments) > 1:
        rank = _rank_along(node)
        given = arguments[1]
        if isinstance(given, int):
            arguments[1] = given % rank - rank
        elif isinstance(given, (list, tuple)) and given and all(isinstance(d, int) for d in given):
            arguments[1] = [d % rank - rank for d in given]
        else:
            raise _Different
    elif node.target in _ALONG:
        raise _Different
    return arguments


def _keeps_first(node: fx.Node) -> bool:
    """Whether the operation works along other dimensions than the first, which has the concatenated
    rows."""
    dims = _dims_from_end(node)[1]
    return all(dim + _rank_along(node) > 0 for dim in (dims if isinstance(dims, list) else [dims]))


def _whole(parts: Sequence[fx.Node], is_stack: bool) -> fx.Node | None:
    """The tensor of which these are all parts along the first dimension, in order; None if there is
    none."""
    first, count = parts[0], len(parts)
    if first.target is _aten.select.int and is_stack:
        if all(part.args[0] is first.args[0] and part.args[1] == 0 and part.args[2] == i
               for i, part in enumerate(parts)) and value_of(first.args[0]).shape[0] == count:
            return first.args[0]
        raise _Different
    if first.target is operator.getitem:
        split = first.args[0]
        if not isinstance(split, fx.Node) or split.target not in _SPLITS or (
                split.target is _aten.unbind.int) != is_stack:
            raise _Different
        dim = (*split.args[1:], 0)[0] if is_stack else (*split.args[2:], 0)[0]
        if dim != 0 or split.kwargs or len(split.meta["val"]) != count or any(
                part.args != (split, i) for i, part in enumerate(parts)):
            raise _Different
        return split.args[0]
    return None


# Parts of the rows.


def _slice_before(node: fx.Node, written: set[fx.Node]) -> None:
    """Replaces slice(f(linear(x))) by f(linear(slice(x)))."""
    value, source = value_of(node), node.args[0]
    dim = (*node.args[1:], 0)[0] % value.dim()
    if dim == value.dim() - 1 or len(value_of(source).shape) != value.dim():
        return
    chain = [node]
    while isinstance(source, fx.Node) and len(source.users) == 1 and (
            source.target is LINEAR or _is_unary(source)):
        chain.append(source)
        if source.target is LINEAR:
            break
        source = source.args[0]
    if chain[-1].target is not LINEAR or not written.isdisjoint(
            [*chain, *chain[-1].all_input_nodes]):
        return
    made = insert(node, _aten.slice.Tensor, chain[-1].args[0], dim, *node.args[2:], **node.kwargs)
    for one in reversed(chain[1:]):
        meta = {key: of for key, of in one.meta.items() if key != "val"}
        made = insert(node, one.target, made, *one.args[1:], **one.kwargs)
        made.meta.update(meta)
    replace(node, made)
    for one in chain[1:]:
        one.graph.erase_node(one)


def _is_unary(node: fx.Node) -> bool:
    return (node.target in _ELEMENTWISE and len(node.all_input_nodes) == 1
            and node.args[0] is node.all_input_nodes[0]
            and all(map(same, value_of(node).shape, value_of(node.args[0]).shape)))


def _without_broadcast(node: fx.Node) -> None:
    """Removes broadcasts of tensors that have the shape already."""
    for user in list(node.users):
        operand = node.args[0][user.args[1]]
        if all(map(same, value_of(operand).shape, value_of(user).shape)):
            replace(user, operand)
        elif user.target is operator.getitem and len(value_of(operand).shape) == (
                value_of(user).dim()) and is_one(value_of(operand).shape[-1]):
            for reader in list(user.users):  # x[..., :1] of a broadcast value
                if reader.target is _aten.slice.Tensor and all(map(
                        same, value_of(operand).shape, value_of(reader).shape)):
                    replace(reader, operand)


# Cross-entropies.


def _arguments(node: fx.Node, *defaults: Any) -> list[Any]:
    return [*node.args, *defaults[len(node.args):]]


def _nll_as_cross_entropy(node: fx.Node, written: set[fx.Node]) -> None:
    x, target, weight, reduction, ignored = _arguments(node, None, None, None, 1, -100)
    classes = 1 if value_of(x).dim() > 1 else 0
    while isinstance(x, fx.Node) and x.target is _aten.to.dtype:
        x = x.args[0]
    if not isinstance(x, fx.Node) or x.target is not _LOG_SOFTMAX or (
            x.args[1] % value_of(x).dim() != classes) or x.args[0] in written:
        return
    logits = _as_type(node, x.args[0], value_of(node.args[0]).dtype)
    replace(node, insert(node, LOSS, logits, target, weight, reduction, ignored))


def _as_type(node: fx.Node, x: fx.Node, dtype: torch.dtype) -> fx.Node:
    return x if value_of(x).dtype == dtype else insert(node, _aten.to.dtype, x, dtype)


def _gather_as_cross_entropy(node: fx.Node, written: set[fx.Node]) -> None:
    """Replaces gather of a log_softmax, the log-probability of one column per row."""
    x, dim, index = node.args[:3]
    rank = value_of(x).dim()
    if dim % rank != rank - 1 or not is_one(value_of(index).shape[-1]) or not all(map(
            same, value_of(x).shape[:-1], value_of(index).shape[:-1])):
        return
    source = x
    while isinstance(source, fx.Node) and source.target is _aten.to.dtype:
        source = source.args[0]
    if not isinstance(source, fx.Node) or source.target is not _LOG_SOFTMAX or (
            source.args[1] % rank != rank - 1) or not isinstance(
                value_of(x).shape[-1], int) or source.args[0] in written:
        return
    logits = _as_type(node, source.args[0], value_of(x).dtype)
    rows = insert(
        node, LOSS, insert(node, _aten.reshape.default, logits, [-1, value_of(x).shape[-1]]),
        insert(node, _aten.reshape.default, index, [-1]), None, 0, NO_INDEX)
    made = insert(node, _aten.neg.default, _shaped(node, rows, index))
    replace(node, made)


def _shaped(node: fx.Node, x: fx.Node, like: fx.Node) -> fx.Node:
    sizes = [_size(node, like, i) for i in range(value_of(like).dim())]
    symbols = [i for i, size in enumerate(value_of(like).shape) if not isinstance(size, int)]
    if len(symbols) == 1:
        sizes[symbols[0]] = -1
    return insert(node, _aten.reshape.default, x, sizes)


def _size(node: fx.Node, x: fx.Node, dim: int) -> Any:
    size = value_of(x).shape[dim]
    return size if isinstance(size, int) else insert(node, _aten.sym_size.int, x, dim)


def _of_rows(node: fx.Node) -> None:
    """Rewrites a cross-entropy to logits [rows, classes] without class weights."""
    logits, target, weight, reduction, ignored, smoothing = _arguments(
        node, None, None, None, 1, -100, 0.0)
    shape, is_index = value_of(logits).shape, not value_of(target).dtype.is_floating_point
    if not is_index or len(shape) < 2 or not isinstance(shape[1], int) or (
            weight is not None and smoothing != 0) or node.kwargs:
        return
    if len(shape) == 2 and weight is None:
        return
    rows = logits
    if len(shape) > 2:
        order = [0, *range(2, len(shape)), 1]
        rows = insert(node, _aten.reshape.default, _turned(node, logits, order), [-1, shape[1]])
    flat = target if len(shape) == 2 else insert(node, _aten.reshape.default, target, [-1])
    if weight is None:
        made = insert(node, LOSS, rows, flat, None, reduction, ignored, smoothing)
    else:
        made = _weighted(node, rows, flat, weight, reduction, ignored)
    if reduction == 0 and len(shape) > 2:
        made = _shaped(node, made, target)
    replace(node, made)


def _turned(node: fx.Node, x: fx.Node, order: list[int]) -> fx.Node:
    """x with its dimensions in this order. If x is the inverse transpose, returns its operand."""
    if x.target in layouts.TURNS:
        before = layouts.order_of(x)
        if [before[i] for i in order] == list(range(len(order))):
            return x.args[0]
    return insert(node, _aten.permute.default, x, order)


def _weighted(node: fx.Node, logits: fx.Node, target: fx.Node, weight: fx.Node, reduction: int,
              ignored: int) -> fx.Node:
    """The loss with a weight for each class; ignored rows have the weight 0."""
    losses = insert(node, LOSS, logits, target, None, 0, ignored, 0.0)
    counts = insert(node, _aten.ne.Scalar, target, ignored)
    within = insert(node, _aten.mul.Tensor, target, counts)
    weights = insert(node, _aten.index_select.default, weight, 0, within)
    weights = insert(node, _aten.mul.Tensor, weights, counts)
    losses = insert(node, _aten.mul.Tensor, losses, weights)
    if reduction == 0:
        return losses
    total = insert(node, _aten.sum.default, losses)
    if reduction == 2:
        return total
    return insert(node, _aten.div.Tensor, total, insert(node, _aten.sum.default, weights))


# Probabilities.


def _is_reduction(node: fx.Node) -> bool:
    """Whether the node reduces the rows of its first operand."""
    if node.target in (_aten.sum.dim_IntList, _aten.mean.dim):
        return list(node.args[1] or []) in ([-1], [value_of(node.args[0]).dim() - 1])
    return node.target is _GATHER or node.target is layouts.KL_DIV and not value_of(node).dim()


def _ends_in_reductions(node: fx.Node) -> bool:
    """Whether all readers of the node end in reductions, so that no value is stored for all
    columns."""
    return bool(node.users) and all(
        _is_reduction(user) or (user.target in _PASSED_ON or user.target in layouts.VIEWS
                                and same(value_of(user).shape[-1], value_of(node).shape[-1]))
        and _ends_in_reductions(user) for user in node.users)


# Heads whose logits are recomputed.

_LARGE = 2**28  # logits of more bytes are computed in chunks of rows


def heads_apart(graph: fx.Graph) -> set[tuple[fx.Node, fx.Node]]:
    """The pairs of a head's product and its operand that must be in different regions. These are
    heads with large logits, of which results for each row leave the supported operations, so that
    each row has an upstream gradient. The backward of the head's region then recomputes only the
    logits."""
    return {(node, node.args[0]) for node in graph.find_nodes(op="call_function", target=LINEAR)
            if layouts.known(node) and node.meta.get(layouts.NEEDS) and _is_large(value_of(node))
            and _leaves_by_rows(node)}


def _is_large(value: torch.Tensor) -> bool:
    count = value.dtype.itemsize
    for size in value.shape:
        count *= size if isinstance(size, int) else size.node.hint or 1
    return count > _LARGE


def _leaves_by_rows(head: fx.Node) -> bool:
    """Whether the head's logits are only reduced along rows, and some of these results leave the
    supported operations."""
    pending, seen, leaves = [head], {head}, False
    while pending:
        node = pending.pop()
        is_wide = "c" in layouts.known(node)
        for user in node.users:
            if layouts.known(user) is None or user.target is LINEAR:
                if is_wide:
                    return False
                leaves = leaves or bool(node.meta.get(layouts.NEEDS))
            elif user not in seen:
                seen.add(user)
                pending.append(user)
    return leaves and len(seen) > 1
