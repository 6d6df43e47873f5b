# SPDX-License-Identifier: Apache-2.0
"""Attention of padded batches that is written out as softmax(scores + mask)·value, or with hidden
scores replaced by a number, as an operator of PyTorch.

Where a query sees a key, hidden keys have the weight 0, so attention runs without them
(padding.py). Where a query sees no key, all its scores are the same number, because the scores
vanish in a sum with so large a number. So its weights are equal, or NaN for minus infinity, and the
result is the mean of the values. If the number is added, gradients still reach the scores: with
equal weights w, gradient g of the result, and centred values v - mean, those of the products of
query and key are w * g·(v - mean)ᵀ times the scale. Their products with the keys and with the
queries are computed from the right, so no scores are stored, and nothing depends on how many
queries see no key. A soft-cap's derivative depends on the products; then they are made in blocks,
for queries with a gradient. With sinks, the weights of queries that see no key are 0.

Compilers see the operators that FORMULA calls, so they fuse what is elementwise.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from coda_cpp import _attention as kernels
from coda_cpp._registration import needs_gradients, register, register_composed
from coda_cpp.torch_backend.padding import _in_order

_MOST_SCORES = 1 << 26  # that are stored at once
_VANISHING = -1e30  # a score that is added to this number, or less, vanishes in fp32 and in bf16


def is_exact(hidden: float | None, is_added: bool, has_sinks: bool) -> bool:
    """Whether FORMULA computes what the formula does, also for queries that see no key. hidden: the
    number in place of hidden scores or, if `is_added`, added to them. None: there are several."""
    return hidden is not None and (not is_added or has_sinks or hidden <= _VANISHING)


def _by_key_heads(x: torch.Tensor, kv_heads: int) -> torch.Tensor:
    """[batch, rows, heads, size] as [batch, kv_heads, heads / kv_heads * rows, size]."""
    return x.unflatten(2, (kv_heads, -1)).permute(0, 2, 3, 1, 4).flatten(2, 3)


def _by_tokens(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The inverse of _by_key_heads, for a result of this shape."""
    batch, rows, heads, size = like.shape
    return x.view(batch, x.shape[1], heads // x.shape[1], rows, size).permute(
        0, 3, 1, 2, 4).flatten(2, 3)


