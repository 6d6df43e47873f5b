# SPDX-License-Identifier: Apache-2.0
"""Attention of padded batches that is written out as softmax(scores + mask)·value, or with hidden
scores replaced by a number, as operators of PyTorch.

Where a query sees a key, hidden keys have the weight 0, so attention runs without them
(padding.py). Where a query sees no key, the formula depends on the number: the weights of the least
finite number are equal, those of minus infinity are NaN. If the number is added, gradients reach
the scores. For these queries the operators compute the formula itself. With sinks their weights are
0 in any case. The host needs to know how many these queries are, so it waits for the GPU, once for
each mask.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from coda_cpp import _attention as kernels
from coda_cpp._registration import differentiate, register
from coda_cpp.torch_backend.padding import _in_order

_WAITS = (torch.Tag.cudagraph_unsafe,)  # waits for the GPU, or launches by values on the host
_MOST_SCORES = 1 << 26  # that are stored at once


def _blind(spans: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`spans`: as padding_spans returns them. Whether each query sees no key, as bool [batch *
    tokens] on the CPU; and the queries as int64, those that see no key first, each in their order.
    """
    is_blind = spans[:, 0] >= spans[:, 1]
    return is_blind.cpu(), (~is_blind).to(torch.uint8).sort(stable=True)[1]


