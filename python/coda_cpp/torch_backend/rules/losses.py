# SPDX-License-Identifier: Apache-2.0
"""Rules for losses of logits and their parts: log-probabilities of all columns, which are supported
only if their rows are reduced; log-probabilities of chosen columns; and sums over rows. """

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from coda_cpp import _core
from coda_cpp import builders as b
from coda_cpp.torch_backend import layout as layouts
from coda_cpp.torch_backend import loss_forms
from coda_cpp.torch_backend.layout import NotUnderstood, number, value_of
from coda_cpp.torch_backend.values import Imported

if TYPE_CHECKING:
    from coda_cpp.torch_backend.importer import Importer

_aten = torch.ops.aten


class _Probabilities(Imported):
    """softmax(logits) of each row, or its logarithm."""

    def __init__(self, dtype: torch.dtype, logits: Imported, is_log: bool) -> None:
        super().__init__(dtype)
        self.logits, self._is_log = logits, is_log

    @property
    def log(self) -> _core.Value:
        return self.logits.value - _logsumexp(self.logits)

    def _make(self) -> _core.Value:
        return self.log if self._is_log else b.exp(self.log)


def _logsumexp(logits: Imported) -> _core.Value:
    """The log-sum-exp of the logits, one value for all readers."""
    if not hasattr(logits, "logsumexp"):
        logits.logsumexp = b.row_logsumexp(logits.value)
    return logits.logsumexp


def _columns(node: Any) -> int:
    return number(value_of(node).shape[-1])


def _cross_entropy(region: Importer, node: fx.Node) -> Any:
    logits, targets, weight, reduction, ignored, smoothing = (
        *node.args, *(None, None, None, 1, -100, 0.0)[len(node.args):])
    if weight is not None or value_of(logits).dim() != 2:
        raise NotUnderstood("a loss with class weights or of several dimensions")
    if logits not in region.known:
        raise NotUnderstood("its logits are not computed in the same region")
    is_all = ignored == loss_forms.NO_INDEX
    rows, mean = b.cross_entropy(
        region.operand(logits).value,
        region.index(targets, (_columns(logits), None if is_all else int(ignored))),
        ignore_index=int(ignored), label_smoothing=smoothing)
    return (rows, mean, b.col_sum(rows))[reduction]


def _softmax(region: Importer, node: fx.Node) -> Any:
    if not node.meta.get(loss_forms.REDUCED):
        raise NotUnderstood("softmax is fused only into a loss")
    return _Probabilities(value_of(node).dtype, region.operand(node.args[0]),
                          node.target is _aten.log_softmax.int)


def _logsumexp_rule(region: Importer, node: fx.Node) -> Any:
    if layouts.last_dimension(node.args[0])[1]:
        raise NotUnderstood("a log-sum-exp of each head")
    return _logsumexp(region.operand(node.args[0]))


def _gather(region: Importer, node: fx.Node) -> Any:
    """Selects one column per row."""
    x, _, index = node.args[:3]
    if not layouts.is_one(value_of(index).shape[-1]) or not all(map(
            layouts.same, value_of(x).shape[:-1], value_of(index).shape[:-1])):
        raise NotUnderstood("it selects several columns of a row, or only some rows")
    chosen, source = region.index(index, (_columns(x), None)), region.operand(x)
    if isinstance(source, _Probabilities):
        log = b.select_column(source.logits.value, chosen) - _logsumexp(source.logits)
        return log if source._is_log else b.exp(log)
    return b.select_column(source.value, chosen)


def _kl_div(region: Importer, node: fx.Node) -> Any:
    """target * (log target - input), element by element; its sum or its mean."""
    given, target, reduction = (*node.args, 1)[:3]
    log_q, p = region.operand(given, given).value, region.operand(target, given)
    if node.kwargs.get("log_target", (*node.args, False, False)[3]):
        made = b.exp(p.value) * (p.value - log_q)
    elif isinstance(p, _Probabilities):
        made = p.value * (p.log - log_q)
    else:
        logarithm = b.log(b.select(b.less(0.0, p.value), p.value, 1.0))
        made = p.value * (logarithm - log_q)
    if not reduction:
        return made
    total = b.col_sum(b.row_sum(made))
    return total if reduction == 2 else _mean(b.row_sum(made)) / float(_columns(given))


def _mean(rows: _core.Value) -> _core.Value:
    """The mean over all rows. The rows are counted, because a block of rows does not know their
    number."""
    return b.col_sum(rows) / b.col_sum(1.0 - b.less(rows, rows))


def _over_rows(region: Importer, node: fx.Node) -> Any:
    if node.args[0] not in region.known:
        raise NotUnderstood("its operand is not computed in the same region")
    rows = region.operand(node.args[0]).value
    return _mean(rows) if node.target is _aten.mean.default else b.col_sum(rows)


RULES = {
    _aten.cross_entropy_loss.default: _cross_entropy,
    _aten.logsumexp.default: _logsumexp_rule,
    layouts.GATHER: _gather,
    layouts.KL_DIV: _kl_div,
    **dict.fromkeys(layouts.SOFTMAXES, _softmax),
    **dict.fromkeys(layouts.OVER_ROWS, _over_rows),
}
