# SPDX-License-Identifier: Apache-2.0
"""Attention within documents that are packed into one row, as operators of PyTorch.

On a CPU, with a soft-cap, and where they are the fastest (attention_choice.py), this package's
kernels run (_attention.py), which read the span of each token's document. Otherwise a GPU runs
PyTorch's flash attention for sequences of different lengths. The host passes that the number of
documents, because its grid and its workspace grow with that number (the backward's workspace by 128
rows for each document): to assume one document for each token would be too expensive. So BOUNDS
waits for the GPU, once for each mask.
"""

from __future__ import annotations

from typing import Any

import torch

from coda_cpp import _attention as kernels
from coda_cpp._registration import differentiate, register

_aten = torch.ops.aten
_WAITS = (torch.Tag.cudagraph_unsafe,)  # waits for the GPU, or launches by values on the host


def _bounds(begins: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`begins` [tokens]: whether a document begins at the token, true for the first. Returns the
    bounds of the documents as int32 [tokens + 1], filled up with the number of tokens, and the span
    of each token's document as int32 [tokens, 2], on the same device; and as int64 [2] on the CPU
    the number of documents and the length of the longest."""
    tokens = len(begins)
    places = begins.cpu().nonzero().flatten()
    bounds = torch.full((tokens + 1,), tokens, dtype=torch.int32)
    bounds[:len(places)] = places
    sizes = torch.tensor([len(places), int(bounds.diff().max())])
    bounds = bounds.to(begins.device)
    return bounds, kernels.spans_of(bounds, tokens), sizes


def _fake_bounds(begins: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    tokens = begins.shape[0]
    return (begins.new_empty(tokens + 1, dtype=torch.int32),
            begins.new_empty((tokens, 2), dtype=torch.int32), torch.empty(2, dtype=torch.int64))


def _attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bounds: torch.Tensor,
               spans: torch.Tensor, sizes: torch.Tensor, scale: float, window: int, softcap: float,
               is_own: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Causal attention of [tokens, heads, size] within documents, and the log-sum-exp of the scores
    in the layout of the kernel. Keys and values may have fewer heads. A query sees `window` tokens
    in front of its own; -1: all. softcap: 0 for none. is_own: by the kernels of this package, which
    a CPU and a soft-cap need."""
    if is_own:
        made, sums = kernels.forward(query[None], key[None], value[None], spans, True,
                                     window + 1, softcap, scale)
        return made[0], sums[0]
    query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
    count, longest = sizes.tolist()
    bounds = bounds[:count + 1]
    return _aten._flash_attention_forward(
        query, key, value, bounds, bounds, longest, longest, 0.0, True, False, scale=scale,
        window_size_left=window, window_size_right=0)[:2]


def _fake(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bounds: torch.Tensor,
          spans: torch.Tensor, sizes: torch.Tensor, scale: float, window: int, softcap: float,
          is_own: bool) -> tuple[torch.Tensor, torch.Tensor]:
    tokens, heads = query.shape[:2]
    return query.new_empty(query.shape), query.new_empty(
        (tokens, heads) if is_own else (heads, tokens), dtype=torch.float32)


def _backward(grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
              made: torch.Tensor, sums: torch.Tensor, bounds: torch.Tensor, spans: torch.Tensor,
              sizes: torch.Tensor, scale: float, window: int, softcap: float, is_own: bool
              ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    if is_own:
        found = kernels.backward(*(x[None] for x in (grad, query, key, value, made, sums)), spans,
                                 True, window + 1, softcap, scale)
        return tuple(x[0] for x in found[:3])
    grad, query, key, value = (x.contiguous() for x in (grad, query, key, value))
    count, longest = sizes.tolist()
    bounds = bounds[:count + 1]
    no_dropout = torch.zeros(2, dtype=torch.uint64, device=query.device)
    return _aten._flash_attention_backward(
        grad, query, key, value, made, sums, bounds, bounds, longest, longest, 0.0, True,
        no_dropout, torch.empty(0, device=query.device), scale=scale,
        window_size_left=window, window_size_right=0)


def _fake_backward(grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                   *_: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return tuple(x.new_empty(x.shape) for x in (query, key, value))


def _save(ctx: Any, inputs: tuple, output: tuple) -> None:
    *tensors, ctx.scale, ctx.window, ctx.softcap, ctx.is_own = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*tensors, *output)


def _gradients(ctx: Any, grad: torch.Tensor, _: torch.Tensor) -> tuple:
    *tensors, bounds, spans, sizes, made, sums = ctx.saved_tensors
    return (*BACKWARD(grad, *tensors, made, sums, bounds, spans, sizes, ctx.scale, ctx.window,
                      ctx.softcap, ctx.is_own), *[None] * 7)


BOUNDS = register("document_bounds", _bounds, _fake_bounds, tags=_WAITS)
ATTENTION = register("document_attention", _attention, _fake, tags=_WAITS)
BACKWARD = register("document_attention_backward", _backward, _fake_backward, tags=_WAITS)
differentiate(ATTENTION, _attention, _save, _gradients)
