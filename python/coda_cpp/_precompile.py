# SPDX-License-Identifier: Apache-2.0
"""Compiles the kernels of plans for a GPU while PyTorch compiles the rest.

When torch.compile asks for the shapes of an operator's results, the operator's plan and sizes are
known. From then on a thread compiles the plan's kernels into the kernel cache, where sessions find
them. Plans that arrive during a compilation are then compiled together, each kernel once.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Mapping
from typing import Any

from coda_cpp import _core
from coda_cpp._core import Error

Gpu = tuple[int, str]  # multiprocessors, name

_changed = threading.Condition()
_known: dict[Any, _core.Plan] = {}
_waiting: dict[Gpu, list[tuple[_core.Plan, dict[str, int]]]] = {}
_is_working = False


def start(plan: _core.Plan, sizes: Mapping[str, Any], gpu: Gpu) -> None:
    """Starts to compile the plan's kernels. A symbolic size has its value in this call."""
    global _is_working
    sizes = {name: size if isinstance(size, int) else size.node.hint
             for name, size in sizes.items()}
    if not all(isinstance(size, int) for size in sizes.values()):
        return
    key = (id(plan), tuple(sizes.items()), gpu)
    with _changed:
        if key in _known:
            return
        _known[key] = plan  # a reference, so that no other plan gets this id
        _waiting.setdefault(gpu, []).append((plan, dict(sizes)))
        if not _is_working:
            _is_working = True
            threading.Thread(target=_work, name="coda kernels", daemon=True).start()


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
    while True:
        with _changed:
            if not _waiting:
                _is_working = False
                _changed.notify_all()
                return
            gpu, plans = _waiting.popitem()
        try:
            _core.precompile(plans, *gpu)
        except Error:  # the session compiles the kernels again and reports the error
            pass
