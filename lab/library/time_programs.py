#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times programs by `coda bench`, all of programs/ unless others are named, and prints one table.

    lab/library/time_programs.py --out library.jsonl
    lab/library/time_programs.py reader1 reader2 --compare library.jsonl --out readers.jsonl

Each program is timed in a separate process and compared with its GEMM alone, its operations one by
one and a copy of its bytes. Each result is appended to --out at once. Programs with a result in
--out are not timed again, so an interrupted run continues. With --compare each program is compared
with the program of the same name in that file, and the last line is the median.

Needs only Python and the command `coda`, which finds a GPU's libraries as docs/gpu.md says.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]

# By the names that the library's and the guide's programs give to sizes: of a LLaMA block of hidden
# size 2048, and as small as fills a tile.
SIZES = {
    "gpu": {"M": 16384, "N": 2048, "K": 2048, "D": 2048, "I": 5632, "V": 32768, "S": 4096, "H": 16},
    "cpu": {"M": 64, "N": 128, "K": 64, "D": 64, "I": 128, "V": 256, "S": 32, "H": 2},
}
WIDE = {"N": 5632}  # an MLP's
VOCABULARY = {"N": 32768}
WEIGHT = {"M": 2048, "K": 16384}  # the rows of a weight's gradient are its product's contraction
# What other sizes a program of the library has in a model.
GPU_SIZES = {
    "swiglu": WIDE, "swiglu_joined": WIDE, "swiglu_backward": WIDE, "geglu": WIDE,
    "relu_squared": WIDE, "bias_gelu": WIDE, "norm_backward_joined": {"K": 5632},
    "loss": VOCABULARY, "loss_backward": VOCABULARY, "loss_of_rows": VOCABULARY,
    "capped_loss": VOCABULARY, "z_loss": VOCABULARY, "smoothed_loss": VOCABULARY,
    "label_smoothing": VOCABULARY,
    "product_nt": WEIGHT, "weight_gradient": WEIGHT, "weight_gradient_norm": WEIGHT,
}
COLUMNS = (("product", ("cuBLAS", "products alone")), ("unfused", ("operations one by one",)),
           ("copy", ("copy of as many bytes",)))


def files_of(arguments: list[str]) -> list[pathlib.Path]:
    """Files as they are, and of a folder all that it has."""
    files = []
    for argument in arguments or [str(ROOT / "programs")]:
        path = pathlib.Path(argument)
        files += sorted(path.rglob("*.coda")) if path.is_dir() else [path]
    return files


def sizes_of(file: pathlib.Path, device: str, given: dict[str, int]) -> dict[str, int]:
    """Of the symbols that the file names; values and tensors never have a symbol's name."""
    text = re.sub(r"#.*", "", file.read_text())
    known = dict(SIZES[device])
    if device == "gpu":
        known.update(GPU_SIZES.get(file.stem, {}))
    known.update(given)
    return {name: size for name, size in known.items() if re.search(rf"\b{name}\b", text)}


def command_of(flags, verb: str, file: pathlib.Path) -> list[str]:
    sizes = ",".join(f"{k}={v}" for k, v in sizes_of(file, flags.device, flags.sizes).items())
    return [flags.coda, verb, str(file), *(["--sizes", sizes] if sizes else []),
            *(["--storage", flags.storage] if flags.storage else [])]


def run(command: list[str]) -> tuple[str, str]:
    """What it prints, and the reason if it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        return done.stdout, ""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return "", lines[-1] if lines else f"ended with status {done.returncode}"


def compile_ahead(flags, files: list[pathlib.Path]) -> None:
    """Several at once, while nothing is timed; what cannot be compiled says so when it is timed."""
    workers = max(1, (os.cpu_count() or 1) // 2)
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        list(pool.map(run, [command_of(flags, "compile", f) + ["--threads", "2"] for f in files]))


def measured(flags, file: pathlib.Path) -> dict:
    command = command_of(flags, "bench", file) + ["--json"]
    if flags.device == "gpu":
        command += ["--backend", "gpu", "--seconds", str(flags.seconds), "--regimes", flags.regimes]
    else:
        command += ["--backend", "cpu", "--limit", str(flags.seconds)]
    command += ["--alone"] if flags.alone else []
    out, error = run(command + ["--rounds", str(flags.rounds)])
    return {"file": listed_name(file), **(json.loads(out) if out else {"error": error})}


def listed_name(file: pathlib.Path) -> str:
    """Within the repository, so that results can be kept there; another file's as it was given."""
    return str(file.relative_to(ROOT) if file.is_relative_to(ROOT) else file)


