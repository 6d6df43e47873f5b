#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every header compiles alone, as the only include of a generated source. A header is
not checked if a source of the same name includes it first, because the build compiles that source.

Usage: check_headers.py BUILD [JOBS]. A header that passed is compiled again only after it, or a
header that it includes, has changed (BUILD/headers_checked.json and scripts/known_clean.txt).
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

import known_clean
import sources

_FOLDERS = ("include", "src", "tests", "bench", "lab", "tools", "examples")
_FIRST = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"][^>"]+[>"])', re.MULTILINE)
# The last two are defined by the targets of tests.
_FLAGS = [
    "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fopenmp", "-fsyntax-only",
    '-DCODA_SOURCE_DIR=""', '-DCODA_HOST_KERNEL_COMPILER=""'
]


def included_first(files: list[pathlib.Path]) -> set[pathlib.Path]:
    """The headers that a source of the product with the same name includes first."""
    found = set()
    for path in files:
        if path.suffix != ".cc" or not sources.name_of(path).startswith(("src/", "tools/")):
            continue
        first = _FIRST.search(path.read_text())
        if not first or pathlib.PurePath(first[1].strip('<>"')).stem != path.stem:
            continue
        for root in (path.parent, *known_clean.ROOTS):
            if (root / first[1].strip('<>"')).is_file():
                found.add(root / first[1].strip('<>"'))
                break
    return found


def compile_alone(compiler: str, path: pathlib.Path) -> str:
    """The compiler's error message, or an empty text."""
    command = [compiler, *_FLAGS, *(f"-I{root}" for root in known_clean.ROOTS), "-x", "c++", "-"]
    run = subprocess.run(command, input=f'#include "{path}"\n', capture_output=True, text=True)
    return "" if run.returncode == 0 else run.stderr.strip() or "the compiler failed"


def compiler_of(build: pathlib.Path) -> str:
    cache = (build / "CMakeCache.txt").read_text()
    match = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", cache, re.MULTILINE)
    return match[1] if match else "g++"


def main() -> int:
    build = pathlib.Path(sys.argv[1])
    jobs = int(sys.argv[2]) if len(sys.argv) > 2 else os.cpu_count()
    files = sources.all_files()
    headers = [
        path for path in files
        if path.suffix == ".h" and sources.name_of(path).startswith(_FOLDERS)
    ]
    proved = included_first(files)
    clean = known_clean.KnownClean(build / "headers_checked.json")
    how = "".join(_FLAGS)
    alone = [path for path in headers if path not in proved]
    pending = [path for path in alone if not clean.has(path, how)]
    compiler = compiler_of(build)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        results = pool.map(lambda path: compile_alone(compiler, path), pending)
        complaints = dict(zip(pending, results))
    failed = {path for path, complaint in complaints.items() if complaint}
    clean.keep({path: how for path in alone if path not in failed}, failed)
    problems = [
        f"{sources.name_of(path)}: does not compile alone\n{complaint}"
        for path, complaint in complaints.items() if complaint
    ]
    what = f"headers ({len(pending)} compiled)"
    return sources.report("check_headers", len(headers), what, problems)


if __name__ == "__main__":
    sys.exit(main())
