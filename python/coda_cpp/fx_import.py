# SPDX-License-Identifier: Apache-2.0
"""From operations of PyTorch's (a torch.fx graph of aten, before autograd) to values of a Graph.

A value is a matrix: rows are a tensor's leading dimensions, columns its last. So views that keep
the last dimension change nothing, and a dimension of 1 is a vector's. What is not understood raises
NotUnderstood with the reason, and stays PyTorch's.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

from coda_cpp import _core, _tensors
from coda_cpp import builders as b

_aten = torch.ops.aten
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)
PRODUCTS = (_aten.linear.default,)


class NotUnderstood(Exception):
    """Why an operation stays PyTorch's."""


def value_of(node: Any) -> torch.Tensor:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    if not isinstance(value, torch.Tensor):
        raise NotUnderstood("an operand is no tensor")
    return value


def _rows(shape: Any) -> Any:
    return math.prod(shape[:-1]) if len(shape) else 1


def _is_column_vector(value: torch.Tensor) -> bool:
    return value.dim() <= 1


@dataclasses.dataclass
class Imported:
    value: _core.Value
    dtype: torch.dtype  # the narrowest that it has been rounded to since it was computed


class Importer:
    """A region of nodes as a graph: what is not of the region becomes an input when it is read."""

    def __init__(self, narrowed: Mapping[fx.Node, torch.dtype] | None = None) -> None:
        self._narrowed = narrowed or {}  # inputs that come in another type than their node says
        self.graph = _core.Graph()
        self.inputs: dict[fx.Node, _core.Value] = {}
        self.known: dict[fx.Node, Imported] = {}
        self.rows: Any = None  # of all matrices and row vectors
        self.storage: torch.dtype | None = None  # of the products' operands

    def _require_rows(self, rows: Any) -> None:
        if self.rows is None:
            self.rows = rows
        if rows != self.rows:
            raise NotUnderstood(f"its tensors have {rows} and {self.rows} rows")

    def weight(self, node: fx.Node) -> _core.Value:
        """A matrix that a product reads as its weight."""
        value = value_of(node)
        if node in self.known or value.dim() != 2:
            raise NotUnderstood("a product's weight is computed, or is no matrix")
        if node not in self.inputs:
            rows, cols = (int(size) for size in value.shape)
            self.inputs[node] = self.graph.parameter(node.name, (rows, cols), _name(value.dtype))
        if self.inputs[node].is_table or self.inputs[node].shape != tuple(map(int, value.shape)):
            raise NotUnderstood("a tensor is a product's weight and something else")
        return self.inputs[node]

    def index(self, node: fx.Node) -> _core.Value:
        value = value_of(node)
        if value.dtype not in (torch.int64, torch.int32) or node in self.inputs:
            raise NotUnderstood(f"indices of {value.dtype}")
        self._require_rows(math.prod(value.shape))
        self.inputs[node] = self.graph.table(node.name, ("M", 1), "i32")
        return self.inputs[node]

    def operand(self, node: Any) -> Imported:
        """A value of the region, or an input of it."""
        if isinstance(node, fx.Node) and node in self.known:
            return self.known[node]
        value = value_of(node)
        dtype = self._narrowed.get(node, value.dtype)
        if dtype not in _FLOATS:
            raise NotUnderstood(f"an operand is {dtype}")
        if node not in self.inputs:
            if _is_column_vector(value):
                cols = int(value.shape[0]) if value.dim() else 1
                made = self.graph.parameter(node.name, (1, cols), _name(dtype))
            else:
                self._require_rows(_rows(value.shape))
                made = self.graph.input(
                    node.name, ("M", int(value.shape[-1])), _name(dtype))
            self.inputs[node] = made
        return Imported(self.inputs[node], dtype)

    def number_or_operand(self, node: Any) -> Any:
        return self.operand(node).value if isinstance(node, fx.Node) else float(node)

    def add(self, node: fx.Node) -> None:
        rule = RULES.get(node.target)
        if rule is None:
            raise NotUnderstood(f"there is no rule for {node.target}")
        made = value_of(node)
        if made.dtype not in _FLOATS:
            raise NotUnderstood(f"it makes {made.dtype}")
        found = rule(self, node)
        narrowest = found.dtype if isinstance(found, Imported) else made.dtype
        value = found.value if isinstance(found, Imported) else found
        if made.dim() > 1 and _rows(made.shape) != 1 or value.shape[0] == "M":
            self._require_rows(_rows(made.shape))
        self.known[node] = Imported(value, narrowest)


def _name(dtype: torch.dtype) -> str:
    return _tensors.torch_dtypes()[dtype]


def _unary(name: str) -> Callable[[Importer, fx.Node], Any]:
    def rule(region: Importer, node: fx.Node) -> Any:
        return b.elementwise(name, [region.operand(node.args[0]).value])
    return rule


def _binary(name: str) -> Callable[[Importer, fx.Node], Any]:
    def rule(region: Importer, node: fx.Node) -> Any:
        if node.kwargs.get("alpha", 1) != 1 or len(node.args) != 2:
            raise NotUnderstood("it has an alpha")
        shapes = [value_of(arg).shape for arg in node.args if isinstance(arg, fx.Node)]
        whole = value_of(node).shape
        for shape in shapes:  # rows meet rows: leading dimensions may not broadcast
            if len(shape) > 1 and tuple(shape[:-1]) != tuple(whole[:-1]):
                raise NotUnderstood("leading dimensions broadcast")
        return b.elementwise(name, [region.number_or_operand(arg) for arg in node.args])
    return rule


