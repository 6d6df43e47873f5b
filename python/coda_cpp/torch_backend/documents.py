# SPDX-License-Identifier: Apache-2.0
"""Attention within documents that are packed into one row, as operators of PyTorch.

With a soft-cap, this package's attention (_attention.py) is called once for each document. Without
one, a GPU runs PyTorch's flash attention for sequences of different lengths, which reads no mask.
The host passes it the number of documents, because its grid and its workspace grow with that number
(the backward's workspace by 128 rows for each document): to assume one document for each token
would be too expensive. So BOUNDS waits for the GPU, once for each mask.
"""

from __future__ import annotations

from typing import Any

import torch

from coda_cpp import _attention as kernels

_aten = torch.ops.aten


@torch.library.custom_op("coda_cpp::document_bounds", mutates_args=())
def _bounds(begins: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`begins` [tokens]: whether a document begins at the token, true for the first. Returns the
    bounds of the documents as int32 [tokens + 1], filled up with the number of tokens, on the same
    device; and as int64 [tokens + 3] on the CPU the number of documents, the length of the longest,
    and the bounds."""
    tokens = len(begins)
    places = begins.cpu().nonzero().flatten()
    bounds = torch.full((tokens + 1,), tokens, dtype=torch.int32)
    bounds[:len(places)] = places
    longest = int(bounds.diff().max())
    return bounds.to(begins.device), torch.cat([torch.tensor([len(places), longest]), bounds])


@_bounds.register_fake
def _(begins: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return (begins.new_empty(begins.shape[0] + 1, dtype=torch.int32),
            torch.empty(begins.shape[0] + 3, dtype=torch.int64))


@torch.library.custom_op("coda_cpp::document_attention", mutates_args=())
def _attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bounds: torch.Tensor,
               sizes: torch.Tensor, scale: float, window: int, softcap: float
               ) -> tuple[torch.Tensor, torch.Tensor]:
    """Causal attention of [tokens, heads, size] within documents, and the log-sum-exp of the scores
    [heads, tokens]. Keys and values may have fewer heads. A query sees `window` tokens in front of
    its own; -1: all. softcap: 0 for none."""
    if softcap:
        made = torch.empty_like(query, memory_format=torch.contiguous_format)
        sums = query.new_empty(query.shape[:2], dtype=torch.float32)
        for one in _documents(sizes):
            kernels.forward(*(x[None, one] for x in (query, key, value, made, sums)),
                            True, window + 1, softcap, scale)
        return made, sums.t().contiguous()
    query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
    count, longest = sizes[:2].tolist()
    if query.is_cuda:
        bounds = bounds[:count + 1]
        return _aten._flash_attention_forward(
            query, key, value, bounds, bounds, longest, longest, 0.0, True, False, scale=scale,
            window_size_left=window, window_size_right=0)[:2]
    made, sums = torch.empty_like(query), query.new_empty(query.shape[1::-1], dtype=torch.float32)
    for one in _documents(sizes):
        scores = _scores(query[one], key[one], scale, window)
        sums[:, one] = scores.logsumexp(-1)
        shares = (scores - sums[:, one, None]).exp()
        made[one] = (shares @ _by_heads(value[one], query)).transpose(0, 1)
    return made, sums


@_attention.register_fake
def _(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bounds: torch.Tensor,
      *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return (query.new_empty(query.shape),
            query.new_empty((query.shape[1], query.shape[0]), dtype=torch.float32))


@torch.library.custom_op("coda_cpp::document_attention_backward", mutates_args=())
def _backward(grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
              made: torch.Tensor, sums: torch.Tensor, bounds: torch.Tensor, sizes: torch.Tensor,
              scale: float, window: int, softcap: float
              ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    if softcap:
        grads = [torch.empty_like(x, memory_format=torch.contiguous_format)
                 for x in (query, key, value)]
        sums = sums.t().contiguous()
        for one in _documents(sizes):
            kernels.backward(*(x[None, one] for x in (grad, query, key, value, made, sums)),
                             [x[None, one] for x in grads], True, window + 1, softcap, scale)
        return tuple(grads)
    grad, query, key, value = (x.contiguous() for x in (grad, query, key, value))
    count, longest = sizes[:2].tolist()
    if query.is_cuda:
        bounds = bounds[:count + 1]
        no_dropout = torch.zeros(2, dtype=torch.uint64, device=query.device)
        return _aten._flash_attention_backward(
            grad, query, key, value, made, sums, bounds, bounds, longest, longest, 0.0, True,
            no_dropout, torch.empty(0, device=query.device), scale=scale,
            window_size_left=window, window_size_right=0)
    grads = [torch.empty_like(x) for x in (query, key, value)]
    for one in _documents(sizes):
        shares = (_scores(query[one], key[one], scale, window) - sums[:, one, None]).exp()
        upstream = grad[one].float().transpose(0, 1)
        of_shares = upstream @ _by_heads(value[one], query).transpose(1, 2)
        dots = (upstream * made[one].float().transpose(0, 1)).sum(-1, keepdim=True)
        of_scores = shares * (of_shares - dots) * scale
        for to, found in zip(grads, (of_scores @ _by_heads(key[one], query),
                                     of_scores.transpose(1, 2) @ _by_heads(query[one], query),
                                     shares.transpose(1, 2) @ upstream)):
            to[one] = found.unflatten(0, (to.shape[1], -1)).sum(1).transpose(0, 1)
    return tuple(grads)


@_backward.register_fake
def _(grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
      *_: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return tuple(x.new_empty(x.shape) for x in (query, key, value))


def _save(ctx: Any, inputs: tuple, output: tuple) -> None:
    *tensors, ctx.scale, ctx.window, ctx.softcap = inputs
    ctx.save_for_backward(*tensors, *output)


def _gradients(ctx: Any, grad: torch.Tensor, _: torch.Tensor) -> tuple:
    query, key, value, bounds, sizes, made, sums = ctx.saved_tensors
    return (*_backward(grad, query, key, value, made, sums, bounds, sizes, ctx.scale,
                       ctx.window, ctx.softcap), None, None, None, None, None)


_attention.register_autograd(_gradients, setup_context=_save)
BOUNDS = torch.ops.coda_cpp.document_bounds.default
ATTENTION = torch.ops.coda_cpp.document_attention.default


def _documents(sizes: torch.Tensor) -> list[slice]:
    count, _, *places = sizes.tolist()
    places = places[:count + 1]
    return [slice(*ends) for ends in zip(places, places[1:])]


def _by_heads(x: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """[tokens, heads, size] as fp32 [heads of queries, tokens, size]."""
    return x.float().repeat_interleave(query.shape[1] // x.shape[1], 1).transpose(0, 1)


def _scores(query: torch.Tensor, key: torch.Tensor, scale: float, window: int) -> torch.Tensor:
    scores = _by_heads(query, query) @ _by_heads(key, query).transpose(1, 2) * scale
    is_seen = torch.ones(scores.shape[1:], dtype=torch.bool).tril()
    if window >= 0:
        is_seen = is_seen.triu(-window)
    return scores.masked_fill(~is_seen, -torch.inf)
