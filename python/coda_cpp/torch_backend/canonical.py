# SPDX-License-Identifier: Apache-2.0
"""Rewrites PyTorch operations to one canonical form, so that one rule covers all spellings: x @ w,
w @ x and einsum become linear layers, select and split become slices, dropout becomes a
multiplication with a mask.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from coda_cpp.torch_backend import layout as layouts
from coda_cpp.torch_backend import mask_proof, strides
from coda_cpp.torch_backend.graph_edits import insert, replace, size_argument
from coda_cpp.torch_backend.layout import LINEAR, value_of

_aten = torch.ops.aten
_MATMUL, _MM = _aten.matmul.default, _aten.mm.default
_ADDMM, _EINSUM = _aten.addmm.default, _aten.einsum.default
_EXPANDS = {_aten.expand.default, _aten.expand_as.default}
_SPLITS = {_aten.split.Tensor, _aten.split_with_sizes.default, _aten.chunk.default,
           _aten.unbind.int}
_OTHER_NAMES = {
    "multiply.Tensor": "mul.Tensor", "multiply.Scalar": "mul.Scalar",
    "subtract.Tensor": "sub.Tensor", "subtract.Scalar": "sub.Scalar",
    "divide.Tensor": "div.Tensor", "divide.Scalar": "div.Scalar",
    "true_divide.Tensor": "div.Tensor", "true_divide.Scalar": "div.Scalar",
    "negative": "neg", "absolute": "abs", "special_expit": "sigmoid", "clip": "clamp",
    "max.other": "maximum", "min.other": "minimum", "concat": "cat", "concatenate": "cat",
    "swapaxes": "transpose.int", "swapdims": "transpose.int",
    "greater.Tensor": "gt.Tensor", "greater.Scalar": "gt.Scalar", "less.Tensor": "lt.Tensor",
    "less.Scalar": "lt.Scalar", "greater_equal.Tensor": "ge.Tensor",
    "greater_equal.Scalar": "ge.Scalar", "less_equal.Tensor": "le.Tensor",
    "less_equal.Scalar": "le.Scalar", "not_equal.Tensor": "ne.Tensor",
    "not_equal.Scalar": "ne.Scalar", "__and__.Tensor": "bitwise_and.Tensor",
    "__or__.Tensor": "bitwise_or.Tensor", "__xor__.Tensor": "bitwise_xor.Tensor",
    "logical_and": "bitwise_and.Tensor", "logical_or": "bitwise_or.Tensor",
    "logical_xor": "bitwise_xor.Tensor", "logical_not": "bitwise_not"}


def _named(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(_aten, packet, None), overload or "default", None)


_ALIASES = {_named(old): _named(new) for old, new in _OTHER_NAMES.items() if _named(old)}
_LOGICAL = {_named(name) for name in ("logical_and", "logical_or", "logical_xor", "logical_not")}


def rewrite(graph: fx.Graph) -> None:
    """Rewrites that are valid in every context. Views become reshapes, because a
    region's results need not have the strides that a view requires."""
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        target, made = node.target, node.meta.get("val")
        if target in _LOGICAL and any(value_of(arg).dtype != torch.bool
                                      for arg in node.all_input_nodes):
            continue
        if target in _ALIASES:
            node.target = _ALIASES[target]
        elif target is _aten.slice.Tensor and _has_same_shape(node) or (
                target is _aten.dropout.default and (not node.args[2] or node.args[1] == 0)):
            replace(node, node.args[0])
        elif _is_conversion(node):
            node.target, node.kwargs = _aten.to.dtype, {}
            node.args = (node.args[0], made.dtype)
        elif target is _aten.view.default:
            node.target = _aten.reshape.default
        elif target is _aten.view_as.default and all(isinstance(n, int) for n in made.shape):
            node.target, node.args = _aten.reshape.default, (node.args[0], list(made.shape))
        elif target is _aten.mT.default or (
                target in (_aten.t.default, _aten.numpy_T.default) and made.dim() == 2):
            node.target, node.args = _aten.transpose.int, (node.args[0], -2, -1)
        elif target is _aten.movedim.int:
            order = list(range(made.dim()))
            order.insert(node.args[2] % made.dim(), order.pop(node.args[1] % made.dim()))
            node.target, node.args = _aten.permute.default, (node.args[0], order)
        elif target is _aten.narrow.default and all(isinstance(n, int) for n in node.args[1:]):
            x, dim, start, length = node.args
            start += value_of(x).shape[dim] if start < 0 else 0
            node.target, node.args = _aten.slice.Tensor, (x, dim, start, start + length)
        elif target in _EXPANDS:
            _without_expand(node)
        elif target is _aten.cat.default:
            _without_empty_parts(node)
        elif target in (_MATMUL, _EINSUM, _MM, _ADDMM, LINEAR):
            _rewrite_product(node)
    for node in reversed(list(graph.nodes)):
        if not node.users and (node.target in _OF_WEIGHTS or node.target in _EXPANDS):
            graph.erase_node(node)


