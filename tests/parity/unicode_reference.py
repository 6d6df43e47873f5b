#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the package `tokenizers` makes of every code point.

Usage: unicode_reference.py FOLDER. Writes FOLDER/classes.json, {expression: where the code points
that it matches begin and end in turn}, of which "" is what Digits cuts out, and FOLDER/NFC and
FOLDER/NFKD: the text of all code points, each between two marks of a letter, in that form.
"""

import json
import pathlib
import re
import sys

from tokenizers import Regex, normalizers, pre_tokenizers

POINTS = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CLASSES = [r"\s", r"\w", r"\p{N}", r"\p{Lu}", r"\p{L}", r"\p{M}", r"\p{P}",
           r"[\p{L}&&[^\p{Han}]]"]


def edges(others: str) -> list[int]:
    """Of the code points that are not among these."""
    flags = bytearray(b"\1" * 0x110000)
    flags[0xD800:0xE000] = b"\2" * 0x800  # no text has surrogates
    for point in map(ord, others):
        flags[point] = 0
    return [edge for run in re.finditer(b"\1+(\2+\1+)*", flags)
            for edge in (run.start(), run.end()) if edge < len(flags)]



def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    everything = "".join(POINTS)
    classes = {expression: edges(normalizers.Replace(Regex(expression), "").normalize_str(
        everything)) for expression in CLASSES}
    pieces = pre_tokenizers.Digits(individual_digits=False).pre_tokenize_str(everything)
    classes[""] = edges("".join(piece for piece, _ in pieces[::2]))  # the first is no digit
    (folder / "classes.json").write_text(json.dumps(classes))
    text = "".join(f"a\u0345{point}\u0334" for point in POINTS)
    for form in ("NFC", "NFKD"):
        (folder / form).write_bytes(getattr(normalizers, form)().normalize_str(text).encode())


if __name__ == "__main__":
    main()
