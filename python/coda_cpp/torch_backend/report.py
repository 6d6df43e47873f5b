# SPDX-License-Identifier: Apache-2.0
"""The report on a model: which regions became operators, and which operations are left to PyTorch,
with the reasons and remedies."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

from coda_cpp._core import Plan
from coda_cpp.function import Phases
from coda_cpp.torch_backend.linears import LinearLayer
from coda_cpp.torch_backend.replace import Region

# Host time in seconds of an operator's call with eight tensors, including PyTorch's dispatch
# (bench/peers/host_time_torch.py). A region that gains less is left to PyTorch.
_CALL_SECONDS = 25e-6
# A region that is slower by less than this factor is fused: measurements are no more exact, and
# fusion saves memory.
_NOISE = 1.02

FAULT = "a fault of this backend, not of the model"

# Remedies, by words in the reason; the first match is used.
_REMEDIES = (
    (FAULT, "report it with this text; another version of PyTorch may work (docs/pytorch.md)"),
    ("no neighbouring operation", "nothing needs to be done: a GEMM alone is as fast in PyTorch; "
                               "brackets say why each neighbour is not fused"),
    ("several types", "give the parameters one type, or use torch.autocast"),
    ("no_grad", "call the compiled model within torch.no_grad(), or detach its inputs"),
    ("writes into", "write the operation without its in-place form"),
    ("there is no GPU backend", "see `python -m coda_cpp`"),
    ("broadcast", "expand the operand to its rows, or detach it if it needs no gradient"),
)
_NO_REMEDY = ("write it with operations that docs/pytorch.md names under Operations, or report it "
              "with this text")


@dataclasses.dataclass
class RegionReport:
    """A region that became an operator, or that was left to PyTorch because fusion would gain
    nothing. `measured`: seconds of a call, forward and backward, of the region and of the inner
    compiler, if they were timed."""

    name: str
    operations: str
    region: Region
    measured: tuple[float, float] | None = None
    lacks_time: bool = False  # left until a process times it on this GPU

    @property
    def costs(self) -> tuple[tuple, tuple]:
        return self.region.function.function.costs(self.region.needs)

    @property
    def gains(self) -> bool:
        if self._phases.again is not None and not self._is_wrong:
            return True  # it costs one more product, so that no logits are stored
        if self.measured:
            return self.measured[0] <= _NOISE * self.measured[1]
        (_, _, ours), (_, _, theirs) = self.costs
        return ours + _CALL_SECONDS * (2 if self.region.needs else 1) < theirs

    @property
    def why_left(self) -> str:
        """Why a region that does not gain is left to PyTorch."""
        if self.region.function.function.has_plain_products:
            return "GEMMs in fp32 on a GPU are faster in PyTorch; in bf16 they are fused"
        if self.lacks_time:
            return "it has not been timed on this GPU: a later process times it (docs/gpus.md)"
        if self._is_wrong:
            return "its results differ from PyTorch's on this GPU"
        if self.measured:
            ours, theirs = (f"{1e3 * seconds:.3f} ms" for seconds in self.measured)
            return f"a call of the fused region took {ours}, of PyTorch's operations {theirs}"
        return "fusion would gain nothing at these sizes"

    @property
    def _is_wrong(self) -> bool:
        """Whether its results differed from PyTorch's (measure.py)."""
        return self.measured is not None and math.isinf(self.measured[0])

    @property
    def _phases(self) -> Phases:
        return self.region.function.function.phases(self.region.needs)

    @property
    def plan(self) -> Plan:
        return self._phases.plan

    @property
    def programs(self) -> int:
        return sum(len(plan.programs) for plan in self._phases.plans)

    @property
    def saved_bytes(self) -> int:
        return self.plan.saved_bytes(self.region.function.function.nominal_sizes())

    def summary(self) -> str:
        text = f"{self.name}: {self.operations}\n  " + _totals([self])
        if self._phases.again is not None:
            text += ("\n  each row has an upstream gradient, so the backward recomputes the "
                     "logits in blocks of rows, which costs one more GEMM: the objective "
                     "'speed' stores the logits")
        return text

    def __str__(self) -> str:
        return self.summary() + "\n" + self.region.function.function.explain(self.region.needs)


def _totals(regions: Sequence[RegionReport]) -> str:
    """Programs, bytes and seconds of the regions, in a line."""
    programs = sum(region.programs for region in regions)
    moved, seconds, moved_apart, seconds_apart = (
        sum(region.costs[side][i] for region in regions) for side in (0, 1) for i in (1, 2))
    text = (f"{_count(programs, 'program')}; {moved / 1e6:.2f} MB moved, "
            f"{moved_apart / 1e6:.2f} MB without fusion; "
            f"{sum(r.saved_bytes for r in regions) / 1e6:.2f} MB saved for the backward; "
            f"predicted {seconds * 1e3:.3f} ms, {seconds_apart * 1e3:.3f} ms without fusion")
    if regions and all(region.measured for region in regions):
        ours, theirs = (sum(region.measured[side] for region in regions) for side in (0, 1))
        text += f"; measured {ours * 1e3:.3f} ms, {theirs * 1e3:.3f} ms without"
    return text


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def grouped(layers: Iterable[LinearLayer]) -> list[tuple[list[LinearLayer], str]]:
    """Groups layers with the same reason and the same place in the code."""
    groups: dict[tuple, list[LinearLayer]] = {}
    for layer in layers:
        groups.setdefault((layer.kind, layer.place, layer.reason), []).append(layer)
    texts = []
    for (kind, place, reason), group in groups.items():
        name = (kind if len(group) > 1 else group[0].module) or "a linear layer"
        facts = [f"{len(group)} layers"] * (len(group) > 1) + [place] * bool(place)
        where = f"{name} ({', '.join(facts)})" if facts else name
        texts.append((group, f"{where}: {reason}"))
    return texts