def merge_conversions(graph: fx.Graph) -> None:
    """Equal conversions of one tensor become one, as of PEFT's adapters, each of which converts the
    input that it shares with others: a region then returns the tensor once. Their gradients are
    summed in the wider type."""
    written = mask_proof.written(graph)
    known: dict[Any, fx.Node] = {}
    for node in graph.find_nodes(op="call_function", target=_aten.to.dtype):
        key = (*node.args, *node.kwargs.items())
        is_returned = any(user.op == "output" for user in node.users)  # in memory of its own
        if is_returned or node in written or node.args[0] in written:
            continue
        if key in known:
            replace(node, known[key])
        else:
            known[key] = node


def _is_conversion(node: fx.Node) -> bool:
    """Whether the node only converts to another type, by another operation than to.dtype."""
    return (getattr(node.target, "overloadpacket", None) in (_aten.to, _aten.type_as)
            and node.target is not _aten.to.dtype and node.kwargs.get("memory_format") is None
            and not any(isinstance(arg, torch.memory_format) for arg in node.args)
            and node.meta["val"].device == value_of(node.args[0]).device)


def _has_same_shape(node: fx.Node) -> bool:
    return all(map(layouts.same, value_of(node.args[0]).shape, value_of(node).shape))


def _without_expand(node: fx.Node) -> None:
    """Removes an expand before an elementwise operation, which broadcasts itself."""
    source = node.args[0]
    for user in list(node.users):
        if user.target in layouts.BROADCASTING and any(
                len(value_of(arg).shape) == len(value_of(user).shape)
                and all(map(layouts.same, value_of(arg).shape, value_of(user).shape))
                for arg in user.args if isinstance(arg, fx.Node) and arg is not node
                and isinstance(arg.meta.get("val"), torch.Tensor)):
            user.replace_input_with(node, source)


def _without_empty_parts(node: fx.Node) -> None:
    """Turns a concatenation with empty tensors into a copy: the first use of a key-value cache
    concatenates an empty cache and the new keys."""
    parts = [part for part in node.args[0] if _is_trained(part) or not any(
        layouts.same(size, 0) for size in value_of(part).shape)]
    if len(parts) == 1 < len(node.args[0]) and value_of(parts[0]).dtype == value_of(node).dtype:
        node.target, node.args = _aten.clone.default, (parts[0],)


def _is_weight(node: Any) -> bool:
    """Whether the node is an input of the graph, or a view or a conversion of one."""
    while isinstance(node, fx.Node) and node.op == "call_function":
        if node.target not in _OF_WEIGHTS:
            return False
        node = node.args[0]
    return isinstance(node, fx.Node) and node.op in ("placeholder", "get_attr")


def _is_trained(node: fx.Node) -> bool:
    """Whether the node is a weight that needs a gradient, also if the weight has no elements."""
    return _is_weight(node) and bool(node.meta.get(layouts.NEEDS))


_OF_WEIGHTS = {*layouts.VIEWS, *layouts.TURNS, _aten.to.dtype, _aten.t.default, _aten.view.default,
               _aten.mT.default, _aten.numpy_T.default, _aten.clone.default,
               _aten.detach.default}


def _turned(node: fx.Node, weight: fx.Node) -> fx.Node:
    """The transpose of a weight that the node reads. A conversion stays the last operation, because
    replace.as_region must find the tensor from which a weight was rounded."""
    if weight.op == "call_function" and weight.target in layouts.TURNS:
        if layouts.order_of(weight) == [1, 0]:
            return weight.args[0]
    elif weight.op == "call_function" and weight.target is _aten.to.dtype:
        return insert(node, _aten.to.dtype, _turned(node, weight.args[0]), *weight.args[1:])
    return insert(node, _aten.transpose.int, weight, 0, 1)


def _is_turned(weight: fx.Node) -> bool:
    while weight.op == "call_function" and weight.target is _aten.to.dtype:
        weight = weight.args[0]
    return (weight.op == "call_function" and weight.target in layouts.TURNS
            and layouts.order_of(weight) == [1, 0])


