# SPDX-License-Identifier: Apache-2.0
"""Python floats that change from call to call. A region reads such a float as a tensor without
dimensions, the product of 1 and the float. AOTAutograd supports this product: it reads the float
from a tensor, so the graph is not compiled for each value. For an argument whose schema says float,
such as the epsilon of a norm, PyTorch itself compiles the graph for each value.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from coda_cpp.torch_backend.graph_edits import insert

_aten = torch.ops.aten


def is_changing(node: Any) -> bool:
    """Whether the node is a float that is not specialised to a value."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return isinstance(value, torch.SymFloat) and not value.node.expr.is_number


def _tensor_of(number: fx.Node, before: fx.Node, like: fx.Node) -> fx.Node:
    """The float as an fp32 tensor without dimensions on the device of `like`, computed in front of
    `before`. On a GPU the float is an argument of the kernel that multiplies it with 1, so no call
    waits for the GPU."""
    one = insert(before, _aten.new_ones.default, like, [], dtype=torch.float32)
    with before.graph.inserting_before(before):
        made = before.graph.call_function(_aten.mul.Tensor, (one, number))
    made.meta.update(one.meta)  # the operation itself would specialise the graph to the value
    return made


def with_tensors(part: fx.GraphModule, call: fx.Node) -> list[fx.Node]:
    """The operands of a part of the graph, with tensors instead of the floats that change. The
    part's placeholders get their values. `call`: the call of the part, in the graph around it."""
    operands = list(call.args)
    like = next(node for node in operands if isinstance(node.meta.get("val"), torch.Tensor)
                and node.meta["val"].dim())
    for i, inside in enumerate(part.graph.find_nodes(op="placeholder")):
        if is_changing(operands[i]):
            operands[i] = _tensor_of(operands[i], call, like)
            inside.meta["val"] = operands[i].meta["val"]
    return operands
