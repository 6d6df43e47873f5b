# SPDX-License-Identifier: Apache-2.0
"""The linear layers of a graph: their nodes, their places in the user's code, and whether they are
fused. A linear layer is a product of an activation and a weight in any form: F.linear, addmm, mm,
matmul, bmm, einsum. """

from __future__ import annotations

import dataclasses
import math
import re
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from coda_cpp.torch_backend.layout import hint
from coda_cpp.torch_backend.rules import FREE, RULES

WEIGHT = "coda_is_weight"  # in a placeholder's meta: whether it is a parameter of a module
_KEY = "coda_linear_layer"
_NAMES = {"linear", "addmm", "mm", "matmul", "bmm", "baddbmm", "einsum", "_grouped_mm"}


@dataclasses.dataclass(eq=False)
class LinearLayer:
    """`module`: the path of the module in the model, "" in a plain function. `place`: file and line
    in the user's code. `reason`: why the layer is left to PyTorch, "" if it is fused.
    `by_cost_model`: fusion would gain nothing."""

    module: str
    place: str
    flops: int
    reason: str
    by_cost_model: bool = False

    @property
    def is_fused(self) -> bool:
        return not self.reason

    @property
    def kind(self) -> str:
        """The same for equal layers of a model."""
        return re.sub(r"\b\d+\b", "*", self.module)


def name_of(node: fx.Node) -> str:
    """The name of an operation as users know it: "linear", "matmul"."""
    target = node.target
    return (target if isinstance(target, str)
            else getattr(target, "__name__", str(target))).split(".")[0]


def _value(node: Any) -> Any:
    return node.meta.get("val", node.meta.get("example_value"))


def _comes_of_weight(node: fx.Node) -> bool:
    """Whether the node is a parameter, or a view, a multiple or a conversion of one."""
    while node.op != "placeholder":
        if len(node.all_input_nodes) != 1:
            return False
        node = node.all_input_nodes[0]
    return node.meta.get(WEIGHT, isinstance(_value(node), torch.nn.Parameter))


def _is_linear(node: fx.Node) -> bool:
    if not node.op.startswith("call_") or not isinstance(_value(node), torch.Tensor):
        return False
    name = name_of(node)
    return name == "linear" or name in _NAMES and any(
        map(_comes_of_weight, node.all_input_nodes))


def _flops(node: fx.Node) -> int:
    name, result = name_of(node), math.prod(map(hint, _value(node).shape))
    operands = [value.shape for used in node.all_input_nodes
                if isinstance(value := _value(used), torch.Tensor)]
    if name == "einsum":  # operands and result have MK, KN and MN values
        return 2 * math.isqrt(result * math.prod(map(hint, (*operands[0], *operands[1]))))
    inner = operands[1 if name in ("addmm", "baddbmm") else 0][-1]
    return 2 * result * hint(inner)


def _short_path(path: str) -> str:
    for folder in sorted(map(str, sys.path), key=len, reverse=True):
        if folder and path.startswith(folder.rstrip("/") + "/"):
            return path[len(folder.rstrip("/")) + 1:]
    return path


def origin(node: fx.Node) -> tuple[str, str]:
    """The module's path in the model, and file and line of the user's code; "" if unknown."""
    modules = list((node.meta.get("nn_module_stack") or {}).values())
    module = re.sub(r"^L\['\w+'\]\.?", "", modules[-1][0]) if modules else ""
    module = re.sub(r"\._modules\['(\w+)'\]|\['(\w+)'\]|\[(\d+)\]",
                    lambda m: "." + next(filter(None, m.groups())), module).lstrip(".")
    frames = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    own = [(path, line) for path, line in frames if "/torch/" not in path] or frames
    return module, f"{_short_path(own[-1][0])}:{own[-1][1]}" if own else ""


def _before(node: fx.Node) -> Iterator[fx.Node]:
    """The operations that computed the activation, found through views."""
    for used in node.all_input_nodes:
        if not _comes_of_weight(used):
            while used.target in FREE and used.all_input_nodes:
                used = used.all_input_nodes[0]
            yield used


def _behind(node: fx.Node) -> Iterator[fx.Node]:
    for user in node.users:
        if user.target in FREE:
            yield from _behind(user)
        else:
            yield user


def _alone(node: fx.Node, refused: dict[fx.Node, str]) -> str:
    """Why nothing can be fused with a product that is supported."""
    said = {}
    for way, nodes in (("its input comes from", _before(node)),
                       ("its result goes to", _behind(node))):
        for other in nodes:
            if other.op == "placeholder":
                said["its input is a graph input"] = None
            elif other.op == "output":
                said["its result is a graph output"] = None
            else:
                why = refused.get(other) or (
                    "in another region" if other.target in RULES else "not supported")
                said[f"{way} {name_of(other)} ({why})"] = None
    return "no neighbouring operation can be fused: " + ", ".join(said)


def mark(module: fx.GraphModule, refused: dict[fx.Node, str]) -> list[LinearLayer]:
    """The linear layers of a normal graph, each marked at its node and its node's copies. Each
    reason applies if the layer is in no region. `refused`: the reasons of unsupported
    operations."""
    found = [layer for name, part in module.named_children() if isinstance(part, fx.GraphModule)
             for layer in unseen(part, f"it is in the subgraph {name} of PyTorch")]
    for node in filter(_is_linear, module.graph.nodes):
        why = refused.get(node) or (
            _alone(node, refused) if node.target in RULES
            else f"{name_of(node)} always runs in PyTorch")
        node.meta[_KEY] = LinearLayer(*origin(node), _flops(node), why)
        found.append(node.meta[_KEY])
    return found


def marked(graph: fx.Graph) -> list[LinearLayer]:
    """The linear layers in a part of a marked graph."""
    return [node.meta[_KEY] for node in graph.nodes if _KEY in node.meta]


def unseen(module: fx.GraphModule, reason: str) -> list[LinearLayer]:
    """The linear layers of a graph that is left to PyTorch as a whole, including its subgraphs."""
    return [LinearLayer(*origin(node), _flops(node), reason)
            for part in module.modules() if isinstance(part, fx.GraphModule)
            for node in part.graph.nodes if _is_linear(node)]
