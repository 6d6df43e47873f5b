# SPDX-License-Identifier: Apache-2.0
"""Measures the host time of a call of a fused operator from PyTorch: microseconds of CPU time, in
parts, on tensors so small that the computation takes almost no time.

The operator is swiglu_linear with a norm. It takes five tensors and, with gradients, returns three,
so its forward binds eight. Regions of compiled models are called in the same way. Usage, after `pip
install .`: host_time_torch.py [--device cuda] [--calls N]"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402 (the number of threads is read when it is loaded)
from torch.nn import functional  # noqa: E402

from coda_cpp import _calls, ops, session  # noqa: E402


def microseconds(call: Callable[[], object], calls: int, rounds: int = 25) -> float:
    """CPU time of a call over all threads; the minimum of several rounds, because of other
    processes."""
    for _ in range(20):
        call()
    found = []
    for _ in range(rounds):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        start = time.process_time_ns()
        for _ in range(calls // rounds):
            call()
        found.append((time.process_time_ns() - start) / (calls // rounds) / 1e3)
    return min(found)


def an_empty_operator(result: list[torch.Tensor]) -> Callable:
    """An operator with the same signature that does nothing, to measure PyTorch's dispatch."""
    library = torch.library.Library("host_time", "DEF")
    library.define("empty(Tensor[] tensors, str spec, float[] numbers, int needs) -> Tensor[]")
    library.impl("empty", lambda *_: result, "Autograd")
    an_empty_operator.library = library  # the declaration lives as long as the library
    return torch.ops.host_time.empty.default


def caught(owner: type, name: str, call: Callable[[], object]) -> tuple:
    """The arguments of a method's call, with the method first."""
    method, found = getattr(owner, name), []

    def record(*arguments):
        found.append(arguments)
        return method(*arguments)

    setattr(owner, name, record)
    try:
        call()
    finally:
        setattr(owner, name, method)
    return found[0]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--calls", type=int, default=10000, metavar="N")
    given = parser.parse_args()
    rows, k, n, dtype = (4, 16, 32, torch.float32) if given.device == "cpu" else (
        128, 64, 128, torch.bfloat16)
    torch.manual_seed(0)
    shapes = {"x": (rows, k), "gate": (n, k), "up": (n, k), "rstd": (rows,), "norm_weight": (k,)}
    tensors = [torch.rand(shape, device=given.device,
                          dtype=torch.float32 if len(shape) == 1 else dtype)
               for shape in shapes.values()]
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]

    def eager(x, gate, up, rstd, norm_weight):
        h = functional.rms_norm(x, (k,), norm_weight.to(x.dtype))
        return functional.silu(functional.linear(h, gate)) * functional.linear(h, up)

    # As in a compiled model, with the tensors that the backward needs.
    operator, spec, numbers, needs = (
        torch.ops.coda_cpp.swiglu_linear.default, ",".join(shapes) + ";offset;activation=silu",
        [0.0], (1 << len(leaves)) - 1)

    def region():
        return operator(tensors, spec, numbers, needs)

    def show(name: str, call: Callable[[], object], less: float = 0.0, calls: int = given.calls
             ) -> float:
        found = microseconds(call, calls)
        print(f"{name:62s} {found - less:8.1f} us", flush=True)
        return found

    print(f"{given.device}, torch {torch.__version__}, CPU time a call")
    with torch.no_grad():
        whole = show("forward of a region, 8 tensors", region)
        call, arguments = caught(_calls.Forward, "run", region)
        runners, *where = caught(session.Runners, "run", region)
        # Two sets of results take turns, so that addresses change as in a model.
        kept = [region(), region()]
        addresses = []
        for results in kept:
            pointers = [t.data_ptr() for t in [*arguments, *results]]
            addresses.append([pointers[i] for i in call._order])
        turn = itertools.cycle(addresses)
        run = show("  its session: binding, and the kernels",
                   lambda: runners.run(*where[:2], next(turn)))
        print(f"{'  all else':62s} {whole - run:8.1f} us")
        show("  of it PyTorch's dispatch: an operator that does nothing",
             lambda empty=an_empty_operator(kept[0]): empty(tensors, spec, numbers, needs))
        show("  of it memory for results", call._allocate)
        show("ops.swiglu_linear without gradients", lambda: ops.swiglu_linear(*tensors))
        show("the same formulas, PyTorch op by op", lambda: eager(*tensors))
        sizes = itertools.count(rows + 1)

        def another_size():
            x, gate, up, rstd, norm_weight = tensors
            m = next(sizes)
            operator([x[:1].expand(m, k), gate, up, rstd[:1].expand(m), norm_weight], spec, numbers,
                     needs)

        if given.device == "cpu":  # on a GPU some sizes have special kernels
            show("a call with a number of rows that is new", another_size, calls=500)
    upstream = torch.ones_like(eager(*tensors))
    forward = show("ops.swiglu_linear with gradients, forward", lambda: ops.swiglu_linear(*leaves))
    show("  its backward", lambda: torch.autograd.grad(
        ops.swiglu_linear(*leaves), leaves, upstream), less=forward)
    differentiated = leaves[:3] + leaves[4:]  # eager computes the statistic itself
    forward = show("the same formulas, PyTorch op by op", lambda: eager(*leaves))
    show("  their backward", lambda: torch.autograd.grad(
        eager(*leaves), differentiated, upstream), less=forward)


if __name__ == "__main__":
    main()
