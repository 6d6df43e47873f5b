# SPDX-License-Identifier: Apache-2.0
"""Shared code of the peers' scripts: a row (its products by torch.mm, and the candidates that are
compared with them), its measurement in the regimes of gpu_timing.py, a line of JSON for each
candidate, and the table of our and a peer's results.
"""

import json

import torch

import gpu_timing

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
BOUNDS = {"f32": 3e-6, "bf16": 6e-3, "f16": 1e-3}  # of a program's results
L2_BYTES = 60e6  # slightly more than the cache has
MOST_SETS = 48
PEERS = ("torch.compile", "QuACK")  # prefixes of candidates' names


def mlp_of(hidden: int) -> int:
    return {2048: 5632, 4096: 11008, 8192: 22016}.get(hidden, 11 * hidden // 4 // 64 * 64)


def worst_error(results, expected) -> float:
    def error(got, want):
        return ((got.double() - want).norm() / want.norm()).item()

    if len(results) != len(expected):
        return float("inf")
    return max(error(got.reshape(want.shape), want) for got, want in zip(results, expected))


def sets_for(size: float) -> int:
    """The number of sets. Between two uses of a set, other sets move four times the size of the L2
    cache, as in src/measure/measure_program.cc."""
    return min(max(int(4 * L2_BYTES / size) + 1, 2 if size > 2e9 else 3), MOST_SETS)


class Case:
    """One row: sets of tensors, its products, and the candidates."""

    def __init__(self, row: str, hidden: int, tokens: int):
        self.row, self.hidden, self.tokens = row, hidden, tokens
        self.sets = 1
        self.variants = {}  # name -> call(set), not compiled
        self.products = []  # for each set, a pair of torch.mm's operands for each product
        self.bound = 0.0
        self.first_calls = {}  # seconds, including compilation
        self.wants_memory = False

    def flops(self) -> float:
        return sum(2.0 * a.shape[0] * a.shape[1] * b.shape[1] for a, b in self.products[0])

    def products_alone(self):
        outputs = [[torch.empty(a.shape[0], b.shape[1], device=a.device, dtype=a.dtype)
                    for a, b in pairs] for pairs in self.products]

        def call(i: int):
            for (a, b), out in zip(self.products[i], outputs[i]):
                torch.mm(a, b, out=out)
            return outputs[i]

        return call


def measure(case, timer, options, errors) -> list[dict]:
    peaks = {}
    for name, call in case.variants.items():
        if case.wants_memory:
            call(0)
            peaks[name] = case.peak_bytes(call)
    candidates = [gpu_timing.Candidate("torch.mm", case.products_alone(), case.sets)]
    candidates += [gpu_timing.Candidate(n, c, case.sets) for n, c in case.variants.items()]
    timer.sustained(candidates, options.seconds, options.repetitions, options.heat)
    if options.rounds > 0:
        timer.cool(candidates, options.rounds)
    results = []
    for c in candidates:
        result = {
            "row": case.row, "hidden": case.hidden, "tokens": case.tokens, "candidate": c.name,
            "sustained_ms": c.sustained.median_ms, "sustained_low_ms": c.sustained.low_ms,
            "sustained_high_ms": c.sustained.high_ms, "sm_mhz": c.sm_mhz, "watts": c.watts,
            "tflops": case.flops() / c.sustained.median_ms * 1e-9,
            "joules_a_token": c.watts * c.sustained.median_ms * 1e-3 / case.tokens}
        if c.cool:
            result.update(cool_ms=c.cool.median_ms, cool_low_ms=c.cool.low_ms,
                          cool_high_ms=c.cool.high_ms)
        if c.name in errors:
            result["error"] = errors[c.name]
        if c.name in case.first_calls:
            result["first_call_s"] = case.first_calls[c.name]
        if c.name in peaks:
            result["peak_bytes"] = peaks[c.name]
        results.append(result)
    return results


def print_row(results: list[dict]) -> None:
    alone = results[0]
    line = (f"{alone['row']:34} M {alone['tokens']:5} D {alone['hidden']:5}  torch.mm "
            f"{alone['sustained_ms']:8.4f} ms {alone['tflops']:4.0f} TF {alone['sm_mhz']:4.0f} MHz "
            f"{alone['watts']:3.0f} W")
    for r in results[1:]:
        line += f"  |  {r['candidate']} {r['sustained_ms'] / alone['sustained_ms']:.3f}"
        if "cool_ms" in r:
            line += f" cool {r['cool_ms'] / alone['cool_ms']:.3f}"
        line += f" {r['sm_mhz']:4.0f} MHz"
        if "peak_bytes" in r:
            line += f" {r['peak_bytes'] / 1e6:.0f} MB {r['joules_a_token'] * 1e3:.2f} mJ/token"
    print(line, flush=True)


def add_timing_options(parser) -> None:
    parser.add_argument("--rows", nargs="+", default=[""], metavar="TEXT",
                        help="only rows that contain one of these")
    parser.add_argument("--sets", type=int, default=0,
                        help="of tensors, rotated [so many that L2 holds none]")
    parser.add_argument("--seconds", type=float, default=1.0, help="sustained, each, at a time")
    parser.add_argument("--repetitions", type=int, default=2, help="of the sustained regime")
    parser.add_argument("--heat", type=float, default=1.0, help="seconds of heat before each row")
    parser.add_argument("--rounds", type=int, default=15, help="of the cool regime; 0: without")
    parser.add_argument("--check", action="store_true", help="only compare with float64")
    parser.add_argument("--json", help="a file for the results", metavar="FILE")


def is_named(row: str, options) -> bool:
    return any(text in row for text in options.rows)


def no_row(options) -> str:
    return f"no row contains {' or '.join(map(repr, options.rows))}"


def write(sink, results: list[dict]) -> None:
    if sink:
        sink.writelines(json.dumps(r) + "\n" for r in results)
        sink.flush()


def load(path: str) -> dict:
    """(row, hidden, tokens) -> candidate -> the object. Lines without tokens have 16384."""
    rows = {}
    with open(path) as file:
        for line in file:
            entry = json.loads(line)
            if "sustained_ms" in entry:
                key = (entry["row"], entry["hidden"], entry.get("tokens", 16384))
                rows.setdefault(key, {})[entry["candidate"]] = entry
    return rows


def least(row: dict, prefixes: tuple[str, ...], regime: str):
    times = [e[regime] for name, e in row.items() if name.startswith(prefixes) and e.get(regime)]
    return min(times) if times else None


def print_table(ours_path: str, peer_path: str) -> None:
    """Ratios to the products alone in the same process, and ratios of our time to the peer's."""
    ours, peers = load(ours_path), load(peer_path)
    print("| row | M | D | cuBLAS ms | coda | torch.mm ms | peer | coda / peer |")
    print("|---|---|---|---|---|---|---|---|")
    for key in [k for k in ours if k in peers]:
        cells = []
        for regime in ("sustained_ms", "cool_ms"):
            alone = least(ours[key], ("cuBLAS", "products alone"), regime)
            plan = least(ours[key], ("chosen", "plan"), regime)
            mm = least(peers[key], ("torch.mm",), regime)
            peer = least(peers[key], PEERS, regime) or mm
            if None not in (alone, plan, mm):
                cells.append((alone, plan / alone, mm, peer / mm, plan / peer))
        text = [" / ".join(f"{v:.{4 if i in (0, 2) else 2}f}" for v in column)
                for i, column in enumerate(zip(*cells))]
        if text:
            print(f"| {key[0]} | {key[2]} | {key[1]} | " + " | ".join(text) + " |")
    print("\nSustained / cool. coda and the peer over the products alone of the same process.")
