#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scales for blocks of 8-bit operands cost and what they keep: the table that decides.

    lab/fp8/decide.py --coda build/tools/coda --out decide.jsonl

Each product of M = 16384 rows is timed in three ways, each beside cuBLAS's 8-bit product that sums
in the same way: (a) one scale a tensor, summed by the tensor cores alone; (b) the same, promoted
every 128 of K, which the compiler does from sums of more than 4096 terms on; (c) a scale for each
128 elements of a row of A and each 128 x 128 of B. A second table has the error of (a) and (c)
against float64 on data whose outliers lie in channels or in tokens.

It needs the command, Python with NumPy, and of CUDA what docs/gpu.md says and cuBLAS. A result is a
line of --out as soon as it is there, and what --out has is not timed again.
"""

import argparse
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

ROWS = 16384
SPAN = 128
LONGEST_FAST_SUM = 4096
LARGEST = 448.0  # of e4m3
# N and K of the products of docs/performance.md: the attention's output, gate and up, down, and a
# weight's gradient.
SHAPES = [(2048, 2048), (11264, 2048), (2048, 5632), (4096, 4096), (22016, 4096), (4096, 11008),
          (8192, 8192), (8192, 22016)]
PROGRAMS = {
    "tensor": "program tensor {\n  y = gemm(x[M, 128*B]:e4m3, w[128*C, 128*B]:e4m3)\n"
              "  store(y:bf16, y * scalar(s))\n}\n",
    "block": "program block {\n  y = gemm(scaled(x[M, 128*B]:e4m3, xs[M, B]),\n"
             "           scaled(w[128*C, 128*B]:e4m3, ws[C, B]))\n  store(y:bf16, y)\n}\n",
}
WAYS = {"a": ("tensor", True), "b": ("tensor", False), "c": ("block", False)}


def run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


def sizes_text(m: int, n: int, k: int) -> str:
    return f"M={m},B={k // SPAN},C={n // SPAN}"


def timed(flags, files: dict[str, pathlib.Path], way: str, n: int, k: int) -> dict:
    program, fast = WAYS[way]
    command = [flags.coda, "bench", str(files[program]), "--sizes", sizes_text(ROWS, n, k),
               "--backend", "gpu", "--alone", "--json", "--seconds", str(flags.seconds),
               "--regimes", "sustained,cool", "--rounds", "15"]
    measured = json.loads(run(command + (["--fast-accumulation"] if fast else [])))
    return {"way": way, "m": ROWS, "n": n, "k": k, **measured}


def ratio(row: dict, regime: str) -> float:
    """Time over the faster of cuBLAS's."""
    def ms(is_peer: bool) -> float:
        return min(c[f"{regime}_ms"] for c in row["candidates"]
                   if c["candidate"].startswith("cuBLAS") == is_peer)

    return ms(False) / ms(True)


def own_ms(row: dict, regime: str) -> float:
    return min(c[f"{regime}_ms"] for c in row["candidates"]
               if not c["candidate"].startswith("cuBLAS"))


