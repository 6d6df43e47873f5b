# SPDX-License-Identifier: Apache-2.0
"""Higher-order operators in a graph: blocks of activation checkpointing, custom autograd.Functions,
conditions, and other calls of subgraphs. Sections of torch.func (vmap, grad) cannot be traced, so
they are cut out as subgraphs.

While the surrounding graph is normalised, a stand-in operator replaces each call and defines only
the shapes of its results. Then the call is restored: a block of checkpointing is fused separately,
with the metadata of its operands; any other call stays as Dynamo made it.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import fx
from torch.fx.passes.utils.fuser_utils import erase_nodes, fuse_as_graphmodule

from coda_cpp.torch_backend.graph_edits import insert, insert_module, replace
from coda_cpp.torch_backend.layout import NEEDS, NotUnderstood
from coda_cpp.torch_backend.trace import ENTER_AUTOCAST, EXIT_AUTOCAST

_DATA = torch._C._autograd._get_data_attr
CHECKPOINT = torch.ops.higher_order.tag_activation_checkpoint
AUTOCAST = "coda_autocast"  # in a stand-in's meta: the autocast state of its call, if any
# These write statistics, although their schemas do not say so.
WRITING_NORMS = {torch.ops.aten.batch_norm.default, torch.ops.aten.instance_norm.default,
                 torch.ops.aten.native_batch_norm.default}
_LIBRARY = torch.library.Library("coda_cpp", "FRAGMENT")
_LIBRARY.define("subgraph(Tensor[] tensors, Scalar[] numbers, int which) -> Tensor[]")
SUBGRAPH = torch.ops.coda_cpp.subgraph.default
fx.node.has_side_effect(SUBGRAPH)  # its call may write
_numbers = itertools.count()
_calls: dict[int, fx.Node] = {}  # Dynamo's call for each stand-in, while a graph is traced


def _made(call: fx.Node) -> list[Any]:
    made = call.meta["example_value"]
    return list(made) if isinstance(made, (tuple, list)) else [made]


@torch.library.impl(_LIBRARY, "subgraph", "CompositeExplicitAutograd")
def _shapes(tensors: list[torch.Tensor], numbers: list[Any], which: int) -> list[torch.Tensor]:
    return [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device)
            if isinstance(t, torch.Tensor) else torch.empty(0) for t in _made(_calls[which])]


def _module(node: fx.Node) -> torch.nn.Module | None:
    """The subgraph to which the node refers."""
    found = getattr(node.graph.owning_module, node.target) if node.op == "get_attr" else None
    return found if isinstance(found, torch.nn.Module) else None


def _operands(call: fx.Node) -> tuple[list[fx.Node], list[fx.Node]]:
    """The tensor operands, and the numbers: sizes, and Python floats that change."""
    nodes = [node for node in call.all_input_nodes if _module(node) is None]
    tensors = [n for n in nodes if isinstance(n.meta.get("example_value"), torch.Tensor)]
    numbers = [node for node in nodes if node not in tensors]
    if not all(isinstance(n.meta.get("example_value"), (int, float, torch.SymInt, torch.SymFloat))
               for n in numbers):
        raise NotUnderstood(f"{call.target} has operands that are neither tensors nor numbers")
    return tensors, numbers


def with_stand_ins(module: fx.GraphModule) -> tuple[fx.GraphModule, dict[int, fx.Node]]:
    """The module with stand-ins for its calls, and the calls by the numbers of their stand-ins."""
    module = _with_sections(_with_hooks(_with_detached_data(module)))
    calls = [node for node in module.graph.nodes
             if isinstance(node.target, torch._ops.HigherOrderOperator)
             or node.op == "call_module"]
    found: dict[int, fx.Node] = {}
    if not calls:
        return module, found
    graph, copies = fx.Graph(), {}
    graph.output(graph.graph_copy(module.graph, copies))
    for call in calls:
        which, node = next(_numbers), copies[call]
        tensors, numbers = _operands(call)
        with graph.inserting_before(node):
            stand_in = graph.call_function(
                SUBGRAPH, ([copies[n] for n in tensors], [copies[n] for n in numbers], which))
        stand_in.meta["example_value"] = call.meta["example_value"]
        if not isinstance(call.meta["example_value"], (tuple, list)):
            with graph.inserting_before(node):
                stand_in = graph.call_function(_first, (stand_in,))
        found[which] = _calls[which] = call
        copies[call] = stand_in
        replace(node, stand_in)
    return fx.GraphModule(module, graph), found


def _copied(module: fx.GraphModule) -> fx.GraphModule:
    graph = fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    return fx.GraphModule(module, graph)


def _with_detached_data(module: fx.GraphModule) -> fx.GraphModule:
    """The module, in which Tensor.data is detach(), because no trace sees what Tensor.data makes.
    Autograd notices writes through detach(), but not through Tensor.data: raises NotUnderstood if
    the tensor is written and needs a gradient."""
    if not module.graph.find_nodes(op="call_function", target=_DATA):
        return module
    module = _copied(module)
    for node in module.graph.find_nodes(op="call_function", target=_DATA):
        if node.args[0].meta["example_value"].requires_grad and _is_written(node):
            raise NotUnderstood("a tensor that needs a gradient is written through Tensor.data")
        node.target = torch.detach
    return module


def _with_hooks(module: fx.GraphModule) -> fx.GraphModule:
    """The module with each hook on a tensor's gradient (Tensor.register_hook) directly behind the
    tensor, whose readers read the result of the hook's call. So no reader is in a region with the
    tensor, and the hook gets the whole gradient. Raises NotUnderstood where a hook cannot move."""
    if not any(map(_is_hook, module.graph.nodes)):
        return module
    module = _copied(module)
    for call in filter(_is_hook, list(module.graph.nodes)):
        tensor, body, *read = call.args
        if tensor.op == "placeholder" or any(
                isinstance(node, fx.Node) and tensor < node for node in read):
            raise NotUnderstood("a tensor's hook reads a value that is computed after the tensor")
        if _is_written(tensor):
            raise NotUnderstood("a tensor with a hook is written in place")
        tensor.append(body)
        body.append(call)
        tensor.replace_all_uses_with(call, lambda user, call=call: user is not call)
    return module


def _is_hook(node: fx.Node) -> bool:
    """Whether the node is Tensor.register_hook(), which Dynamo traces since PyTorch 2.12."""
    return isinstance(node.target, torch._ops.HigherOrderOperator) and (
        node.target.__name__ == "register_hook")


def _is_written(tensor: fx.Node) -> bool:
    """Whether a node of Dynamo's graph may write into the tensor's memory."""
    return any(node_may_write(node) and not _is_hook(node) and any(
        _share_memory(used, tensor) for used in node.all_input_nodes)
        for node in tensor.graph.nodes)


def _share_memory(node: fx.Node, other: fx.Node) -> bool:
    values = [one.meta.get("example_value") for one in (node, other)]
    return all(isinstance(value, torch.Tensor) for value in values) and (
        values[0].untyped_storage()._cdata == values[1].untyped_storage()._cdata)


def _with_sections(module: fx.GraphModule) -> fx.GraphModule:
    """The module with each section of torch.func replaced by a call of a module."""
    if not any(map(_nesting, module.graph.nodes)):
        return module
    module = _copied(module)
    place = {node: i for i, node in enumerate(module.graph.nodes)}
    sections: list[list[fx.Node]] = []
    depth, end = 0, -1  # the current section contains at least all nodes up to this one
    for node, i in place.items():
        change = _nesting(node)
        if depth == 0 and change > 0 and i > end:
            sections.append([])
        if depth or change > 0 or i <= end:
            sections[-1].append(node)
            # jacrev() reads tensors of a section of grad in one of vmap behind it.
            if _is_of_section(node.meta.get("example_value")):
                end = max([end, *(place[user] for user in node.users)])
        depth += change
    for i, section in enumerate(sections):
        part, inputs, outputs = fuse_as_graphmodule(
            module, section, f"section_{i}", always_return_tuple=True)
        made = tuple(node.meta.get("example_value") for node in outputs)
        insert_module(module, part, inputs, outputs, section[-1]).meta["example_value"] = made
        erase_nodes(module, section)
    return module


def _is_of_section(value: Any) -> bool:
    """Whether the value exists only within sections of torch.func."""
    values = value if isinstance(value, (tuple, list)) else [value]
    return any(torch._C._functorch.is_functorch_wrapped_tensor(one) for one in values
               if isinstance(one, torch.Tensor))


def _nesting(node: fx.Node) -> int:
    """1 if the node begins a section of torch.func, -1 if it ends one."""
    name = getattr(node.target, "__name__", "")
    return name.endswith("_increment_nesting") - name.endswith("_decrement_nesting")


def _first(made: list[torch.Tensor]) -> torch.Tensor:
    return made[0]


def forget(calls: Mapping[int, fx.Node]) -> None:
    for which in calls:
        del _calls[which]


def aliases(call: fx.Node, which: int) -> int | None:
    """The number of the tensor operand with which a result shares memory; None if it has its own
    memory."""
    made = _made(call)[which]
    for i, operand in enumerate(_operands(call)[0]):
        given = operand.meta["example_value"]
        if isinstance(made, torch.Tensor) and (
                given.untyped_storage()._cdata == made.untyped_storage()._cdata):
            return i
    return None


def may_write(call: fx.Node) -> bool:
    """Whether the call may write into one of its tensor operands."""
    if call.op == "call_module":
        return _body_may_write(call.graph.owning_module.get_submodule(call.target))
    return "mutation" in call.target.__name__ or any(
        _body_may_write(body) for body in map(_module, call.all_input_nodes) if body is not None)


def _body_may_write(body: torch.nn.Module) -> bool:
    return not isinstance(body, fx.GraphModule) or any(map(node_may_write, body.graph.nodes))


def node_may_write(node: fx.Node) -> bool:
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        return may_write(node)
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.is_mutable or node.target in WRITING_NORMS
    if node.op not in ("call_function", "call_method"):
        return False
    name = getattr(node.target, "__name__", str(node.target))
    if getattr(operator, name, None) is node.target:  # iadd writes its operand, and_ does not
        return name == "setitem" or name.startswith("i") and hasattr(
            torch.Tensor, f"__{name}__") and name not in ("index", "invert")
    is_in_place = name.endswith("_") and not name.endswith("__") or name in (
        "batch_norm", "instance_norm")
    is_asked_for = node.kwargs.get("inplace") or "out" in node.kwargs or (
        "dropout" in name and node.args[3:4] == (True,))
    return bool(is_in_place or is_asked_for)


def given(node: fx.Node, call: fx.Node) -> dict[fx.Node, Any]:
    """Maps the operands of the call to the operands of its stand-in."""
    tensors, numbers = _operands(call)
    return {**dict(zip(tensors, node.args[0], strict=True)),
            **dict(zip(numbers, node.args[1], strict=True))}


def operands(node: fx.Node, call: fx.Node) -> list[Any]:
    """The operands of a stand-in's block, in the block's order."""
    found = given(node, call)
    return [found[arg] if isinstance(arg, fx.Node) else arg for arg in call.args[1:]]


@contextlib.contextmanager
def as_called(node: fx.Node) -> Iterator[None]:
    """Enters the autocast state of the stand-in's call."""
    device, dtype, *_ = node.meta.get(AUTOCAST, ("cpu", None))
    with torch.autocast("cuda", enabled=False), torch.autocast("cpu", enabled=False), (
            torch.autocast(device, dtype, enabled=AUTOCAST in node.meta)):
        yield


