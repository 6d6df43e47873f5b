# SPDX-License-Identifier: Apache-2.0
"""Losses of logits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from coda_cpp import builders as b
from coda_cpp.torch_backend.layout import NotUnderstood, number, value_of

if TYPE_CHECKING:
    from coda_cpp.torch_backend.importer import Importer

_aten = torch.ops.aten


def _cross_entropy(region: Importer, node: fx.Node) -> Any:
    logits, targets, weight, reduction, ignored, smoothing = (
        *node.args, *(None, None, None, 1, -100, 0.0)[len(node.args):])
    if weight is not None or reduction not in (1, 2) or value_of(logits).dim() != 2:
        raise NotUnderstood("a loss of each row, with class weights or of several dimensions")
    if logits not in region.known:
        raise NotUnderstood("its logits are not made beside it")
    rows, mean = b.cross_entropy(
        region.operand(logits).value,
        region.index(targets, (number(value_of(logits).shape[-1]), int(ignored))),
        ignore_index=int(ignored), label_smoothing=float(smoothing))
    return mean if reduction == 1 else b.col_sum(rows)


RULES = {_aten.cross_entropy_loss.default: _cross_entropy}
