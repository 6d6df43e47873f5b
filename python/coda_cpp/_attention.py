# SPDX-License-Identifier: Apache-2.0
"""Attention as an operator of PyTorch: the graph operation `attention` and its gradient, as a plan
that reads queries, keys and values where they are in memory.

The operator takes [batch, tokens, heads, size]. A linear layer stores heads in this order, so the
usual transpose to [batch, heads, tokens, size] costs nothing. Neither does a part of the columns of
a fused projection, because kernels take the distance of rows. Other strides are copied.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence
from typing import Any

import torch

from coda_cpp import _core, _precompile, _tensors
from coda_cpp import builders as b
from coda_cpp._calls import Bounded
from coda_cpp._registration import differentiate, register
from coda_cpp.session import Runners, gpu_of

_HOPPERS_SIZES = (64, 96, 128)  # of heads with a backward of Hopper's instructions
_NOMINAL = {"M": 4096, "T": 1024}  # for comparing costs; the plan has no choices


@dataclasses.dataclass(frozen=True)
class _Kind:
    """Everything on which a plan depends. `window`: 0 for none. `softcap`: 0 for none."""

    dtype: str
    heads: int
    kv_heads: int
    size: int
    value_size: int
    causal: bool
    window: int
    softcap: float
    scale: float
    ends: int  # columns of the operand `documents`; 0: there is none
    has_sinks: bool
    for_gpu: bool

    @functools.cached_property
    def plans(self) -> tuple[_core.Plan, _core.Plan]:
        """The forward and the backward. Tensors are matrices with a row for each token."""
        graph = _core.Graph()

        def rows(name: str, heads: int, size: int) -> _core.Value:
            return graph.input(name, ("M", heads * size), self.dtype)

        q = rows("q", self.heads, self.size)
        k = rows("k", self.kv_heads, self.size)
        v = rows("v", self.kv_heads, self.value_size)
        documents = graph.input("documents", ("M", self.ends), "i32") if self.ends else None
        sinks = graph.input("sinks", (1, self.heads), "f32") if self.has_sinks else None
        y = b.attention(q, k, v, "T", self.heads, self.kv_heads, self.size, self.value_size,
                        self.causal, self.window, self.scale, self.softcap, documents, sinks)
        gradients = [(x, f"d{x.name}", self.dtype) for x in (q, k, v)]
        if sinks is not None:
            gradients.append((sinks, "dsinks", "f32"))
        plan = _core.compile(
            graph, [("y", y)], [(y, rows("dy", self.heads, self.value_size))],
            gradients, _NOMINAL, self.dtype, for_gpu=self.for_gpu)
        return plan.split()

    @functools.cached_property
    def phases(self) -> tuple[Runners, Runners]:
        forward, backward = self.plans
        return Runners(forward), Runners(backward)


@functools.cache
def _kind(*facts: Any) -> _Kind:
    return _Kind(*facts)  # one object for equal facts, because it caches the plan


def _of(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
        spans: torch.Tensor | None, causal: bool, window: int, softcap: float, scale: float,
        sinks: torch.Tensor | None = None) -> _Kind:
    return _kind(_tensors.torch_dtypes()[query.dtype], int(query.shape[2]), int(key.shape[2]),
                 int(query.shape[3]), int(value.shape[3]), causal, window, softcap, scale,
                 0 if spans is None else int(spans.shape[1]), sinks is not None,
                 query.device.type == "cuda")


def is_fastest(query: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether these kernels are faster than PyTorch's for heads of such tensors, forward and
    backward, as measured on an H200 (docs/attention.md)."""
    size = query.shape[-1]
    return (query.device.type == "cuda" and query.dtype in (torch.bfloat16, torch.float16)
            and isinstance(size, int) and size in _HOPPERS_SIZES and value.shape[-1] == size
            and gpu_of(query.device)[2] == (9, 0) and not os.environ.get("CODA_GPU_TARGET"))