def _blind(spans: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """Whether queries see no key, as bool [batch, tokens, 1, 1]."""
    return (spans[:, 0] >= spans[:, 1]).view(*query.shape[:2], 1, 1)


def _weight(hidden: float, value: torch.Tensor) -> torch.Tensor:
    """The weight of each key for a query that sees none: a number in the type of the values."""
    return value.new_full((), math.nan if math.isinf(hidden) else 1.0) / value.shape[1]


def _forward(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, order: torch.Tensor,
             spans: torch.Tensor, causal: bool, softcap: float, scale: float, hidden: float,
             sinks: torch.Tensor | None
             ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The result, the log-sum-exp of the scores, and keys and values in their order."""
    in_order = [_in_order(x, order[0]) for x in (key, value)]
    made, sums = kernels.ATTENTION(
        query, *in_order, spans, causal, 0, softcap, scale, sinks)
    if sinks is None:
        mean = value.sum(1, keepdim=True, dtype=torch.float32) * _weight(hidden, value).float()
        mean = mean.to(made.dtype).repeat_interleave(query.shape[2] // key.shape[2], 2)
        made = torch.where(_blind(spans, query), mean, made)
    return made, sums, *in_order


def _with_blind(found: list[torch.Tensor], grad: torch.Tensor, query: torch.Tensor,
                key: torch.Tensor, value: torch.Tensor, is_blind: torch.Tensor,
                weight: torch.Tensor, softcap: float, scale: float, is_added: bool
                ) -> list[torch.Tensor]:
    """The gradients of query, key and value, if `found` are those from queries that see a key."""
    of_query, of_key, of_value = found
    kv_heads = key.shape[2]
    weight = torch.where(is_blind.any(1, keepdim=True), weight.float(), 0)  # of sequences
    g = _by_key_heads(torch.where(is_blind, grad, 0), kv_heads)
    of_value = of_value + weight * g.sum(2, keepdim=True, dtype=torch.float32).transpose(1, 2)
    if is_added:
        q, k, v = (_by_key_heads(x, kv_heads) for x in (query, key, value))
        centred = (v - weight * v.sum(2, keepdim=True, dtype=torch.float32)).to(v.dtype)
        to_query, to_key = CAPPED(g, q, k, centred, softcap, scale) if softcap else (
            g @ (centred.mT @ k), centred @ (g.mT @ q))
        of_query = torch.where(
            is_blind, (_by_tokens(to_query, query) * (weight * scale)).to(query.dtype), of_query)
        of_key = of_key + _by_tokens(to_key, key) * (weight * scale)
    return [x.to(query.dtype) for x in (of_query, of_key, of_value)]


def _capped(g: torch.Tensor, q: torch.Tensor, k: torch.Tensor, centred: torch.Tensor,
            softcap: float, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of query and key, but for the factor scale * weight, where the derivative of
    the soft-cap is 1 - tanh² of each score. The host waits for the number of rows of g, [batch,
    kv_heads, rows, size], that are not 0."""
    to_query, to_key = (torch.zeros(x.shape, device=x.device) for x in (q, k))
    for batch, head in torch.cartesian_prod(*map(torch.arange, g.shape[:2])).tolist():
        at = batch, head
        for rows in g[at].any(-1).nonzero().squeeze(1).split(max(1, _MOST_SCORES // k.shape[2])):
            of_g, of_q, of_k = g[at][rows].float(), q[at][rows].float(), k[at].float()
            slope = 1 - torch.tanh(of_q @ of_k.mT * (scale / softcap)).square()
            of_scores = slope * (of_g @ centred[at].float().mT)
            to_query[at][rows] = of_scores @ of_k
            to_key[at] += of_scores.mT @ of_q
    return to_query, to_key


def _fake_capped(g: torch.Tensor, q: torch.Tensor, k: torch.Tensor, *_: Any
                 ) -> tuple[torch.Tensor, ...]:
    return tuple(x.new_empty(x.shape, dtype=torch.float32) for x in (q, k))


class _Formula(torch.autograd.Function):
    """FORMULA with gradients."""

    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                order: torch.Tensor, spans: torch.Tensor, causal: bool, softcap: float,
                scale: float, hidden: float, is_added: bool, sinks: torch.Tensor | None
                ) -> torch.Tensor:
        made, sums, *in_order = _forward(
            query, key, value, order, spans, causal, softcap, scale, hidden, sinks)
        ctx.settings = causal, softcap, scale, hidden, is_added
        ctx.save_for_backward(query, *in_order, made, sums, order, spans, sinks)
        return made

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple:
        query, key, value, made, sums, order, spans, sinks = ctx.saved_tensors
        causal, softcap, scale, hidden, is_added = ctx.settings
        is_blind = _blind(spans, query)
        if sinks is None and math.isinf(hidden):  # NaN would reach the gradients of other queries
            made = made.masked_fill(is_blind, 0)
        *found, of_sinks = kernels.BACKWARD(
            grad, query, key, value, made, sums, spans, causal, 0, softcap, scale, sinks)
        if sinks is None:
            found = _with_blind(found, grad, query, key, value, is_blind, _weight(hidden, value),
                                softcap, scale, is_added)
        of_query, *rest = found
        return (of_query, *(_in_order(x, order[1]) for x in rest), *[None] * 7,
                None if sinks is None else of_sinks)


def _formula(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, order: torch.Tensor,
             spans: torch.Tensor, causal: bool, softcap: float, scale: float, hidden: float,
             is_added: bool, sinks: torch.Tensor | None = None) -> torch.Tensor:
    """Attention of [batch, tokens, heads, size]. order, spans: as padding_spans returns them.
    softcap: 0 for none. hidden, is_added: as in is_exact. sinks: as those of coda_cpp::attention.
    """
    given = query, key, value, order, spans, causal, softcap, scale, hidden
    if needs_gradients([x for x in (query, key, value, sinks) if x is not None]):
        return _Formula.apply(*given, is_added, sinks)
    return _forward(*given, sinks)[0]


CAPPED = register("padded_formula_capped", _capped, _fake_capped,
                  tags=(torch.Tag.cudagraph_unsafe,))  # waits for the GPU
FORMULA = register_composed("padded_formula", _formula)
