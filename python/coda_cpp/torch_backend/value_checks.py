# SPDX-License-Identifier: Apache-2.0
"""Proves by values what no proof from the graph can know.

What a mask hides may depend on the values of inputs of Dynamo's graph, which may be others at the
next call: the lists of FlexAttention's block masks (flex_checks.py), and masks that a module keeps
(attention.py). So before each run of a graph that was compiled for one form of such a mask, a Check
must hold: it computes the mask from the inputs, as the graph does, and compares it with the form.
Inputs for which a check held are not checked again, as long as they are the same tensors in the
same version.

If a check fails during compilation, nothing is replaced. If it fails later, the inner compiler
compiles Dynamo's graph as it is, for these sizes, and that graph runs instead.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from coda_cpp.torch_backend import higher_order
from coda_cpp.torch_backend.layout import NotUnderstood, hint

_REMEMBERED = 16  # inputs of each check that held


@dataclasses.dataclass
class Check:
    """Whether values have a property. `evaluated` computes the values from the inputs of the
    outermost graph, `reads` are the numbers of the inputs that it reads, and holds(*values) says
    whether they have the property."""

    holds: Callable[..., bool]
    evaluated: Callable[[Sequence[Any]], Sequence[Any]]
    reads: Sequence[int]
    held: list[tuple] = dataclasses.field(default_factory=list)

    def __call__(self, inputs: Sequence[Any]) -> bool:
        read = [inputs[i] for i in self.reads]
        known = None
        if not any(isinstance(x, torch.Tensor) and x.is_inference() for x in read):  # no versions
            known = [(x._version, x.data_ptr()) if isinstance(x, torch.Tensor) else x for x in read]
            if any(known == before and all(ref() is x for ref, x in zip(refs, read))
                   for before, refs in self.held):
                return True
        with torch.no_grad():
            found = self.holds(*self.evaluated(inputs))
        if found and known is not None:
            refs = [weakref.ref(x) if isinstance(x, torch.Tensor) else lambda x=x: x for x in read]
            self.held = [*self.held[1 - _REMEMBERED:], (known, refs)]
        return found

class Checks:
    """The checks of a graph. `inputs`: its inputs when it is compiled; None if nothing checks the
    inputs of later runs, so that no check may be added. `module`: Dynamo's graph."""

    def __init__(self, inputs: Sequence[Any] | None = None, module: fx.GraphModule | None = None
                 ) -> None:
        self._inputs = inputs and [hint(x) if isinstance(x, torch.SymInt) else x for x in inputs]
        places = [] if module is None else module.graph.find_nodes(op="placeholder")
        # Dynamo marks the tensors that modules have, as their addresses stay.
        self._of_modules = {i for i, node in enumerate(places)
                            if "_dynamo_static_input_type" in node.meta.get("tensor_dict", {})}
        self._known: dict[Any, Check] = {}

    def require(self, key: Any, made: Callable[[], Check], of_modules: bool = False) -> None:
        """Adds a check. It must hold for the inputs. Equal keys stand for the same check.
        `of_modules`: it may only read tensors that modules have, and sizes."""
        if key in self._known:
            return
        check = made()
        if of_modules and not (self._inputs and all(
                i in self._of_modules or isinstance(self._inputs[i], int) for i in check.reads)):
            raise NotUnderstood("its mask is not a tensor of a module")
        inputs = [self._inputs[i] for i in check.reads] if self._inputs else [None]
        if any(given is None or isinstance(given, FakeTensor) for given in inputs):
            raise NotUnderstood("the values of its mask are not known")
        try:
            with _Pure(inputs):
                holds = check(self._inputs)
        except NotUnderstood:
            raise
        except Exception as why:  # noqa: BLE001 (its functions may do anything)
            raise NotUnderstood(f"{type(why).__name__}: {why}") from why
        if not holds:
            raise NotUnderstood("its mask, or its block mask, differs from the known form")
        self._known[key] = check

    def guarded(self, compiled: Callable, as_it_is: Callable[[Sequence[Any]], Callable]
                ) -> Callable:
        """`compiled`, behind the checks. Where one fails, the graph runs that `as_it_is` compiles
        for such inputs."""
        self._inputs = None
        if not self._known:
            return compiled
        others: dict[Any, Callable] = {}

        def called(*arguments: Any) -> Any:
            try:
                is_right = all(check(arguments) for check in self._known.values())
            except Exception:  # noqa: BLE001 (its functions may do anything)
                is_right = False
            if is_right:
                return compiled(*arguments)
            sizes = tuple((x.shape, x.stride()) if isinstance(x, torch.Tensor) else x
                          for x in arguments)
            if sizes not in others:
                others[sizes] = as_it_is(arguments)
            return others[sizes](*arguments)

        return called


def _memory(x: torch.Tensor) -> int:
    return x.untyped_storage()._cdata


class _Pure(TorchDispatchMode):
    """Refuses operations that draw numbers, or that write into one of the tensors."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        super().__init__()
        self._memories = {_memory(x) for x in tensors if isinstance(x, torch.Tensor)}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags or func._schema.is_mutable and any(
                _memory(x) in self._memories for x in args if isinstance(x, torch.Tensor)):
            raise NotUnderstood(f"its mask is computed by {func}")
        return func(*args, **(kwargs or {}))


def evaluation(wanted: Sequence[Any], around: Sequence[fx.Node], of_modules: bool = False,
               value_key: str = "example_value"
               ) -> tuple[Callable[[Sequence[Any]], Sequence[Any]], Sequence[int]]:
    """A function that computes values of a graph from the inputs of the outermost graph, and the
    numbers of the inputs that it reads. `around`: the calls of the blocks that contain the graph,
    the innermost first. `of_modules`: the inputs may only be tensors of modules, so the values may
    be floating-point numbers. `value_key`: under which nodes have their values; Dynamo's."""
    pending = [node for node in wanted if isinstance(node, fx.Node)]
    if not pending:
        return (lambda inputs: wanted), ()
    graph, needed = pending[0].graph, set()
    while pending:
        if (node := pending.pop()) not in needed:
            needed.add(node)
            pending += node.all_input_nodes
    values = [node.meta.get(value_key) for node in needed]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    if not of_modules and any(
            value.is_floating_point() or value.is_complex() for value in tensors):
        raise NotUnderstood("its mask depends on values other than integers")
    memories = set(map(_memory, tensors))
    for node in graph.nodes:
        writes = (higher_order.may_write if node.op == "call_module"
                  else higher_order.node_may_write)(node)
        if writes and node not in needed and any(
                isinstance(value := used.meta.get(value_key), torch.Tensor)
                and _memory(value) in memories for used in node.all_input_nodes):
            raise NotUnderstood("a tensor that its mask reads is written in place")
    part, copies = fx.Graph(), {}
    for node in graph.nodes:
        if node in needed:
            copies[node] = part.node_copy(node, copies.__getitem__)
    part.output(fx.map_arg(tuple(wanted), copies.__getitem__))
    run = fx.GraphModule(graph.owning_module, part)
    numbers = [i for i, node in enumerate(graph.find_nodes(op="placeholder")) if node in needed]
    if not around:
        return (lambda inputs: run(*(inputs[i] for i in numbers))), numbers
    outer, reads = evaluation(
        [around[0].args[1 + i] for i in numbers], around[1:], of_modules)
    return (lambda inputs: run(*outer(inputs))), reads
