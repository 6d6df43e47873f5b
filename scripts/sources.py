# SPDX-License-Identifier: Apache-2.0
"""The project's files, for the checks: all files in the checkout outside build and output folders.

The folders are searched without git, so the checks cover files that are not yet added, and work in
a source archive.
"""

import os
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
_SKIPPED_FOLDER = re.compile(r"build.*|out|__pycache__|\.(?!ci$).*|_skbuild|shared")
_CPP = {".h", ".cc", ".cuh"}
_OTHERS = {".py", ".sh", ".cmake"}


def all_files() -> list[pathlib.Path]:
    files = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(f for f in folders if not _SKIPPED_FOLDER.fullmatch(f))
        files += [pathlib.Path(folder, name) for name in sorted(names)]
    return files


def is_cpp(path: pathlib.Path) -> bool:
    return path.suffix in _CPP


def is_source(path: pathlib.Path) -> bool:
    """Whether the file is code of any language, including scripts and build files."""
    return (
        path.suffix in _CPP | _OTHERS
        or path.name in ("CMakeLists.txt", "Makefile")
        or path.parent.name == ".ci"
    )


def name_of(path: pathlib.Path) -> str:
    return path.relative_to(ROOT).as_posix()


def report(check: str, checked: int, what: str, problems: list[str]) -> int:
    """Prints the problems, or one line if there are none. Returns the exit status."""
    for problem in problems:
        print(problem)
    if problems:
        print(f"{check}: {len(problems)} problem{'s' if len(problems) > 1 else ''}")
        return 1
    print(f"{check}: {checked} {what}, all well")
    return 0
