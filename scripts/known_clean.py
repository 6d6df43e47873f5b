# SPDX-License-Identifier: Apache-2.0
"""Determines which sources a slow check can skip.

scripts/known_clean.txt has a digest of each file's code, without comments and blanks, from the last
time all checks passed. The digest of a checked source also covers its flags and the settings and
version of the tool. A source is known to be clean if the list has its digest and the digests of all
project headers that it includes. So changing a comment changes no line of the list, and changing a
header changes only one line.

In a fresh clone a check covers the sources that are not known to be clean, and each day another
64th of the known ones, which notices a wrong list. A build folder has its own list, without this
sample.

Usage: known_clean.py BUILD, after the checks: rewrites the list (`make known-clean`).
"""

import hashlib
import json
import pathlib
import re
import sys
import time

import sources

_LIST = sources.ROOT / "scripts" / "known_clean.txt"
_SAMPLE_DAYS = 64  # the days in which each known source is checked once
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
ROOTS = [sources.ROOT / name for name in ("include", "src", "tests", "tools", "bench", "lab", "")]
# Matches literals, because they may contain text that looks like a comment, and comments.
# `/*name=*/` before an argument and NOLINT are kept, because clang-tidy reads them.
_LITERAL_OR_COMMENT = re.compile(
    r'''R"(?P<mark>\w*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|'''
    r'''/\*\w+=\*/|//[^\n]*NOLINT[^\n]*|(?P<comment>//[^\n]*|/\*.*?\*/)''', re.DOTALL)


def included_in(text: str) -> list[str]:
    return _INCLUDE.findall(text)


def code_of(text: str) -> str:
    """A C++ source without comments, with each run of blanks replaced by one blank."""
    code = _LITERAL_OR_COMMENT.sub(lambda m: " " if m["comment"] is not None else m[0], text)
    return " ".join(code.split())


class KnownClean:
    """The sources that passed in this build folder (a file in the folder) or anywhere (the list).
    `how` is a text with a source's flags and the tool."""

    def __init__(self, store: pathlib.Path):
        self._store = store
        self._here = set(json.loads(store.read_text())) if store.exists() else set()
        self._anywhere = set(_LIST.read_text().split()) if _LIST.exists() else set()
        self._texts: dict[pathlib.Path, str] = {}
        self._digests: dict[tuple[pathlib.Path, str], str] = {}

    def has(self, source: pathlib.Path, how: str, day: int | None = None) -> bool:
        day = int(time.time() // 86400) if day is None else day
        own = self._digest(source, how)
        in_sample = int(own[:4], 16) % _SAMPLE_DAYS == day % _SAMPLE_DAYS
        if own not in self._here and (in_sample or own not in self._anywhere):
            return False
        return self._header_digests(source) <= self._here | self._anywhere

    def keep(self, passed: dict[pathlib.Path, str], failed: set[pathlib.Path]) -> None:
        """Stores the digests of the sources that passed and of their headers, without earlier
        digests. `passed` maps sources to `how`. A header that a failed source includes is not known
        to be clean."""
        kept = {self._digest(source, how) for source, how in passed.items()}
        for source in passed:
            kept |= self._header_digests(source)
        for source in failed:
            kept -= self._header_digests(source)
        self._store.write_text(json.dumps(sorted(kept)))

    def _text(self, file: pathlib.Path) -> str:
        if file not in self._texts:
            self._texts[file] = file.read_text()
        return self._texts[file]

    def _digest(self, file: pathlib.Path, how: str = "") -> str:
        if (file, how) not in self._digests:
            text = "\0".join([how, sources.name_of(file), code_of(self._text(file))])
            self._digests[file, how] = hashlib.sha256(text.encode()).hexdigest()[:16]
        return self._digests[file, how]

    def _header_digests(self, source: pathlib.Path) -> set[str]:
        """The digests of all project headers that the source includes, directly or indirectly."""
        seen, stack = {source}, [source]
        while stack:
            file = stack.pop()
            found = {root / name for name in included_in(self._text(file))
                     for root in (file.parent, *ROOTS) if (root / name).is_file()} - seen
            seen |= found
            stack += found
        return {self._digest(file) for file in seen - {source}}


def write_list(build: pathlib.Path) -> None:
    """Rewrites the list from the files that passed the checks in this build folder."""
    stores = build.glob("*_checked.json")
    digests = {d for store in stores for d in json.loads(store.read_text())}
    _LIST.write_text("".join(d + "\n" for d in sorted(digests)))


if __name__ == "__main__":
    write_list(pathlib.Path(sys.argv[1]))
