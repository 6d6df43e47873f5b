# SPDX-License-Identifier: Apache-2.0
"""The layout of tensors in the matrices of a Graph: which of a tensor's dimensions are rows and
which are columns. So views, and transposes of heads, only remap indices and move no data.

A layout has a letter for each dimension: "r" for rows, "c" for columns, "1" for a dimension of size
1. The order of the row dimensions is fixed, and so is the order of the column dimensions, but they
may be interleaved: [batch, heads, tokens, size], the transposed heads of [batch, tokens, heads *
size], is "rcrc". A tensor without a known layout has its columns last, as in PyTorch's modules.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

_aten = torch.ops.aten
KEY = "coda_layout"  # in a node's meta
NEEDS = "coda_needs_gradient"  # in a node's meta
TURNED = "coda_turned"  # in a product's meta: its weight is the transpose of the operand
LINEAR = _aten.linear.default
PRODUCTS = {LINEAR: 1}  # the number of the weight operand
LOSS = _aten.cross_entropy_loss.default
VIEWS = {_aten.view.default, _aten.reshape.default, _aten._unsafe_view.default,
         _aten.flatten.using_ints, _aten.unflatten.int, _aten.unsqueeze.default, _aten.squeeze.dim,
         _aten.squeeze.dims, _aten.squeeze.default}
TURNS = {_aten.transpose.int, _aten.permute.default}
REDUCTIONS = {_aten.mean.dim, _aten.sum.dim_IntList, _aten.var.dim, _aten.var.correction,
              _aten.std.dim, _aten.std.correction, _aten.logsumexp.default}
SOFTMAXES = {_aten.log_softmax.int, _aten.softmax.int}
GATHER, KL_DIV = _aten.gather.default, _aten.kl_div.default
OVER_ROWS = {_aten.sum.default, _aten.mean.default}  # of a vector with a value for each row
# Operations whose operands PyTorch broadcasts.
BROADCASTING = {getattr(_aten, name).Tensor for name in (
    "add", "sub", "mul", "div", "lt", "gt", "le", "ge", "eq", "ne")} | {
    _aten.where.self, _aten.maximum.default, _aten.minimum.default, _aten.addcmul.default,
    _aten.lerp.Tensor}
_UNKNOWN = 4096  # rows for comparing costs
NORMS = {_aten.rms_norm.default, _aten.layer_norm.default}


class NotUnderstood(Exception):
    """The reason why PyTorch runs an operation."""


def value_of(node: Any) -> torch.Tensor:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    if not isinstance(value, torch.Tensor):
        raise NotUnderstood("an operand is not a tensor")
    return value


def number(size: Any) -> int:
    """A size that must be the same at every call: a number, or a symbol that a weight's size has
    already fixed. int() is not used for a symbol, because it would specialise the graph to the
    symbol's value."""
    known = size if isinstance(size, int) else size.node.maybe_as_int()
    if known is None:
        raise NotUnderstood(f"a number of columns varies from call to call ({size})")
    return known


def hint(size: Any) -> int:
    """The current value of a size, which may be symbolic. _UNKNOWN if it depends on the values of
    tensors, as the number of results of nonzero(), or on the lengths in a nested tensor."""
    value = size if isinstance(size, int) else size.node.hint
    return int(value) if isinstance(value, int) else _UNKNOWN


def same(a: Any, b: Any) -> bool:
    """Whether two sizes are equal for all values of their symbols. Adds no guards for the
    symbols."""
    return a == b if isinstance(a, int) and isinstance(b, int) else str(a) == str(b)


def is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1


def plain(shape: Sequence[Any], columns: int = 1) -> str:
    """The layout of a tensor with `columns` column dimensions, if nothing else is known."""
    last = len(shape) - 1
    return "".join("c" if i == last else "1" if is_one(size) else "rc"[i > last - columns]
                   for i, size in enumerate(shape))


def count(layout: str, shape: Sequence[Any], kind: str) -> Any:
    """The number of rows or columns of the matrix."""
    return math.prod(size for size, letter in zip(shape, layout, strict=True) if letter == kind)


def viewed(before: Sequence[Any], layout: str, after: Sequence[Any]) -> str:
    """The layout after a view to another shape."""
    kept = [(size, kind) for size, kind in zip(before, layout) if not is_one(size)]
    new = [size for size in after if not is_one(size)]
    if len(new) == len(kept) and all(same(a, b) for a, (b, _) in zip(new, kept)):
        kinds = iter(kind for _, kind in kept)
        return "".join("1" if is_one(size) else next(kinds) for size in after)
    letters = "".join(kind for _, kind in kept)
    if "cr" not in letters:
        rows, columns = (count(layout, before, kind) for kind in "rc")
        for i in range(len(after) + 1):
            if same(math.prod(after[:i]), rows) and same(math.prod(after[i:]), columns):
                return "".join("1" if is_one(size) else "r" if j < i else "c"
                               for j, size in enumerate(after))
    raise NotUnderstood("a view that mixes rows and columns")


def turned(layout: str, order: Sequence[int]) -> str:
    for kind in "rc":
        found = [i for i in order if layout[i] == kind]
        if found != sorted(found):
            raise NotUnderstood("it reorders the rows' dimensions, or the columns' dimensions")
    return "".join(layout[i] for i in order)


def order_of(node: fx.Node) -> list[int]:
    """For each dimension of a transpose's result, the dimension of its operand."""
    rank = value_of(node).dim()
    if node.target is _aten.permute.default:
        return [dim % rank for dim in node.args[1]]
    order = list(range(rank))
    a, b = (dim % rank for dim in node.args[1:3])
    order[a], order[b] = order[b], order[a]
    return order


