#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that no line of a source file is wider than 100 columns."""

import sys

import sources

_MAX_COLUMNS = 100


def main() -> int:
    problems, checked = [], 0
    for path in sources.all_files():
        if not sources.is_source(path):
            continue
        checked += 1
        name = sources.name_of(path)
        lines = path.read_text().split("\n")
        for number, line in enumerate(lines, 1):
            if len(line) > _MAX_COLUMNS:
                problems.append(
                    f"{name}:{number}: {len(line)} columns, more than {_MAX_COLUMNS}")
    return sources.report("check_lengths", checked, "files", problems)


if __name__ == "__main__":
    sys.exit(main())
