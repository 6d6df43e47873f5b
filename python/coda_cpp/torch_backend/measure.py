# SPDX-License-Identifier: Apache-2.0
"""Times two ways to compute the same, and remembers both times: for regions (region_times.py) and
attention (attention_choice.py).

Both run on random tensors of the sizes that come, forward and backward. If the results differ, the
first one takes forever. The times are stored in the cache folder, so that each pair is timed once
on a machine. A process measures for `seconds` at most: no measurement begins that would end later
if it took as long as the longest one before. The next process measures further pairs. Processes
that train together may decide differently: both ways are right, so only the rounding differs.

On a GPU only the GPU's time is measured, because in a training step the host runs ahead. So the GPU
first waits until the host has started all runs. While a CUDA graph is recorded nothing is measured.
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
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._functorch import config as functorch_config
from torch._guards import tracing

from coda_cpp import _cache, _core
from coda_cpp.torch_backend.layout import hint

Times = tuple[float, float]  # seconds of both ways; the first one infinite if its results differ
SECONDS = 10.0
SECONDS_OF_NEW_GPUS = 60.0  # where regions that are not timed are not fused
_FOLDER = "times"
_RUNS = 5  # whose mean is a time
_TIMES = 3  # of which the shortest counts
_CYCLES = 2e9  # of a GPU in a second, at most

_LOG = logging.getLogger("coda_cpp")
_known: dict[str, Times | None] = {}
_spent = _longest = 0.0  # seconds


def once(what: str, facts: Any, device: torch.device, measure: Callable[[], Times],
         limit: float | None = None) -> Times | None:
    """The times that `measure` returned on this machine for these facts. None: there was no time or
    no memory left to measure, or the first way could not run. `facts`: all that the times depend
    on, besides the device. `limit`: seconds of all measurements of the process; SECONDS if it is
    not given."""
    global _longest, _spent
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    key = hashlib.sha256(repr(
        (what, facts, name, torch.__version__, _core.version)).encode()).hexdigest()
    if key not in _known:
        _known[key] = _stored(key)
        if _known[key] is None and _spent + _longest < (limit or SECONDS) and not (
                device.type == "cuda" and torch.cuda.is_current_stream_capturing()):
            begin = time.perf_counter()
            try:
                with _apart(device):
                    _known[key] = measure()
            except Exception as why:  # noqa: BLE001 (the caller decides without it)
                _LOG.info("coda: %s could not be timed: %s: %s", what, type(why).__name__, why)
            else:
                _store(key, _known[key])
            if device.type == "cuda":
                torch.cuda.empty_cache()
            seconds = time.perf_counter() - begin
            _spent, _longest = _spent + seconds, max(_longest, seconds)
    return _known[key]


def compared(what: str, ours: Callable[[], list[torch.Tensor | None]],
             theirs: Callable[[], list[torch.Tensor | None]], device: torch.device,
             largest_error: float) -> Times:
    """Compares the results of both, and times them."""
    expected = theirs()
    error = _error(ours(), expected)
    del expected
    times = _seconds(ours, device.type == "cuda"), _seconds(theirs, device.type == "cuda")
    if not error <= largest_error:  # also if it is NaN
        _LOG.warning("coda: results of %s differ from PyTorch's by %.2g of their norm, so it is "
                     "left to PyTorch; please report it", what, error)
        times = math.inf, times[1]
    return times


def _stored(key: str) -> Times | None:
    folder = _cache.folder()
    if folder is None:
        return None
    try:
        ours, theirs = json.loads((folder / _FOLDER / key).read_text())
    except (OSError, ValueError):
        return None
    return float(ours), float(theirs)


def _store(key: str, times: Times | None) -> None:
    folder = _cache.folder()
    if folder is None:
        return
    with contextlib.suppress(OSError):  # then it is timed again
        (folder / _FOLDER).mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=folder / _FOLDER, delete=False) as file:
            json.dump(times, file)
        os.replace(file.name, folder / _FOLDER / key)


@contextlib.contextmanager
def _apart(device: torch.device) -> Iterator[None]:
    """Runs and compilations in this context do not see those of the model around them."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(tracing(None))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(torch.random.fork_rng([device] if device.type == "cuda" else []))
        for kind in ("cpu", "cuda"):
            stack.enter_context(torch.autocast(kind, enabled=False))
        # By default the backward is compiled in its first run. Dynamo then fails, because it takes
        # this compilation for a second one of the model's graph.
        stack.enter_context(functorch_config.patch(
            enable_autograd_cache=False, force_non_lazy_backward_lowering=True))
        yield


def random(value: torch.Tensor, dtype: torch.dtype, needs: bool, deviation: float) -> torch.Tensor:
    """A real tensor for a fake one. Integers are 0."""
    sizes, strides = list(map(hint, value.shape)), list(map(hint, value.stride()))
    made = torch.empty_strided([size if stride else min(size, 1)  # expanded below
                                for size, stride in zip(sizes, strides)],
                               strides, dtype=dtype, device=value.device)
    made = made.normal_(std=deviation) if dtype.is_floating_point else made.zero_()
    return made.expand(sizes).detach().requires_grad_(needs)


def outcome(made: Any, leaves: Sequence[Sequence[torch.Tensor]], upstream: list[torch.Tensor]
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
