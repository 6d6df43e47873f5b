# SPDX-License-Identifier: Apache-2.0
"""Which sources a slow check need not look at again.

scripts/known_clean.txt keeps digests of what passed, as tests/gpu/clean_kernels.txt does for
kernels. A digest is of all that the check reads: the source, the headers of ours that it includes,
its flags, and the settings and version of the tool. On a fresh clone a check looks at what is not
in the list, and every day at another sixteenth of what is. A build folder has a list of its own,
without such a sample.

Usage: known_clean.py BUILD, behind the checks: writes the list anew (`make known-clean`).
"""

import hashlib
import json
import pathlib
import re
import sys
import time

import sources

_LIST = sources.ROOT / "scripts" / "known_clean.txt"
_SAMPLE_DAYS = 16  # in which each known source is looked at once
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
ROOTS = [sources.ROOT / name for name in ("include", "src", "tests", "tools", "bench", "lab", "")]


def included_in(text: str) -> list[str]:
    return _INCLUDE.findall(text)


def digest(path: pathlib.Path, how: str, contents: dict[pathlib.Path, str]) -> str:
    """Of a source and all headers of the project that it includes; `how` it is checked. What was
    read is kept in `contents`."""
    seen, stack = set(), [path]
    while stack:
        file = stack.pop()
        if file in seen:
            continue
        seen.add(file)
        if file not in contents:
            contents[file] = file.read_text()
        for name in included_in(contents[file]):
            stack += [root / name for root in (file.parent, *ROOTS) if (root / name).is_file()]
    text = "\0".join([how, sources.name_of(path), *(contents[f] for f in sorted(seen))])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class KnownClean:
    """What passed, here (a file in the build folder) and anywhere (the list)."""

    def __init__(self, store: pathlib.Path):
        self._store = store
        self._here = set(json.loads(store.read_text())) if store.exists() else set()
        self._anywhere = set(_LIST.read_text().split()) if _LIST.exists() else set()

    def has(self, digest: str, day: int | None = None) -> bool:
        day = int(time.time() // 86400) if day is None else day
        in_sample = int(digest[:4], 16) % _SAMPLE_DAYS == day % _SAMPLE_DAYS
        return digest in self._here or (digest in self._anywhere and not in_sample)

    def keep(self, passed: set[str]) -> None:
        """Only what is there now."""
        self._store.write_text(json.dumps(sorted(passed)))


def write_list(build: pathlib.Path) -> None:
    """The list anew, of what the checks in this build folder passed."""
    stores = build.glob("*_checked.json")
    digests = {d for store in stores for d in json.loads(store.read_text())}
    _LIST.write_text("".join(d + "\n" for d in sorted(digests)))


if __name__ == "__main__":
    write_list(pathlib.Path(sys.argv[1]))
