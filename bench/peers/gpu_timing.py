# SPDX-License-Identifier: Apache-2.0
"""Times functions on a GPU in two regimes, because a GPU at its power limit has no single speed:

sustained  each candidate alone for about a second on a hot chip, with its SM clock and watts
cool       bursts of 2 ms after pauses of 40 ms, in random order: the full clock

In each regime the method is that of src/measure/gpu_timer.cc, so ratios of both can be compared. A
candidate's calls are captured into CUDA graphs that rotate through its sets of tensors (including
outputs), so that the times do not depend on the host or the L2 cache. One graph has all sets or, if
such a graph would take longer than a burst, there is a graph for each set.
"""

import ctypes
import dataclasses
import functools
import random
import statistics
import time

import torch

HEAT_SECONDS = 1.0
WARM_UP_CALLS = 3
COOL_MS = 2.0  # of a burst in the cool regime
# About half a millisecond. After a pause, a burst waits so long until all of it is enqueued,
# because the host's first launch takes up to 0.1 ms.
HOLD_CYCLES = 800_000


class PowerMeter:
    """SM clock and energy of a device from NVML, which is part of the driver; NaN without NVML."""

    CLOCK_SM = 1

    def __init__(self, device: int = 0):
        self.handle = ctypes.c_void_p()
        try:
            self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
            uuid = str(torch.cuda.get_device_properties(device).uuid)
            uuid = uuid if uuid.startswith("GPU-") else "GPU-" + uuid
            is_open = self.nvml.nvmlInit_v2() == 0 and self.nvml.nvmlDeviceGetHandleByUUID(
                uuid.encode(), ctypes.byref(self.handle)) == 0
        except (OSError, AttributeError):
            is_open = False
        if not is_open:
            self.nvml = None

    def _read(self, value, function: str, *arguments) -> float:
        if self.nvml is None:
            return float("nan")
        call = getattr(self.nvml, function)
        failed = call(self.handle, *arguments, ctypes.byref(value)) != 0
        return float("nan") if failed else value.value

    def sm_mhz(self) -> float:
        return self._read(ctypes.c_uint(), "nvmlDeviceGetClockInfo", ctypes.c_int(self.CLOCK_SM))

    def joules(self) -> float:
        return self._read(ctypes.c_ulonglong(), "nvmlDeviceGetTotalEnergyConsumption") * 1e-3

    def watts(self) -> float:
        """Averaged by the driver over about a second."""
        return self._read(ctypes.c_uint(), "nvmlDeviceGetPowerUsage") * 1e-3


class Energy:
    """Watts between the first and the last change of the energy counter. The counter changes about
    ten times per second, so a value at an arbitrary time may be a tenth of a second old."""

    def __init__(self, power: PowerMeter):
        self.power = power
        self.latest = power.joules()
        self.moves = []  # (seconds, joules)

    def sample(self) -> None:
        joules = self.power.joules()
        if joules != self.latest:
            self.moves.append((time.perf_counter(), joules))
            self.latest = joules

    def watts(self) -> float:
        if not self.moves:
            return self.power.watts()
        (start, before), (stop, after) = self.moves[0], self.moves[-1]
        is_long = stop - start > 0.4  # good to a few per cent
        return (after - before) / (stop - start) if is_long else self.power.watts()


@dataclasses.dataclass
class Spread:
    median_ms: float
    low_ms: float  # 10th percentile
    high_ms: float  # 90th percentile

    @staticmethod
    def of(samples: list[float]) -> "Spread":
        ordered = sorted(samples)
        low, median, high = (ordered[int(f * (len(ordered) - 1))] for f in (0.1, 0.5, 0.9))
        return Spread(median, low, high)


