#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy over the project's sources, in parallel, and only once for the same contents.

Usage: tidy.py BUILD [JOBS]. BUILD/compile_commands.json has each source's compile command. A source
that passed is checked again only after a change of its code, of a project header that it includes,
of its flags or of .clang-tidy (BUILD/tidy_checked.json and scripts/known_clean.txt). If most
sources of a unity source must be checked, they are checked together.
"""

import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys
import time

import check_headers
import known_clean
import sources

# GCC's flags that clang does not support, or must not get.
_DROPPED = {"-Werror", "-fno-sanitize-recover=all"}


def gcc_headers(compiler: str) -> str:
    """The folder of GCC's own omp.h, which is searched last, after clang's headers."""
    command = [compiler, "-print-file-name=include"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def arguments_of(entry: dict) -> list[str]:
    arguments = entry.get("arguments") or shlex.split(entry["command"])
    while pathlib.Path(arguments[0]).name in ("ccache", "sccache"):
        arguments = arguments[1:]
    return [argument for argument in arguments if argument not in _DROPPED]


def parts_of(source: pathlib.Path) -> list[pathlib.Path]:
    """The sources that CMake's unity source includes, which are compiled together."""
    if source.parent.name != "Unity":
        return [source]
    return [pathlib.Path(name) for name in known_clean.included_in(source.read_text())]


def commands(build: pathlib.Path) -> dict[pathlib.Path, dict]:
    """Maps each source of the product to its entry. Tests, benchmarks and the Python bindings
    (which only some builds have) are not checked by clang-tidy, only by the compiler's warnings and
    clang-format."""
    ours = {path for path in sources.all_files()
            if not sources.name_of(path).startswith(("tests/", "bench/", "lab/", "python/"))}
    entries = json.loads((build / "compile_commands.json").read_text())
    found = {}
    for entry in entries:
        path = pathlib.Path(entry["directory"], entry["file"]).resolve()
        parts = [part for part in parts_of(path) if build not in part.parents]  # not generated
        if path not in found and parts and ours.issuperset(parts):
            found[path] = entry
    return found


def flags_of(arguments: list[str]) -> str:
    """The arguments that change the meaning of a source, without the checkout's folder."""
    return " ".join(a for a in arguments if a.startswith(("-D", "-std", "-f", "-m"))).replace(
        str(sources.ROOT), "")


def run_tidy(tidy: str, database: pathlib.Path, path: pathlib.Path) -> tuple[str, float]:
    """The messages of clang-tidy, empty if there are none, and the seconds it took."""
    start = time.monotonic()
    command = [tidy, "--quiet", "-p", str(database), str(path)]
    if parts_of(path) != [path]:
        command.append("--checks=-bugprone-suspicious-include")  # of sources, by CMake
    run = subprocess.run(command, capture_output=True, text=True)
    said = run.stdout.strip()
    if run.returncode and not said:
        said = run.stderr.strip()
    return said, time.monotonic() - start


def main() -> int:
    build = pathlib.Path(sys.argv[1]).resolve()
    jobs = int(sys.argv[2]) if len(sys.argv) > 2 else os.cpu_count()
    tidy = str(sources.ROOT / ".venv" / "bin" / "clang-tidy")
    if not os.access(tidy, os.X_OK):
        sys.exit("tidy: no .venv/bin/clang-tidy; run scripts/setup.sh lint")
    gcc = gcc_headers(check_headers.compiler_of(build))
    extra = ["-idirafter", gcc, "-Wno-unknown-warning-option"]

    clean = known_clean.KnownClean(build / "tidy_checked.json")
    settings = (sources.ROOT / ".clang-tidy").read_text() + (
        sources.ROOT / "requirements-lint.txt").read_text()
    how: dict[pathlib.Path, str] = {}
    database, pending = [], []
    for path, entry in commands(build).items():
        parts, arguments = parts_of(path), arguments_of(entry)
        how |= dict.fromkeys(parts, settings + flags_of(arguments))
        unknown = [part for part in parts if not clean.has(part, how[part])]
        arguments[1:1] = extra
        for file in [path] if 2 * len(unknown) > len(parts) else unknown:
            pending.append(file)
            database.append({"directory": entry["directory"], "file": str(file),
                             "arguments": [str(file) if a == str(path) else a for a in arguments]})
    folder = build / "tidy"
    folder.mkdir(exist_ok=True)
    (folder / "compile_commands.json").write_text(json.dumps(database))
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        results = dict(zip(pending, pool.map(lambda p: run_tidy(tidy, folder, p), pending)))
    failed = {part for path, (said, _) in results.items() if said for part in parts_of(path)}
    clean.keep({part: how[part] for part in how if part not in failed}, failed)
    slowest = sorted(results, key=lambda p: -results[p][1])[:3]
    if slowest:
        print("tidy: slowest: " + ", ".join(
            f"{sources.name_of(parts_of(p)[0])} {results[p][1]:.1f} s" for p in slowest))
    problems = [said for said, _ in results.values() if said]
    return sources.report("tidy", len(how), f"sources ({len(pending)} compilations)", problems)


if __name__ == "__main__":
    sys.exit(main())