def put_back(module: fx.GraphModule, node: fx.Node, call: fx.Node,
             block: fx.GraphModule | None = None) -> fx.Node:
    """Replaces the stand-in by its call, which is returned. The call's subgraph is `block` if it
    was fused; otherwise the call runs under its autocast state. Subgraphs keep Dynamo's names,
    because caches identify graphs by their text."""
    graph, new = module.graph, given(node, call)
    section = node.meta.get(AUTOCAST) if block is None else None
    with graph.inserting_before(node):
        for body in call.all_input_nodes:
            if _module(body) is not None:
                setattr(module, body.target, block or _module(body))
                new[body] = graph.get_attr(body.target)
        entered = graph.call_function(ENTER_AUTOCAST, section) if section else None
        if call.op == "call_module":
            setattr(module, call.target, call.graph.owning_module.get_submodule(call.target))
        back = graph.create_node(call.op, call.target, fx.map_arg(call.args, new.__getitem__),
                                 fx.map_arg(call.kwargs, new.__getitem__))
        if entered is not None:
            graph.call_function(EXIT_AUTOCAST, (entered,))
    back.meta.update(call.meta)
    back.meta["val"] = node.meta.get("val")
    replace(node, back)
    if not isinstance(call.meta["example_value"], (tuple, list)):  # but the stand-in gave a list
        for result in list(back.users):
            back.meta.update({key: result.meta[key] for key in ("val", NEEDS)})
            replace(result, back)
        _keep_gradient(call, 0, back)
    else:
        for result in list(back.users):
            _keep_gradient(call, result.args[1], result)
    return back


def _keep_gradient(call: fx.Node, which: int, result: fx.Node) -> None:
    """Lets readers of a hook's or a custom autograd.Function's result that is a view read a copy.
    If a graph returns several views of a tensor, AOTAutograd takes only the tensor's gradient, so
    the views' gradients would not pass the hook or the function. A part of a graph that is
    compiled alone (equal_layers) often returns such views."""
    operand = aliases(call, which)
    is_own = _is_hook(call) or getattr(call.target, "__name__", "") == "autograd_function_apply"
    if not is_own or operand is None or not result.meta.get(NEEDS) or _is_written(
            _operands(call)[0][operand]) or call.users and all(map(_is_hook, call.users)):
        return
    copy = insert(result.next, torch.ops.aten.clone.default, result, like=result)
    result.replace_all_uses_with(copy, lambda user: user is not copy)
