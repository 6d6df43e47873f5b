#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training on two GPUs compared with one: the losses, the bits, a stop, a resumed run with another
number of GPUs, a process that dies, and refused settings. bench/train_step/several_gpus.py measures
the speed.

Usage: two_gpus.py BUILD, where BUILD/tools/coda is the command. Takes a minute; the exit status is
1 if a check fails.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

_MODEL = [
    "--hidden", "256", "--layers", "4", "--heads", "4", "--batch", "8", "--sequence", "256",
    "--dtype", "bf16", "--lr", "0.001", "--sample", "0", "--save-every", "40", "--held-out", "0.02"
]
_STEPS = 120
_problems = []


def check(holds: bool, what: str) -> None:
    print(("ok    " if holds else "WRONG ") + what, flush=True)
    if not holds:
        _problems.append(what)


class Runs:

    def __init__(self, build: pathlib.Path, folder: pathlib.Path):
        self.coda = str(build / "tools/coda")
        self.folder = folder
        text = " ".join(str(i * i % 997) for i in range(100000))
        (folder / "text.txt").write_text(text)

    def words(self, out: str, gpus: int, *more: str) -> list[str]:
        return [
            self.coda, "train", "--device", "gpu", "--data",
            str(self.folder / "text.txt"), "--out",
            str(self.folder / out), "--gpus",
            str(gpus), *more
        ]

    def start(self, out: str, gpus: int, steps: int = _STEPS, **options) -> subprocess.Popen:
        words = self.words(out, gpus, "--steps", str(steps), *_MODEL)
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                **options)

    def run(self, out: str, gpus: int, steps: int = _STEPS, **options) -> tuple[int, str, str]:
        return ended(self.start(out, gpus, steps, **options))

    def resume(self, out: str, gpus: int) -> tuple[int, str, str]:
        words = self.words(out, gpus, "--resume", "--sample", "0")
        return ended(
            subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))

    def bits(self, out: str) -> list[bytes]:
        return [
            (self.folder / out / "latest" / file).read_bytes()
            for file in ("model.safetensors", "optimizer.safetensors")
        ]

    def losses(self, out: str) -> list[float]:
        state = json.loads((self.folder / out / "latest/run_state.json").read_text())
        return [loss for _, loss in state["train_losses"]]

    def wait_for(self, out: str, checkpoint: str) -> None:
        end = time.monotonic() + 120
        while not (self.folder / out / checkpoint).exists() and time.monotonic() < end:
            time.sleep(0.01)


def ended(process: subprocess.Popen) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=180)
    return process.returncode, out, err


def differences(a: list[float], b: list[float]) -> tuple[float, float]:
    """Of the losses of each step, relative: their mean and the largest."""
    each = [abs(x - y) / y for x, y in zip(a, b, strict=True)]
    return sum(each) / len(each), max(each)