def _rewrite_product(node: fx.Node) -> None:
    """Rewrites a product to a linear layer. The layer's metadata say whether its weight is a
    transpose, so the weight is read without a copy."""
    made, target = node, node.target
    if target is _EINSUM:
        made = _einsum(node, *node.args[:2]) or _einsum_of_heads(node, *node.args[:2])
    elif target is _ADDMM and all(factor == 1 for factor in node.kwargs.values()):
        bias, x, weight = node.args
        of = _turned(node, weight)
        if value_of(bias).shape == value_of(weight).shape[1:]:
            made = _linear(node, x, of, bias)
        else:
            made = insert(node, _aten.add.Tensor, _linear(node, x, of), bias)
    elif target is _MM or target is _MATMUL and value_of(node.args[0]).dim() >= 2 and value_of(
            node.args[1]).dim() == 2 and _is_weight(node.args[1]):
        made = _linear(node, node.args[0], _turned(node, node.args[1]))
    elif target is _MATMUL and value_of(node.args[0]).dim() == 2 < value_of(
            node.args[1]).dim() and _is_weight(node.args[0]):
        weight, x = node.args  # w @ x: the columns of x are the rows of a linear layer
        made = insert(node, _aten.transpose.int,
                      _linear(node, _columns_last(node, x), weight), -2, -1)
    elif target is LINEAR:
        node.meta[layouts.TURNED] = _is_turned(node.args[1])
    if made is not node and made is not None:
        made.meta["val"] = node.meta["val"]  # a dropout's random numbers depend on its strides
        replace(node, made)


def _columns_last(node: fx.Node, x: fx.Node) -> fx.Node:
    """The transpose of x. If x is itself a transpose, its operand."""
    last = [*range(value_of(x).dim() - 2), value_of(x).dim() - 1, value_of(x).dim() - 2]
    if x.target in layouts.TURNS and layouts.order_of(x) == last:
        return x.args[0]
    return insert(node, _aten.transpose.int, x, -2, -1)


def _linear(node: fx.Node, *arguments: fx.Node) -> fx.Node:
    """`arguments`: x, the weight and an optional bias."""
    made = insert(node, LINEAR, *arguments)
    made.meta[layouts.TURNED] = _is_turned(arguments[1])
    return made


def _einsum(node: fx.Node, equation: str, operands: Sequence[fx.Node]) -> fx.Node | None:
    """The linear layer, or None if the einsum is not a product of rows with a weight."""
    inputs, arrow, out = equation.replace(" ", "").replace("...", ".").partition("->")
    names = inputs.split(",")
    if not arrow or len(operands) != 2 or len(names) != 2:
        return None
    if _is_weight(operands[0]) and not _is_weight(operands[1]):
        names, operands = names[::-1], operands[::-1]
    x, weight = operands
    of_x, of_weight = names
    summed = [name for name in of_x if name in of_weight]
    new = [name for name in of_weight if name not in summed]
    lead = of_x[:len(of_x) - len(summed)]
    is_linear = of_weight == "".join(new + summed)
    if (not _is_weight(weight) or not summed or not new or "." in of_weight
            or set(summed) & set(out) or len(set(of_x)) != len(of_x)
            or len(set(of_weight)) != len(of_weight)
            or of_x != lead + "".join(summed) or out != lead + "".join(new)
            or not is_linear and of_weight != "".join(summed + new)):
        return None
    sizes = dict(zip(of_weight, value_of(weight).shape))
    if not all(isinstance(size, int) for size in sizes.values()) or value_of(x).dim() < 2 or (
            value_of(x).dim() == len(summed)):
        return None
    if len(summed) > 1:
        x = insert(node, _aten.flatten.using_ints, x, -len(summed), -1)
    if len(of_weight) > 2:
        many = [math.prod(sizes[name] for name in part) for part in (new, summed)]
        weight = insert(node, _aten.reshape.default, weight, many if is_linear else many[::-1])
    made = _linear(node, x, weight if is_linear else _turned(node, weight))
    if len(new) > 1:
        made = insert(node, _aten.unflatten.int, made, -1, [sizes[name] for name in new])
    return made


def _einsum_of_heads(node: fx.Node, equation: str, operands: Sequence[fx.Node]) -> fx.Node | None:
    """The matmul of [batch, heads, rows, size], as attention is written; None for other sums."""
    inputs, arrow, out = equation.replace(" ", "").partition("->")
    names = inputs.split(",")
    if not arrow or len(operands) != 2 or not all(
            len(name) == 4 == len(set(name)) and name.isalpha() for name in (*names, out)):
        return None
    left, right = names
    batch = "".join(name for name in left if name in right and name in out)
    rows, columns = ("".join(name for name in out if name not in other) for other in (right, left))
    summed = "".join(name for name in left if name in right and name not in out)
    sizes = [dict(zip(of, value_of(x).shape)) for of, x in zip(names, operands)]
    if (sorted(left) != sorted(batch + rows + summed) or len(batch) != 2
            or sorted(right) != sorted(batch + columns + summed)
            or not all(layouts.same(*(of[name] for of in sizes)) for name in batch + summed)):
        return None

    def permuted(x: fx.Node, order: str, wanted: str) -> fx.Node:
        return x if order == wanted else insert(
            node, _aten.permute.default, x, [order.index(name) for name in wanted])

    one = permuted(operands[0], left, batch + rows + summed)
    other = permuted(operands[1], right, batch + summed + columns)
    return permuted(insert(node, _MATMUL, one, other), batch + rows + columns, out)


