# SPDX-License-Identifier: Apache-2.0
"""Proves by values what a FlexAttention call hides.

FlexAttention hides a score if mask_mod is False there, or if the score's block is in neither list
of the block mask; in blocks of the list of full blocks mask_mod is not called. So mask_mod alone
does not say what is hidden: lists may be made by hand, of another function, or for other documents.
Mostly the lists and the tensors that mask_mod captures are inputs of Dynamo's graph, with other
values at the next call, and whether numbers of documents ascend depends on values, too. No proof
from the graph can know this.

So before each run of a compiled graph in which such a call was replaced (flex.py), has_form() must
hold (value_checks.py):
- The mask has the proposed form. PyTorch's create_mask evaluates the functions for all queries and
  keys, some rows at a time, and every element is compared.
- A block is in neither list only if mask_mod hides all of it, and in the list of full blocks only
  if mask_mod hides nothing of it. No block is listed twice, since its scores would count twice.
- The lists of the backward have the same blocks.
The operations of Dynamo's graph that compute lists and captured tensors are run for this, also if
the graph calls create_block_mask itself. If a check fails during compilation, the call stays
FlexAttention.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.nn import functional
from torch.nn.attention.flex_attention import create_mask

from coda_cpp.torch_backend.layout import NotUnderstood

_ELEMENTS = 2**26  # of a mask, evaluated at once


@dataclasses.dataclass(frozen=True)
class Form:
    """Which keys a query sees: all; or those up to its own, of its document, and of the last
    `window` tokens (0: of all)."""

    causal: bool = False
    window: int = 0
    has_documents: bool = False


class Mask:
    """mask_mod, and score_mod if it hides scores. `captured`: how many of the captured tensors are
    mask_mod's; score_mod's follow."""

    def __init__(self, mask_mod: fx.GraphModule, score_mod: fx.GraphModule | None, captured: int
                 ) -> None:
        self._mask_mod, self._score_mod, self._captured = mask_mod, score_mod, captured
        bodies = [(mask_mod, 0)] + [(score_mod, 1)] * (score_mod is not None)
        self.text = tuple(body.code for body, _ in bodies)
        if any(node.op in ("get_attr", "call_module") for body, _ in bodies
               for node in body.graph.nodes):
            raise NotUnderstood("its functions have constant tensors")  # the text has no values
        places = [list(body.graph.find_nodes(op="placeholder"))[first:first + 2]
                  for body, first in bodies]
        self.reads_batch = any(batch.users for batch, _ in places)
        if any(head.users for _, head in places):
            raise NotUnderstood("its mask depends on the head")

    def functions(self, captured: Sequence[Any]) -> tuple[Callable, Callable | None]:
        own, others = captured[:self._captured], captured[self._captured:]
        score_mod = self._score_mod
        return (lambda *where: self._mask_mod(*where, *own)), score_mod and (
            lambda *where: score_mod(*where, *others))

    def begins(self, batch: Any, tokens: Any, device: torch.device, captured: Sequence[Any]
               ) -> torch.Tensor:
        """Whether a document begins at each token, [batch, tokens]: where a token does not see the
        one in front of it."""
        mask_mod, score_mod = self.functions(captured)
        places = torch.arange(tokens, device=device)
        where = (torch.arange(batch, device=device)[:, None], places.new_zeros(()), places,
                 (places - 1).clamp_min(0))
        hidden = ~mask_mod(*where)
        if score_mod is not None:
            hidden = hidden | score_mod(torch.zeros((), device=device), *where).isneginf()
        return (hidden | (places == 0)).expand(batch, tokens)


def has_form(form: Form, mask: Mask, block: tuple[int, int], batch: int, queries: int, keys: int,
             *tensors: Any) -> bool:
    """Whether the mask has the form, and its lists are those of mask_mod. `tensors`: the lists and
    the captured tensors."""
    lists, captured, device = tensors[:8], tensors[8:], tensors[0].device
    mask_mod, score_mod = mask.functions(captured)
    begins = mask.begins(batch, queries, device, captured)
    rows, columns = (min(size, length) for size, length in zip(block, (queries, keys)))
    places = torch.arange(keys, device=device)
    is_right = torch.ones((), dtype=torch.bool, device=device)
    first = torch.zeros((batch, 1), dtype=torch.int64, device=device)
    seen_in, hidden_in = [], []  # blocks of columns, [batch, queries, blocks]
    at_once = max(_ELEMENTS // (batch * keys), 1)
    for start in range(0, queries, at_once):
        count = min(at_once, queries - start)
        seen = create_mask(lambda b, h, q, k: mask_mod(b, h, q + start, k),  # noqa: B023
                           batch, 1, count, keys, device)[:, 0]
        seen_in.append(_in_blocks(seen, columns).any(-1))
        hidden_in.append(_in_blocks(~seen, columns).any(-1))
        if score_mod is not None:
            seen = seen & create_mask(
                lambda score, b, h, q, k: score_mod(score, b, h, q + start, k),  # noqa: B023
                batch, 1, count, keys, device)[:, 0]
        wanted, q = torch.ones_like(seen), torch.arange(start, start + count, device=device)
        if form.causal:
            wanted = wanted & (places <= q[:, None])
            in_front = seen.gather(-1, (q - 1).clamp_min(0)[:, None].expand(batch, -1, 1))
            is_right &= (begins[:, q] == (~in_front[..., 0] | (q == 0))).all()
        if form.window:
            wanted = wanted & (places > q[:, None] - form.window)
        if form.has_documents:
            begin = torch.where(begins[:, q], q, first[:, -1:])
            first = begin.cummax(-1).values
            wanted = wanted & (places >= first[..., None])
        is_right &= (seen == wanted).all()
    partial, full, agree = _listed(lists, -(-queries // rows), -(-keys // columns))
    seen, hidden = (_in_blocks(torch.cat(parts, 1).mT, rows).any(-1).mT[:, None]
                    for parts in (seen_in, hidden_in))
    return bool(is_right & agree & (partial + full <= 1).all()
                & ((partial + full == 1) | ~seen).all() & ((full == 0) | ~hidden).all())


def _in_blocks(x: torch.Tensor, size: int) -> torch.Tensor:
    """The elements [..., columns] as [..., blocks, size], filled up with False."""
    return functional.pad(x, (0, -x.shape[-1] % size)).unflatten(-1, (-1, size))


def _listed(lists: Sequence[torch.Tensor | None], rows: int, columns: int
            ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """How often each block, [..., rows, columns], is in the list of partial blocks and in that of
    full ones; and whether the lists are valid, and those of the backward have the same blocks."""
    are_right = torch.ones((), dtype=torch.bool, device=lists[0].device)

    def counted(number: torch.Tensor | None, places: torch.Tensor | None, rows: int, columns: int
                ) -> torch.Tensor:
        nonlocal are_right
        if number is None:
            return are_right.new_zeros((rows, columns), dtype=torch.int64)
        if places.shape[-2] != rows or number.shape != places.shape[:-1]:
            raise NotUnderstood("its lists of blocks have another number of rows")
        is_listed = torch.arange(places.shape[-1], device=places.device) < number[..., None]
        exists = (places >= 0) & (places < columns)
        are_right &= (exists | ~is_listed).all() & (number <= places.shape[-1]).all()
        made = are_right.new_zeros((*places.shape[:-1], columns), dtype=torch.int64)
        return made.scatter_add_(-1, places.where(exists, 0).long(), (is_listed & exists).long())

    partial, full = (counted(*lists[i:i + 2], rows, columns) for i in (0, 2))
    for of, i in ((partial, 4), (full, 6)):
        if lists[i] is not None:
            are_right &= (counted(*lists[i:i + 2], columns, rows).mT == of).all()
    return partial, full, are_right
