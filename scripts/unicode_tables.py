#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/tokenizer/unicode_tables.cc, the properties of every code point in the Python package
`tokenizers`.

Usage: unicode_tables.py [--check]

The script obtains all properties by calling the package, because the parts of the package follow
different versions of Unicode: the regular expressions (Oniguruma), the normal forms and the
pre-tokenizer Digits. --check compares the file with the installed package instead, and prints the
numbers of the lines that differ.
"""

import json
import pathlib
import re
import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

FILE = pathlib.Path(__file__).resolve().parent.parent / "src/tokenizer/unicode_tables.cc"
POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]  # a text has no surrogates
EVERYTHING = "".join(map(chr, POINTS))
CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co "
              "Cn").split()
SCRIPTS = """
Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak Bengali
Bhaiksuki Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian Caucasian_Albanian
Chakma Cham Cherokee Chorasmian Common Coptic Cuneiform Cypriot Cypro_Minoan Cyrillic Deseret
Devanagari Dives_Akuru Dogra Duployan Egyptian_Hieroglyphs Elbasan Elymaic Ethiopic Garay Georgian
Glagolitic Gothic Grantha Greek Gujarati Gunjala_Gondi Gurmukhi Gurung_Khema Han Hangul
Hanifi_Rohingya Hanunoo Hatran Hebrew Hiragana Imperial_Aramaic Inherited Inscriptional_Pahlavi
Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kawi Kayah_Li Kharoshthi
Khitan_Small_Script Khmer Khojki Khudawadi Kirat_Rai Lao Latin Lepcha Limbu Linear_A Linear_B Lisu
Lycian Lydian Mahajani Makasar Malayalam Mandaic Manichaean Marchen Masaram_Gondi Medefaidrin
Meetei_Mayek Mende_Kikakui Meroitic_Cursive Meroitic_Hieroglyphs Miao Modi Mongolian Mro Multani
Myanmar Nabataean Nag_Mundari Nandinagari New_Tai_Lue Newa Nko Nushu Nyiakeng_Puachue_Hmong Ogham
Ol_Chiki Ol_Onal Old_Hungarian Old_Italic Old_North_Arabian Old_Permic Old_Persian Old_Sogdian
Old_South_Arabian Old_Turkic Old_Uyghur Oriya Osage Osmanya Pahawh_Hmong Palmyrene Pau_Cin_Hau
Phags_Pa Phoenician Psalter_Pahlavi Rejang Runic Samaritan Saurashtra Sharada Shavian Siddham
SignWriting Sinhala Sogdian Sora_Sompeng Soyombo Sundanese Sunuwar Syloti_Nagri Syriac Tagalog
Tagbanwa Tai_Le Tai_Tham Tai_Viet Takri Tamil Tangsa Tangut Telugu Thaana Thai Tibetan Tifinagh
Tirhuta Todhri Toto Tulu_Tigalari Ugaritic Unknown Vai Vithkuqi Wancho Warang_Citi Yezidi Yi
Zanabazar_Square""".split()
PROPERTIES = ["Alphabetic", "Lowercase", "Uppercase", "Ideographic", "Emoji"]


def matched(expression: str) -> set[int]:
    left = normalizers.Replace(Regex(expression), "").normalize_str(EVERYTHING)
    return set(POINTS).difference(map(ord, left))


def numeric() -> set[int]:
    """The code points that the pre-tokenizer Digits splits off."""
    digits = pre_tokenizers.Digits(individual_digits=True)
    cut = {piece for piece, _ in digits.pre_tokenize_str("aa".join(["", *EVERYTHING, ""]))}
    return {ord(piece) for piece in cut if len(piece) == 1}


def starts(value_of: dict[int, int], default: int) -> list[tuple[int, int]]:
    """The start and the value of each run of equal values. Surrogates belong to the run before."""
    runs, last = [], None
    for point in POINTS:
        value = value_of.get(point, default)
        if value != last:
            runs.append((point, value))
        last = value
    return runs


def partition(names: list[str]) -> list[tuple[int, int]]:
    value_of = {}
    for number, name in enumerate(names):
        for point in matched(rf"\p{{{name}}}"):
            assert point not in value_of, (name, hex(point))
            value_of[point] = number
    assert len(value_of) == len(POINTS)
    return starts(value_of, 0)


def property_starts(points: set[int]) -> list[tuple[int, int]]:
    return starts(dict.fromkeys(points, 1), 0)[1:]  # the first run is outside


class NormalForms:
    def __init__(self) -> None:
        nfc, nfd, nfkd = (form().normalize_str for form in (
            normalizers.NFC, normalizers.NFD, normalizers.NFKD))
        hangul = range(0xAC00, 0xD7A4)
        self.decompositions, self.compositions, marks = [], [], {}
        for point in POINTS:
            letter = chr(point)
            if point in hangul:
                continue
            for is_compatible, form in ((0, nfd), (1, nfkd)):
                parts = form(letter)
                if parts != letter and not (is_compatible and parts == nfd(letter)):
                    self.decompositions.append((point, is_compatible, [*map(ord, parts)]))
            pair = re.findall(r"[0-9A-F]+", unicodedata.decomposition(letter))
            pair = [chr(int(part, 16)) for part in pair]
            if len(pair) == 2 and nfc("".join(pair)) == letter:
                self.compositions.append((*map(ord, pair), point))
            # The package knows the class of a mark if it reorders the mark by this class.
            order = unicodedata.combining(letter)
            last, first = "\u0345", "\u0334"  # marks of the highest and of the lowest class
            if order and (nfd("a" + last + letter) != "a" + last + letter or
                          nfd("a" + letter + first) != "a" + letter + first or order == 240):
                marks[point] = order
        self.marks = starts(marks, 0)


def numbers(name: str, comment: str, values: list[int]) -> str:
    lines, line = [], "   "
    for value in values:
        word = f" {value:#x},"
        if len(line) + len(word) > 100:
            lines.append(line)
            line = "   "
        line += word
    body = "\n".join([*lines, line])
    return f"// {comment}\nconstexpr uint32_t {name}[] = {{\n{body}\n}};\n"


def runs(name: str, comment: str, pairs: list[tuple[int, int]]) -> str:
    return numbers(name, comment, [point << 8 | value for point, value in pairs])


def words(name: str, values: list[str]) -> str:
    lines, line = [], "   "
    for value in values:
        word = f' "{value}",'
        if len(line) + len(word) > 100:
            lines.append(line)
            line = "   "
        line += word
    return f"constexpr std::string_view {name}[] = {{\n" + "\n".join([*lines, line]) + "\n};\n"


def text() -> str:
    forms = NormalForms()
    versions = json.dumps({"tokenizers": tokenizers.__version__})
    parts = [
        words("kCategoryNames", CATEGORIES),
        runs("kCategoryRuns", "First code point << 8 | place in kCategoryNames.",
             partition(CATEGORIES)),
        words("kScriptNames", SCRIPTS),
        runs("kScriptRuns", "As categories.", partition(SCRIPTS)),
        *(numbers(f"k{name}", "Where it begins and ends, in turn.",
                  [point for point, _ in property_starts(matched(rf"\p{{{name}}}"))])
          for name in PROPERTIES),
        numbers("kNumeric", "What the pre-tokenizer Digits takes as a digit.",
                [point for point, _ in property_starts(numeric())]),
        runs("kMarkRuns", "First code point << 8 | canonical combining class.", forms.marks),
        numbers("kDecompositions", "Code point << 8 | is compatible << 7 | how many follow, then "
                "these. Hangul has none.",
                [value for point, compatible, parts in forms.decompositions
                 for value in (point << 8 | compatible << 7 | len(parts), *parts)]),
        numbers("kCompositions", "First, second, what they compose to. Hangul has none.",
                [value for triple in sorted(forms.compositions) for value in triple])]
    properties = ",\n    ".join(f'{{"{name}", k{name}}}' for name in PROPERTIES)
    return f"""// SPDX-License-Identifier: Apache-2.0
// Made by scripts/unicode_tables.py, which asks the package: {versions}.
#include "tokenizer/unicode.h"

namespace coda::tokenizer {{
namespace {{

// clang-format off
{chr(10).join(parts)}
constexpr NamedProperty kProperties[] = {{
    {properties}}};
// clang-format on

}}  // namespace

const UnicodeTables& unicode_tables() {{
  static constexpr UnicodeTables kTables{{kCategoryNames, kCategoryRuns,   kScriptNames,
                                         kScriptRuns,    kProperties,     kNumeric,
                                         kMarkRuns,      kDecompositions, kCompositions}};
  return kTables;
}}

}}  // namespace coda::tokenizer
"""


def main() -> int:
    made = text()
    if sys.argv[1:] != ["--check"]:
        FILE.write_text(made)
        return 0
    version = re.compile(r"which asks the package: .*")
    kept, now = (version.sub("", t).split("\n") for t in (FILE.read_text(), made))
    different = [i for i, rows in enumerate(zip(kept, now), 1) if rows[0] != rows[1]]
    if len(kept) != len(now) or different:
        print(f"{FILE.name} is not what tokenizers {tokenizers.__version__} knows: "
              f"{len(kept)} and {len(now)} lines, different: {different[:20]}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