@dataclasses.dataclass
class Report:
    """What was fused in a graph, what was not, and why. `left`: operations left to PyTorch, with
    counts."""

    fused: list[RegionReport] = dataclasses.field(default_factory=list)
    without_gain: list[RegionReport] = dataclasses.field(default_factory=list)
    layers: list[LinearLayer] = dataclasses.field(default_factory=list)
    left: list[str] = dataclasses.field(default_factory=list)
    full: int = 0  # calls of attention whose mask hides nothing and was dropped
    causal: int = 0  # calls of attention whose mask was replaced by is_causal
    packed: int = 0  # calls of attention whose mask was replaced by the documents' bounds
    padded: int = 0  # and by the spans of keys that are not padding
    written_out: int = 0  # attention as products and a softmax that became one operation
    own: int = 0  # calls of PyTorch's attention that became coda_cpp::attention
    flex: int = 0  # calls of FlexAttention that became attention with the same mask and soft-cap
    notes: list[str] = dataclasses.field(default_factory=list)  # further information for the user

    @classmethod
    def of(cls, reports: Sequence[Report]) -> Report:
        """The combined report of several graphs of one model."""
        made = cls()
        for field in ("full", "causal", "packed", "padded", "written_out", "own", "flex"):
            setattr(made, field, sum(getattr(report, field) for report in reports))
        for field in ("fused", "without_gain", "layers", "left"):
            setattr(made, field, [one for report in reports for one in getattr(report, field)])
        made.notes = list(dict.fromkeys(note for report in reports for note in report.notes))
        return made

    @property
    def regions(self) -> list[str]:
        return [entry.operations for entry in self.fused]

    @property
    def programs(self) -> int:
        return sum(entry.programs for entry in self.fused)

    @property
    def not_fused(self) -> list[LinearLayer]:
        """Linear layers that are left to PyTorch, except those that the cost model rejected."""
        return [layer for layer in self.layers
                if not layer.is_fused and not layer.by_cost_model]

    @property
    def refused(self) -> list[str]:
        """The reasons why linear layers are not fused, with module, file and line."""
        return [text for _, text in grouped(self.not_fused)]

    def total(self) -> str:
        fused = [layer for layer in self.layers if layer.is_fused]
        flops = sum(layer.flops for layer in self.layers)
        share = round(100 * sum(layer.flops for layer in fused) / flops) if flops else 0
        text = (f"{len(fused)} of {_count(len(self.layers), 'linear layer')} fused ({share} % of "
                f"their multiplications), in {_count(len(self.fused), 'region')}")
        by_cost_model = sum(layer.by_cost_model for layer in self.layers)
        return text + (f"; the cost model left {by_cost_model}" if by_cost_model else "")

    def why_not(self) -> str:
        """The linear layers that are not fused, in one line; empty if there are none."""
        return "; ".join(self.refused)

    def text(self, with_plans: bool = False) -> str:
        lines = [self.total(), *self.notes]
        if self.fused:
            lines.append("total: " + _totals(self.fused))
        if self.full:
            lines.append(f"{_count(self.full, 'call')} of attention with a mask that hides "
                         "nothing: the mask is dropped, so attention takes its fast path")
        if self.causal:
            lines.append(f"{_count(self.causal, 'call')} of attention with a causal mask: the "
                         "mask is dropped, so attention takes its fast path")
        if self.packed:
            lines.append(f"{_count(self.packed, 'call')} of attention with a mask of packed "
                         "documents, or a window: attention runs within documents, without a mask")
        if self.padded:
            lines.append(f"{_count(self.padded, 'call')} of attention with a mask of padding: "
                         "attention runs without the hidden keys, and without a mask")
        if self.written_out:
            lines.append(f"{_count(self.written_out, 'attention')} written out as products and a "
                         "softmax: fused, so no scores are stored")
        if self.own:
            lines.append(f"{_count(self.own, 'call')} of attention by coda-cpp's kernels, which "
                         "are faster than PyTorch's on this GPU")
        if self.flex:
            lines.append(f"{_count(self.flex, 'call')} of FlexAttention with a mask and a soft-cap "
                         "that the other kinds of attention have: "
                         "replaced by one of them")
        if self.not_fused:
            lines.append("linear layers left to PyTorch:")
            for group, text in grouped(self.not_fused):
                remedy = next((do for words, do in _REMEDIES if words in group[0].reason),
                              _NO_REMEDY)
                lines += [f"  {text}", f"    remedy: {remedy}"]
        if self.without_gain:
            lines.append("left to PyTorch, because fusion would gain nothing:")
            lines += ["  " + entry.summary().replace("\n", "\n  ") + f"\n    {entry.why_left}"
                      for entry in self.without_gain]
        lines += [str(entry) if with_plans else entry.summary() for entry in self.fused]
        lines.append("all operations left to PyTorch:")
        return "\n".join(lines + [f"  {line}" for line in self.left or ["none"]])

    __str__ = text
