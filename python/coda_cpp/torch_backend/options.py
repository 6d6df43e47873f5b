# SPDX-License-Identifier: Apache-2.0
"""The options of the backend, their values, and the check of a user's options."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from coda_cpp import _core
from coda_cpp._core import Error


@dataclasses.dataclass(frozen=True)
class Options:
    """`inner`: the backend that compiles the rest ("inductor", "aot_eager", or another one's name).
    `strict`: a linear layer that is left to PyTorch is an Error, unless the cost model left it.
    `cost_model`: a region that would gain nothing is left to PyTorch, by prediction or, with
    "measure", by timing it once on this machine (measure.py). `products`: "fp8" computes
    the products of bf16 regions in 8 bits in training (docs/fp8.md). `objective`: "speed" saves for
    the backward what is read faster than recomputed."""

    inner: str = "inductor"
    strict: bool = False
    cost_model: bool | str = True
    products: str = ""
    objective: str = "memory"


_CHOICES: dict[str, tuple] = {
    "strict": (False, True), "cost_model": (False, True, "measure"),
    "products": ("", *_core.eight_bits_names()), "objective": ("memory", "speed")}


def checked(given: Mapping[str, Any] | None) -> Options:
    """The options that a user gave. Raises Error for an unknown name or value."""
    names = [field.name for field in dataclasses.fields(Options)]
    unknown = sorted(set(given or {}) - set(names))
    if unknown:
        raise Error(f"backend coda: there is no option {', '.join(unknown)}; there are "
                    + ", ".join(f"'{name}'" for name in names))
    options = Options(**(given or {}))
    for name, choices in _CHOICES.items():
        if getattr(options, name) not in choices:
            raise Error(f"backend coda: the option '{name}' is {getattr(options, name)!r}; it may "
                        "be " + ", ".join(repr(choice) for choice in choices))
    return options