def broadcast(shapes: Sequence[Sequence[Any]], layouts: Sequence[str | None],
              whole: Sequence[Any]) -> str:
    """The layout of an elementwise result, from the known layouts of its operands, aligned at the
    last dimension."""
    letters: list[str | None] = ["1" if is_one(size) else None for size in whole]
    for shape, layout in zip(shapes, layouts):
        for i in range(1, len(shape) + 1):
            if layout is None or layout[-i] == "1" or letters[-i] == layout[-i]:
                continue
            if letters[-i] is not None:
                raise NotUnderstood("it combines rows of one operand with columns of another")
            letters[-i] = layout[-i]
    if None in letters:
        if any("r" in layout for layout in layouts if layout):
            raise NotUnderstood("a value is broadcast along new dimensions")
        letters = [letter or kind for letter, kind in zip(letters, plain(whole))]
    return "".join(letter or "1" for letter in letters)


def known(node: Any) -> str | None:
    return node.meta.get(KEY) if isinstance(node, fx.Node) else None


def or_plain(node: fx.Node) -> str:
    layout = known(node)
    return plain(value_of(node).shape) if layout is None else layout


def last_dimension(node: fx.Node) -> tuple[int, bool]:
    """The size of the last dimension, and whether other dimensions are columns too."""
    return number(value_of(node).shape[-1]), "c" in or_plain(node)[:-1]


def _require_columns(layout: str) -> None:
    """Raises NotUnderstood if rows are the last dimension, and there are no columns: for example an
    image of one pixel, [batch, channels, 1, 1], whose channels look like rows."""
    if layout.endswith("r") and "c" not in layout:
        raise NotUnderstood("it turns the rows of a single column into columns")


def layout_of(node: fx.Node) -> str:
    """The layout of the operation's result, from the layouts of its operands."""
    made, target = value_of(node), node.target
    first = next((arg for arg in node.args if isinstance(arg, fx.Node)), None)
    if target is LINEAR:
        layout = or_plain(first)
        if value_of(first).dim() < 2 or "c" in layout[:-1]:
            raise NotUnderstood("a GEMM with a vector, or a separate GEMM for each head")
        return layout[:-1] + "c"
    if target is LOSS:
        return "r" * made.dim()
    if target in OVER_ROWS:
        if "c" in or_plain(first) or "r" not in or_plain(first):
            raise NotUnderstood("a sum over rows and columns")
        return ""
    if target in SOFTMAXES or target is GATHER:
        layout = or_plain(first)
        if node.args[1] not in (-1, len(layout) - 1) or layout.count("c") != 1 or (
                layout[-1] != "c"):
            raise NotUnderstood("it runs along other dimensions than the last")
        return layout[:-1] + ("1" if target is GATHER else "c")
    if target is KL_DIV and not made.dim():
        return ""
    if target in VIEWS:
        source = value_of(first)
        if known(first) is None and (not same(source.shape[-1:], made.shape[-1:])
                                     or min(source.dim(), made.dim()) < 2):
            raise NotUnderstood("it changes the last dimension of a result from outside the region")
        layout = viewed(source.shape, or_plain(first), made.shape)
        if any(user.target is LINEAR for user in node.users):
            _require_columns(layout)
        return layout
    if target in TURNS:
        if known(first) is None:
            raise NotUnderstood("it transposes a result from outside the region")
        layout = turned(or_plain(first), order_of(node))
        _require_columns(layout)
        return layout
    if target in REDUCTIONS:
        layout, rank = or_plain(first), value_of(first).dim()
        dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        if list(dims or []) not in ([-1], [rank - 1]) or layout[-1:] != "c" or (
                node.kwargs.get("dtype") not in (None, made.dtype)):
            raise NotUnderstood("it reduces along other dimensions than the last")
        return layout[:-1] + "1" * (made.dim() - rank + 1)
    if target is _aten.cat.default:
        operands = node.args[0]
        layouts = {known(operand) for operand in operands}
        if len(layouts) != 1 or None in layouts:
            raise NotUnderstood("it concatenates results from outside the region")
        return layouts.pop()
    if target is _aten.slice.Tensor:
        if known(first) is None:
            raise NotUnderstood("it slices a result from outside the region")
        return "".join("1" if is_one(size) and i < len(made.shape) - 1 else letter
                       for i, (size, letter) in enumerate(zip(made.shape, known(first))))
    if target is _aten.stack.default:
        operands = node.args[0]
        layouts = {known(operand) for operand in operands}
        if len(layouts) != 1 or None in layouts:
            raise NotUnderstood("it concatenates results from outside the region")
        dim = (*node.args, 0)[1] % made.dim()
        layout = layouts.pop()
        return layout[:dim] + "c" + layout[dim:]
    operands = [arg for arg in node.args if isinstance(arg, fx.Node)
                and not isinstance(arg.meta.get("val"), torch.SymFloat)]
    if target in NORMS:
        normed = len(node.args[1])
        layout = known(first) or plain(made.shape, normed)
        if "r" in layout[-normed:]:
            raise NotUnderstood("a norm over rows")
        return layout
    return broadcast([value_of(operand).shape for operand in operands],
                     [known(operand) for operand in operands], made.shape)


def rows_of(node: fx.Node) -> str:
    """The rows of the node's matrix, as text. Empty for a vector along columns, which fits any
    rows."""
    is_loss = node.target in (LOSS, KL_DIV) or node.target in OVER_ROWS
    source = node.args[0] if is_loss else node
    layout = or_plain(source)
    return str(count(layout, value_of(source).shape, "r")) if "r" in layout else ""
