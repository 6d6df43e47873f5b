# SPDX-License-Identifier: Apache-2.0
"""Divides a step's time on a GPU among products (with any epilogues), attention, the optimizer and
the rest, by the kernels in PyTorch's profile."""

import json
import re
import tempfile
from collections import defaultdict

# The first match is used. coda_cpp's kernels with a product are named NAME_kernel.
PARTS = {
    "attention": re.compile(r"cudnn|sdpa|flash|fmha", re.IGNORECASE),
    "optimizer": re.compile(r"adam|multi_tensor", re.IGNORECASE),
    "products": re.compile(r"nvjet|gemm|cutlass|xmma|splitk|triton_tem|^(?!liger)[a-z]\w*_kernel$",
                           re.IGNORECASE),
    "the rest": re.compile(""),
}
_ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")


def part_of(kernel):
    return next(part for part, names in PARTS.items() if names.search(kernel))


def parts_of_events(events, steps):
    """Milliseconds per step by part, from [(name, begin, end)] in microseconds, and the longest
    kernels of "the rest". Time without a kernel is "nothing". A kernel that begins while the
    previous one still runs waits for it (both are in one stream), so the overlap counts for the
    earlier kernel."""
    found, rest = defaultdict(float), defaultdict(float)
    events = sorted(events, key=lambda event: event[1])
    until = events[0][1]
    for name, begin, end in events:
        found["nothing"] += max(0, begin - until)
        taken = max(0, end - max(begin, until))
        found[part_of(name)] += taken
        if part_of(name) == "the rest":
            rest[name[:80]] += taken
        until = max(until, end)
    most = sorted(rest, key=rest.get, reverse=True)[:8]
    return ({part: round(found[part] / 1e3 / steps, 2) for part in (*PARTS, "nothing")},
            {name: round(rest[name] / 1e3 / steps, 2) for name in most})


def parts_of_step(step, steps=3):
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        profile.export_chrome_trace(file.name)
        with open(file.name) as trace:
            events = json.load(trace)["traceEvents"]
    return parts_of_events([(e["name"], e["ts"], e["ts"] + e["dur"]) for e in events
                            if e.get("cat") in _ON_GPU], steps)