def spans_of(bounds: torch.Tensor, tokens: int) -> torch.Tensor:
    """The operand `spans` for documents whose first tokens are `bounds` [documents + 1], which
    ascend; the last element is the end of the last document."""
    places = torch.arange(tokens, dtype=bounds.dtype, device=bounds.device)
    behind = torch.searchsorted(bounds, places, right=True)
    ends = (behind - 1).clamp_min(0), behind.clamp_max(bounds.shape[0] - 1)
    return torch.stack([bounds[end] for end in ends], 1).to(torch.int32)


def _sizes(query: torch.Tensor, spans: torch.Tensor | None) -> dict[str, int]:
    """The plan's symbols. With documents a batch is one sequence."""
    batch, tokens = query.shape[:2]
    return {"M": batch * tokens, "T": tokens if spans is None else batch * tokens}


def _distance(x: torch.Tensor) -> int | None:
    """The elements between tokens of x [batch, tokens, heads, size]; None unless a token's heads
    are adjacent and tokens follow at equal distances. On a GPU also None if that distance is no
    multiple of 16 bytes, which cuDNN requires."""
    batch, tokens, heads, size = x.shape
    of_batch, of_token, of_head, of_element = x.stride()
    distance = of_token if tokens > 1 else of_batch
    dense = heads * size
    in_place = (
        (size == 1 or of_element == 1) and (heads == 1 or of_head == size)
        and (batch == 1 or tokens == 1 or of_batch == tokens * of_token)
        and (batch * tokens == 1 or distance >= dense)
        and (not x.is_cuda or distance * x.element_size() % 16 == 0))
    return (dense if batch * tokens == 1 else distance) if in_place else None


@dataclasses.dataclass(frozen=True)
class _Call:
    """One phase for tensors of given shapes and strides. The tensors are those that may be anywhere
    in memory, then those that are dense."""

    runners: Runners
    sizes: tuple[tuple[str, int], ...]
    copied: tuple[int, ...]  # tensors that kernels cannot read where they are
    order: tuple[int, ...]  # of the plan's tensors among the call's
    strides: tuple[int, ...]  # elements between rows, in the plan's order

    def run(self, tensors: list[torch.Tensor]) -> None:
        for i in self.copied:
            tensors[i] = tensors[i].clone(memory_format=torch.contiguous_format)
        addresses = [tensors[i].data_ptr() for i in self.order]
        self.runners.run(self.sizes, tensors[0].device, addresses, self.strides)


_calls = Bounded()
_NAMES = ("q k v y lse documents sinks".split(),
          "q k v y dy lse dq dk dv documents sinks dsinks".split())


def _run(is_backward: bool, anywhere: Sequence[torch.Tensor], dense: Sequence[torch.Tensor],
         spans: torch.Tensor | None, settings: tuple, *sinks: torch.Tensor | None) -> None:
    """Runs a phase on tensors [batch, tokens, heads, size], in the order of _NAMES. `settings`:
    causal, window, softcap, scale. `sinks`: and their gradient."""
    if anywhere[0].is_cuda and any([x.data_ptr() % 16 for x in anywhere]):  # see _distance
        anywhere = [x.clone() if x.data_ptr() % 16 else x for x in anywhere]
    has_sinks, ends = sinks[0] is not None, 0 if spans is None else spans.shape[1]
    key = (is_backward, settings, ends, has_sinks, anywhere[0].device, anywhere[0].dtype,
           *[(x.shape, x.stride()) for x in anywhere])
    call = _calls.get(key)
    if call is None:
        distances = [_distance(x) for x in anywhere]
        query = anywhere[0]
        runners = _of(*anywhere[:3], spans, *settings, sinks[0]).phases[is_backward]
        rows = [x[0, 0].numel() for x in (*anywhere, *dense)]
        rows[:len(distances)] = [d or of for d, of in zip(distances, rows)]
        names = [name for name in _NAMES[is_backward] if not (
            name == "documents" and not ends or "sinks" in name and not has_sinks)]
        rows += [ends] * bool(ends) + [query.shape[2]] * (len(names) - len(rows) - bool(ends))
        # The log-sum-exp has the plan's own name.
        order = [names.index(info.name if info.name in names else "lse")
                 for info in runners.tensors]
        call = _Call(runners, tuple(_sizes(query, spans).items()),
                     tuple(i for i, distance in enumerate(distances) if distance is None),
                     tuple(order), tuple(rows[i] for i in order))
        _calls.put(key, call)
    call.run([*anywhere, *dense, *(x for x in (spans, *sinks) if x is not None)])


