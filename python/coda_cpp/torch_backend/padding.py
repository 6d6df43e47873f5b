# SPDX-License-Identifier: Apache-2.0
"""Attention of padded batches, as operators of PyTorch.

A mask hides some keys of each sequence from all queries, and perhaps those that are too far in
front of the query or behind it. The kernels of coda_cpp::attention (_attention.py) know no such
mask, but a span of keys for each query. So the keys that are seen are put in front of the others,
in their order. The keys that a query sees then follow each other; with a causal mask they are as
many of the first ones as are seen up to the query's own token. This holds for any hidden keys, also
between others, so no value of the mask is read on the host.
"""

from __future__ import annotations

from typing import Any

import torch

from coda_cpp import _attention as kernels
from coda_cpp._registration import differentiate, register, register_composed


def _spans(is_seen: torch.Tensor, before: int, behind: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`is_seen`: bool [batch, tokens]. A query also sees only keys that are at most `before` tokens
    in front of its own token and at most `behind` behind it; -1: any number. Returns the order of
    the keys of all sequences, those that are seen first, and its inverse, as int64
    [2, batch * tokens]; and the operand `spans` of coda_cpp::attention, with those of the keys, as
    int32 [batch * tokens, 4]."""
    batch, tokens = is_seen.shape
    # torch.arange would make values where the compiler has a tensor without values.
    place, begin = (is_seen.new_ones(size, dtype=torch.int64).cumsum(0) - 1
                    for size in (tokens, batch))
    begin = begin[:, None] * tokens
    # How many are seen. pad() would fix a length that varies.
    in_front = torch.cat([is_seen.new_zeros((batch, 1), dtype=torch.int64), is_seen.cumsum(1)], 1)
    count = in_front[:, -1:]
    # A hidden key is behind all that are seen and behind the hidden ones in front of it.
    inverse = torch.where(is_seen, in_front[:, :-1], count + place - in_front[:, :-1])
    order = torch.empty_like(inverse).scatter_(1, inverse, place.expand(batch, tokens))
    none, all_tokens = torch.zeros_like(order), torch.full_like(order, tokens)
    is_seen_key = place < count
    ends = [in_front[:, (place - before).clamp_min(0)] if before >= 0 else none,
            in_front[:, (place + behind + 1).clamp_max(tokens)] if behind >= 0 else count + none]
    ends += [torch.where(is_seen_key, query, all_tokens) for query in (
        (order - behind).clamp_min(0) if behind >= 0 else none,
        (order + before + 1).clamp_max(tokens) if before >= 0 else all_tokens)]
    spans = torch.stack(ends, 2) + begin[..., None]
    return (torch.stack([order + begin, inverse + begin]).flatten(1),
            spans.flatten(0, 1).to(torch.int32))


def _in_order(x: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """The tokens of [batch, tokens, heads, size] in another order."""
    return x.flatten(0, 1).index_select(0, order).view(x.shape)


def _attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, order: torch.Tensor,
               spans: torch.Tensor, causal: bool, softcap: float, scale: float
               ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Attention of [batch, tokens, heads, size], the log-sum-exp of the scores as float32 [batch,
    tokens, heads], and keys and values in their order, for the backward. `order` and `spans`: as
    padding_spans returns them. softcap: 0 for none."""
    key, value = _in_order(key, order[0]), _in_order(value, order[0])
    made, sums = kernels.forward(query, key, value, spans, causal, 0, softcap, scale)
    return made, sums, key, value


def _fake(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, order: torch.Tensor,
          spans: torch.Tensor, *settings: Any) -> tuple[torch.Tensor, ...]:
    causal, *others = settings
    made = kernels.ATTENTION(query, key, value, spans, causal, 0, *others)
    return *made, key.new_empty(key.shape), value.new_empty(value.shape)


def _backward(grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
              made: torch.Tensor, sums: torch.Tensor, order: torch.Tensor, spans: torch.Tensor,
              causal: bool, softcap: float, scale: float
              ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`key` and `value` are in their order."""
    of_query, of_key, of_value, _ = kernels.backward(
        grad, query, key, value, made, sums, spans, causal, 0, softcap, scale)
    return of_query, _in_order(of_key, order[1]), _in_order(of_value, order[1])


def _fake_backward(grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                   made: torch.Tensor, sums: torch.Tensor, order: torch.Tensor, *settings: Any
                   ) -> tuple[torch.Tensor, ...]:
    spans, causal, *others = settings
    found = kernels.BACKWARD(grad, query, key, value, made, sums, spans, causal, 0, *others)
    return tuple(found[:3])


def _save(ctx: Any, inputs: tuple, output: tuple) -> None:
    query, _, _, *tensors, ctx.causal, ctx.softcap, ctx.scale = inputs
    made, sums, key, value = output
    ctx.mark_non_differentiable(sums, key, value)
    ctx.save_for_backward(query, key, value, made, sums, *tensors)


def _gradients(ctx: Any, grad: torch.Tensor, *_: torch.Tensor) -> tuple:
    found = BACKWARD(grad, *ctx.saved_tensors, ctx.causal, ctx.softcap, ctx.scale)
    return (*found, None, None, None, None, None)


SPANS = register_composed("padding_spans", _spans)
ATTENTION = register("padded_attention", _attention, _fake)
BACKWARD = register("padded_attention_backward", _backward, _fake_backward)
differentiate(ATTENTION, _attention, _save, _gradients)
