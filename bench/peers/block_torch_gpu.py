#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of the programs on a GPU: torch.compile (its default mode, static shapes) of the
formulas of bench/hopper_programs and of a LLaMA block without attention, each against the products
inside it alone by torch.mm, in the sustained and in the cool regime (gpu_timing.py).

    bench/peers/block_torch_gpu.py --hidden 2048 4096 --json torch.jsonl
    bench/peers/block_torch_gpu.py --beside ours.jsonl torch.jsonl   # one table of both, no GPU
    bench/peers/block_torch_gpu.py --check --device cpu --tokens 96 --hidden 256 --mlp 128

ours.jsonl is what `hopper_programs --json ours.jsonl` wrote. Every result is checked against
float64 before it is timed; --check only checks. A line of JSON for each candidate of each row goes
to --json as soon as it is measured. Memory of a block is what one run has allocated at its highest,
weights, inputs and upstream gradients included.
"""

import argparse
import functools
import gc
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F

import block_torch
import programs_torch
from programs_torch import FORMULAS, Sizes

MLP = {2048: 5632, 4096: 11008, 8192: 22016}
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
BOUNDS = {"f32": 3e-6, "bf16": 6e-3, "f16": 1e-3}  # of a program's results
BLOCK_BOUNDS = {"f32": 5e-6, "bf16": 2e-2, "f16": 3e-3}
L2_BYTES = 60e6  # and some more
MOST_SETS = 48


def compiled(function):
    return torch.compile(function, dynamic=False)


def worst_error(results, expected) -> float:
    def error(got, want):
        return ((got.double() - want).norm() / want.norm()).item()

    if len(results) != len(expected):
        return float("inf")
    return max(error(got.reshape(want.shape), want) for got, want in zip(results, expected))


def widened(tensors):
    return {name: t.double() if t.is_floating_point() else t for name, t in tensors.items()}


def sets_for(size: float) -> int:
    """When a set's turn comes again, the L2 cache has seen four times what it holds: as in
    src/measure/measure_program.cc."""
    return min(max(int(4 * L2_BYTES / size) + 1, 2 if size > 2e9 else 3), MOST_SETS)


class Case:
    """One row: sets of tensors, what torch.compile gets, its products, and float64."""

    def __init__(self, row: str, hidden: int, tokens: int):
        self.row, self.hidden, self.tokens = row, hidden, tokens
        self.sets = 1
        self.variants = {}  # name -> call(set), not compiled
        self.products = []  # of each set the operands of torch.mm, one pair a product
        self.bound = 0.0
        self.first_calls = {}  # seconds, compiling included
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


class ProgramCase(Case):
    def __init__(self, row, formula, m, n, k, hidden, tokens, options):
        super().__init__(row, hidden, tokens)
        self.formula = FORMULAS[formula]
        sizes = Sizes(m, n, k, DTYPES[options.dtype], options.device)
        self.tensors = [self.formula.tensors(sizes)]
        self.sets = options.sets or sets_for(
            sum(t.nbytes for t in self.tensors[0].values()) + m * n * sizes.dtype.itemsize)
        self.tensors += [self.formula.tensors(sizes) for _ in range(self.sets - 1)]
        self.products = [[self.formula.product(t)] for t in self.tensors]
        if not formula.startswith("product"):
            function = compiled(self.formula.compute)
            self.variants["torch.compile"] = lambda i: function(self.tensors[i])
        self.bound = BOUNDS[options.dtype]

    def expected(self):
        return self.formula.reference(widened(self.tensors[0]))


def packed_block(x0, y0, weights: dict, cos, sin, head: int):
    """block_torch.block with gate and up, and q, k and v, as one product each."""
    w = weights
    width = (x0.shape[1],)
    x1 = x0 + F.linear(y0, w["wo"])
    h1 = F.rms_norm(x1, width, w["w1"], block_torch.EPS)
    gate, up = F.linear(h1, w["wgu"]).chunk(2, dim=1)
    x2 = x1 + F.linear(F.silu(gate) * up, w["wd"])
    h2 = F.rms_norm(x2, width, w["w2"], block_torch.EPS)
    q, k, v = F.linear(h2, w["wqkv"]).chunk(3, dim=1)
    return x2, block_torch.rotate(q, cos, sin, head), block_torch.rotate(k, cos, sin, head), v


class BlockTensors:
    """What block_torch.run and block_torch.reference take, made on the device."""

    def __init__(self, size, sizes: Sizes):
        self.size = size
        self.weights = {}
        for name, shape in block_torch.weight_shapes(size).items():
            is_norm = len(shape) == 1
            value = programs_torch.normal(sizes, *shape, scale=0.1 if is_norm else shape[1] ** -0.5)
            self.weights[name] = (1 + value if is_norm else value).requires_grad_()
        shape = (size.tokens, size.width)
        self.x0, self.y0 = (programs_torch.normal(sizes, *shape).requires_grad_() for _ in "xy")
        self.gradients = [programs_torch.normal(sizes, *shape) for _ in range(4)]
        steps = torch.arange(0, size.head, 2, device=sizes.device).double()
        positions = torch.arange(size.tokens, device=sizes.device) % programs_torch.POSITIONS
        angles = positions.double()[:, None] * block_torch.THETA ** (-steps / size.head)
        angles = torch.cat((angles, angles), dim=1)
        self.cos, self.sin = angles.cos().to(sizes.dtype), angles.sin().to(sizes.dtype)

    def arguments(self):
        return self.x0, self.y0, self.weights, self.cos, self.sin, self.size.head

    def leaves(self):
        return [self.x0, self.y0, *self.weights.values()]

    def packed(self) -> "BlockTensors":
        """The same tensors but for the packed weights."""
        other = object.__new__(BlockTensors)
        other.__dict__.update(self.__dict__)
        w = {name: t.detach() for name, t in self.weights.items()}
        other.weights = {
            "wo": w["wo"], "w1": w["w1"], "wgu": torch.cat((w["wg"], w["wu"])), "wd": w["wd"],
            "w2": w["w2"], "wqkv": torch.cat((w["wq"], w["wk"], w["wv"]))}
        other.weights = {name: t.requires_grad_() for name, t in other.weights.items()}
        return other

    def bytes(self) -> int:
        everything = [*self.leaves(), *self.gradients, self.cos, self.sin]
        return sum(t.numel() * t.element_size() for t in everything)


def unpacked_results(results):
    """Gradients of packed weights as block_torch.reference has them."""
    if len(results) == 4:
        return results
    *before, wo, w1, wgu, wd, w2, wqkv = results
    return (*before, wo, w1, *wgu.chunk(2), wd, w2, *wqkv.chunk(3))


class BlockCase(Case):
    def __init__(self, tokens, hidden, mlp, backward: bool, options):
        phase = "forward + backward" if backward else "forward"
        super().__init__("block, " + phase, hidden, tokens)
        heads = max(1, hidden // programs_torch.HEAD)
        size = block_torch.Size(tokens, hidden, mlp, heads, heads)
        dtype = DTYPES[options.dtype]
        self.backward = backward
        self.plain = BlockTensors(size, Sizes(tokens, hidden, hidden, dtype, options.device))
        self.wants_memory = True
        phase = "fwdbwd" if backward else "fwd"

        def variant(problem, function):
            # Detached, so that no call's graph outlives it.
            return lambda i: tuple(t.detach() for t in block_torch.run(problem, phase, function))

        self.variants["torch.compile"] = variant(self.plain, compiled(block_torch.block))
        packed = self.plain.packed()
        run_packed = variant(packed, compiled(packed_block))
        self.variants["torch.compile, packed weights"] = lambda i: unpacked_results(run_packed(i))
        self.products = [self.bare_products(packed)]
        self.bound = BLOCK_BOUNDS[options.dtype]

    def bare_products(self, packed):
        """Forward: y wᵀ of each packed weight; backward: also dz w and dzᵀ y."""
        w = {name: t.detach() for name, t in packed.weights.items()}
        t, x = self.plain.size.tokens, self.plain.x0.detach()
        wide = torch.randn(t, w["wgu"].shape[0], device=x.device).to(x.dtype)
        three = torch.randn(t, w["wqkv"].shape[0], device=x.device).to(x.dtype)
        a = torch.randn(t, w["wd"].shape[1], device=x.device).to(x.dtype)
        layers = [("wo", x, x), ("wgu", x, wide), ("wd", a, x), ("wqkv", x, three)]
        pairs = [(y, w[name].T) for name, y, _ in layers]
        if self.backward:
            pairs += [(dz, w[name]) for name, _, dz in layers]
            pairs += [(dz.T, y) for _, y, dz in layers]
        return pairs

    def expected(self):
        results = block_torch.reference(self.plain)
        return results if self.backward else results[:4]

    def peak_bytes(self, call) -> int:
        """At the highest, of a run whose weights and inputs are all that is there before."""
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call(0)
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before + self.plain.bytes()


def cases_of(options):
    """Functions that make the cases, so that one is in memory at a time."""
    for tokens in options.tokens:
        for hidden in options.hidden:
            mlp = options.mlp or MLP.get(hidden, 11 * hidden // 4 // 64 * 64)
            rows = [] if "programs" not in options.what else programs_torch.cases(
                tokens, hidden, mlp, options.square)
            for row, formula, m, n, k in rows:
                label = hidden if options.square else tokens
                if any(text in row for text in options.rows):
                    yield functools.partial(ProgramCase, row, formula, m, n, k, hidden, label,
                                            options)
            is_named = any(text in "block" for text in options.rows)
            if "block" in options.what and not options.square and is_named:
                for backward in (False, True):
                    yield functools.partial(BlockCase, tokens, hidden, mlp, backward, options)


def first_calls(case, options) -> dict[str, float]:
    """Compiles the variants; the errors of what they give, if they are to be checked."""
    expected = None if options.no_check or not case.variants else case.expected()
    errors = {}
    for name, call in case.variants.items():
        start = time.perf_counter()
        results = call(0)
        if options.device == "cuda":
            torch.cuda.synchronize()
        case.first_calls[name] = time.perf_counter() - start
        if expected is not None:
            errors[name] = worst_error(results, expected)
    return errors


def measure(case, timer, options, errors) -> list[dict]:
    import gpu_timing

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


def host_times() -> list[dict]:
    """Microseconds of the host for a call of a tiny problem, 1000 calls without waiting."""
    sizes = Sizes(128, 256, 64, torch.bfloat16, "cuda")
    tensors = FORMULAS["residual_norm"].tensors(sizes)
    a, b = FORMULAS["residual_norm"].product(tensors)
    out = torch.empty(128, 256, device="cuda", dtype=torch.bfloat16)
    function = compiled(FORMULAS["residual_norm"].compute)
    calls = {"torch.mm": lambda: torch.mm(a, b, out=out),
             "torch.compile": lambda: function(tensors)}
    results = []
    for name, call in calls.items():
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        first = time.perf_counter() - start
        rounds = []
        for _ in range(5):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(1000):
                call()
            rounds.append((time.perf_counter() - start) * 1e3)
        torch.cuda.synchronize()
        microseconds = statistics.median(rounds)
        print(f"host time a call, {name}: {microseconds:.1f} us, the first {first:.2f} s")
        results.append({"row": "host time a launch", "hidden": 0, "tokens": 128, "candidate": name,
                        "host_us": microseconds, "first_call_s": first})
    return results


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
    """Ratios to the products alone of the same process; and of our time to the peer's."""
    ours, peers = load(ours_path), load(peer_path)
    print("| row | M | D | cuBLAS ms | coda | torch.mm ms | peer | coda / peer |")
    print("|---|---|---|---|---|---|---|---|")
    for key in [k for k in ours if k in peers]:
        cells = []
        for regime in ("sustained_ms", "cool_ms"):
            alone = least(ours[key], ("cuBLAS", "products alone"), regime)
            plan = least(ours[key], ("chosen", "plan"), regime)
            mm = least(peers[key], ("torch.mm",), regime)
            peer = least(peers[key], ("torch.compile", "QuACK"), regime) or mm
            if None not in (alone, plan, mm):
                cells.append((alone, plan / alone, mm, peer / mm, plan / peer))
        text = [" / ".join(f"{v:.{4 if i in (0, 2) else 2}f}" for v in column)
                for i, column in enumerate(zip(*cells))]
        if text:
            print(f"| {key[0]} | {key[2]} | {key[1]} | " + " | ".join(text) + " |")
    print("\nSustained / cool. coda and the peer over the products alone of the same process.")


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[16384], metavar="M")
    parser.add_argument("--hidden", type=int, nargs="+", default=[2048, 4096, 8192], metavar="D")
    parser.add_argument("--mlp", type=int, help="[5632, 11008, 22016; else 2.75 D]", metavar="I")
    parser.add_argument("--square", action="store_true",
                        help="M = N = K = D, programs only; --tokens is not used")
    parser.add_argument("--what", nargs="+", choices=["programs", "block", "host"],
                        default=["programs", "block", "host"])
    parser.add_argument("--rows", nargs="+", default=[""], metavar="TEXT",
                        help="only rows that contain one of these")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--sets", type=int, default=0,
                        help="of tensors, rotated [so many that L2 holds none]")
    parser.add_argument("--seconds", type=float, default=1.0, help="sustained, each, at a time")
    parser.add_argument("--repetitions", type=int, default=2, help="of the sustained regime")
    parser.add_argument("--heat", type=float, default=1.0, help="seconds of heat before each row")
    parser.add_argument("--rounds", type=int, default=15, help="of the cool regime; 0: without")
    parser.add_argument("--check", action="store_true", help="only compare with float64")
    parser.add_argument("--no-check", action="store_true", help="only measure")
    parser.add_argument("--json", help="a file for the results", metavar="FILE")
    parser.add_argument("--beside", nargs=2, metavar=("OURS", "TORCH"),
                        help="print one table of two files of results, and exit")
    options = parser.parse_args()
    if options.device == "cpu" and not options.check:
        parser.error("times are taken on a GPU only: with --device cpu give --check")
    if options.square:
        options.tokens = options.tokens[:1]
    return options


def main() -> int:
    options = parse_arguments()
    if options.beside:
        print_table(*options.beside)
        return 0
    torch.manual_seed(1)
    torch._dynamo.config.recompile_limit = 256  # each size is compiled once
    timer = None
    if options.device == "cuda":
        print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}", flush=True)
    if not options.check:
        import gpu_timing

        timer = gpu_timing.Timer()
    sink = open(options.json, "w") if options.json else None
    failed = 0
    for make in cases_of(options):
        case = make()
        errors = first_calls(case, options)
        for name, error in errors.items():
            is_right = error <= case.bound
            failed += not is_right
            if options.check or not is_right:
                print(f"{'ok   ' if is_right else 'WRONG'} {case.row}, M {case.tokens}, "
                      f"D {case.hidden}, {name}: {error:.1e}", flush=True)
        if not options.check:
            results = measure(case, timer, options, errors)
            print_row(results)
            if sink:
                sink.writelines(json.dumps(r) + "\n" for r in results)
                sink.flush()
        del case
        gc.collect()
        torch._dynamo.reset()
        if options.device == "cuda":
            torch.cuda.empty_cache()
    if not options.check and "host" in options.what:
        for result in host_times():
            if sink:
                sink.write(json.dumps(result) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