def forward(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
            spans: torch.Tensor | None, causal: bool, window: int, softcap: float, scale: float,
            sinks: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of [batch, tokens, heads, size], and the log-sum-exp of the scores as float32
    [batch, tokens, heads]. spans, int32 [batch * tokens, 2]: for each token of the batch the first
    token of its document and the one behind the last; both ascend. With 4 columns the first two are
    the keys that a query sees, and the last two the queries that see a key. Window and softcap: 0
    for none. sinks, float32 [heads]: logits whose exponentials are only in the denominator of
    softmax.
    """
    made = query.new_empty((*query.shape[:3], value.shape[3]))
    sums = query.new_empty(query.shape[:3], dtype=torch.float32)
    if made.numel():
        _run(False, (query, key, value), (made, sums), spans, (causal, window, softcap, scale),
             sinks if sinks is None else sinks.contiguous())
    return made, sums


def backward(grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
             result: torch.Tensor, sums: torch.Tensor, spans: torch.Tensor | None, causal: bool,
             window: int, softcap: float, scale: float, sinks: torch.Tensor | None = None
             ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The last result is the gradient of the sinks; without sinks it is empty."""
    *made, of_sinks = _made_by_backward(query, key, value, sinks)
    if query.numel():
        _run(True, (query, key, value, result, grad), (sums.contiguous(), *made), spans,
             (causal, window, softcap, scale),
             *((None, None) if sinks is None else (sinks.contiguous(), of_sinks)))
    return *made, of_sinks if query.numel() else of_sinks.zero_()


def _made_by_backward(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                      sinks: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
    return (*(x.new_empty(x.shape) for x in (query, key, value)),
            query.new_empty(0 if sinks is None else query.shape[2], dtype=torch.float32))


def _fake(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, spans: torch.Tensor | None,
          *settings: Any) -> tuple[torch.Tensor, torch.Tensor]:
    if query.is_cuda:
        for plan in _of(query, key, value, spans, *settings).plans:
            _precompile.start(plan, _sizes(query, spans), gpu_of(query.device))
    return (query.new_empty((*query.shape[:3], value.shape[3])),
            query.new_empty(query.shape[:3], dtype=torch.float32))


def _fake_backward(grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                   result: torch.Tensor, sums: torch.Tensor, spans: torch.Tensor | None,
                   causal: bool, window: int, softcap: float, scale: float,
                   sinks: torch.Tensor | None = None) -> tuple[torch.Tensor, ...]:
    return _made_by_backward(query, key, value, sinks)


def _save(ctx: Any, inputs: tuple, output: tuple) -> None:
    *tensors, spans, ctx.causal, ctx.window, ctx.softcap, ctx.scale, sinks = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*tensors, *output, spans, sinks)


def _gradients(ctx: Any, grad: torch.Tensor, _: torch.Tensor) -> tuple:
    *tensors, sinks = ctx.saved_tensors
    *made, of_sinks = BACKWARD(grad, *tensors, ctx.causal, ctx.window, ctx.softcap, ctx.scale,
                               sinks)
    return (*made, None, None, None, None, None, None if sinks is None else of_sinks)


ATTENTION = register("attention", forward, _fake)
BACKWARD = register("attention_backward", backward, _fake_backward)
differentiate(ATTENTION, forward, _save, _gradients)