def first_ms(candidate: dict) -> float:
    return next(candidate[f"{regime}_ms"] for regime in ("sustained", "cool", "interleaved")
                if f"{regime}_ms" in candidate)


def fastest_ms(row: dict, names: tuple[str, ...]) -> float | None:
    return min((first_ms(c) for c in row["candidates"] if c["candidate"].startswith(names)),
               default=None)


def own_ms(row: dict) -> float:
    return fastest_ms(row, ("program", "chosen"))


def over_floor(row: dict) -> float:
    """Time over the product alone, measured beside it; of a program without one over its bytes.
    So programs of different sizes can be compared."""
    product = fastest_ms(row, COLUMNS[0][1])
    return own_ms(row) / product if product else own_ms(row) / row["bytes"]


def name_of(row: dict) -> str:
    return pathlib.Path(row["file"]).stem


def table(rows: list[dict], beside: list[dict]) -> str:
    """Times in milliseconds; a column is the program's time over what the column names."""
    others = {name_of(row): row for row in beside if "error" not in row}
    heads = ["program", "sizes", "ms", *(f"over {name}" for name, _ in COLUMNS)]
    heads += ["over the library's"] if beside else []
    lines, compared = [heads, ["---"] * len(heads)], []
    for row in rows:
        if "error" in row:
            lines.append([name_of(row), row["error"], *[""] * (len(heads) - 2)])
            continue
        ms = own_ms(row)
        line = [name_of(row), " ".join(f"{k}={v}" for k, v in row["sizes"].items()), f"{ms:.4f}"]
        for _, names in COLUMNS:
            other = fastest_ms(row, names)
            line.append(f"{ms / other:.3f}" if other else "")
        if beside:
            other = others.get(name_of(row))
            if other:
                compared.append(over_floor(row) / over_floor(other))
            line.append(f"{compared[-1]:.3f}" if other else "")
        lines.append(line)
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    if compared:
        median = statistics.median(compared)
        text += f"\n\nmedian over the library's: {median:.3f} of {len(compared)}"
    return text


def parse_size(text: str) -> tuple[str, int]:
    name, _, size = text.partition("=")
    return name, int(size)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", help="programs, or folders of them [programs/]")
    parser.add_argument("--coda", default=str(ROOT / "build/tools/coda"), help="the command")
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("library.jsonl"))
    parser.add_argument("--compare", type=pathlib.Path, help="programs of the same names")
    parser.add_argument("--alone", action="store_true",
                        help="compared with its GEMM only, which --compare needs")
    parser.add_argument("--sizes", type=lambda text: dict(map(parse_size, text.split(","))),
                        default={}, help="in place of the usual ones: M=4096,N=4096")
    parser.add_argument("--storage", help="bf16: of matrices without a type, as products need it")
    parser.add_argument("--seconds", type=float, default=0.3, help="of each candidate, twice")
    parser.add_argument("--regimes", default="sustained,cool")
    parser.add_argument("--rounds", type=int, default=15, help="of the cool regime")
    parser.add_argument("--minutes", type=float, default=1e9,
                        help="start no program later than this; the next run continues there")
    flags = parser.parse_args()

    begin = time.monotonic()
    files = files_of(flags.files)
    flags.out.touch()
    rows = [json.loads(line) for line in flags.out.read_text().splitlines()]
    done = {row["file"] for row in rows if "error" not in row}
    rows = [row for row in rows if row["file"] in done]
    left = [file for file in files if listed_name(file) not in done]
    if flags.device == "gpu":
        compile_ahead(flags, left)
    for number, file in enumerate(left):
        if time.monotonic() - begin > flags.minutes * 60:
            print(f"{len(left) - number} programs are left: run it again", file=sys.stderr)
            break
        print(f"{file.stem}, {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
        rows.append(measured(flags, file))
        with flags.out.open("a") as out:
            out.write(json.dumps(rows[-1]) + "\n")
    compared = flags.compare.read_text().splitlines() if flags.compare else []
    print(table(rows, [json.loads(line) for line in compared]))
    return 1 if any("error" in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
