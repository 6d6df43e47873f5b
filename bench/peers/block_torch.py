#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of the block benchmark: times one run of a LLaMA block without attention per
request.

A benchmark starts this script as a process and interleaves requests with its own runs, so that both
run in the same state of the machine. A request is a line on stdin, and its answer is a line on
stdout:

    PHASE VARIANT DTYPE M D I [HEADS KV_HEADS]        -> seconds 0.012345678
    peak PHASE VARIANT DTYPE M D I [HEADS KV_HEADS]   -> bytes RUN PROCESS
    version                                           -> version 2.13.0 threads 2
    quit

PHASE is fwd or fwdbwd, VARIANT eager or compile (torch.compile, its default mode, static shapes),
DTYPE f32 or bf16. By default HEADS is D/64, and KV_HEADS a third of HEADS, or a quarter if a third
is not whole. `peak` runs once: RUN is the peak of the resident memory minus the memory before the
run (without weights, inputs and earlier gradients); PROCESS is the peak resident memory of the
process in this run (VmHWM). The answer to a failed request is "error ...". The first request of a
kind builds and compiles the block and runs it three times before the timed run.

The block, with weights [out, in] as Hugging Face stores them, from the residual stream x0 [M, D]
and attention's output y0 [M, D] (M is one sequence):

    x1 = x0 + y0·Woᵀ;  h1 = rms_norm(x1) ⊙ w1;  a = silu(h1·Wgᵀ) ⊙ (h1·Wuᵀ);  x2 = x1 + a·Wdᵀ
    h2 = rms_norm(x2) ⊙ w2;  q, k, v = h2·Wqᵀ, h2·Wkᵀ, h2·Wvᵀ;  q, k rotated (half-split RoPE)

