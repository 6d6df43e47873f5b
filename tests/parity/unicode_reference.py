#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The character classes and normal forms of every code point in the Python package `tokenizers`.

Usage: unicode_reference.py FOLDER. Writes three files:
    FOLDER/classes.json  {regular expression: the first code point of each run that matches, and the
                         first one after the run, alternately}; the expression "" stands for the
                         pre-tokenizer Digits
    FOLDER/NFC, NFKD     a text with all code points, in this normal form; each code point stands
                         between two combining marks
"""

import json
import pathlib
import re
import sys

from tokenizers import Regex, normalizers, pre_tokenizers

POINTS = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CLASSES = [r"\s", r"\w", r"\p{N}", r"\p{Lu}", r"\p{L}", r"\p{M}", r"\p{P}",
           r"[\p{L}&&[^\p{Han}]]", r"(?i:s)", r"(?i:[j-l])"]


def edges(others: str) -> list[int]:
    """The edges of the runs of all code points that are not in `others`."""
    flags = bytearray(b"\1" * 0x110000)
    flags[0xD800:0xE000] = b"\2" * 0x800  # surrogates, which a text cannot contain
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
    classes[""] = edges("".join(piece for piece, _ in pieces[::2]))  # 0, 2, ...: no digits
    (folder / "classes.json").write_text(json.dumps(classes))
    text = "".join(f"a\u0345{point}\u0334" for point in POINTS)
    for form in ("NFC", "NFKD"):
        (folder / form).write_bytes(getattr(normalizers, form)().normalize_str(text).encode())


if __name__ == "__main__":
    main()