def where_known(node: fx.Node) -> list[fx.Node]:
    """The nodes that replace the node if its operand is in a region; otherwise the node itself."""
    if node.target is operator.getitem and node.args[0].target in _SPLITS:
        return _part(node)
    if node.target is _aten.select.int and _is_column(node.args[0], node.args[1]):
        return _select(node, *node.args)
    if node.target is LINEAR or node.target in layouts.BROADCASTING:
        _read_rows(node)
    if node.target is _aten.dropout.default and node.args[2] and layouts.known(node.args[0]) and (
            0 < node.args[1] < 1):
        return _dropout(node)
    return [node]


def _read_rows(node: fx.Node) -> None:
    """Wraps an operand in an expand, so that the region reads it as a result of PyTorch, if a
    dimension before the last one has columns. Such an operand of a linear layer has heads or the
    channels of a convolution there; such an operand of a sum is transposed, with its rows last."""
    operands = [arg for arg in node.all_input_nodes if layouts.known(arg)]
    if node.target is LINEAR:
        apart = [arg for arg in operands[:1] if "c" in layouts.known(arg)[:-1]]
    else:
        try:
            layouts.broadcast([value_of(arg).shape for arg in operands],
                              list(map(layouts.known, operands)), value_of(node).shape)
            return
        except layouts.NotUnderstood:
            apart = [arg for arg in operands if "c" in layouts.known(arg)[:-1]]
    if len(apart) < len(operands) or node.target is LINEAR:
        for arg in apart:
            node.replace_input_with(arg, insert(
                node, _aten.expand.default, arg, [-1] * value_of(arg).dim()))


def _is_column(source: fx.Node, dim: int) -> bool:
    layout = layouts.known(source)
    return layout is not None and layout[dim] == "c"


def _select(node: fx.Node, source: fx.Node, dim: int, which: int) -> list[fx.Node]:
    size = value_of(source).shape[dim]
    which += size if which < 0 else 0
    part = insert(node, _aten.slice.Tensor, source, dim, which, which + 1)
    made = insert(node, _aten.squeeze.dim, part, dim)
    replace(node, made)
    return [part, made]


def _part(node: fx.Node) -> list[fx.Node]:
    split, which = node.args
    source = split.args[0]
    is_unbind = split.target is _aten.unbind.int
    dim = split.args[1] if is_unbind and len(split.args) > 1 else (
        split.args[2] if len(split.args) > 2 else split.kwargs.get("dim", 0))
    if not _is_column(source, dim):
        return [node]
    if is_unbind:
        made = _select(node, source, dim, which)
    else:
        sizes = [int(part.shape[dim]) for part in split.meta["val"]]
        start = sum(sizes[:which])
        part = insert(node, _aten.slice.Tensor, source, dim, start, start + sizes[which])
        replace(node, part)
        made = [part]
    if not split.users:
        split.graph.erase_node(split)
    return made


def _dropout(node: fx.Node) -> list[fx.Node]:
    """PyTorch draws the mask, as for the dropout itself, so the same seed gives the same bits.
    native_dropout uses only the shape, strides and type of its operand."""
    x, rate = node.args[:2]
    value = strides.noted(node, 0).to(value_of(x).dtype)  # which is autocast's
    shape, stride = ([size_argument(node, number) for number in sizes]
                     for sizes in (value.shape, value.stride()))
    if None in shape or None in stride:
        return [node]
    graph = node.graph
    with graph.inserting_before(node):
        like = graph.call_function(
            _aten.empty_strided.default, (shape, stride),
            {"dtype": value.dtype, "device": value.device})
        drawn = graph.call_function(_aten.native_dropout.default, (like, rate, True))
        mask = graph.call_function(operator.getitem, (drawn, 1))
    like.meta["val"], mask.meta["val"] = value, value.to(torch.bool)
    drawn.meta["val"] = (value, mask.meta["val"])
    kept = insert(node, _aten.mul.Tensor, x, mask)
    made = insert(node, _aten.mul.Tensor, kept, 1 / (1 - rate))
    replace(node, made)
    return [kept, made]
