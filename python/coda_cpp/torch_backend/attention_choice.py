# SPDX-License-Identifier: Apache-2.0
"""Which kernels run a call of attention: those of coda_cpp::attention, or what PyTorch has for it.

On a CPU and on an H100 or H200 the answer is known from measurements (docs/attention.md), except
for padding with heads of other sizes. There, and on a GPU on which this project never ran its
kernels, both run the call once (measure.py), on random tensors of its sizes, with a mask of its
kind. coda-cpp's kernels run it if their results are right and they are faster. PyTorch has for the
call, in this order: for attention that is written out, the inner compiler's code of the formula;
for documents and windows, flash attention within documents; for anything else,
scaled_dot_product_attention, which reads the mask. FlexAttention is not compared, and stays there.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Callable, Sequence

import torch
from torch import fx
from torch.backends import cuda

from coda_cpp import _attention as kernels
from coda_cpp.session import is_new_gpu
from coda_cpp.torch_backend import documents, measure, padded_formula, padding
from coda_cpp.torch_backend.layout import hint

_aten = torch.ops.aten
# Of results and gradients in 16 bits, with a margin.
_LARGEST_ERROR = 0.1
# Operations of a forward, without regard to a mask, below which nothing is measured; and seconds of
# PyTorch's kernels, forward and backward, below which they stay. The host starts them in less time
# than an operator of Python's.
_LITTLE_WORK, _SHORT = 1e9, 1e-4


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of attention, with fake tensors [batch, heads, tokens, size]. window, softcap: 0 for
    none. `padding`: a mask of padding, with the distances of padding.SPANS. `has_documents`: the
    mask is that of packed documents. `needs`: it has a backward. `instead_of`: what runs the call
    otherwise, if it is no call of PyTorch's attention: the operations of a "formula", or "flex",
    FlexAttention."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    needs: bool
    scale: float
    causal: bool
    window: int = 0
    softcap: float = 0.0
    padding: tuple[int, int] | None = None
    has_documents: bool = False
    has_sinks: bool = False
    instead_of: str = ""

    @property
    def work(self) -> float:
        return 4.0 * math.prod(map(hint, self.query.shape)) * hint(self.key.shape[2])

    def __str__(self) -> str:
        tensors = " and ".join(dict.fromkeys(
            f"{list(map(hint, x.shape))}" for x in (self.query, self.key, self.value)))
        is_windowed = self.window or self.padding and (
            self.padding[0] >= 0 or self.padding[1] > 0)
        facts = [("causal", self.causal), ("a window", is_windowed), ("a soft-cap", self.softcap),
                 ("sinks", self.has_sinks), ("padding", self.padding),
                 ("packed documents", self.has_documents), ("written out", self.instead_of)]
        return (f"attention of {tensors} in {str(self.query.dtype).removeprefix('torch.')}"
                + "".join(f", {name}" for name, holds in facts if holds))


class Choice:
    """Which kernels run the calls of a graph. `notes`: what was measured, for the report."""

    def __init__(self, compiler: Callable | None = None, inner: str = "",
                 is_measured: bool = True) -> None:
        """`compiler`: the inner one, and its name. `is_measured`: if not, coda-cpp's kernels run
        whatever may be faster there."""
        self._compiler, self._inner, self._is_measured = compiler, inner, is_measured
        self.notes: dict[str, None] = {}

    def is_own(self, call: Call, least: float = 0.0) -> bool:
        """Whether coda_cpp::attention runs the call. On an H100 or H200, PyTorch runs calls of its
        own attention and formulas with padding that have fewer than `least` operations."""
        if not has_kernels(call.query, call.value):
            return False
        if is_new_gpu(call.query.device):
            return not self._is_measured or call.instead_of != "flex" and (
                call.work >= _LITTLE_WORK and self._is_faster(call, measure.SECONDS_OF_NEW_GPUS))
        may_time = call.padding is not None and _is_hopper(call.query.device)
        if call.instead_of and not may_time:
            return True
        return call.work >= least and (kernels.is_fastest(call.query, call.value) or may_time and (
            not self._is_measured or self._is_faster(call, measure.SECONDS)))

    def _is_faster(self, call: Call, seconds: float) -> bool:
        """`seconds`: of all measurements of the process."""
        sizes = [(list(map(hint, x.shape)), list(map(hint, x.stride())), x.dtype)
                 for x in (call.query, call.key, call.value)]
        facts = *sizes, *list(vars(call).values())[3:], self._inner if call.instead_of else ""
        times = measure.once("attention", facts, call.query.device,
                             lambda: _measured(call, self._compiler), seconds)
        if times is None:
            self.notes[f"{call}: PyTorch's kernels, because it has not been timed on this GPU: a "
                       "later process times it (docs/gpus.md)"] = None
            return False
        ours, theirs = times
        is_faster = ours < theirs and theirs >= _SHORT
        what = ("whose results differ from PyTorch's" if math.isinf(ours)
                else f"which take {1e3 * ours:.3f} ms")
        self.notes[f"{call}: coda-cpp's kernels, {what}, PyTorch's {1e3 * theirs:.3f} ms: "
                   f"{'coda-cpp' if is_faster else 'PyTorch'}'s are used"] = None
        return is_faster


def has_kernels(query: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether coda_cpp::attention takes such tensors. On a CPU it took 0.15 to 0.6 of the time of
    Inductor's code in all tested sizes and types. On a GPU it stores no scores; on an H200 its time
    has not been compared with Inductor's code."""
    if not all(isinstance(size, int) for size in (
            query.shape[1], query.shape[3], value.shape[1], value.shape[3])):
        return False
    if query.device.type == "cpu":
        return query.dtype in (torch.float32, torch.bfloat16, torch.float16)
    return (query.device.type == "cuda" and query.dtype in (torch.bfloat16, torch.float16)
            and max(query.shape[3], value.shape[3]) <= 256)


