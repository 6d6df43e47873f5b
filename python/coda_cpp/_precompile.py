# SPDX-License-Identifier: Apache-2.0
"""Compiles the kernels of plans for a GPU while PyTorch compiles the rest.

When torch.compile asks for the shapes of an operator's results, the operator's plan and sizes are
known. From then on a thread compiles the plan's kernels into the kernel cache, where sessions find
them. Plans that arrive during a compilation are then compiled together, each kernel once. Later,
the thread compiles kernels for sizes that first occur in a step, in the background. It has a low
priority: PyTorch's own compilation takes longer and goes first.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import os
import threading
from collections.abc import Mapping
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
_waiting: dict[tuple[Gpu, int], list[Work]] = {}  # by GPU and number of threads
_is_working = False


def start(plan: _core.Plan, sizes: Mapping[str, Any], gpu: Gpu, in_background: bool = False
          ) -> Work | None:
    """Starts to compile the plan's kernels. A symbolic size has its value in this call; if it has
    none, nothing is started and the result is None. `in_background`: uses only half of the
    processor's cores."""
    global _is_working
    sizes = {name: size if isinstance(size, int) else size.node.hint
             for name, size in sizes.items()}
    if not all(isinstance(size, int) for size in sizes.values()):
        return None
    key = (id(plan), tuple(sizes.items()), gpu)
    threads = max(1, (os.cpu_count() or 1) // 2) if in_background else 0
    with _changed:
        if key not in _known:
            _known[key] = Work(plan, sizes, has_new=_is_working)
            _waiting.setdefault((gpu, threads), []).append(_known[key])
        if _waiting and not _is_working:
            _is_working = True
            threading.Thread(target=_work, name="coda kernels", daemon=True).start()
        return _known[key]


def is_working() -> bool:
    """Whether kernels are being compiled."""
    with _changed:
        return _is_working


def wait() -> None:
    """Waits until all kernels are compiled."""
    with _changed:
        _changed.wait_for(lambda: not _is_working)


@atexit.register
def _end() -> None:
    """Waits before Python exits: a thread that returns from C++ later would end the process with an
    error."""
    with _changed:
        _waiting.clear()
    wait()


def _work() -> None:
    global _is_working
    with contextlib.suppress(AttributeError, OSError):  # Linux: of this thread and those it starts
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
    while True:
        with _changed:
            if not _waiting:
                _is_working = False
                _changed.notify_all()
                return
            (gpu, threads), works = _waiting.popitem()
        compiled = 0
        with contextlib.suppress(Error):  # the session compiles them again and reports the error
            compiled = _core.precompile([(work.plan, work.sizes) for work in works], *gpu, threads)
        for work in works:
            work.has_new |= compiled > 0
            work.is_done = True
