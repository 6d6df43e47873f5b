# SPDX-License-Identifier: Apache-2.0
"""What the backend did with a graph: which regions became operators, and what is left to PyTorch."""

from __future__ import annotations

import dataclasses
import functools

from coda_cpp._core import Plan
from coda_cpp.torch_backend.replace import Region

# What a call of an operator costs the host, in seconds, with eight tensors and PyTorch's dispatch
# (bench/peers/host_time_torch.py): a region that gains less is left to PyTorch.
_CALL_SECONDS = 25e-6


@dataclasses.dataclass
class Taken:
    """A region that became an operator, or that was left since it would gain nothing."""

    name: str
    operations: str
    region: Region

    @functools.cached_property
    def costs(self) -> tuple[tuple, tuple]:
        return self.region.function.function.costs(self.region.needs)

    @property
    def gains(self) -> bool:
        (_, _, ours), (_, _, theirs) = self.costs
        return ours + _CALL_SECONDS * (2 if self.region.needs else 1) < theirs

    @property
    def plan(self) -> Plan:
        return self.region.function.function.phases(self.region.needs).plan

    def summary(self) -> str:
        (_, moved, seconds), (_, moved_apart, seconds_apart) = self.costs
        kept = self.plan.saved_bytes(self.region.function.function.nominal_sizes())
        return (f"{self.name}: {self.operations}\n"
                f"  {len(self.plan.programs)} programs; {moved / 1e6:.2f} MB moved, "
                f"{moved_apart / 1e6:.2f} MB without epilogues; {kept / 1e6:.2f} MB kept for the "
                f"backward; {seconds * 1e3:.3f} ms predicted, {seconds_apart * 1e3:.3f} ms without")

    def __str__(self) -> str:
        return self.summary() + "\n" + self.region.function.function.explain(self.region.needs)


@dataclasses.dataclass
class Report:
    """What was taken of a graph, and what not and why."""

    taken: list[Taken] = dataclasses.field(default_factory=list)
    without_gain: list[Taken] = dataclasses.field(default_factory=list)
    left: list[str] = dataclasses.field(default_factory=list)  # with counts
    refused: list[str] = dataclasses.field(default_factory=list)  # of those, what has products
    causal: int = 0  # calls of attention that were told that their mask is causal

    @property
    def regions(self) -> list[str]:
        return [taken.operations for taken in self.taken]

    @property
    def programs(self) -> int:
        return sum(len(taken.plan.programs) for taken in self.taken)

    def text(self, with_plans: bool = False) -> str:
        lines = [str(taken) if with_plans else taken.summary() for taken in self.taken]
        if self.causal:
            lines.append(f"{self.causal} calls of attention have a causal mask, and were told so")
        if self.without_gain:
            lines.append("left to PyTorch, since fusion would gain nothing at these sizes:")
            lines += ["  " + taken.summary().replace("\n", "\n  ") for taken in self.without_gain]
        lines.append("left to PyTorch:")
        return "\n".join(lines + [f"  {line}" for line in self.left or ["nothing"]])

    __str__ = text
