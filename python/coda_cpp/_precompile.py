# SPDX-License-Identifier: Apache-2.0
"""Kernels of plans for a GPU, compiled while PyTorch is still compiling the rest.

When torch.compile asks for the shapes of an operator's results, its plan and sizes are known. So
the plan's kernels are compiled then, on a thread, into the cache of kernels; sessions find them
there. Plans that come while others are being compiled are compiled together, each kernel once.
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
    """Begins with the plan's kernels. Of sizes that are symbols, at what they are in this call."""
    global _is_working
    sizes = {name: size if isinstance(size, int) else size.node.hint
             for name, size in sizes.items()}
    if not all(isinstance(size, int) for size in sizes.values()):
        return
    key = (id(plan), tuple(sizes.items()), gpu)
    with _changed:
        if key in _known:
            return
        _known[key] = plan  # kept, so that its id stays its own
        _waiting.setdefault(gpu, []).append((plan, dict(sizes)))
        if not _is_working:
            _is_working = True
            threading.Thread(target=_work, name="coda kernels", daemon=True).start()


def wait() -> None:
    """Until all that was begun is there."""
    with _changed:
        _changed.wait_for(lambda: not _is_working)


@atexit.register
def _end() -> None:
    """Before Python ends: a thread that comes back from C++ then would end the process with an
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
        except Error:  # whoever needs the kernels compiles them himself, and is told
            pass
