#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tables of the pages are those of the raw results, and the check notices one that is not."""

import pathlib
import sys
import unittest

_ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(_ROOT / "lab"))
import tables  # noqa: E402


class Tables(unittest.TestCase):
    def test_every_table_stands_on_a_page(self):
        pages = "".join((_ROOT / name).read_text() for name in tables.PAGES)
        for name in tables.TABLES:
            self.assertTrue(f"<!-- lab/tables.py: {name} -->" in pages, name)

    def test_the_pages_are_as_the_raw_results_are(self):
        for name in tables.PAGES:
            text = (_ROOT / name).read_text()
            self.assertTrue(tables.renewed(text) == text, name)

    def test_a_changed_figure_is_renewed(self):
        text = (_ROOT / "docs/performance.md").read_text()
        changed = text.replace("| 1.23 (1.25) |", "| 1.13 (1.25) |")
        self.assertTrue(changed != text and tables.renewed(changed) == text)

    def test_a_programs_figure_is_the_mean_of_its_runs_over_the_fastest_of_cublas(self):
        ratios = []
        for run in tables.RUNS:
            rows = [r for r in tables.raw(run)
                    if r["row"] == "bare product, NT" and r["hidden"] == 2048]
            ours = [r["sustained_ms"] for r in rows if r["candidate"] == "chosen"]
            peers = [r["sustained_ms"] for r in rows if r["candidate"].startswith("cuBLAS")]
            ratios.append(ours[0] / min(peers))
        expected = f"{sum(ratios) / 3:.2f} ("
        line = next(l for l in tables.programs().splitlines() if "dzᵀ·x" in l)
        self.assertTrue(line.split(" | ")[1].startswith(expected), line)

    def test_an_unknown_table_is_an_error(self):
        with self.assertRaises(SystemExit):
            tables.renewed("<!-- lab/tables.py: nothing -->\n<!-- end of table -->")


if __name__ == "__main__":
    unittest.main()