def _is_hopper(device: torch.device) -> bool:
    """Whether these are Hopper's kernels."""
    return device.type == "cuda" and not is_new_gpu(device) and not os.environ.get(
        "CODA_GPU_TARGET")


def has_documents(query: torch.Tensor) -> bool:
    """Whether PyTorch has attention for documents of different lengths for such queries."""
    return (query.device.type == "cuda" and query.dtype in (torch.bfloat16, torch.float16)
            and isinstance(query.shape[-1], int) and query.shape[-1] <= 256
            and query.shape[-1] % 8 == 0 and cuda.flash_sdp_enabled()
            and torch.cuda.get_device_capability(query.device) >= (8, 0))


class _Mask:
    """A mask of the call's kind, in the forms in which kernels take it: bool [batch or 1, 1,
    queries, keys]; padding.SPANS; documents.BOUNDS. `sees`: queries that see a key."""

    def __init__(self, call: Call) -> None:
        batch, tokens = hint(call.query.shape[0]), hint(call.query.shape[2])
        place = torch.arange(tokens, device=call.query.device)
        before, behind = call.padding or (call.window - 1, 0 if call.causal else -1)
        distance = place[:, None] - place
        self.bool = torch.ones_like(distance, dtype=torch.bool)[None, None]
        if before >= 0:
            self.bool = self.bool & (distance <= before)
        if behind >= 0:
            self.bool = self.bool & (-distance <= behind)
        if call.padding:  # all tokens of the first sequence are seen, half of the last one's
            hidden = torch.linspace(0, tokens // 2, batch, device=place.device).long()
            seen = place < tokens - hidden[:, None]
            self.spans = padding.SPANS(seen, before, behind)
            self.bool = self.bool & seen[:, None, None]
        else:
            begins = place == 0
            if call.has_documents:
                begins[[tokens // 8, tokens // 3]] = True
            self.bounds = documents.BOUNDS(begins.repeat(batch))
            document = begins.cumsum(0)
            self.bool = self.bool & (document[:, None] == document)
        self.sees = self.bool.any(-1, keepdim=True)

    def added(self, dtype: torch.dtype, hidden: float) -> torch.Tensor:
        """As numbers that are added to scores. Queries that see no key see all of them, because
        kernels may give them NaN."""
        return torch.zeros(self.bool.shape, dtype=dtype, device=self.bool.device).masked_fill_(
            ~self.bool & self.sees, hidden)


def _measured(call: Call, compiler: Callable | None) -> measure.Times:
    given = [measure.random(x, x.dtype, call.needs, 1.0)
             for x in (call.query, call.key, call.value)]
    if call.has_sinks:
        given.append(torch.randn(call.query.shape[1], device=call.query.device,
                                 requires_grad=call.needs))
    mask = _Mask(call)
    theirs, upstream = _of_pytorch(call, mask, given, compiler), list[torch.Tensor]()

    def outcome(run: Callable) -> list[torch.Tensor | None]:
        made = run(*given)
        # Kernels give different values to queries that see no key. Nobody reads them.
        return measure.outcome(made * mask.sees if call.padding else made,
                               [[x] for x in given if x.requires_grad], upstream)

    return measure.compared(
        "attention", lambda: outcome(functools.partial(_own, call, mask)), lambda: outcome(theirs),
        call.query.device, _LARGEST_ERROR)


def _own(call: Call, mask: _Mask, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
         *sinks: torch.Tensor) -> torch.Tensor:
    if call.has_documents and not sinks:
        return _within_documents(call, mask, True, q, k, v)
    turned = [x.transpose(1, 2) for x in (q, k, v)]
    if call.padding and call.instead_of:
        made = [padded_formula.FORMULA(
            *turned, *mask.spans, call.causal, call.softcap, call.scale, torch.finfo(q.dtype).min,
            True, *sinks)]
    elif call.padding:
        made = padding.ATTENTION(*turned, *mask.spans, call.causal, call.softcap, call.scale)
    else:
        spans = mask.bounds[1] if call.has_documents else None
        made = kernels.ATTENTION(*turned, spans, call.causal, call.window, call.softcap, call.scale,
                                 *sinks)
    return made[0].transpose(1, 2)


def _of_pytorch(call: Call, mask: _Mask, given: Sequence[torch.Tensor], compiler: Callable | None
                ) -> Callable[..., torch.Tensor]:
    if call.instead_of:
        assert compiler is not None
        added = mask.added(call.query.dtype, torch.finfo(call.query.dtype).min)
        compiled = compiler(_formula(call), [*given, added])
        return lambda *operands: compiled(*operands, added)[0]
    if (call.has_documents or call.window) and has_documents(call.query):
        return functools.partial(_within_documents, call, mask, False)
    is_plain = not (call.padding or call.has_documents or call.window)
    added = None if is_plain else mask.added(call.query.dtype, -math.inf)
    return lambda *operands: _aten.scaled_dot_product_attention(
        *operands, added, 0.0, is_plain and call.causal, scale=call.scale,
        enable_gqa=call.key.shape[1] != call.query.shape[1])


def _within_documents(call: Call, mask: _Mask, is_own: bool, *operands: torch.Tensor
                      ) -> torch.Tensor:
    turned = [x.transpose(1, 2) for x in operands]
    made = documents.ATTENTION(*(x.flatten(0, 1) for x in turned), *mask.bounds, call.scale,
                               call.window - 1, call.softcap, is_own)[0]
    return made.view_as(turned[0]).transpose(1, 2)


def _formula(call: Call) -> fx.GraphModule:
    """Attention as products and a softmax, as models write it."""
    group = call.query.shape[1] // call.key.shape[1]

    def repeated(x: torch.Tensor) -> torch.Tensor:
        return x.repeat_interleave(group, 1) if group > 1 else x

    def formula(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor | None,
                added: torch.Tensor) -> tuple[torch.Tensor]:
        scores = q @ repeated(k).transpose(2, 3) * call.scale
        if call.softcap:
            scores = torch.tanh(scores / call.softcap) * call.softcap
        scores = scores + added
        if sinks is not None:
            of_rows = torch.zeros_like(scores[..., :1]) + sinks.to(q.dtype)[None, :, None, None]
            scores = torch.cat([scores, of_rows], -1)
        weights = scores.softmax(-1, dtype=torch.float32).to(q.dtype)
        return ((weights if sinks is None else weights[..., :-1]) @ repeated(v),)

    if call.has_sinks:
        return fx.symbolic_trace(formula)
    return fx.symbolic_trace(lambda q, k, v, added: formula(q, k, v, None, added))
