#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every header compiles alone: each is the only include of a generated source, unless a
source of the same name, which clang-tidy and the build compile, includes it before all else.

Usage: check_headers.py BUILD [JOBS]. A header that passed is not compiled again until it, or one it
includes, changes (BUILD/headers_checked.json).
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

import sources

_FOLDERS = ("include", "src", "tests", "bench", "tools", "examples")
_ROOTS = [sources.ROOT / folder for folder in ("include", "src", "tests", "tools", "bench", "")]
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
_FIRST = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"][^>"]+[>"])', re.MULTILINE)
# The last two are what the targets of tests define.
_FLAGS = [
    "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fopenmp", "-fsyntax-only",
    '-DCODA_SOURCE_DIR=""', '-DCODA_CXX_COMPILER=""'
]


def digest_of(path: pathlib.Path, contents: dict[pathlib.Path, str]) -> str:
    """Of the header and all headers of the project that it includes."""
    seen, stack = set(), [path]
    while stack:
        file = stack.pop()
        if file in seen:
            continue
        seen.add(file)
        if file not in contents:
            contents[file] = file.read_text()
        for included in INCLUDE.findall(contents[file]):
            stack += [root / included for root in _ROOTS if (root / included).is_file()]
    text = "\0".join(contents[file] for file in sorted(seen))
    return hashlib.sha256(("".join(_FLAGS) + text).encode()).hexdigest()


def included_first(files: list[pathlib.Path]) -> set[pathlib.Path]:
    """The headers that a source of the product with their name includes before all else."""
    found = set()
    for path in files:
        if path.suffix != ".cc" or not sources.name_of(path).startswith(("src/", "tools/")):
            continue
        first = _FIRST.search(path.read_text())
        if not first or pathlib.PurePath(first[1].strip('<>"')).stem != path.stem:
            continue
        for root in (path.parent, *_ROOTS):
            if (root / first[1].strip('<>"')).is_file():
                found.add(root / first[1].strip('<>"'))
                break
    return found


def compile_alone(compiler: str, path: pathlib.Path) -> str:
    """The compiler's complaint, or nothing."""
    command = [compiler, *_FLAGS, *(f"-I{root}" for root in _ROOTS), "-x", "c++", "-"]
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
    store = build / "headers_checked.json"
    checked = set(json.loads(store.read_text())) if store.exists() else set()
    contents: dict[pathlib.Path, str] = {}
    digests = {path: digest_of(path, contents) for path in headers}
    pending = [path for path in headers if digests[path] not in checked and path not in proved]
    compiler = compiler_of(build)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        results = pool.map(lambda path: compile_alone(compiler, path), pending)
        complaints = dict(zip(pending, results))
    passed = sorted(digests[path] for path in headers
                    if digests[path] in checked or complaints.get(path) == "")
    store.write_text(json.dumps(passed))
    problems = [
        f"{sources.name_of(path)}: does not compile alone\n{complaint}"
        for path, complaint in complaints.items() if complaint
    ]
    return sources.report("check_headers", len(headers), "headers", problems)


if __name__ == "__main__":
    sys.exit(main())
