# SPDX-License-Identifier: Apache-2.0
"""Keeps the strides of tensors on which something outside the regions depends. A region, or a
rewrite of the order of rows, may give a tensor other strides than eager mode.

- Code behind the graph may call view() on the graph's results.
- as_strided() addresses the memory of its operand: with other strides it would read other elements.
- Random operations and empty_like() take the strides of their operand, and random numbers are drawn
  in the order of memory: with other strides another element would get the number.
- Operators that are not PyTorch's own, among them Triton kernels, and subgraphs may have been given
  the strides as numbers when Dynamo traced the call.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from coda_cpp.torch_backend import mask_proof
from coda_cpp.torch_backend.graph_edits import insert
from coda_cpp.torch_backend.higher_order import SUBGRAPH
from coda_cpp.torch_backend.layout import PRODUCTS, NotUnderstood, hint, value_of

_aten = torch.ops.aten
# By name: the number of the argument with the sizes.
_BY_ADDRESS = {"as_strided": 1, "as_strided_": 1, "as_strided_copy": 1, "as_strided_scatter": 2}
_LIKE_OPERAND = {"empty_like", "rand_like", "randn_like", "randint_like", "bernoulli", "dropout",
                 "native_dropout", "alpha_dropout", "feature_dropout", "rrelu"}
_OWN = {"aten", "prims", "coda_cpp"}
_KEY = "coda_strides"  # in a node's metadata: for each operand, its value in Dynamo's graph or None


def note(graph: fx.Graph) -> None:
    """Notes the strides that keep_operands() restores, before anything in the graph is rewritten.
    Raises NotUnderstood for as_strided() of a computed tensor if it reads more than this tensor, or
    if the tensor is not dense."""
    for node in graph.nodes:
        relied = [operand if i < _number_of_operands(node) and _is_computed(operand) else None
                  for i, operand in enumerate(_operands(node))]
        name = _name(node)
        if relied[:1] != [None] and name in _BY_ADDRESS and not _reads_only(
                node, value_of(relied[0]), _BY_ADDRESS[name]):
            raise NotUnderstood(f"{name}() of a part of a tensor")
        if any(relied):
            node.meta[_KEY] = [operand and value_of(operand) for operand in relied]


def noted(node: fx.Node, place: int) -> torch.Tensor:
    """The operand number `place` of the node, with its strides in Dynamo's graph."""
    found = node.meta.get(_KEY, ())[place:place + 1]
    return value_of(_operands(node)[place]) if found in ((), [], [None]) else found[0]


def keep_operands(graph: fx.Graph) -> None:
    """Restores the strides that were noted. Call this when the regions are cut: each is a call of a
    module, whose results may have any strides."""
    written = mask_proof.written(graph)  # these stay in their memory, which no region writes
    after = _after_regions(graph)
    for node in list(graph.nodes):
        if _number_of_operands(node) == 0:  # inserted nodes have the metadata of others
            continue
        operands = _operands(node)
        noted = dict(enumerate(node.meta.get(_KEY, ())))
        made = iter([operand if noted.get(i) is None or operand in written or operand not in after
                     else _with_strides(node, operand, noted[i])
                     for i, operand in enumerate(operands)])
        node.args, node.kwargs = fx.map_arg((node.args, node.kwargs), lambda _: next(made))


def keep_results(graph: fx.Graph, given: fx.Graph) -> None:
    """Gives the graph's results the strides of the results of `given`, Dynamo's graph."""
    output, wanted = graph.output_node(), given.output_node().args[0]
    if not isinstance(wanted, (tuple, list)) or len(wanted) != len(output.args[0]):
        return
    after, results = _after_regions(graph), list(output.args[0])
    for i, (made, like) in enumerate(zip(results, wanted)):
        value = like.meta.get("example_value") if isinstance(like, fx.Node) else None
        if isinstance(value, torch.Tensor) and value.dim() > 1 and made in after:
            results[i] = _with_strides(output, made, value)
    output.args = (type(output.args[0])(results),)


def _after_regions(graph: fx.Graph) -> set[fx.Node]:
    """Nodes that depend on a region or a linear layer. The others have the strides that their
    metadata has."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "call_module" or node.target in PRODUCTS or not found.isdisjoint(
                node.all_input_nodes):
            found.add(node)
    return found


def _name(node: fx.Node) -> str:
    return getattr(getattr(node.target, "overloadpacket", None), "__name__", "")


def _number_of_operands(node: fx.Node) -> int:
    """The number of leading operands on whose strides the result may depend."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return 0
    if node.target is SUBGRAPH or node.target.namespace not in _OWN:
        return len(_operands(node))
    return int(_name(node) in _BY_ADDRESS or _name(node) in _LIKE_OPERAND)


def _operands(node: fx.Node) -> list[fx.Node]:
    """All operands, in the order of the arguments; one that is given twice is there twice."""
    found: list[fx.Node] = []
    fx.map_arg((node.args, node.kwargs), found.append)
    return found


def _is_computed(node: fx.Node) -> bool:
    """Whether the node is a tensor, but not an input of the graph or a view of one: their strides
    do not change."""
    return isinstance(node.meta.get("val"), torch.Tensor) and _source(node).op in (
        "call_function", "call_module")


def _source(node: fx.Node) -> fx.Node:
    """The node of which this one is a view or a part."""
    while node.target is operator.getitem or (
            isinstance(node.target, torch._ops.OpOverload) and node.target.is_view):
        node = node.args[0]
    return node


def _reads_only(node: fx.Node, value: torch.Tensor, place: int) -> bool:
    """Whether as_strided(), whose sizes are argument number `place`, begins at the first element of
    its operand and addresses no memory behind the operand's last element."""
    def number(given: Any) -> int:
        return hint(given.meta["val"] if isinstance(given, fx.Node) else given)

    sizes, strides = ([number(n) for n in numbers] for numbers in node.args[place:place + 2])
    start = dict(enumerate(node.args)).get(place + 2, node.kwargs.get("storage_offset"))
    if start is not None and number(start) != hint(value.storage_offset()):
        return False
    last = sum((size - 1) * stride for size, stride in zip(sizes, strides))
    return _order(value) is not None and last < hint(value.numel())


def _with_strides(before: fx.Node, made: fx.Node, like: torch.Tensor) -> fx.Node:
    """A copy of `made` with the strides of `like`; `made` itself if these are not dense. Where
    `made` has these strides, contiguous() copies nothing."""
    order = _order(like)
    if order is None:
        return made
    if order == sorted(order):
        return insert(before, _aten.contiguous.default, made, like=made)
    back = [order.index(dim) for dim in range(like.dim())]
    turned = insert(before, _aten.permute.default, made, order, like=made)
    dense = insert(before, _aten.contiguous.default, turned, like=made)
    return insert(before, _aten.permute.default, dense, back, like=made)


def _order(value: torch.Tensor) -> list[int] | None:
    """The dimensions from the largest stride to the smallest; None if the tensor is not dense."""
    sizes, strides = ([hint(n) for n in numbers] for numbers in (value.shape, value.stride()))
    order = sorted(range(value.dim()), key=lambda dim: -strides[dim])
    expected = 1
    for dim in reversed(order):
        if sizes[dim] != 1 and strides[dim] != expected:
            return None
        expected *= sizes[dim]
    return order
