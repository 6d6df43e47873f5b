# SPDX-License-Identifier: Apache-2.0
"""Times regions (measure.py), for the option "cost_model": "measure", and on GPUs on which kernels
were never run (coda.py): fused, and as the inner compiler makes them of PyTorch's operations.

A measurement spends nearly all of its time in the inner compiler, so coda-cpp's region is called
eagerly. On a GPU the region's kernels are compiled in the background at the same time, if
inline.prepare() was called for the region before. Input values do not change the time, except
indices, which are all 0.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from coda_cpp import _precompile
from coda_cpp.torch_backend import measure
from coda_cpp.torch_backend.layout import hint
from coda_cpp.torch_backend.replace import Region, text_of
from coda_cpp.torch_backend.values import EQUAL_HALVES

# Of the relative errors of products in 8 bits and of gradients of random values, with a margin.
_LARGEST_ERROR = 0.25


def measured(part: fx.GraphModule, region: Region, compiler: Callable, options: str,
             limit: float | None = None) -> measure.Times | None:
    """Seconds of a call, forward and backward, of the region and of the part's operations compiled
    by `compiler`; infinite if the region's results differ. None, `limit`: see measure.once().
    `options`: all else that the times depend on."""
    sizes, device = [], torch.device("cpu")
    for value, dtype, needs in region.operands:
        if isinstance(value, torch.Tensor):
            device = value.device
            sizes.append((list(map(hint, value.shape)), list(map(hint, value.stride())),
                          dtype, needs))
    return measure.once("a region", (text_of(list(part.graph.nodes)), sizes, options), device,
                        lambda: _measure(part, region, compiler, device), limit)


def _measure(part: fx.GraphModule, region: Region, compiler: Callable, device: torch.device
             ) -> measure.Times:
    places = part.graph.find_nodes(op="placeholder")
    halves = [bool(node.meta.get(EQUAL_HALVES)) for node in places]
    given = [_random(*operand, are_equal) for operand, are_equal in itertools.zip_longest(
        region.operands, halves, fillvalue=False)]
    operands = given[:len(places)]
    compiled = compiler(_returning_a_tuple(part), operands)
    needs = [i for i, x in enumerate(operands)
             if isinstance(x, torch.Tensor) and x.requires_grad]
    upstream: list[torch.Tensor] = []

    def ours() -> list[torch.Tensor | None]:
        # If autocast rounded a weight, the region has the gradient of the fp32 weight, which
        # follows the operands. A weight that the region reads in two layouts follows twice.
        made = region(*(x.detach() if i in region.rounded else x for i, x in enumerate(given)))
        leaves = [[len(places) + j for j, of in enumerate(region.rounded) if of == i] or [i]
                  for i in needs]
        return measure.outcome(made, [[given[i] for i in group] for group in leaves], upstream)

    def theirs() -> list[torch.Tensor | None]:
        found = measure.outcome(compiled(*operands), [[operands[i]] for i in needs], upstream)
        first = len(found) - len(needs)
        return [x.float() if x is not None and at >= 0 and needs[at] in region.rounded else x
                for at, x in enumerate(found, -first)]

    _precompile.wait()  # a session that is made earlier may use slower kernels
    return measure.compared("a region", ours, theirs, device, _LARGEST_ERROR)


def _random(value: Any, dtype: Any, needs: bool, has_equal_halves: bool) -> Any:
    """A real tensor for a fake one, a number for a symbolic one. `has_equal_halves`: the region
    reads one half of the last dimension, because both are equal."""
    if not isinstance(value, torch.Tensor):
        return value if isinstance(value, (int, float)) else value.node.hint
    made = measure.random(value, dtype, needs, 0.02)
    if has_equal_halves:
        first, second = made.detach().chunk(2, -1)
        second.copy_(first)
    return made


def _returning_a_tuple(part: fx.GraphModule) -> fx.GraphModule:
    """A module that calls the part, with its inputs, and returns a tuple."""
    graph = fx.Graph()
    given = [graph.placeholder(f"given_{i}")
             for i, _ in enumerate(part.graph.find_nodes(op="placeholder"))]
    call = graph.call_module("called", tuple(given))
    results = part.graph.output_node().args[0]
    is_tuple = isinstance(results, (tuple, list))
    graph.output(tuple(graph.call_function(operator.getitem, (call, i))
                       for i in range(len(results))) if is_tuple else (call,))
    return fx.GraphModule({"called": part}, graph)
