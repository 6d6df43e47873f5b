# SPDX-License-Identifier: Apache-2.0
"""Compiles the kernels of plans for a GPU while PyTorch compiles the rest.

When torch.compile asks for the shapes of an operator's results, the operator's plan and sizes are
known. From then on a thread compiles the plan's kernels into the kernel cache, where sessions find
them; a kernel of several plans is compiled once. Later, kernels for sizes that first occur in a
step are compiled in the background, those of all plans together. The threads have a low priority:
PyTorch's own compilation takes longer and goes first.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

from coda_cpp import _core
from coda_cpp._core import Error

Gpu = tuple[int, str, tuple[int, int]]  # multiprocessors, name, compute capability


@dataclasses.dataclass
class Work:
    """The compilation of a plan's kernels for given sizes. `has_new`: whether some kernels may have
    been compiled since start() was called."""

    plan: _core.Plan
    sizes: dict[str, int]
    has_new: bool
    is_done: bool = False


_changed = threading.Condition()
_known: dict[Any, Work] = {}  # the keys have ids of plans, and the values keep the plans alive
_waiting: dict[Gpu, list[Work]] = {}  # for the thread of the background
_threads = 0  # that compile
_has_background = False


def start(plan: _core.Plan, sizes: Mapping[str, Any], gpu: Gpu, in_background: bool = False
          ) -> Work | None:
    """Starts to compile the plan's kernels. A symbolic size has its value in this call; if it has
    none, nothing is started and the result is None. `in_background`: uses only half of the
    processor's cores."""
    global _has_background
    sizes = {name: size if isinstance(size, int) else size.node.hint
             for name, size in sizes.items()}
    if not all(isinstance(size, int) for size in sizes.values()):
        return None
    key = (id(plan), tuple(sizes.items()), gpu)
    with _changed:
        if key not in _known:
            _known[key] = work = Work(plan, sizes, has_new=_threads > 0)
            if not in_background:
                _begin(lambda: _compile([work], gpu, 0))
            else:
                _waiting.setdefault(gpu, []).append(work)
                if not _has_background:
                    _has_background = True
                    _begin(_compile_waiting)
        return _known[key]


def is_working() -> bool:
    """Whether kernels are being compiled."""
    with _changed:
        return _threads > 0


def wait() -> None:
    """Waits until all kernels are compiled."""
    with _changed:
        _changed.wait_for(lambda: not _threads)


@atexit.register
def _end() -> None:
    """Waits before Python exits: a thread that returns from C++ later would end the process with an
    error."""
    with _changed:
        _waiting.clear()
    wait()


def _begin(job: Callable[[], None]) -> None:
    """Runs the job on a thread. Requires _changed."""
    global _threads

    def run() -> None:
        global _threads
        with contextlib.suppress(AttributeError, OSError):  # Linux: and those that it starts
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
        try:
            job()
        finally:
            with _changed:
                _threads -= 1
                _changed.notify_all()

    _threads += 1
    threading.Thread(target=run, name="coda kernels", daemon=True).start()


def _compile_waiting() -> None:
    global _has_background
    while True:
        with _changed:
            if not _waiting:
                _has_background = False
                return
            gpu, works = _waiting.popitem()
        _compile(works, gpu, max(1, (os.cpu_count() or 1) // 2))


def _compile(works: list[Work], gpu: Gpu, threads: int) -> None:
    compiled = 0
    with contextlib.suppress(Error):  # the session compiles them again and reports the error
        compiled = _core.precompile([(work.plan, work.sizes) for work in works], *gpu, threads)
    for work in works:
        work.has_new |= compiled > 0 or _threads > 1
        work.is_done = True
