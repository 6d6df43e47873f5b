# SPDX-License-Identifier: Apache-2.0
"""Recognises attention that is written out as operations: softmax(query·keyᵀ * scale + mask)·value,
with or without a soft-cap of the scores, as Hugging Face's attn_implementation="eager" computes it,
or with hidden scores that are replaced by a number (masked_fill, where).
With sinks (gpt-oss), the model appends them to the scores as a column, and drops this column after
the softmax.

Operands and scores may have four dimensions, [batch, heads, tokens, size], or three,
[batch * heads, tokens, size], as in nn.MultiheadAttention. Views may change from one to the other.

Nothing but the formula may read the scores or the weights, so a model that returns its weights is
not recognised. Conversions within the formula are dropped: they only round.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Container, Sequence
from typing import Any

import torch
from torch import fx

from coda_cpp.torch_backend import mask_proof
from coda_cpp.torch_backend.graph_edits import insert, replace, size_argument
from coda_cpp.torch_backend.layout import is_one, same, value_of

_aten = torch.ops.aten
PRODUCTS = {_aten.matmul.default, _aten.bmm.default}
_VIEWS = {_aten.view.default, _aten.reshape.default, _aten._unsafe_view.default,
          _aten.flatten.using_ints, _aten.unflatten.int}
_SAME_VALUES = {_aten.to.dtype, _aten.contiguous.default, _aten.clone.default, _aten.alias.default}
_FILLS = {_aten.masked_fill.Scalar, _aten.masked_fill.Tensor, _aten.where.ScalarOther,
          _aten.where.ScalarSelf, _aten.where.self}
_FACTORS = {_aten.mul.Tensor: True, _aten.mul.Scalar: True,
            _aten.div.Tensor: False, _aten.div.Scalar: False}


@dataclasses.dataclass(frozen=True)
class Formula:
    """softmax(cap(query·keyᵀ * scale) + mask)·value of [batch, heads, tokens, size], where cap(x)
    is softcap * tanh(x / softcap), or x if softcap is 0. Key and value may have another type than
    the formula's products. sinks: [1, heads, 1, 1], logits that are only in the
    denominator of softmax. If there is a `fill`, the mask is not added: it is boolean, and scores
    are replaced by that number where the mask is `hides`."""

    query: fx.Node
    key: fx.Node
    value: fx.Node
    mask: fx.Node | None
    scale: float
    softcap: float
    sinks: fx.Node | None
    fill: float | None
    hides: bool


class _Other(Exception):
    """The graph computes something else."""


def formula(node: fx.Node, written: Container[fx.Node]) -> Formula | None:
    """The formula whose result is the node, or None. `written`: tensors that are written in place.
    """
    try:
        return _formula(node, written)
    except _Other:
        return None


def with_heads(node: fx.Node, found: Formula) -> fx.Node:
    """The product [batch, heads, tokens, size] that takes the place of the formula's result, where
    that has batch and heads in one dimension; else the node itself."""
    if value_of(node).dim() == 4:
        return node
    heads = value_of(found.query).shape[:2]
    product = insert(node, _aten.matmul.default, *(_split(node, x, heads) for x in node.args))
    replace(node, insert(node, _aten.flatten.using_ints, product, 0, 1))
    return product


def erase(weights: fx.Node) -> None:
    """Erases the operations that only computed the weights."""
    if weights.op == "call_function" and not weights.users:
        used = weights.all_input_nodes
        weights.graph.erase_node(weights)
        for one in used:
            erase(one)


def _formula(node: fx.Node, written: Container[fx.Node]) -> Formula:
    if node.target not in PRODUCTS or node in written or value_of(node).dim() not in (3, 4):
        raise _Other
    weights = _inner(node.args[0], written)
    has_sinks = weights.target is _aten.slice.Tensor
    if has_sinks:
        if weights.args[1] not in (-1, 3) or weights.args[2:] != (0, -1):
            raise _Other
        weights = _inner(weights.args[0], written)
    if weights.target is not _aten.softmax.int or weights.args[1] not in (
            -1, value_of(weights).dim() - 1):
        raise _Other
    if (*weights.args, weights.kwargs.get("dtype"))[2] not in (
            None, torch.float32, value_of(weights.args[0]).dtype):
        raise _Other
    sum_, sinks = (_joined(weights.args[0], written) if has_sinks
                   else (_inner(weights.args[0], written), None))
    mask = fill = None
    hides = False
    if sum_.target in _FILLS:
        mask, masked, fill, hides = _filled(sum_)
        product, scale, softcap = _scores(masked, written)
    elif sum_.target is _aten.add.Tensor and not sum_.kwargs:
        mask, product, scale, softcap = _masked(*sum_.args, written)
    elif sum_.target is _aten.baddbmm.default:
        mask, product, softcap = sum_.args[0], sum_, 0.0
        scale = sum_.kwargs.get("alpha", 1)
        if sum_.kwargs.get("beta", 1) != 1 or not _is_factor(scale):
            raise _Other
    else:
        product, scale, softcap = _scores(sum_, written)
    if mask is not None and (_is_float(mask) != (fill is None)
                             or _largest(weights.args[0]) < _largest(sum_)):
        raise _Other  # a boolean mask is added as 1; a conversion may make numbers infinite
    query, key_t = product.args[-2:]
    if value_of(query).dtype != value_of(node).dtype or not value_of(query).is_floating_point():
        raise _Other
    key, value = _turned(product, _source(key_t, written), written), _source(node.args[1], written)
    heads = _heads(node, weights, sum_, product)
    of_query, of_key, of_value = (_shape(x, heads) for x in (query, key, value))
    if not all(map(same, (*of_query[:2], of_query[3], *of_key[:3]),
                   (*of_key[:2], of_key[3], *of_value[:3]))):
        raise _Other  # a product broadcasts
    if any(x in written for x in (query, key, value)):
        raise _Other
    if sinks is not None and not same(value_of(sinks).shape[1], of_query[1]):
        raise _Other
    return Formula(*(_split(node, x, heads) for x in (query, key, value)), mask, float(scale),
                   softcap, sinks, fill, hides)


def _heads(*stages: fx.Node) -> tuple[Any, Any]:
    """Batch and heads, as all stages of the formula have them; a batch of 1 if none of them has
    two dimensions for them."""
    sizes = [value_of(stage).shape for stage in stages]
    split = [size[:2] for size in sizes if len(size) == 4] or [(1, sizes[0][0])]
    if not all(same(*pair) for other in split for pair in zip(split[0], other)):
        raise _Other
    return tuple(split[0])


def _shape(x: fx.Node, heads: Sequence[Any]) -> tuple[Any, ...]:
    """[batch, heads, tokens, size] of a tensor of three or four dimensions."""
    shape = value_of(x).shape
    if len(shape) == 4:
        return tuple(shape)
    if len(shape) != 3 or not same(shape[0], heads[0] * heads[1]):
        raise _Other
    return (*heads, *shape[1:])


def _split(before: fx.Node, x: fx.Node, heads: Sequence[Any]) -> fx.Node:
    """The tensor as [batch, heads, tokens, size]."""
    if value_of(x).dim() == 4:
        return x
    if is_one(heads[0]):
        return insert(before, _aten.unsqueeze.default, x, 0)
    sizes = [size_argument(before, size) for size in heads]
    if None in sizes:
        raise _Other
    return insert(before, _aten.unflatten.int, x, 0, sizes)


def _turned(product: fx.Node, key_t: fx.Node, written: Container[fx.Node]) -> fx.Node:
    """The key whose transpose, [..., size, tokens], the product reads."""
    dims = value_of(key_t).dim()
    if dims not in (3, 4) or key_t in written:
        raise _Other
    last = [dims - 1, dims - 2]
    if key_t.target is _aten.transpose.int and sorted(
            dim % dims for dim in key_t.args[1:]) == last[::-1] or (
            key_t.target is _aten.permute.default
            and [dim % dims for dim in key_t.args[1]] == [*range(dims - 2), *last]):
        return _source(key_t.args[0], written)
    return insert(product, _aten.transpose.int, key_t, -2, -1)


def _joined(node: Any, written: Container[fx.Node]) -> tuple[fx.Node, fx.Node]:
    """The masked scores and the sinks, [1, heads, 1, 1], of a node that concatenates them. If the
    model subtracts the maximum of each row, the softmax is the same."""
    node = _inner(node, written)
    if node.target is _aten.sub.Tensor and not node.kwargs:
        joined, shift = node.args
        largest = shift.args[0] if isinstance(shift, fx.Node) and (
            shift.target is operator.getitem and shift.args[1] == 0) else None
        if largest is None or largest.target is not _aten.max.dim or (
                largest.args not in ((joined, -1, True), (joined, 3, True))
                or set(joined.users) != {node, largest} or joined in written
                or len(shift.users) != 1 or len(largest.users) != 1):
            raise _Other
        node = joined
    if node.target is not _aten.cat.default or len(node.args) != 2 or node.args[1] not in (-1, 3) \
            or len(node.args[0]) != 2:
        raise _Other
    scores, of_rows = node.args[0]
    of_rows = _source(of_rows, written)
    if of_rows.target is not _aten.expand.default or not is_one(value_of(of_rows).shape[3]):
        raise _Other
    sinks = of_rows.args[0]
    shape = value_of(sinks).shape
    if len(shape) != 4 or not all(map(is_one, (shape[0], *shape[2:]))):
        raise _Other
    return _inner(scores, written), sinks


def _masked(one: Any, other: Any, written: Container[fx.Node]
            ) -> tuple[fx.Node, fx.Node, float, float]:
    """The mask, and the scores that it is added to."""
    try:
        return (other, *_scores(one, written))
    except _Other:
        return (one, *_scores(other, written))


def _filled(node: fx.Node) -> tuple[fx.Node, Any, float, bool]:
    """The condition, the scores, the number that replaces some of them, and whether it does so
    where the condition is true."""
    one, other, number = node.args
    if node.target in (_aten.masked_fill.Scalar, _aten.masked_fill.Tensor):
        scores, condition, hides = one, other, True
    else:
        condition, scores, hides = one, other, False
        if _number(scores) is not None:
            scores, number, hides = number, scores, True
    fill = _number(number)
    if fill is not None:  # a number of fp32 may be infinite in the scores' type
        fill = torch.tensor(fill, dtype=value_of(node).dtype).item()
    if fill is None or not mask_proof.is_least(fill) or node.kwargs or not (
            isinstance(condition, fx.Node) and value_of(condition).dtype == torch.bool):
        raise _Other
    return condition, scores, fill, hides


def _number(node: Any) -> float | None:
    """The number that a tensor of one element contains, if the graph says so."""
    while isinstance(node, fx.Node) and value_of(node).numel() == 1 and (
            node.target in _SAME_VALUES or node.target is _aten.lift_fresh_copy.default):
        node = node.args[0]
    if isinstance(node, fx.Node) and node.op == "get_attr":
        constant = operator.attrgetter(node.target)(node.graph.owning_module)
        node = constant.item() if type(constant) is torch.Tensor and constant.numel() == 1 else None
    elif isinstance(node, fx.Node) and node.target is _aten.full.default and value_of(
            node).numel() == 1:
        node = node.args[1]
    return float(node) if type(node) in (int, float) else None


def capped(node: fx.Node, score: fx.Node) -> tuple[float, float] | None:
    """The factor before the soft-cap, and the soft-cap, of a node that only scales and caps the
    score. None if it does anything else."""
    try:
        return _scores(node, (), score)[1:]
    except _Other:
        return None


def _scores(node: Any, written: Container[fx.Node], score: fx.Node | None = None
            ) -> tuple[fx.Node, float, float]:
    """The product query·keyᵀ, or `score`, the scale and the soft-cap."""
    behind = before = 1.0  # the factors after and before the tanh
    is_capped = False
    while (node := _inner(node, written)) is not score and (
            score is not None or node.target not in PRODUCTS):
        if node.target is _aten.tanh.default and not is_capped:
            is_capped, node = True, node.args[0]
            continue
        if node.target not in _FACTORS or node.kwargs or not _is_factor(node.args[1]):
            raise _Other
        factor = node.args[1] if _FACTORS[node.target] else 1 / node.args[1]
        if is_capped:
            before *= factor
        else:
            behind *= factor
        node = node.args[0]
    return node, before * behind, behind if is_capped else 0.0


def _is_factor(number: Any) -> bool:
    return type(number) in (int, float) and 0 < number < math.inf


def _inner(node: Any, written: Container[fx.Node]) -> fx.Node:
    """The operation of the formula that computes the node, without conversions, and without views
    that only split or merge batch and heads."""
    while isinstance(node, fx.Node) and len(node.users) == 1 and node not in written:
        if not (node.target in _SAME_VALUES | _VIEWS and _is_float(node.args[0])
                and _is_float(node)):
            return node
        if node.target in _VIEWS:
            shapes = sorted((value_of(x).shape for x in (node, node.args[0])), key=len)
            if [*map(len, shapes)] != [3, 4] or not all(map(same, shapes[0][1:], shapes[1][2:])):
                return node
        node = node.args[0]
    raise _Other


def _source(node: Any, written: Container[fx.Node]) -> fx.Node:
    """The tensor of which the node is a conversion."""
    while isinstance(node, fx.Node) and node.target in _SAME_VALUES and _is_float(
            node.args[0]) and _is_float(node) and node.args[0] not in written:
        node = node.args[0]
    if not isinstance(node, fx.Node) or not _is_float(node):
        raise _Other
    return node


def _largest(node: fx.Node) -> float:
    """The largest finite number of the node's type."""
    return torch.finfo(value_of(node).dtype).max


def _is_float(node: Any) -> bool:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return isinstance(value, torch.Tensor) and value.is_floating_point()
