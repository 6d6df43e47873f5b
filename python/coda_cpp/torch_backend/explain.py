# SPDX-License-Identifier: Apache-2.0
"""What the backend makes of a model, without running what it made: explain() and tune()."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from coda_cpp import _core
from coda_cpp.torch_backend import options as choices
from coda_cpp.torch_backend.coda import coda, fuse
from coda_cpp.torch_backend.report import Report


def explain(model: Callable, *arguments: Any, with_plans: bool = False,
            options: dict[str, Any] | None = None, **named: Any) -> str:
    """What torch.compile(model, backend="coda", options=options) takes of the model, called with
    these arguments, and what it leaves and why, with bytes; `with_plans`: with all programs too.
    The model is run once."""
    reports: list[str] = []
    chosen = dataclasses.replace(
        choices.checked(options), inner="aot_eager", strict=False)

    def backend(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable:
        report = Report()
        compiled = coda(module, inputs, options=vars(chosen), report=report)
        reports.append(report.text(with_plans))
        return compiled

    torch._dynamo.reset()
    torch.compile(model, backend=backend)(*arguments, **named)
    torch._dynamo.reset()
    return "\n\n".join(reports) or "no graph was compiled"


def tune(model: Callable, *arguments: Any, most: int = 24, seconds: float = 0.6,
         options: dict[str, Any] | None = None, **named: Any) -> list[str]:
    """Times tile configurations of the kernels that torch.compile(model, backend="coda",
    options=options), called with these arguments, runs on this GPU, and keeps the times for later
    processes (docs/configurations.md). A line for each kernel: class, sizes, what was chosen, its
    microseconds, the fastest, its microseconds. What was timed here before is left out. `most` and
    `seconds` as of `coda tune`. The model is run once, unfused."""
    lines: list[str] = []
    chosen = choices.checked(options)

    def backend(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable:
        report = Report()
        fuse(module, inputs, report, chosen)
        for taken in report.taken:
            sizes = taken.region.function.function.nominal_sizes()
            lines.extend(" | ".join(map(str, kernel))
                         for kernel in _core.tune(taken.plan, sizes, most, seconds))
        return module.forward

    torch._dynamo.reset()
    torch.compile(model, backend=backend)(*arguments, **named)
    torch._dynamo.reset()
    return lines
