# SPDX-License-Identifier: Apache-2.0
"""Replaces regions of a normal graph by modules that call operators of coda-cpp, and determines the
types of tensors between regions."""

from __future__ import annotations

import operator
import threading
from collections.abc import Container, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from coda_cpp import _tensors
from coda_cpp.function import ONLY_LOSSES
from coda_cpp.programs import GraphFunction
from coda_cpp.torch_backend import layout as layouts
from coda_cpp.torch_backend.graph_edits import insert
from coda_cpp.torch_backend.importer import Importer
from coda_cpp.torch_backend.layout import NEEDS, PRODUCTS, NotUnderstood, hint, value_of
from coda_cpp.torch_backend.values import Source, permuted, with_ones


class Result:
    """How the function's result number `place` becomes the tensor that PyTorch's graph expects. If
    `dtype` is None, the type is the stored one. A size is a number or, if symbolic, an input and
    its dimension; one size may be -1, and follows from the others."""

    def __init__(self, node: fx.Node, inputs: Sequence[fx.Node], dtype: torch.dtype | None,
                 place: int) -> None:
        layout, shape = layouts.or_plain(node), value_of(node).shape
        order = with_ones([i for kind in "rc" for i, letter in enumerate(layout) if letter == kind],
                          len(layout))
        self._sizes = _dims([shape[i] for i in order], inputs)
        self._back = [order.index(i) for i in range(len(order))]
        self._dtype, self.place = dtype, place
        self._is_constant = not node.meta.get(NEEDS) and any(
            given.meta.get(NEEDS) for given in inputs)

    @property
    def is_narrow(self) -> bool:
        return self._dtype is None

    def shaped(self, made: torch.Tensor, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        sizes = [size if isinstance(size, int) else tensors[size[0]].shape[size[1]]
                 for size in self._sizes]
        if made.dim() != len(sizes) or not all(map(layouts.same, made.shape, sizes)):
            made = made.reshape(sizes)
        made = permuted(made, self._back)
        if self._is_constant:  # but other results of the region have gradients
            made = made.detach()
        return made if self._dtype in (None, made.dtype) else made.to(self._dtype)


def _dtype(node: fx.Node) -> torch.dtype | None:
    return getattr(node.meta.get("val"), "dtype", None)


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)  # else a size


def _dims(sizes: Sequence[Any], inputs: Sequence[fx.Node]) -> list[Any]:
    found = {str(size): (i, j) for i, node in enumerate(inputs) if _is_tensor(node)
             for j, size in enumerate(value_of(node).shape) if not isinstance(size, int)}
    dims = [size if isinstance(size, int) else found.get(str(size), -1) for size in sizes]
    if dims.count(-1) > 1:
        raise NotUnderstood(f"no input has these sizes of a result: {', '.join(map(str, sizes))}")
    return dims


class Region(torch.nn.Module):
    """A region as PyTorch calls it."""

    def __init__(self, function: GraphFunction, storage: torch.dtype,
                 sources: Sequence[tuple[int, Source]], whole: tuple[int, Sequence[int]],
                 results: Sequence[Result], needs: int, count: int, behind: Sequence[bool],
                 operands: Sequence[tuple[Any, torch.dtype, bool]],
                 compared: Container[int] = (), rounded: Sequence[int] = (),
                 losses_need_all: bool = True) -> None:
        """`count`: the number of operands. The fp32 tensors from which weights were rounded follow
        the operands; `behind` says which of them are transposes. `operands`: for each one the fake
        tensor, its actual type, and whether it needs a gradient. `compared`: operands that need a
        gradient but get none. `rounded`: for each fp32 tensor the operand that was rounded from
        it, whose gradient it gets. `losses_need_all`: whether each operand that gets a gradient
        gets one if only results that are numbers have an upstream gradient."""
        super().__init__()
        self.function, self.storage, self.needs, self._count = function, storage, needs, count
        self._sources, self._whole, self.results = sources, whole, results
        self._behind, self._compared, self.rounded = behind, compared, rounded
        self.operands, self.losses_need_all = operands, losses_need_all
        self.operations: fx.Graph | None = None  # traced by inline

    @property
    def has_targets(self) -> bool:
        """Whether the region reads a column's index for each row, as a loss does."""
        return any(source.form == "index" for _, source in self._sources)

    def key(self) -> str:
        """Everything on which the operations depend within one graph, except the use of the called
        function."""
        return repr((self.function.kind, self.needs, self._count, self._whole, self._behind,
                     self._compared,
                     [(i, vars(source)) for i, source in self._sources],
                     [vars(result) for result in self.results],
                     [(value.shape, value.stride(), value.device, *others)
                      if isinstance(value, torch.Tensor) else str(value)
                      for value, *others in self.operands]))

    def forward(self, *tensors: torch.Tensor) -> Any:
        like, dims = self._whole
        rows = 1
        for dim in dims:
            rows = rows * tensors[like].shape[dim]
        read = [source.read(tensors[i].detach() if i in self._compared else tensors[i], rows)
                for i, source in self._sources]
        behind = [tensor.t() if is_turned else tensor
                  for is_turned, tensor in zip(self._behind, tensors[self._count:], strict=True)]
        made = self.function(*read, *behind, flags=self.needs & ONLY_LOSSES)
        made = made if isinstance(made, tuple) else (made,)
        results = [result.shaped(made[result.place], tensors) for result in self.results]
        return results[0] if len(results) == 1 else tuple(results)