def times_table(rows: list[dict]) -> str:
    """Milliseconds sustained (cool), and the same over cuBLAS's."""
    lines = ["| N x K | (a) a tensor | over cuBLAS | (b) promoted | over cuBLAS | (c) blocks "
             "| over cuBLAS | (c) over (a) |", "| --- " * 8 + "|"]
    by = {(row["n"], row["k"], row["way"]): row for row in rows if "way" in row}
    for n, k in SHAPES:
        cells = [f"{n} x {k}"]
        for way in WAYS:
            row = by.get((n, k, way))
            cells += ["", ""] if row is None else [
                "{:.3f} ({:.3f})".format(*(own_ms(row, r) for r in ("sustained", "cool"))),
                "{:.2f} ({:.2f})".format(*(ratio(row, r) for r in ("sustained", "cool")))]
        pair = [by.get((n, k, way)) for way in "ac"]
        cells.append("" if None in pair else
                     f"{own_ms(pair[1], 'sustained') / own_ms(pair[0], 'sustained'):.2f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def data(kind: str, m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Normal deviates; `channels`: four columns of x a million times as large, which w does not
    read, so that the error is that of all others; `tokens`: rows whose sizes differ by 10^6."""
    random = np.random.default_rng(7)
    x = random.standard_normal((m, k)).astype(np.float32)
    w = (0.02 * random.standard_normal((n, k))).astype(np.float32)
    if kind == "channels":
        x[:, :4] *= 1e6
        w[:, :4] = 0
    if kind == "tokens":
        x *= 10.0 ** random.uniform(-3, 3, (m, 1)).astype(np.float32)
    return x, w


def scales_of(x: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """The largest magnitude of each block over e4m3's largest number, which is never 0."""
    m, k = x.shape
    blocks = np.abs(x).reshape(m // rows, rows, k // columns, columns)
    return np.maximum(blocks.max((1, 3)) / LARGEST, 1e-30).astype(np.float32)


def divided(x: np.ndarray, scales: np.ndarray) -> np.ndarray:
    rows, columns = x.shape[0] // scales.shape[0], x.shape[1] // scales.shape[1]
    return x / scales.repeat(rows, 0).repeat(columns, 1)


def error_of(flags, files: dict[str, pathlib.Path], program: str, kind: str, k: int,
             folder: pathlib.Path) -> dict:
    """Of a product on the device, relative to the norm of each row: the median of rows, and the
    worst. The runtime rounds what it is given to the codes."""
    m, n = 512, 256
    x, w = data(kind, m, n, k)
    if program == "tensor":
        xs, ws = scales_of(x, m, k), scales_of(w, n, k)
        inputs = {"s": np.float32(xs[0, 0] * ws[0, 0])}
    else:
        xs, ws = scales_of(x, 1, SPAN), scales_of(w, SPAN, SPAN)
        inputs = {"xs": xs, "ws": ws}
    np.savez(folder / "in.npz", x=divided(x, xs), w=divided(w, ws), **inputs)
    run([flags.coda, "run", str(files[program]), "--in", str(folder / "in.npz"), "--out",
         str(folder / "out.npz"), "--device", flags.device])
    exact = x.astype(np.float64) @ w.astype(np.float64).T
    wrong = np.load(folder / "out.npz")["y"].astype(np.float64) - exact
    rows = np.linalg.norm(wrong, axis=1) / np.linalg.norm(exact, axis=1)
    return {"scales": program, "data": kind, "k": k, "median": float(np.median(rows)),
            "worst": float(rows.max())}


def errors_table(rows: list[dict]) -> str:
    lines = ["| data | K | scale a tensor: median, worst row | scales of blocks |",
             "| --- " * 4 + "|"]
    by = {(r["data"], r["k"], r["scales"]): r for r in rows if "scales" in r}
    for kind, k in sorted({(r["data"], r["k"]) for r in rows if "scales" in r}):
        cells = [f"{by[kind, k, p]['median']:.2g}, {by[kind, k, p]['worst']:.2g}"
                 for p in PROGRAMS]
        lines.append(f"| {kind} | {k} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--coda", default="build/tools/coda", help="the command")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("decide.jsonl"))
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu",
                        help="cpu: errors alone, without times")
    parser.add_argument("--seconds", type=float, default=0.3, help="of each candidate, twice")
    parser.add_argument("--minutes", type=float, default=3.5, help="begin nothing later than this")
    flags = parser.parse_args()
    begin = time.monotonic()
    flags.out.touch()
    rows = [json.loads(line) for line in flags.out.read_text().splitlines()]

    def keep(row: dict) -> None:
        rows.append(row)
        with flags.out.open("a") as out:
            out.write(json.dumps(row) + "\n")

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        files = {p: folder / f"{p}.coda" for p in PROGRAMS}
        for program, file in files.items():
            file.write_text(PROGRAMS[program])
        if not any("scales" in row for row in rows):
            for kind in ("even", "channels", "tokens"):
                for k in (2048, 8192):
                    for program in PROGRAMS:
                        keep(error_of(flags, files, program, kind, k, folder))
        done = {(row["n"], row["k"], row["way"]) for row in rows if "way" in row}
        left = [] if flags.device == "cpu" else [
            (n, k, way) for n, k in SHAPES for way in WAYS
            if (n, k, way) not in done and (way != "b" or k > LONGEST_FAST_SUM)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:  # kernels, while nothing is timed
            list(pool.map(run, [[flags.coda, "compile", str(files[WAYS[way][0]]), "--sizes",
                                 sizes_text(ROWS, n, k), "--threads", "1"]
                                for n, k, way in left]))
        for at, (n, k, way) in enumerate(left):
            if time.monotonic() - begin > 60 * flags.minutes:
                print(f"{len(left) - at} are left: run it again", file=sys.stderr)
                break
            keep(timed(flags, files, way, n, k))
    print(errors_table(rows))
    if flags.device == "gpu":
        print("\n" + times_table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
