#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that folders include only the folders that they may include.

A folder under src/, or in one of these, may include itself, coda/, and the folders that its
coda_library line in CMakeLists.txt names, transitively. coda/ and the examples may include only
coda/ and the standard library. The command (tools/), the benchmarks of the product (bench/) and the
Python package (python/) may include coda/, the files of these three folders, and other libraries.
Only tests and lab/ may include all of src/. Paths are relative to src/ or include/ and contain no
"..".
"""

import re
import sys

import sources

_LIBRARY = re.compile(r"^coda_library\(([^)]*)\)", re.MULTILINE)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)
# Names of the standard library's headers. Names of other libraries' headers end in .h or have a
# folder.
_PUBLIC_SYSTEM = re.compile(r"[a-z_]+")
_PUBLIC = "a public header or an example may include only coda/ and the standard library"
_PROGRAM = "programs over the library may include coda/ and their own, not src/ (see lab/)"


def allowed_folders() -> dict[str, set[str]]:
    """Maps each folder to all folders that it may include, including itself."""
    allowed: dict[str, set[str]] = {}
    for match in _LIBRARY.finditer((sources.ROOT / "CMakeLists.txt").read_text()):
        folder, *uses = match[1].split()
        unknown = [use for use in uses if use not in allowed]
        if unknown:
            sys.exit(f"CMakeLists.txt: {folder} uses {unknown[0]}, which is not listed before it")
        allowed[folder] = {folder}.union(*(allowed[use] for use in uses))
    return allowed


def folder_of(name: str) -> str:
    """The folder of a file by its path from src/: gpu/jit of gpu/jit/cubin_cache.h."""
    return name.rpartition("/")[0]


def problem_of(path, quote: str, included: str, allowed: dict[str, set[str]]) -> str | None:
    name = sources.name_of(path)
    if ".." in included.split("/"):
        return "write the path from src/ or include/ instead of '..'"
    area, _, inside = name.partition("/")
    folder, target = folder_of(inside), folder_of(included)
    if quote == "<" and target != "coda" and target not in allowed:
        if area in ("include", "examples") and not _PUBLIC_SYSTEM.fullmatch(included):
            return _PUBLIC
        return None
    if target == "coda":
        exists = (sources.ROOT / "include" / included).exists()
        return None if exists else f"there is no include/{included}"
    if area == "examples" and included == "ladder.h":  # shared by the examples
        return None
    if area in ("include", "examples"):
        return _PUBLIC
    if area in ("tools", "bench", "python"):
        own = [path.parent / included, sources.ROOT / area / included]
        if included.startswith("bench/"):
            own.append(sources.ROOT / included)
        return None if any(file.exists() for file in own) else _PROGRAM
    if target not in allowed:
        own = path.parent / included
        return "write the path from src/ or include/" if own.exists() else None
    if not (sources.ROOT / "src" / included).exists():
        return f"there is no src/{included}"
    if target not in allowed[folder]:
        may = ", ".join(sorted(allowed[folder] - {folder})) or "no other folder"
        return f"{folder} may include {may}, not {target} (see coda_library in CMakeLists.txt)"
    return None


def main() -> int:
    allowed = allowed_folders()
    problems, checked = [], 0
    for path in sources.all_files():
        name = sources.name_of(path)
        areas = ("include/", "src/", "examples/", "tools/", "bench/", "python/")
        if not sources.is_cpp(path) or not name.startswith(areas):
            continue
        checked += 1
        folder = folder_of(name.removeprefix("src/"))
        if name.startswith("src/") and folder not in allowed:
            problems.append(f"{name}: no coda_library({folder} ...) in CMakeLists.txt")
            continue
        text = path.read_text()
        for match in _INCLUDE.finditer(text):
            problem = problem_of(path, match[1], match[2], allowed)
            if problem:
                line = text.count("\n", 0, match.start()) + 1
                problems.append(f"{name}:{line}: includes {match[2]}: {problem}")
    return sources.report("check_layers", checked, "files", problems)


if __name__ == "__main__":
    sys.exit(main())