def _fake_blind(spans: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rows = spans.shape[0]
    return torch.empty(rows, dtype=torch.bool), spans.new_empty(rows, dtype=torch.int64)


def _groups(blind: torch.Tensor, places: torch.Tensor, query: torch.Tensor
            ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The queries that see no key, in groups: their tokens, [batch, rows], and which of them are no
    repetitions, since sequences have different numbers of such queries. A sequence without such
    queries repeats another one."""
    batch, tokens, heads, _ = query.shape
    counts = blind.view(batch, tokens).sum(1)
    most, end = int(counts.max()) if batch else 0, counts.cumsum(0)
    step = max(1, _MOST_SCORES // max(1, batch * heads * tokens))
    counts, begin = (x.to(query.device)[:, None] for x in (counts, end - counts))
    for first in range(0, most, step):
        rows = torch.arange(first, min(first + step, most), device=query.device)
        of_batch = (begin + rows.minimum(counts - 1)).clamp_min(0)
        yield places[of_batch] % tokens, rows < counts


def _rows(x: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """These tokens of each sequence of x."""
    return x[torch.arange(len(x), device=x.device)[:, None], tokens]


def _put_rows(x: torch.Tensor, tokens: torch.Tensor, made: torch.Tensor) -> None:
    x[torch.arange(len(x), device=x.device)[:, None], tokens] = made.to(x.dtype)


def _by_key_heads(x: torch.Tensor, kv_heads: int) -> torch.Tensor:
    """[batch, rows, heads, size] as [batch, kv_heads, heads / kv_heads, rows, size]."""
    return x.unflatten(2, (kv_heads, -1)).permute(0, 2, 3, 1, 4)


def _by_tokens(x: torch.Tensor) -> torch.Tensor:
    """The inverse of _by_key_heads."""
    return x.permute(0, 3, 1, 2, 4).flatten(2, 3)


def _weights(query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor, softcap: float,
             scale: float, fill: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The weights of these queries in fp32, and the derivative of their scores by the products of
    query and key. The mask is [batch, 1, 1, rows, tokens]."""
    scores = query @ key.mT * scale
    slope = torch.full((), scale, device=query.device)
    if softcap:
        bounded = torch.tanh(scores / softcap)
        scores, slope = bounded * softcap, scale * (1 - bounded.float().square())
    if mask.dtype == torch.bool:
        scores, slope = torch.where(mask, scores, fill), slope * mask
    else:
        scores = scores + mask
    return scores.softmax(-1, dtype=torch.float32), slope


def _formula(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor,
             order: torch.Tensor, spans: torch.Tensor, blind: torch.Tensor, places: torch.Tensor,
             causal: bool, softcap: float, scale: float, fill: float,
             sinks: torch.Tensor | None = None
             ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Attention of [batch, tokens, heads, size] with a mask [batch, 1, tokens, tokens], which is
    added, or boolean: scores become `fill` where it is False. blind, places: as padding_blind
    returns them. sinks: as those of coda_cpp::attention. Otherwise as padded_attention."""
    of_keys, of_values = _in_order(key, order[0]), _in_order(value, order[0])
    made, sums = kernels.forward(
        query, of_keys, of_values, spans, causal, 0, softcap, scale, sinks)
    for tokens, _ in () if sinks is not None else _groups(blind, places, query):
        q, k, v = (_by_key_heads(x, key.shape[2]) for x in (_rows(query, tokens), key, value))
        weights, _ = _weights(q, k, _rows(mask[:, 0], tokens)[:, None, None], softcap, scale, fill)
        _put_rows(made, tokens, _by_tokens(weights.to(v.dtype) @ v))
    return made, sums, of_keys, of_values


def _fake(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor,
          order: torch.Tensor, spans: torch.Tensor, blind: torch.Tensor, places: torch.Tensor,
          causal: bool, softcap: float, scale: float, fill: float, *sinks: Any
          ) -> tuple[torch.Tensor, ...]:
    made = kernels.ATTENTION(query, key, value, spans, causal, 0, softcap, scale, *sinks)
    return *made, key.new_empty(key.shape), value.new_empty(value.shape)


def _backward(grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
              made: torch.Tensor, sums: torch.Tensor, mask: torch.Tensor, order: torch.Tensor,
              spans: torch.Tensor, blind: torch.Tensor, places: torch.Tensor, causal: bool,
              softcap: float, scale: float, fill: float, sinks: torch.Tensor | None = None
              ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """`key` and `value` are in their order. The last result is the gradient of the sinks; without
    sinks it is empty."""
    has_blind = sinks is None and bool(blind.any())
    if has_blind:  # a NaN would reach the gradients of other queries
        is_blind = (spans[:, 0] >= spans[:, 1]).view(query.shape[:2])
        made = made.masked_fill(is_blind[..., None, None], 0)
    of_query, *found, of_sinks = kernels.backward(
        grad, query, key, value, made, sums, spans, causal, 0, softcap, scale, sinks)
    of_key, of_value = (_in_order(x, order[1]) for x in found)
    if not has_blind:
        return of_query, of_key, of_value, of_sinks
    key, value = (_in_order(x, order[1]) for x in (key, value))
    for tokens, is_new in _groups(blind, places, query):
        q, k, v, g = (_by_key_heads(x, key.shape[2])
                      for x in (_rows(query, tokens), key, value, _rows(grad, tokens)))
        weights, slope = _weights(q, k, _rows(mask[:, 0], tokens)[:, None, None], softcap, scale,
                                  fill)
        q, k, v, g = (x.float() for x in (q, k, v, g))
        of_weights = g @ v.mT
        of_scores = torch.where(slope == 0, 0, slope * weights * (
            of_weights - (weights * of_weights).sum(-1, keepdim=True)))
        _put_rows(of_query, tokens, _by_tokens(of_scores @ k))
        of_scores, weights = (torch.where(is_new[:, None, None, :, None], x, 0)
                              for x in (of_scores, weights))
        of_key += (of_scores.mT @ q).sum(2).transpose(1, 2).to(key.dtype)
        of_value += (weights.mT @ g).sum(2).transpose(1, 2).to(value.dtype)
    return of_query, of_key, of_value, of_sinks


def _fake_backward(grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                   made: torch.Tensor, sums: torch.Tensor, mask: torch.Tensor, order: torch.Tensor,
                   spans: torch.Tensor, blind: torch.Tensor, places: torch.Tensor, causal: bool,
                   softcap: float, scale: float, fill: float, *sinks: Any
                   ) -> tuple[torch.Tensor, ...]:
    return tuple(kernels.BACKWARD(
        grad, query, key, value, made, sums, spans, causal, 0, softcap, scale, *sinks))


def _save(ctx: Any, inputs: tuple, output: tuple) -> None:
    query, _, _, *tensors, ctx.causal, ctx.softcap, ctx.scale, ctx.fill, sinks = inputs
    made, sums, key, value = output
    ctx.mark_non_differentiable(sums, key, value)
    ctx.save_for_backward(query, key, value, made, sums, *tensors, sinks)


def _gradients(ctx: Any, grad: torch.Tensor, *_: torch.Tensor) -> tuple:
    *tensors, sinks = ctx.saved_tensors
    *found, of_sinks = BACKWARD(
        grad, *tensors, ctx.causal, ctx.softcap, ctx.scale, ctx.fill, sinks)
    return (*found, *[None] * 9, None if sinks is None else of_sinks)


BLIND = register("padding_blind", _blind, _fake_blind, tags=_WAITS)
FORMULA = register("padded_formula", _formula, _fake, tags=_WAITS)
BACKWARD = register("padded_formula_backward", _backward, _fake_backward, tags=_WAITS)
differentiate(FORMULA, _formula, _save, _gradients)