def _linear(region: Importer, node: fx.Node) -> Any:
    x, weight, bias = (*node.args, None)[:3]
    types = {value_of(arg).dtype for arg in (x, weight)}
    if len(types) != 1 or region.storage not in (None, *types):
        raise NotUnderstood("its products have operands of several types")
    region.storage = types.pop()
    if value_of(x).dim() < 2:
        raise NotUnderstood("a product of a vector")
    y = b.linear(region.operand(x).value, region.weight(weight))
    return y if bias is None else y + region.operand(bias).value


def _gelu(region: Importer, node: fx.Node) -> Any:
    name = {"none": "gelu", "tanh": "gelu_tanh"}[node.kwargs.get("approximate", "none")]
    return b.elementwise(name, [region.operand(node.args[0]).value])


def _pow(region: Importer, node: fx.Node) -> Any:
    if node.args[1] != 2:
        raise NotUnderstood(f"the power {node.args[1]}")
    x = region.operand(node.args[0]).value
    return x * x


def _along_rows(function: Callable) -> Callable[[Importer, fx.Node], Any]:
    def rule(region: Importer, node: fx.Node) -> Any:
        x, dims, keep = (*node.args, False)[:3]
        if list(dims) not in ([-1], [value_of(x).dim() - 1]) or not keep or node.kwargs:
            raise NotUnderstood("it reduces along other dimensions than the last, or drops it")
        return function(region.operand(x).value)
    return rule


def _same_rows(region: Importer, node: fx.Node) -> Any:
    """A view that keeps the last dimension: the same matrix."""
    before, after = value_of(node.args[0]).shape, value_of(node).shape
    if len(before) < 2 or len(after) < 2 or before[-1] != after[-1]:
        raise NotUnderstood("a view that changes the last dimension")
    return region.operand(node.args[0])


def _convert(region: Importer, node: fx.Node) -> Any:
    """Arithmetic is fp32 between what is stored; what is rounded is what is stored."""
    made = value_of(node).dtype
    if value_of(node.args[0]).device != value_of(node).device:
        raise NotUnderstood("it moves to another device")
    x = region.operand(node.args[0])
    narrow = min(made, x.dtype, key=lambda dtype: dtype.itemsize)
    return Imported(x.value, narrow)


def _cross_entropy(region: Importer, node: fx.Node) -> Any:
    logits, targets, weight, reduction, ignored, smoothing = (
        *node.args, *(None, None, None, 1, -100, 0.0)[len(node.args):])
    if weight is not None or reduction not in (1, 2) or value_of(logits).dim() != 2:
        raise NotUnderstood("a cross-entropy with weights, of each row, or not of a matrix")
    if value_of(targets).dim() != 1:
        raise NotUnderstood("a cross-entropy with probabilities as targets")
    if logits not in region.known:
        raise NotUnderstood("a cross-entropy of logits that no product here makes")
    rows, mean = b.cross_entropy(region.operand(logits).value, region.index(targets), int(ignored),
                                 float(smoothing))
    return mean if reduction == 1 else b.col_sum(rows)


def _rms_norm(region: Importer, node: fx.Node) -> Any:
    x, shape, weight, eps = (*node.args, None, None)[:4]
    if len(shape) != 1:
        raise NotUnderstood("a norm over several dimensions")
    epsilon = torch.finfo(value_of(x).dtype).eps if eps is None else float(eps)
    value = region.operand(x).value
    if weight is None:
        return value * b.rms_reciprocal(value, epsilon)
    return b.rms_norm(value, region.operand(weight).value, epsilon)


def _layer_norm(region: Importer, node: fx.Node) -> Any:
    x, shape, weight, bias, eps = (*node.args, *(None, None, None, None, 1e-5)[len(node.args):])[:5]
    if len(shape) != 1 or weight is None or bias is None:
        raise NotUnderstood("a layer norm over several dimensions, or without weight and bias")
    operands = [region.operand(operand).value for operand in (x, weight, bias)]
    return b.layer_norm(*operands, float(eps))


RULES: dict[Any, Callable[[Importer, fx.Node], Any]] = {
    _aten.linear.default: _linear,
    _aten.gelu.default: _gelu,
    _aten.pow.Tensor_Scalar: _pow,
    _aten.mean.dim: _along_rows(b.row_mean),
    _aten.sum.dim_IntList: _along_rows(b.row_sum),
    _aten.cross_entropy_loss.default: _cross_entropy,
    _aten.rms_norm.default: _rms_norm,
    _aten.layer_norm.default: _layer_norm,
    **{op: _same_rows for op in (
        _aten.view.default, _aten.reshape.default, _aten._unsafe_view.default,
        _aten.flatten.using_ints)},
    **{op: _convert for op in (
        _aten.to.dtype, _aten._to_copy.default, _aten.alias.default, _aten.contiguous.default)},
    **{getattr(_aten, name).default: _unary(name) for name in (
        "silu", "rsqrt", "sqrt", "sigmoid", "tanh", "exp", "log", "erf", "neg")},
    **{getattr(_aten, name).Tensor: _binary(name) for name in ("add", "sub", "mul", "div")},
    **{getattr(_aten, name).Scalar: _binary(name) for name in ("add", "sub", "mul", "div")},
}