class Candidate:
    """call(set) runs one call on one of `sets` sets of tensors and returns its outputs."""

    def __init__(self, name: str, call, sets: int):
        self.name = name
        self.sustained = self.cool = None
        self.sm_mhz = self.watts = float("nan")
        start = time.perf_counter()
        call(0)
        torch.cuda.synchronize()
        self.first_call_s = time.perf_counter() - start
        self._capture(call, sets)

    def _capture(self, call, sets: int) -> None:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for i in range(max(WARM_UP_CALLS, sets)):
                call(i % sets)
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for i in range(sets):
                call(i)
            stop.record()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        round_ms = max(start.elapsed_time(stop), 1e-3)
        # Enough calls to make the graph's launch negligible. If the host is slow, round_ms is
        # larger, and there are fewer calls than in a burst.
        runs = [list(range(sets)) * max(1, round(COOL_MS / round_ms))]
        if round_ms > COOL_MS:
            runs = [[i] for i in range(sets)]
        self.calls = len(runs[0])  # of a replay
        self.next = 0
        outputs = [None] * sets
        # The tensors of a graph must live as long as the graph.
        self.kept = call, outputs

        def run(indices):
            for i in indices:
                outputs[i] = None
                outputs[i] = call(i)

        self.replays, pool = [], None
        try:
            for indices in runs:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=pool):
                    run(indices)
                pool = graph.pool()
                self.replays.append(graph.replay)
        except RuntimeError as error:
            print(f"{self.name}: not captured, timed call by call: {error}")
            self.replays = [functools.partial(run, indices) for indices in runs]

    def enqueue(self, replays: int) -> None:
        for _ in range(replays):
            self.replays[self.next % len(self.replays)]()
            self.next += 1


class Timer:
    def __init__(self):
        self.power = PowerMeter(torch.cuda.current_device())
        self.start, self.stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.random = random.Random(20)

    def _enqueue(self, candidate: Candidate, replays: int) -> None:
        self.start.record()
        candidate.enqueue(replays)
        self.stop.record()

    def _elapsed_ms(self) -> float:
        self.stop.synchronize()
        return self.start.elapsed_time(self.stop)

    def _burst(self, candidate: Candidate, replays: int, hold: int = 0) -> float:
        if hold:
            torch.cuda._sleep(hold)
        self._enqueue(candidate, replays)
        return self._elapsed_ms() / (replays * candidate.calls)

    def _replays_for(self, candidate: Candidate, ms: float) -> int:
        self._burst(candidate, 1)
        return max(1, round(ms / (self._burst(candidate, 2) * candidate.calls)))

    def sustained(self, candidates: list[Candidate], seconds: float, repetitions: int = 2,
                  heat_seconds: float = HEAT_SECONDS) -> None:
        replays = {c: self._replays_for(c, 20.0) for c in candidates}
        heat_start = time.perf_counter()
        while time.perf_counter() - heat_start < heat_seconds:
            self._burst(candidates[0], replays[candidates[0]])
        samples, clocks, watts = ({c: [] for c in candidates} for _ in range(3))
        for repetition in range(repetitions):
            turn = repetition % len(candidates)
            for c in candidates[turn:] + candidates[:turn]:
                begin, energy = time.perf_counter(), None
                # The first calls still run at the previous candidate's clock.
                settling = max(min(0.2, seconds / 2), seconds / 5)
                while time.perf_counter() - begin < seconds:
                    self._enqueue(c, replays[c])
                    # During the run: in a pause of some milliseconds the chip would cool and raise
                    # its clock.
                    mhz = self.power.sm_mhz()
                    is_settled = time.perf_counter() - begin >= settling
                    if is_settled:
                        energy = energy or Energy(self.power)
                        energy.sample()
                    ms = self._elapsed_ms() / (replays[c] * c.calls)
                    if not is_settled:
                        continue
                    samples[c].append(ms)
                    clocks[c].append(mhz)
                watts[c].append(energy.watts() if energy else float("nan"))
        for c in candidates:
            c.sustained = Spread.of(samples[c])
            c.sm_mhz = statistics.median(clocks[c])
            c.watts = statistics.median(watts[c])

    def cool(self, candidates: list[Candidate], rounds: int) -> None:
        replays = {c: self._replays_for(c, COOL_MS) for c in candidates}
        samples = {c: [] for c in candidates}
        for _ in range(rounds):
            for c in self.random.sample(candidates, len(candidates)):
                time.sleep(0.04)
                samples[c].append(self._burst(c, replays[c], HOLD_CYCLES))
        for c in candidates:
            c.cool = Spread.of(samples[c])
