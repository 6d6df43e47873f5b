#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that no source file is longer than 600 lines and no line wider than 100 columns.

Tests, and tables (files named *_table.*), may be longer, not wider.
"""

import sys

import sources

_MAX_LINES = 600
_MAX_COLUMNS = 100


def main() -> int:
    problems, checked = [], 0
    for path in sources.all_files():
        if not sources.is_source(path):
            continue
        checked += 1
        name = sources.name_of(path)
        lines = path.read_text().split("\n")
        exempt = name.startswith("tests/") or path.stem.endswith("_table")
        if len(lines) > _MAX_LINES + 1 and not exempt:
            problems.append(f"{name}: {len(lines) - 1} lines, more than {_MAX_LINES}: divide it")
        for number, line in enumerate(lines, 1):
            if len(line) > _MAX_COLUMNS:
                problems.append(
                    f"{name}:{number}: {len(line)} columns, more than {_MAX_COLUMNS}")
    return sources.report("check_lengths", checked, "files", problems)


if __name__ == "__main__":
    sys.exit(main())
