#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""QuACK's side of the programs on a GPU: programs_quack.py with several of QuACK's configurations.
Each row is compared with its product by torch.mm, in the regimes of gpu_timing.py. All
configurations are timed briefly, and then the fastest few in all regimes.

    bench/peers/quack_gpu.py --hidden 2048 4096 --json quack.jsonl
    bench/peers/block_torch_gpu.py --compare ours.jsonl quack.jsonl   # one table of both, no GPU
    bench/peers/quack_gpu.py --compile --rows SwiGLU                 # fills QuACK's cache, no more

Needs quack-kernels 0.6.5 and PyTorch. The results of every configuration are checked against
float64 at a small size. --compile runs without a GPU too, if QUACK_ARCH=90 and CUTE_DSL_ARCH=sm_90a
are set.
"""

import argparse
import gc
import sys

import torch

import gpu_timing
import programs_torch
from peer_rows import (
    BOUNDS, DTYPES, Case, add_timing_options, is_named, measure, mlp_of, no_row, print_row,
    sets_for, worst_error, write)
from programs_torch import Sizes

try:
    from programs_quack import KERNELS, GemmConfig, finished
except ModuleNotFoundError as error:
    sys.exit(f"quack_gpu.py: {error}. Remedy: pip install quack-kernels==0.6.5, beside PyTorch")

CHECKED = (384, 512, 256)  # M, N, K: full and half tiles


def config(tile_m: int, tile_n: int, pingpong: bool, cluster_m: int) -> GemmConfig:
    return GemmConfig(tile_m=tile_m, tile_n=tile_n, pingpong=pingpong, cluster_m=cluster_m,
                      cluster_n=3 - cluster_m, is_dynamic_persistent=False)


def name_of(one: GemmConfig) -> str:
    schedule = "pp" if one.pingpong else "co"
    return f"QuACK {one.tile_m}x{one.tile_n} {schedule} c{one.cluster_m}{one.cluster_n}"


# From the tuner's list for Hopper: the tiles that were fastest in some row, and the large
# cooperative tiles.
CONFIGS = [config(m, n, pp, c) for m, n, pp in
           ((128, 128, True), (192, 128, True), (128, 160, True), (128, 192, True),
            (128, 256, False), (256, 128, False)) for c in (1, 2)]


def compiled(kernel, sizes: Sizes):
    """(configuration, plan) for configurations that QuACK can compile for this kernel, and the
    errors of the others."""
    tensors, outputs = kernel.tensors(sizes), kernel.outputs(sizes)
    plans = []
    for one in CONFIGS:
        try:
            plans.append((one, kernel.plan(tensors, outputs, one)))
        except Exception as error:  # of any kind: the compiler's, the library's
            print(f"{name_of(one)}: {str(error).splitlines()[0][:100]}", flush=True)
    return tensors, outputs, plans


def check(kernel, dtype: str) -> float:
    """The worst error of all configurations, of every tensor and finished sum."""
    sizes = Sizes(*CHECKED, DTYPES[dtype], "cuda")
    tensors, outputs, plans = compiled(kernel, sizes)
    expected = kernel.expected({n: t.double() for n, t in tensors.items()})
    worst = 0.0
    for _, plan in plans:
        for out in outputs.values():
            out.fill_(0 if kernel.adds else float("nan"))
        for partial in plan.scratch.values():
            partial.fill_(float("nan"))
        kernel.run(plan, tensors, outputs)
        results = dict(outputs)
        results.update((n, finished(n, plan.scratch[n])) for n in expected if n in plan.scratch)
        error = worst_error([results[n] for n in expected], list(expected.values()))
        worst = max(worst, error if error == error else float("inf"))
    return worst if plans else float("inf")


class QuackCase(Case):
    def __init__(self, row, formula, m, n, k, hidden, tokens, options):
        super().__init__(row, hidden, tokens)
        kernel = KERNELS[formula]
        sizes = Sizes(m, n, k, DTYPES[options.dtype], "cuda")
        tensors, outputs, plans = compiled(kernel, sizes)
        moved = sum(t.nbytes for t in (*tensors.values(), *outputs.values()))
        self.sets = options.sets or sets_for(moved)
        self.tensors, self.outputs = [tensors], [outputs]
        for _ in range(self.sets - 1):
            self.tensors.append(kernel.tensors(sizes))
            self.outputs.append(kernel.outputs(sizes))
        self.products = [[(t["a"], t["b"])] for t in self.tensors]

        def variant(plan):
            def call(i: int):
                kernel.run(plan, self.tensors[i], self.outputs[i])
                return self.outputs[i]

            return call

        self.variants = {name_of(one): variant(plan) for one, plan in plans}

    def keep_fastest(self, timer, most: int, seconds: float) -> None:
        brief = [gpu_timing.Candidate(n, c, self.sets) for n, c in self.variants.items()]
        timer.sustained(brief, seconds, 1, seconds)
        brief.sort(key=lambda candidate: candidate.sustained.median_ms)
        self.variants = {c.name: self.variants[c.name] for c in brief[:most]}


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=16384, metavar="M")
    parser.add_argument("--hidden", type=int, nargs="+", default=[2048, 4096, 8192], metavar="D")
    parser.add_argument("--square", action="store_true", help="M = N = K = D")
    parser.add_argument("--dtype", choices=["bf16", "f16"], default="bf16")
    parser.add_argument("--most", type=int, default=3, help="configurations in all regimes")
    parser.add_argument("--brief", type=float, default=0.12, help="seconds of each before that")
    parser.add_argument("--compile", action="store_true", help="only compile")
    add_timing_options(parser)
    return parser.parse_args()


def rows_of(options):
    """(row, formula, m, n, k, hidden, tokens)"""
    for hidden in options.hidden:
        for row, *rest in programs_torch.cases(
                options.tokens, hidden, mlp_of(hidden), options.square):
            if is_named(row, options):
                yield row, *rest, hidden, hidden if options.square else options.tokens


def main() -> int:
    options = parse_arguments()
    rows = list(rows_of(options))
    if not rows:
        sys.exit(f"quack_gpu.py: {no_row(options)}")
    formulas = sorted({formula for _, formula, *_ in rows})
    if options.compile:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        for formula in formulas:
            sizes = Sizes(*CHECKED, DTYPES[options.dtype], device)
            plans = compiled(KERNELS[formula], sizes)[2]
            print(f"{formula}: {len(plans)} of {len(CONFIGS)} configurations", flush=True)
        return 0
    if not torch.cuda.is_available():
        sys.exit("quack_gpu.py: PyTorch finds no GPU; --compile needs none")
    failed = 0
    for formula in formulas:
        error = check(KERNELS[formula], options.dtype)
        is_right = error <= BOUNDS[options.dtype]
        failed += not is_right
        print(f"{'ok   ' if is_right else 'WRONG'} {formula}: {error:.1e}", flush=True)
    if options.check or failed:
        return 1 if failed else 0

    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}", flush=True)
    timer = gpu_timing.Timer()
    sink = open(options.json, "w") if options.json else None
    for one in rows:
        case = QuackCase(*one, options)
        case.keep_fastest(timer, options.most, options.brief)
        results = measure(case, timer, options, {})
        print_row(results)
        write(sink, results)
        del case
        gc.collect()
        torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