_MANY_ROWS = 8192  # from here on a block's rows follow from the GPU's rates alone
_functions: dict[str, GraphFunction] = {}
_lock = threading.Lock()


def text_of(nodes: Sequence[fx.Node]) -> str:
    """The operations as text, with numbers for nodes."""
    place = {node: i for i, node in enumerate(nodes)}
    return repr([(str(node.target) if node.op == "call_function" else node.op,
                  fx.map_arg((node.args, node.kwargs), lambda used: f"%{place[used]}"))
                 for node in nodes])


def _function(region: Importer, nodes: Sequence[fx.Node], outputs: Mapping[str, Any],
              for_gpu: bool, nominal: Mapping[str, int], loss_rows: int, products: str,
              objective: str, rounded: Sequence[int]) -> GraphFunction:
    """The function of a region. Regions with the same computation share plans, kernels and
    sessions, but not the scales of products in 8 bits."""
    products = products if region.storage == torch.bfloat16 else ""
    given = [(value.name, value.shape, value.dtype, value.is_table, source.form)
             for (_, source), value in region.inputs.items()]
    key = repr((given, text_of(nodes), list(outputs), region.storage, for_gpu, nominal, loss_rows,
                products, objective, rounded))
    with _lock:
        if key not in _functions:
            _functions[key] = GraphFunction(
                list(region.inputs.values()), outputs, name="region", for_gpu=for_gpu,
                storage=_tensors.torch_dtypes()[region.storage], loss_rows=loss_rows,
                nominal=nominal, products=products, rounded=rounded, objective=objective)
        return _functions[key].another_use() if products else _functions[key]