fwd gives x2, q, k, v; fwdbwd also the gradients of x0, y0 and all nine weights, from given
gradients of the four. --check compares all of them with float64 and exits.
"""

import argparse
import ctypes
import dataclasses
import functools
import os
import statistics
import sys
import time

import torch
import torch.nn.functional as F

EPS = 1e-5
THETA = 10000.0
WARM_UP_RUNS = 3
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


@dataclasses.dataclass(frozen=True)
class Size:
    tokens: int
    width: int
    mlp: int
    heads: int
    kv_heads: int

    @property
    def head(self) -> int:
        return self.width // self.heads

    @staticmethod
    def parse(words: list[str]) -> "Size":
        if len(words) not in (3, 5):
            raise ValueError("needs M D I [HEADS KV_HEADS]")
        tokens, width, mlp, *heads = map(int, words)
        if not heads:
            count = max(1, width // 64)
            heads = [count, max(1, count // 3 if count % 3 == 0 else count // 4)]
        size = Size(tokens, width, mlp, *heads)
        if min(tokens, width, mlp, *heads) < 1:
            raise ValueError("sizes must be positive")
        if width % size.heads or size.heads % size.kv_heads or size.head % 2:
            raise ValueError(
                f"D {width} must be {size.heads} heads of an even size, and the heads a multiple "
                f"of the {size.kv_heads} key-value heads")
        return size


def weight_shapes(size: Size) -> dict[str, tuple[int, ...]]:
    d, i, kv = size.width, size.mlp, size.kv_heads * size.head
    return {
        "wo": (d, d), "w1": (d,), "wg": (i, d), "wu": (i, d), "wd": (d, i), "w2": (d,),
        "wq": (d, d), "wk": (kv, d), "wv": (kv, d)}


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, head: int) -> torch.Tensor:
    """Rotates x [M, heads * head] with cos and sin [M, head], like transformers'
    apply_rotary_pos_emb."""
    x = x.view(x.shape[0], -1, head)
    halves = torch.cat((-x[..., head // 2:], x[..., :head // 2]), dim=-1)
    return (x * cos[:, None] + halves * sin[:, None]).flatten(1)


def block(x0, y0, weights: dict, cos, sin, head: int) -> tuple[torch.Tensor, ...]:
    w = weights
    width = (x0.shape[1],)
    x1 = x0 + F.linear(y0, w["wo"])
    h1 = F.rms_norm(x1, width, w["w1"], EPS)
    a = F.silu(F.linear(h1, w["wg"])) * F.linear(h1, w["wu"])
    x2 = x1 + F.linear(a, w["wd"])
    h2 = F.rms_norm(x2, width, w["w2"], EPS)
    q = rotate(F.linear(h2, w["wq"]), cos, sin, head)
    k = rotate(F.linear(h2, w["wk"]), cos, sin, head)
    return x2, q, k, F.linear(h2, w["wv"])


class Problem:
    """The tensors of one size and storage type, shared by all variants and phases."""

    def __init__(self, size: Size, dtype: torch.dtype):
        self.size = size
        random = torch.Generator().manual_seed(1)

        def normal(*shape, scale=1.0):
            return (torch.randn(shape, generator=random) * scale).to(dtype)

        self.weights = {}
        for name, shape in weight_shapes(size).items():
            is_norm = len(shape) == 1
            value = normal(*shape, scale=0.1 if is_norm else shape[-1] ** -0.5)
            self.weights[name] = (1 + value if is_norm else value).requires_grad_()
        self.x0 = normal(size.tokens, size.width).requires_grad_()
        self.y0 = normal(size.tokens, size.width).requires_grad_()
        kv = size.kv_heads * size.head
        self.gradients = [normal(size.tokens, n) for n in (size.width, size.width, kv, kv)]
        frequencies = THETA ** (-torch.arange(0, size.head, 2).double() / size.head)
        angles = torch.arange(size.tokens).double()[:, None] * frequencies
        angles = torch.cat((angles, angles), dim=1)
        self.cos, self.sin = angles.cos().to(dtype), angles.sin().to(dtype)

    def arguments(self) -> tuple:
        return self.x0, self.y0, self.weights, self.cos, self.sin, self.size.head

    def leaves(self) -> list[torch.Tensor]:
        return [self.x0, self.y0, *self.weights.values()]


def run(problem: Problem, phase: str, function) -> tuple[torch.Tensor, ...]:
    if phase == "fwd":
        with torch.no_grad():
            return function(*problem.arguments())
    outputs = function(*problem.arguments())
    return outputs + torch.autograd.grad(outputs, problem.leaves(), problem.gradients)


@functools.cache
def problem_of(size: Size, dtype: str) -> Problem:
    return Problem(size, DTYPES[dtype])


@functools.cache
def warm_runner(phase: str, variant: str, dtype: str, size: Size):
    """A function that runs once; it is already compiled and warm."""
    if phase not in ("fwd", "fwdbwd"):
        raise ValueError(f"unknown phase '{phase}'; there are fwd, fwdbwd")
    if dtype not in DTYPES:
        raise ValueError(f"unknown dtype '{dtype}'; there are {', '.join(DTYPES)}")
    if variant not in ("eager", "compile"):
        raise ValueError(f"unknown variant '{variant}'; there are eager, compile")
    function = block if variant == "eager" else torch.compile(block, dynamic=False)
    runner = functools.partial(run, problem_of(size, dtype), phase, function)
    for _ in range(WARM_UP_RUNS):
        runner()
    return runner


def runner_of(words: list[str]):
    if len(words) < 3:
        raise ValueError("needs PHASE VARIANT DTYPE M D I [HEADS KV_HEADS]")
    return warm_runner(*words[:3], Size.parse(words[3:]))


def status_bytes(name: str) -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(name + ":"))


def peak_of(runner) -> tuple[int, int]:
    """The peak bytes that a run adds, and the peak resident memory of the process."""
    ctypes.CDLL(None).malloc_trim(0)  # cached freed memory would hide the increase
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # resets VmHWM to the current resident memory
    before = status_bytes("VmRSS")
    runner()
    highest = status_bytes("VmHWM")
    return highest - before, highest


def answer(words: list[str]) -> str:
    if words == ["version"]:
        return f"version {torch.__version__} threads {torch.get_num_threads()}"
    if words[0] == "peak":
        return "bytes %d %d" % peak_of(runner_of(words[1:]))
    runner = runner_of(words)
    start = time.perf_counter()
    runner()
    return f"seconds {time.perf_counter() - start:.9f}"


def serve() -> None:
    for line in sys.stdin:
        words = line.split()
        if words == ["quit"]:
            return
        if not words:
            continue
        try:
            reply = answer(words)
        except Exception as error:  # the other side always waits for one line
            reply = "error " + " ".join(f"{type(error).__name__}: {error}".split())
        print(reply, flush=True)


def reference(problem: Problem) -> list[torch.Tensor]:
    """All outputs and gradients in float64, from the formulas, RoPE as complex numbers."""
    leaves = [leaf.detach().double().requires_grad_() for leaf in problem.leaves()]
    x0, y0, wo, w1, wg, wu, wd, w2, wq, wk, wv = leaves
    size, half = problem.size, problem.size.head // 2
    turn = torch.complex(problem.cos.double()[:, :half], problem.sin.double()[:, :half])[:, None]

    def norm(x, w):
        return x / torch.sqrt((x * x).mean(dim=1, keepdim=True) + EPS) * w

    def rotated(x):
        x = x.view(size.tokens, -1, 2, half)
        x = torch.complex(x[:, :, 0], x[:, :, 1]) * turn
        return torch.stack((x.real, x.imag), dim=2).flatten(1)

    x1 = x0 + y0 @ wo.T
    h1 = norm(x1, w1)
    gate = h1 @ wg.T
    x2 = x1 + (gate / (1 + torch.exp(-gate)) * (h1 @ wu.T)) @ wd.T
    h2 = norm(x2, w2)
    outputs = [x2, rotated(h2 @ wq.T), rotated(h2 @ wk.T), h2 @ wv.T]
    gradients = [gradient.double() for gradient in problem.gradients]
    return [*outputs, *torch.autograd.grad(outputs, leaves, gradients)]


def check() -> int:
    """Every result of every variant against float64: 2e-6 (f32) or 2e-2 (bf16) of its norm."""
    names = ["x2", "q", "k", "v", "dx0", "dy0", *("d" + name for name in weight_shapes(
        Size(1, 2, 1, 1, 1)))]
    failed = 0
    for dtype, bound in (("f32", 2e-6), ("bf16", 2e-2)):
        for size in (Size(96, 192, 256, 3, 1), Size(50, 128, 72, 4, 4)):
            expected = reference(problem_of(size, dtype))
            for variant in ("eager", "compile"):
                for phase in ("fwd", "fwdbwd"):
                    results = warm_runner(phase, variant, dtype, size)()
                    errors = {
                        name: ((r.double() - e).norm() / e.norm()).item()
                        for name, r, e in zip(names, results, expected)}
                    worst = max(errors, key=errors.get)
                    is_right = len(results) == (4 if phase == "fwd" else 15) and all(
                        error <= bound for error in errors.values())
                    failed += not is_right
                    print(f"{'ok   ' if is_right else 'WRONG'} {phase} {variant} {dtype} {size}: "
                          f"worst {worst} {errors[worst]:.1e}")
    return 1 if failed else 0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--check", action="store_true", help="compare with float64 and exit")
    parser.add_argument("--time", nargs="+", metavar="WORD", help="median of 15 runs of a request")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch._dynamo.config.recompile_limit = 256  # each size, type and phase is compiled once
    if arguments.check:
        sys.exit(check())
    if arguments.time:
        times = [float(answer(arguments.time).split()[1]) for _ in range(15)]
        print(f"{statistics.median(times):.6f} s, least {min(times):.6f}, most {max(times):.6f}")
        return
    serve()


if __name__ == "__main__":
    main()
