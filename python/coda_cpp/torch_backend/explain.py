# SPDX-License-Identifier: Apache-2.0
"""explain() and tune(): they run the backend on a model, but do not run the compiled regions."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.utils import counters

from coda_cpp import _core
from coda_cpp.torch_backend import options as choices
from coda_cpp.torch_backend.coda import coda, fuse
from coda_cpp.torch_backend.messages import skip_messages
from coda_cpp.torch_backend.report import Report


def explain(model: Callable, *arguments: Any, with_plans: bool = False,
            options: dict[str, Any] | None = None, **named: Any) -> str:
    """Reports what torch.compile(model, backend="coda", options=options) fuses in the model, called
    with these arguments. The text has totals; then the linear layers that are left to PyTorch, with
    their place in the user's code, the reason and a remedy; then the regions with bytes; and with
    `with_plans` all programs. The model is run once; its buffers and the random generators are
    restored."""
    reports: list[Report] = []
    chosen = dataclasses.replace(choices.checked(options), strict=False)

    def backend(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable:
        reports.append(Report())
        return coda(module, inputs, options=vars(chosen), report=reports[-1], run_by="aot_eager")

    torch._dynamo.reset()
    skip_messages()
    breaks = dict(counters["graph_break"])
    with _restored(model):
        torch.compile(model, backend=backend)(*arguments, **named)
    torch._dynamo.reset()
    if not reports:
        return "no graph was compiled"
    made = Report.of(reports)
    if len(reports) > 1:
        why = [_first_line(reason) for reason, count in counters["graph_break"].items()
               if count > breaks.get(reason, 0)]
        made.notes.insert(0, f"Dynamo made {len(reports)} graphs, and fusion ends "
                             "at the end of each: " + "; ".join(why))
    return made.text(with_plans)


def _first_line(reason: str) -> str:
    return reason.strip().split("\n")[0]


def tune(model: Callable, *arguments: Any, most: int = 24, seconds: float = 0.6,
         options: dict[str, Any] | None = None, **named: Any) -> list[str]:
    """Times tile configurations of the kernels that torch.compile(model, backend="coda",
    options=options), called with these arguments, runs on this GPU, and stores the times for later
    processes (docs/configurations.md). Returns a line for each kernel: class, sizes, the chosen
    configuration and its microseconds, the fastest one and its microseconds. Kernels that were
    timed on this machine before are skipped. `most` and `seconds` are as in `coda tune`. The model
    is run once, unfused; its buffers and the random generators are restored."""
    lines: list[str] = []
    chosen = choices.checked(options)

    def backend(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable:
        report = Report()
        fuse(module, inputs, report, chosen)
        for entry in report.fused:
            sizes = entry.region.function.function.nominal_sizes()
            lines.extend(" | ".join(map(str, kernel))
                         for kernel in _core.tune(entry.plan, sizes, most, seconds))
        return module.forward

    torch._dynamo.reset()
    skip_messages()
    with _restored(model):
        torch.compile(model, backend=backend)(*arguments, **named)
    torch._dynamo.reset()
    return lines


@contextlib.contextmanager
def _restored(model: Callable) -> Iterator[None]:
    """Afterwards the model's buffers, such as running means, and PyTorch's random generators are as
    before."""
    buffers = list(model.buffers()) if isinstance(model, torch.nn.Module) else []
    values = [buffer.detach().clone() for buffer in buffers]
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    try:
        with torch.random.fork_rng(gpus):
            yield
    finally:
        with torch.no_grad():
            for buffer, value in zip(buffers, values):
                if not torch.equal(buffer, value):
                    buffer.copy_(value)
