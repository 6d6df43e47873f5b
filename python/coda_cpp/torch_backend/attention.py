# SPDX-License-Identifier: Apache-2.0
"""Attention whose mask is provably the causal one is told so, and takes its fast path.

The proof is by the graph that makes the mask. An integer of it is a sum of its coordinates with
factors, a boolean is a set of such sums that must be at least 0. What else makes a mask proves
nothing, and it stays. No value is looked at.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from coda_cpp.torch_backend.layout import is_one, same

_aten = torch.ops.aten
CAUSAL = "coda_causal"  # in a node's meta
_ATTENTION = _aten.scaled_dot_product_attention.default


class _Unproven(Exception):
    pass


@dataclasses.dataclass(frozen=True)
class _Sum:
    """constant + the sum of factor times coordinate, a factor for each dimension."""

    constant: int
    factors: tuple[int, ...]

    def over(self, dims: int) -> _Sum:
        """Broadcast to so many dimensions."""
        return _Sum(self.constant, (0,) * (dims - len(self.factors)) + self.factors)

    def plus(self, other: _Sum, times: int = 1) -> _Sum:
        dims = max(len(self.factors), len(other.factors))
        a, b = self.over(dims), other.over(dims)
        return _Sum(a.constant + times * b.constant,
                    tuple(x + times * y for x, y in zip(a.factors, b.factors)))

    @property
    def is_constant(self) -> bool:
        return not any(self.factors)


class _Where(frozenset):
    """True where all of its sums are at least 0; the empty one everywhere."""


_NOWHERE = _Where({_Sum(-1, ())})


def _compared(difference: _Sum) -> _Where:
    """Where the sum is at least 0."""
    if difference.is_constant:
        return _Where() if difference.constant >= 0 else _NOWHERE
    return _Where({difference})


class _Prover:
    def __init__(self) -> None:
        self._known: dict[fx.Node, Any] = {}

    def of(self, node: Any) -> Any:
        """A _Sum or a _Where. _Unproven: the node may be anything."""
        if isinstance(node, bool):
            return _Where() if node else _NOWHERE
        if isinstance(node, int):
            return _Sum(node, ())
        if not isinstance(node, fx.Node) or node.op != "call_function":
            raise _Unproven
        if node not in self._known:
            self._known[node] = self._find(node)
        return self._known[node]

    def _sum(self, node: Any) -> _Sum:
        found = self.of(node)
        if isinstance(found, _Where):
            if found not in (_Where(), _NOWHERE):
                raise _Unproven
            return _Sum(int(found == _Where()), ())
        return found

    def _moved(self, node: fx.Node, order: Sequence[int | None], shift: Any = None) -> Any:
        """Dimension i of the node is dimension order[i] of its operand; None: it is new."""
        def of(found: _Sum, rank: int) -> _Sum:
            found = found.over(rank)
            return _Sum(found.constant + (shift(found) if shift else 0),
                        tuple(0 if i is None else found.factors[i] for i in order))
        found, rank = self.of(node.args[0]), node.args[0].meta["val"].dim()
        if isinstance(found, _Where):
            return _Where(of(sum_, rank) for sum_ in found)
        return of(found, rank)

    def _find(self, node: fx.Node) -> Any:
        target, args, value = node.target, node.args, node.meta["val"]
        name = target._schema.name.removeprefix("aten::") if hasattr(target, "_schema") else ""
        rank = value.dim()
        if name == "arange" and value.dtype == torch.int64:
            start, step = (args[0] if len(args) > 1 else 0), (args[2] if len(args) > 2 else 1)
            if isinstance(start, int) and isinstance(step, int):
                return _Sum(start, (step,))
        elif name in ("new_ones", "ones") and value.dtype == torch.bool:
            return _Where()
        elif name in ("to", "_to_copy", "alias", "contiguous", "clone"):
            before = args[0].meta["val"].dtype
            if value.dtype in (torch.int64, torch.bool) and before == value.dtype:
                return self.of(args[0])
        elif name == "unsqueeze":
            dim = args[1] % rank
            return self._moved(node, [i - (i > dim) if i != dim else None for i in range(rank)])
        elif name == "expand":
            before = args[0].meta["val"].shape
            shift = rank - len(before)
            return self._moved(node, [
                None if i < shift or is_one(before[i - shift]) else i - shift for i in range(rank)])
        elif name == "slice":
            dim = args[1] % rank if len(args) > 1 else 0
            start = args[2] if len(args) > 2 else 0
            if len(args) < 5 and isinstance(start, int) and start >= 0:
                return self._moved(node, range(rank), lambda found: start * found.factors[dim])
        elif name in ("add", "sub") and value.dtype == torch.int64 and not node.kwargs:
            return self._sum(args[0]).plus(self._sum(args[1]), 1 if name == "add" else -1)
        elif name in ("le", "lt", "ge", "gt", "eq", "ne"):
            return self._comparison(name, self._sum(args[0]).over(rank), self._sum(args[1]))
        elif name in ("__and__", "bitwise_and", "logical_and") and value.dtype == torch.bool:
            parts = [self.of(arg) for arg in args]
            if all(isinstance(part, _Where) for part in parts):
                return _Where(sum_.over(rank) for part in parts for sum_ in part)
        elif name == "diff":
            return self._difference(node)
        elif name == "cumsum":
            each, dim = self._sum(args[0]).over(rank), args[1] % rank
            if each.is_constant:
                return _Sum(each.constant, tuple(
                    each.constant if i == dim else 0 for i in range(rank)))
        elif name == "index" and None not in args[1] and len(args[1]) == args[0].meta["val"].dim():
            read, found = self._sum(args[0]).over(len(args[1])), _Sum(0, (0,) * rank)
            for factor, index in zip(read.factors, args[1]):
                found = found.plus(self._sum(index), factor)
            return found.plus(_Sum(read.constant, ()))
        raise _Unproven

    def _comparison(self, name: str, a: _Sum, b: _Sum) -> _Where:
        less, more = b.plus(a, -1), a.plus(b, -1)
        one = _Sum(1, ())
        if name in ("eq", "ne"):
            if not less.is_constant:
                raise _Unproven
            return _Where() if (less.constant == 0) == (name == "eq") else _NOWHERE
        return {"le": _compared(less), "lt": _compared(less.plus(one, -1)),
                "ge": _compared(more), "gt": _compared(more.plus(one, -1))}[name]

    def _difference(self, node: fx.Node) -> _Sum:
        """diff(x, 1, dim, prepend): constant where x grows evenly and begins so."""
        x, times, dim, before = (*node.args, 1, -1, None)[:4] if len(node.args) < 4 else node.args
        rank = node.meta["val"].dim()
        found = self._sum(x).over(rank)
        step = found.factors[dim % rank]
        if times != 1 or before is None or not is_one(before.meta["val"].shape[dim]):
            raise _Unproven
        first = found.plus(self._sum(before), -1)
        others = [factor for i, factor in enumerate(first.factors) if i != dim % rank]
        if any(others) or first.constant != step:
            raise _Unproven
        return _Sum(step, (0,) * rank)


def _holds(sum_: _Sum, shape: Sequence[Any]) -> bool:
    """Whether the sum is at least 0 in all of a tensor; sizes that are symbols may be any."""
    least = sum_.constant
    for factor, size in zip(sum_.factors, shape):
        if factor < 0 and not isinstance(size, int):
            return False
        least += min(0, factor * (size - 1)) if factor < 0 else 0
    return least >= 0


def _grouped(node: Any) -> tuple[fx.Node, int] | None:
    """Keys or values that are heads repeated for their queries: the heads, and how often."""
    if not isinstance(node, fx.Node) or node.target not in (
            _aten.reshape.default, _aten.view.default, _aten._unsafe_view.default):
        return None
    wide = node.args[0]
    narrow = wide.args[0] if wide.target is _aten.expand.default else None
    if narrow is None or narrow.target is not _aten.unsqueeze.default or narrow.args[1] != 2:
        return None
    heads = narrow.args[0]
    before, between, after = (n.meta["val"].shape for n in (heads, wide, node))
    if len(before) != 4 or len(after) != 4 or not isinstance(between[2], int):
        return None
    expected = (before[0], before[1], between[2], before[2], before[3])
    merged = (before[0], before[1] * between[2], before[2], before[3])
    if all(map(same, between, expected)) and all(map(same, after, merged)):
        return heads, between[2]
    return None


class Causal:
    """What is known of the masks of a graph."""

    def __init__(self) -> None:
        self._prover = _Prover()

    def is_mask(self, node: fx.Node) -> bool:
        """Whether node[..., i, j] is j <= i for all i and j that there are."""
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.dtype != torch.bool or value.dim() < 2:
            return False
        if not same(*value.shape[-2:]):
            return False
        if node.op == "placeholder":
            return bool(node.meta.get(CAUSAL))
        try:
            found = self._prover.of(node)
        except _Unproven:
            return False
        causal = _Sum(0, (1, -1)).over(value.dim())
        sums = {sum_.over(value.dim()) for sum_ in found}
        return causal in sums and all(_holds(sum_, value.shape) for sum_ in sums - {causal})

    def tell(self, graph: fx.Graph) -> int:
        """Calls of attention with a causal mask become such with is_causal, and heads of keys and
        values that were repeated for the mask's sake are given once. How many there were."""
        told = 0
        for node in graph.nodes:
            if node.target is not _ATTENTION:
                continue
            arguments = dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"),
                                 node.args)) | node.kwargs
            mask = arguments.get("attn_mask")
            if mask is None or not self.is_mask(mask):
                continue
            arguments |= {"attn_mask": None, "is_causal": True}
            keys, values = _grouped(arguments["key"]), _grouped(arguments["value"])
            if keys is not None and values is not None and keys[1] == values[1]:
                arguments |= {"key": keys[0], "value": values[0], "enable_gqa": True}
            names = ("query", "key", "value", "attn_mask")
            node.args = tuple(arguments.pop(name) for name in names)
            node.kwargs = arguments
            told += 1
        graph.eliminate_dead_code()
        return told
