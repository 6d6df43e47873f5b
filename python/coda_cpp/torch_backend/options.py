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
    "measure", by timing it once on this machine (region_times.py). `products`: "fp8" computes
    the products of bf16 regions in 8 bits in training (docs/fp8.md). `objective`: "speed" saves for
    the backward what is read faster than recomputed. `mode`: as in torch.compile(model, mode=...),
    for what Inductor compiles; CUDA graphs record regions too (cuda_graphs.py)."""

    inner: str = "inductor"
    strict: bool = False
    cost_model: bool | str = True
    products: str = ""
    objective: str = "memory"
    mode: str = ""

    def inductor_settings(self, may_record: bool) -> dict[str, Any]:
        """Inductor's settings in this mode; unless `may_record`, without CUDA graphs."""
        from torch._inductor import list_mode_options

        settings = dict(list_mode_options(self.mode)) if self.mode else {}
        if not may_record and self.has_cuda_graphs:
            settings[CUDA_GRAPHS] = False
        return settings

    @property
    def has_cuda_graphs(self) -> bool:
        """Whether CUDA graphs are asked for, by the mode or by Inductor's own configuration."""
        from torch._inductor import config, list_mode_options

        modes = list_mode_options(self.mode) if self.mode else {}
        return modes.get(CUDA_GRAPHS, config.triton.cudagraphs)


CUDA_GRAPHS = "triton.cudagraphs"  # a name of Inductor's
_CHOICES: dict[str, tuple] = {
    "strict": (False, True), "cost_model": (False, True, "measure"),
    "products": ("", *_core.eight_bits_names()), "objective": ("memory", "speed")}


def checked(given: Mapping[str, Any] | None, mode: str = "") -> Options:
    """The options that a user gave; `mode`: the argument of torch.compile. Raises Error for an
    unknown name or value."""
    given = {**(given or {}), **({"mode": mode} if mode else {})}
    names = [field.name for field in dataclasses.fields(Options)]
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise Error(f"backend coda: there is no option {', '.join(unknown)}; there are "
                    + ", ".join(f"'{name}'" for name in names))
    options = Options(**given)
    choices_of = _CHOICES | ({"mode": _modes()} if options.mode else {})
    for name, choices in choices_of.items():
        if getattr(options, name) not in choices:
            raise Error(f"backend coda: the option '{name}' is {getattr(options, name)!r}; it may "
                        "be " + ", ".join(repr(choice) for choice in choices))
    if options.mode and options.inner != "inductor":
        raise Error(f"backend coda: the option 'mode' is {options.mode!r}, but only the inner "
                    f"backend 'inductor' has modes, and 'inner' is {options.inner!r}")
    return options


def _modes() -> tuple[str, ...]:
    from torch._inductor import list_mode_options

    return tuple(list_mode_options())
