# SPDX-License-Identifier: Apache-2.0
"""Times regions, for the option "cost_model": "measure", and on GPUs on which kernels were never
run (coda.py).

A region runs on random tensors of the sizes that come, forward and backward: fused, and as the
inner compiler makes it of PyTorch's operations. If the results differ, it takes forever. Both times
are stored in the cache folder, so that a region is timed once on a machine. A process measures for
`seconds` at most: no measurement begins that would end later if it took as long as the longest one
before. The next process measures further regions. Nearly all of the time is the inner compiler's,
so coda-cpp's region is called eagerly. Values do not matter to the time, except indices, which are
all 0.

On a GPU only the GPU's time is measured, because in a training step the host runs ahead. So the GPU
first waits until the host has started all runs.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import logging
import math
import operator
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._functorch import config as functorch_config
from torch._guards import tracing

from coda_cpp import _cache, _core
from coda_cpp.torch_backend.layout import hint
from coda_cpp.torch_backend.replace import Region, text_of
from coda_cpp.torch_backend.values import EQUAL_HALVES

SECONDS = 10.0
SECONDS_OF_NEW_GPUS = 60.0  # where regions that are not timed are not fused
_RUNS = 5  # whose mean is a time
_TIMES = 3  # of which the shortest counts
_CYCLES = 2e9  # of a GPU in a second, at most
# Of the relative errors of products in 8 bits and of gradients of random values, with a margin.
_LARGEST_ERROR = 0.25

_LOG = logging.getLogger("coda_cpp")
_known: dict[str, tuple[float, float] | None] = {}
_spent = _longest = 0.0  # seconds


def measured(part: fx.GraphModule, region: Region, compiler: Callable, options: str,
             limit: float | None = None) -> tuple[float, float] | None:
    """Seconds of a call, forward and backward, of the region and of the part's operations compiled
    by `compiler`; infinite if the region's results differ. None: there was no time or no memory
    left to measure, or the region could not run. `options`: all else that the times depend on.
    `limit`: seconds of all measurements of the process; SECONDS if it is not given."""
    global _longest, _spent
    key = _key(part, region, options)
    if key not in _known:
        _known[key] = _stored(key)
        if _known[key] is None and _spent + _longest < (limit or SECONDS):
            begin = time.perf_counter()
            try:
                _known[key] = _measure(part, region, compiler)
            except Exception as why:  # noqa: BLE001 (the caller decides without it)
                _LOG.info("coda: a region could not be timed: %s: %s", type(why).__name__, why)
            else:
                _store(key, _known[key])
            seconds = time.perf_counter() - begin
            _spent, _longest = _spent + seconds, max(_longest, seconds)
    return _known[key]


def _key(part: fx.GraphModule, region: Region, options: str) -> str:
    sizes, device = [], torch.device("cpu")
    for value, dtype, needs in region.operands:
        if isinstance(value, torch.Tensor):
            device = value.device
            sizes.append((list(map(hint, value.shape)), list(map(hint, value.stride())),
                          dtype, needs))
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    facts = (text_of(list(part.graph.nodes)), sizes, name, torch.__version__, _core.version,
             options)
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _stored(key: str) -> tuple[float, float] | None:
    folder = _cache.folder()
    if folder is None:
        return None
    try:
        ours, theirs = json.loads((folder / "regions" / key).read_text())
    except (OSError, ValueError):
        return None
    return float(ours), float(theirs)


def _store(key: str, times: tuple[float, float] | None) -> None:
    folder = _cache.folder()
    if folder is None:
        return
    with contextlib.suppress(OSError):  # then it is timed again
        (folder / "regions").mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=folder / "regions", delete=False) as file:
            json.dump(times, file)
        os.replace(file.name, folder / "regions" / key)


def _measure(part: fx.GraphModule, region: Region, compiler: Callable) -> tuple[float, float]:
    devices = {value.device for value, _, _ in region.operands if isinstance(value, torch.Tensor)}
    gpus = [device for device in devices if device.type == "cuda"]
    with contextlib.ExitStack() as stack:
        stack.enter_context(tracing(None))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(torch.random.fork_rng(gpus))
        for device in ("cpu", "cuda"):
            stack.enter_context(torch.autocast(device, enabled=False))
        # By default the backward is compiled in its first run. Dynamo then fails, because it takes
        # this compilation for a second one of the model's graph.
        stack.enter_context(functorch_config.patch(
            enable_autograd_cache=False, force_non_lazy_backward_lowering=True))
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
            made = region(*(x.detach() if i in region.rounded else x
                            for i, x in enumerate(given)))
            leaves = [[len(places) + j for j, of in enumerate(region.rounded) if of == i] or [i]
                      for i in needs]
            return _outcome(made, [[given[i] for i in group] for group in leaves], upstream)

        def theirs() -> list[torch.Tensor | None]:
            found = _outcome(compiled(*operands), [[operands[i]] for i in needs], upstream)
            first = len(found) - len(needs)
            return [x.float() if x is not None and at >= 0 and needs[at] in region.rounded else x
                    for at, x in enumerate(found, -first)]

        expected = theirs()
        error = _error(ours(), expected)
        del expected
        times = _seconds(ours, bool(gpus)), _seconds(theirs, bool(gpus))
        if not error <= _LARGEST_ERROR:  # also if it is NaN
            _LOG.warning("coda: a region's results differ from PyTorch's by %.2g of their norm, so "
                         "it is left to PyTorch; please report it", error)
            times = math.inf, times[1]
    if gpus:
        torch.cuda.empty_cache()
    return times


def _random(value: Any, dtype: Any, needs: bool, has_equal_halves: bool) -> Any:
    """A real tensor for a fake one, a number for a symbolic one. `has_equal_halves`: the region
    reads one half of the last dimension, because both are equal."""
    if not isinstance(value, torch.Tensor):
        return value if isinstance(value, (int, float)) else value.node.hint
    sizes, strides = list(map(hint, value.shape)), list(map(hint, value.stride()))
    made = torch.empty_strided([size if stride else min(size, 1)  # expanded below
                                for size, stride in zip(sizes, strides)],
                               strides, dtype=dtype, device=value.device)
    if not dtype.is_floating_point:
        return made.zero_().expand(sizes)
    made.normal_(std=0.02)
    if has_equal_halves:
        first, second = made.chunk(2, -1)
        second.copy_(first)
    return made.expand(sizes).detach().requires_grad_(needs)


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


def _outcome(made: Any, leaves: Sequence[Sequence[torch.Tensor]], upstream: list[torch.Tensor]
             ) -> list[torch.Tensor | None]:
    """The results, and for each group of leaves the sum of their gradients for `upstream`, which is
    made if it is empty. None: no gradient."""
    results = [x for x in (made if isinstance(made, (tuple, list)) else (made,))
               if isinstance(x, torch.Tensor)]
    differentiable = [x for x in results if x.requires_grad]
    if not upstream:
        upstream.extend(torch.randn_like(x) for x in differentiable)
    if not leaves or not differentiable:
        return list(results)
    gradients = iter(torch.autograd.grad(
        differentiable, [leaf for group in leaves for leaf in group],
        [x.to(y.dtype) for x, y in zip(upstream, differentiable)], allow_unused=True))
    groups = ([x for x in itertools.islice(gradients, len(group)) if x is not None]
              for group in leaves)
    return [*results, *(functools.reduce(operator.add, group) if group else None
                        for group in groups)]


def _error(found: Sequence[torch.Tensor | None], expected: Sequence[torch.Tensor | None]) -> float:
    """The largest relative error of a tensor of floats, in the Euclidean norm. None counts
    as zeros."""
    errors = [0.0]
    for x, y in zip(found, expected, strict=True):
        if x is None or y is None:
            errors += [float(bool(z.any())) for z in (x, y) if z is not None]
        elif y.is_floating_point():
            norm = torch.linalg.vector_norm(y.detach().float())
            distance = torch.linalg.vector_norm(x.detach().float() - y.detach().float())
            errors.append(float(distance / norm.clamp_min(1e-30)))
    return float(torch.tensor(errors).max())  # NaN if one is


def _seconds(run: Callable[[], Any], is_gpu: bool) -> float:
    timed = _on_gpu if is_gpu else _on_host
    run()
    host = _on_host(run)
    return min(timed(run, host) for _ in range(_TIMES))


def _on_host(run: Callable, _: float = 0.0) -> float:
    begin = time.perf_counter()
    for _ in range(_RUNS):
        run()
    return (time.perf_counter() - begin) / _RUNS


def _on_gpu(run: Callable, host: float) -> float:
    """`host`: seconds in which the host starts a run."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    torch.cuda._sleep(int(2 * _RUNS * host * _CYCLES))
    begin.record()
    for _ in range(_RUNS):
        run()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3 / _RUNS
