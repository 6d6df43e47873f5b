#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of the programs on a GPU: compiles the formulas of bench/gpu_programs and of a
LLaMA block without attention with torch.compile (default mode, static shapes), and compares each
with its products alone by torch.mm, in the sustained and in the cool regime (gpu_timing.py).

    bench/peers/block_torch_gpu.py --hidden 2048 4096 --json torch.jsonl
    bench/peers/block_torch_gpu.py --compare ours.jsonl torch.jsonl   # one table of both, no GPU
    bench/peers/block_torch_gpu.py --check --device cpu --tokens 96 --hidden 256 --mlp 128

ours.jsonl is what `gpu_programs --json ours.jsonl` wrote. Every result is checked against float64
before it is timed; --check only checks. A line of JSON for each candidate of each row goes to
--json as soon as it is measured. The memory of a block is the peak allocation of one run, including
weights, inputs and upstream gradients.
"""

import argparse
import functools
import gc
import statistics
import sys
import time

import torch
import torch.nn.functional as F

import block_torch
import gpu_timing
import programs_torch
from peer_rows import (
    BOUNDS, DTYPES, Case, add_timing_options, is_named, measure, mlp_of, no_row, print_row,
    print_table, sets_for, worst_error, write)
from programs_torch import FORMULAS, Sizes

BLOCK_BOUNDS = {"f32": 5e-6, "bf16": 2e-2, "f16": 3e-3}


def compiled(function):
    return torch.compile(function, dynamic=False)


def widened(tensors):
    return {name: t.double() if t.is_floating_point() else t for name, t in tensors.items()}


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
    """The arguments of block_torch.run and block_torch.reference, on the device."""

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
        """The same tensors, except the packed weights."""
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
    """Gradients of packed weights, split as in block_torch.reference."""
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
            # Detached, so that a call's graph is freed after the call.
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
        """The peak memory of a run. Before the run, only weights and inputs are allocated."""
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
            mlp = options.mlp or mlp_of(hidden)
            rows = [] if "programs" not in options.what else programs_torch.cases(
                tokens, hidden, mlp, options.square)
            for row, formula, m, n, k in rows:
                label = hidden if options.square else tokens
                if is_named(row, options):
                    yield functools.partial(ProgramCase, row, formula, m, n, k, hidden, label,
                                            options)
            if "block" in options.what and not options.square and is_named("block", options):
                for backward in (False, True):
                    yield functools.partial(BlockCase, tokens, hidden, mlp, backward, options)


def first_calls(case, options) -> dict[str, float]:
    """Compiles the variants. Returns the errors of their results, if they are to be checked."""
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


def host_times() -> list[dict]:
    """Host microseconds per call of a tiny problem, over 1000 calls without waiting."""
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
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--no-check", action="store_true", help="only measure")
    add_timing_options(parser)
    parser.add_argument("--compare", nargs=2, metavar=("OURS", "TORCH"),
                        help="print one table of two files of results, and exit")
    options = parser.parse_args()
    if options.device == "cpu" and not options.check:
        parser.error("times are taken on a GPU only: with --device cpu give --check")
    if options.square:
        options.tokens = options.tokens[:1]
    return options


def main() -> int:
    options = parse_arguments()
    if options.compare:
        try:
            print_table(*options.compare)
        except OSError as error:
            sys.exit(f"block_torch_gpu.py: {error}")
        return 0
    cases = list(cases_of(options))
    if not cases and "host" not in options.what:
        sys.exit(f"block_torch_gpu.py: {no_row(options)}")
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("block_torch_gpu.py: PyTorch finds no GPU; --check --device cpu needs none")
    torch.manual_seed(1)
    torch._dynamo.config.recompile_limit = 256  # each size is compiled once
    timer = None
    if options.device == "cuda":
        print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}", flush=True)
    if not options.check:
        timer = gpu_timing.Timer()
    sink = open(options.json, "w") if options.json else None
    failed = 0
    for make in cases:
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
            write(sink, results)
        del case
        gc.collect()
        torch._dynamo.reset()
        if options.device == "cuda":
            torch.cuda.empty_cache()
    if not options.check and "host" in options.what:
        write(sink, host_times())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