def check_trajectory(runs: Runs) -> None:
    """In bf16 another order of sums gives another trajectory. The bound for two GPUs is twice the
    difference that one GPU's losses show if a step has two microbatches instead of one."""
    for out, gpus in (("one", 1), ("two", 2), ("again", 2)):
        status, _, err = runs.run(out, gpus)
        check(status == 0, f"{gpus} GPUs train {err.strip()}")
    halves = ["--batch", "4", "--accumulate", "2"]  # the last of an option counts
    status, _, err = ended(
        subprocess.Popen(runs.words("halves", 1, "--steps", str(_STEPS), *_MODEL, *halves),
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    check(status == 0, f"1 GPU trains in two passes {err.strip()}")
    check_losses(runs, "two", "losses of 2 GPUs are")
    check(runs.bits("two") == runs.bits("again"), "2 GPUs give the same bits twice")


def check_losses(runs: Runs, out: str, what: str) -> None:
    one = runs.losses("one")
    mean, largest = differences(runs.losses(out), one)
    own_mean, own_largest = differences(runs.losses("halves"), one)
    check(mean < 2 * own_mean and largest < 2 * own_largest,
          f"{what} those of 1 within {mean:.2%} on the mean and {largest:.2%} (two passes of 1: "
          f"{own_mean:.2%} and {own_largest:.2%})")


def check_output(runs: Runs) -> None:
    """What a person sees, and the trace of a step."""
    trace = runs.folder / "trace.json"
    words = runs.words("seen", 2, "--steps", "8", *_MODEL, "--profile", str(trace))
    status, out, err = ended(
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    check(status == 0 and out.startswith("memory of a step: "), f"memory is said {err.strip()}")
    check("exchanged during the backward" in out, "what is exchanged beside the backward is said")
    line = re.search(r"step +8/8 .*", out)
    check(
        line is not None and re.search(
            r"loss [0-9.]+  [0-9.]+[kM]? tokens/s \([0-9.]+ % of the peak\)  [0-9.]+ GB  .* left",
            line.group()) is not None,
        "the progress line has loss, speed, share of the peak, memory, time left: " +
        (line.group() if line else out))
    events = [e for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X"]
    names = {e["name"] for e in events}
    check({"adamw", "reduce_scatter gradients", "all_gather weights", "copy ids"} <= names,
          f"the trace has {len(events)} events")
    ends: dict[int, float] = {}
    overlaps = 0
    for event in events:
        overlaps += event["ts"] < ends.get(event["tid"], 0) - 2
        ends[event["tid"]] = event["ts"] + event["dur"]
    check(overlaps == 0, "nothing on a track of it overlaps")


def check_stop(runs: Runs) -> None:
    process = runs.start("stopped", 2)
    runs.wait_for("stopped", "step-000040")
    process.send_signal(signal.SIGTERM)
    status, out, _ = ended(process)
    check(status == 130 and "stopped after step" in out, "SIGTERM stops both with a checkpoint")
    shutil.copytree(runs.folder / "stopped", runs.folder / "fewer", symlinks=True)
    runs.resume("stopped", 2)
    check(runs.bits("stopped") == runs.bits("two"), "a resumed run gives the same bits")
    status, _, err = runs.resume("fewer", 1)
    check(status == 0, f"a run of 2 GPUs goes on with 1 {err.strip()}")
    check_losses(runs, "fewer", "and its losses are")


def children_of(pid: int) -> list[int]:
    return [int(c) for c in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def check_death(runs: Runs) -> None:
    for rank in (0, 1):
        out = f"killed{rank}"
        process = runs.start(out, 2, 100000)
        runs.wait_for(out, "step-000040")
        os.kill(children_of(process.pid)[rank], signal.SIGKILL)
        start = time.monotonic()
        status, _, err = ended(process)
        seconds = time.monotonic() - start
        check(status != 0 and seconds < 30, f"rank {rank} dies: all end in {seconds:.1f} s")
        check(err.count("\n") == 1 and f"rank {rank} of 2" in err, "with: " + err.strip())
        newest = sorted((runs.folder / out).glob("step-*[0-9]"))[-1]
        check((newest / "optimizer.safetensors").exists(), f"{newest.name} is there")


def check_refusals(runs: Runs) -> None:
    status, _, err = runs.run("bad", 99)
    check(status == 1 and "this process may use" in err, err.strip())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        status, _, err = runs.run("bad", 2, env={**os.environ, "MASTER_PORT": port})
    check(status == 1 and err.count("\n") == 1 and "cannot listen at port" in err, err.strip())
    alone = {**os.environ, "RANK": "0", "WORLD_SIZE": "2", "CODA_JOIN_SECONDS": "2"}
    alone |= {"LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    status, _, err = runs.run("bad", 1, env=alone)
    check(status == 1 and "rank 1 of 2 has not joined" in err, err.strip())
    none = {**os.environ, "CODA_NCCL": "/nowhere"}
    status, _, err = runs.run("bad", 2, env=none)
    check(status == 1 and "cannot find NCCL" in err, err.strip())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(arguments.build, pathlib.Path(folder))
        for part in (check_trajectory, check_output, check_stop, check_death, check_refusals):
            part(runs)
    print(f"{len(_problems)} of the checks do not hold" if _problems else "all holds")
    return 1 if _problems else 0


if __name__ == "__main__":
    sys.exit(main())
