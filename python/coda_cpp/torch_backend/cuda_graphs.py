# SPDX-License-Identifier: Apache-2.0
"""Tells Inductor which inputs of a graph keep their addresses: parameters and buffers.

A CUDA graph reads its inputs at the addresses that they had when it was recorded. Before each step
Inductor therefore copies every input to its address, except those that Dynamo has marked in its
graph. AOTAutograd reads the marks only from a module that has all attributes of Dynamo's modules.

A buffer that is written is not marked if results depend on its value: PyTorch (2.11 to 2.15) would
compute their gradients from its new value. Inductor then does not record the graph.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import fx
from torch._dynamo.source import ConstantSource

from coda_cpp.torch_backend import higher_order

_ID = "dynamo_compile_id"  # in the meta of a module of Dynamo's
_FACTS = "tensor_dict"  # in the meta of an input: attributes of the tensor


def mark_inputs(module: fx.GraphModule, original: fx.GraphModule) -> None:
    """Marks the module's inputs, which are those of Dynamo's module `original`."""
    if _ID not in original.meta:
        return
    _mark(module, original)
    writes = any(map(_writes, module.graph.nodes))
    for node, known in zip(module.graph.find_nodes(op="placeholder"),
                           original.graph.find_nodes(op="placeholder"), strict=True):
        node._dynamo_source = getattr(known, "_dynamo_source", None)
        changes = writes and _is_read_and_written(node)
        node.meta[_FACTS] = {} if changes else known.meta.get(_FACTS, {})


def mark_inputs_of_part(part: fx.GraphModule, read: Sequence[fx.Node], whole: fx.GraphModule
                        ) -> None:
    """Marks the inputs of a part of the module `whole`, which read these nodes there."""
    if _ID not in whole.meta:
        return
    _mark(part, whole)
    for node, known in zip(part.graph.find_nodes(op="placeholder"), read, strict=True):
        node._dynamo_source = getattr(known, "_dynamo_source", None)


def _mark(module: fx.GraphModule, original: fx.GraphModule) -> None:
    module.meta[_ID] = original.meta[_ID]
    constants = itertools.chain(module.named_parameters(remove_duplicate=False),
                                module.named_buffers(remove_duplicate=False))
    module._param_name_to_source = {name: ConstantSource(name) for name, _ in constants}


def _writes(node: fx.Node) -> bool:
    """Not those of norms: no gradient depends on their running statistics."""
    return higher_order.node_may_write(node) and node.target not in higher_order.WRITING_NORMS


def _is_read_and_written(given: fx.Node) -> bool:
    """Whether the input is written and results depend on it. Most writes are copies at the graph's
    end (see writes.py). Any other write to a value that depends on the input may write the input.
    """
    behind, pending = {given}, [given]
    for node in pending:
        new = [user for user in node.users if user.op != "output" and user not in behind]
        behind.update(new)
        pending += new
    is_written = any(_writes(node) and (node.target is not torch.ops.aten.copy_.default
                                        or node.args[0] is given) for node in behind)
    return is_written and any(user.op == "output" for node in behind if node is not given
                              for user in node.users)
