# SPDX-License-Identifier: Apache-2.0
"""Which sources a slow check need not look at again.

scripts/known_clean.txt keeps a digest of each file's code, without comments and blanks, as it was
when all checks passed; that of a checked source is also of its flags and of the settings and
version of the tool. A source is known to be clean if its own digest and those of all headers of
ours that it includes are in the list. So a comment changes no line of the list, and a change of a
widely included header changes one.

On a fresh clone a check looks at what is not known, and every day at another sixteenth of what is.
A build folder has a list of its own, without such a sample.

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
# Literals, which may hold what looks like a comment, and comments. `/*name=*/` in front of an
# argument and NOLINT mean something to clang-tidy.
_LITERAL_OR_COMMENT = re.compile(
    r'''R"(?P<mark>\w*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|'''
    r'''/\*\w+=\*/|//[^\n]*NOLINT[^\n]*|(?P<comment>//[^\n]*|/\*.*?\*/)''', re.DOTALL)


def included_in(text: str) -> list[str]:
    return _INCLUDE.findall(text)


def code_of(text: str) -> str:
    """A C++ source without comments, with one blank for each run of blanks."""
    code = _LITERAL_OR_COMMENT.sub(lambda m: " " if m["comment"] is not None else m[0], text)
    return " ".join(code.split())


class KnownClean:
    """What passed, here (a file in the build folder) and anywhere (the list). `how` a source is
    checked is text of its flags and of the tool."""

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
        """Only what is there now. `passed`: source -> how; a header that a failed source includes
        is not known to be clean."""
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
        """Of all headers of the project that the source includes, directly or through others."""
        seen, stack = {source}, [source]
        while stack:
            file = stack.pop()
            found = {root / name for name in included_in(self._text(file))
                     for root in (file.parent, *ROOTS) if (root / name).is_file()} - seen
            seen |= found
            stack += found
        return {self._digest(file) for file in seen - {source}}


def write_list(build: pathlib.Path) -> None:
    """The list anew, of what the checks in this build folder passed."""
    stores = build.glob("*_checked.json")
    digests = {d for store in stores for d in json.loads(store.read_text())}
    _LIST.write_text("".join(d + "\n" for d in sorted(digests)))


if __name__ == "__main__":
    write_list(pathlib.Path(sys.argv[1]))
