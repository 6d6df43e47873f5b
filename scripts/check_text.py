#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the text of files.

A source file starts with the licence line, has no notes of unfinished work, no tabs (except in the
Makefile), no blanks at the end of a line, and one newline at its end. Links in documents lead to
existing files. No file, including raw results, contains a path of a home directory.
"""

import re
import sys

import sources

_LICENCE = "SPDX-License-Identifier: Apache-2.0"
_UNDONE = re.compile(r"\b(" + "TO" + "DO|FIX" + r"ME)\b")
_HOME = re.compile(r"/(?:root|home/(?!me\b)\w+)/")
_TEXTS = (".txt", ".json", ".jsonl", ".md")
_LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


def problems_of_source(name: str, text: str) -> list[str]:
    problems = []
    if not any(_LICENCE in line for line in text.split("\n", 2)[:2]):
        problems.append(f"{name}:1: starts without '{_LICENCE}'")
    for number, line in enumerate(text.split("\n"), 1):
        if _UNDONE.search(line):
            problems.append(f"{name}:{number}: do it, or say what holds instead")
        if "\t" in line and not name.endswith("Makefile"):
            problems.append(f"{name}:{number}: a tab; use spaces")
        if line != line.rstrip():
            problems.append(f"{name}:{number}: blanks at the end of the line")
    if not text.endswith("\n") or text.endswith("\n\n"):
        problems.append(f"{name}: must end with one newline")
    return problems


def problems_of_links(path, name: str, text: str) -> list[str]:
    problems = []
    for match in _LINK.finditer(text):
        target = match[1]
        if "://" in target or target.startswith("mailto:"):
            continue
        if not (path.parent / target).exists():
            line = text.count("\n", 0, match.start()) + 1
            problems.append(f"{name}:{line}: links to {target}, which does not exist")
    return problems


def problems_of_places(name: str, text: str) -> list[str]:
    return [f"{name}:{text.count(chr(10), 0, match.start()) + 1}: a path of one machine: {match[0]}"
            for match in _HOME.finditer(text)]


def main() -> int:
    problems, checked = [], 0
    for path in sources.all_files():
        name = sources.name_of(path)
        if sources.is_source(path) or path.suffix in _TEXTS:
            problems += problems_of_places(name, path.read_text())
        if sources.is_source(path):
            problems += problems_of_source(name, path.read_text())
        elif path.suffix == ".md":
            problems += problems_of_links(path, name, path.read_text())
        else:
            continue
        checked += 1
    return sources.report("check_text", checked, "files", problems)


if __name__ == "__main__":
    sys.exit(main())