def as_region(module: fx.GraphModule, inputs: Sequence[fx.Node], for_gpu: bool,
              narrowed: Mapping[fx.Node, torch.dtype] | None, products: str = "",
              objective: str = "memory") -> tuple[Region, list[fx.Node]]:
    """The region's module as one function, and the tensors that it takes after its operands: the
    fp32 tensors that autocast rounded to weights. Their gradients are the products' fp32
    accumulators, not rounded to 16 bits. `inputs` are the operands, in the order of the
    placeholders. `narrowed`: the inputs that have the 16-bit type of another region's products
    although their nodes are fp32; None: not allowed. `products` and `objective`: see
    GraphFunction."""
    nodes = list(module.graph.nodes)
    placeholders = [node for node in nodes if node.op == "placeholder"]
    types = [value_of(node.args[PRODUCTS[node.target]]).dtype for node in nodes
             if node.target in PRODUCTS]
    region = Importer({inside: narrowed[outside] for inside, outside in zip(placeholders, inputs)
                       if outside in narrowed} if narrowed is not None else None,
                      types[0] if types else None)
    for node in nodes:
        if node.op == "call_function":
            region.add(node)
    if region.storage is None:
        raise NotUnderstood("it has no GEMM")
    if region.whole is None:
        raise NotUnderstood("it has one row, or no operand has all of its rows")
    returned = nodes[-1].args[0]
    returned = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    outputs, results = {}, []
    places: dict[fx.Node, int] = {}  # views of one value are one result
    for node in returned:
        if node not in region.known:
            raise NotUnderstood("it returns an input unchanged")
        known, made = region.known[node], value_of(node)
        is_matrix = known.value.shape[0] == "M" and known.value.shape[1] != 1
        is_narrow = is_matrix and known.dtype not in (region.storage, torch.bool)
        if is_narrow and (narrowed is None or known.dtype != torch.float32):
            raise NotUnderstood(
                f"a result of {known.dtype} follows GEMMs in {region.storage}")
        place = places.setdefault(_viewed(node), len(places))
        outputs.setdefault(f"out{place}", known.value)
        results.append(Result(node, placeholders, None if is_narrow else made.dtype, place))
    if {node for node, _ in region.inputs} != {node for node in placeholders if _is_tensor(node)}:
        raise NotUnderstood("it does not read all of its inputs")
    nominal = {"M": hint(region.rows)}
    for (node, source), value in region.inputs.items():
        if source.form == "table" and value.is_table:
            nominal[str(value.shape[0])] = hint(value_of(node).numel()) // source.columns
    place = {node: i for i, node in enumerate(placeholders)}
    weights = {node.args[PRODUCTS[node.target]] for node in nodes if node.target in PRODUCTS}
    rounded = {i: inputs[place[node]].args[0] for i, (node, _) in enumerate(region.inputs)
               if node in weights and node.meta.get(NEEDS) and _is_rounded(inputs[place[node]])}
    # With lengths that vary, blocks of logits must suit longer inputs than the first.
    loss_rows = -1 if isinstance(region.rows, int) else -_MANY_ROWS
    function = _function(region, nodes, outputs, for_gpu, nominal, loss_rows, products, objective,
                         list(rounded))
    trained = _with_gradients(returned)
    needs = sum(1 << i for i, ((node, _), value) in enumerate(region.inputs.items())
                if node in trained and not value.is_table)
    function.function.phases(needs)  # raises errors of planning now
    sources = [(place[node], source) for node, source in region.inputs]
    reached = _with_gradients([node for node, result in zip(returned, results)
                               if function.function.outputs[result.place].is_number])
    source = next(source for node, source in region.inputs
                  if node is region.whole and source.form == "matrix")
    dims, columns = list(source.order), source.columns
    while columns > 1:  # the columns' dimensions are the last
        columns //= layouts.number(value_of(region.whole).shape[dims.pop()])
    behind = list(rounded.values())
    operands = [(node.meta.get("val"), (narrowed or {}).get(outside) or _dtype(node),
                 bool(node.meta.get(NEEDS))) for node, outside in zip(placeholders, inputs)]
    operands += [(value_of(node), torch.float32, True) for node in behind]
    are_turned = [sources[i][1].form == "turned" for i in rounded]
    compared = [i for node, i in place.items() if node.meta.get(NEEDS) and node not in trained]
    return Region(function, region.storage, sources, (place[region.whole], dims), results,
                  needs, len(inputs), are_turned, operands, compared,
                  [sources[i][0] for i in rounded], trained & {*placeholders} <= reached), behind


def _viewed(node: fx.Node) -> fx.Node:
    """The tensor of which the node is a view."""
    while node.target in layouts.VIEWS or node.target in layouts.TURNS:
        node = node.args[0]
    return node


def _with_gradients(results: Sequence[fx.Node]) -> set[fx.Node]:
    """The nodes that the gradients of the results reach: not those that only comparisons read."""
    found: set[fx.Node] = set()
    pending = [node for node in results if node.meta.get(NEEDS)]
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending += [used for used in node.all_input_nodes if used.meta.get(NEEDS)]
    return found


def _is_rounded(node: fx.Node) -> bool:
    return (node.target is torch.ops.aten.to.dtype
            and value_of(node.args[0]).dtype == torch.float32)


def results_of(node: fx.Node, count: int) -> list[fx.Node]:
    """The nodes of a region's results; `count` is their number."""
    if count == 1:
        return [node]
    of = {user.args[1]: user for user in node.users if user.target is operator.getitem}
    return [of[i] for i in range(count)]


def widen(graph: fx.Graph, narrowed: Mapping[fx.Node, torch.dtype],
          regions: Container[fx.Node]) -> None:
    """Converts narrow results to fp32 for nodes outside regions, which expect fp32."""
    for node in narrowed:
        readers = [user for user in node.users
                   if user not in regions and user.target is not operator.getitem]
        if readers:
            with graph.inserting_after(node):
                wide = graph.call_function(torch.ops.aten.to.dtype, (node, torch.float32))
                wide.meta.update(node.meta)
            for reader in readers:
                reader.replace_input_with(node, wide)


def detach_rounded(graph: fx.Graph, regions: Mapping[fx.Node, Region]) -> None:
    """Weights that autocast rounded have no gradient if only regions read them, because regions
    pass it to the fp32 weights. Without this, equal_layers has autograd fill zeros for the rounded
    weights, and add them to the gradients."""
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.to.dtype):
        places = [(user, i) for user in node.users
                  for i, operand in enumerate(user.args) if operand is node]
        if places and all(user in regions and i in regions[user].rounded for user, i in places):
            weight = node.args[0]
            node.update_arg(0, insert(node, torch.ops.aten.detach.default, weight, like=weight))
            node.meta["val"] = value_of(node).detach()
