# SPDX-License-Identifier: Apache-2.0
"""The checks of scripts/ find what they are for, in a small project made for each test, and pass
what is right."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

_SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
_LICENCE = "// SPDX-License-Identifier: Apache-2.0\n"


class Checks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        shutil.copytree(
            _SCRIPTS, self.root / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
        self.write("CMakeLists.txt", "# SPDX-License-Identifier: Apache-2.0\n"
                   "coda_library(base)\ncoda_library(ir base)\ncoda_library(plan ir)\n")
        self.write("include/coda/dim.h", _LICENCE + "#pragma once\n#include <map>\n")
        self.write("src/base/size.h", _LICENCE + '#pragma once\n#include "coda/dim.h"\n')
        self.write("src/ir/node.h", _LICENCE + '#pragma once\n#include "base/size.h"\n')
        self.write("src/plan/order.cc", _LICENCE + '#include "base/size.h"\n#include "ir/node.h"\n')
        self.write("README.md", "[order](src/plan/order.cc), [site](https://example.org)\n")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run_check(self, name, *arguments):
        command = [sys.executable, str(self.root / "scripts" / name), *arguments]
        run = subprocess.run(command, capture_output=True, text=True, cwd=self.root)
        return run.returncode, run.stdout + run.stderr

    def assert_finds(self, check, *what):
        status, said = self.run_check(check)
        self.assertEqual(status, 1, said)
        for part in what:
            self.assertIn(part, said)

    def test_a_project_without_faults_passes(self):
        for check in ("check_layers.py", "check_lengths.py", "check_text.py"):
            status, said = self.run_check(check)
            self.assertEqual(status, 0, said)
            self.assertIn("all well", said)

    def test_layers_finds_an_include_against_the_arrows(self):
        self.write("src/base/size.cc", _LICENCE + '#include "base/size.h"\n#include "ir/node.h"\n')
        self.assert_finds("check_layers.py", "src/base/size.cc:3: includes ir/node.h",
                          "base may include no other folder, not ir", "1 problem")

    def test_layers_finds_an_include_in_angle_brackets(self):
        self.write("src/ir/node.cc", _LICENCE + "#include <plan/order.h>\n")
        self.write("src/plan/order.h", _LICENCE)
        self.assert_finds("check_layers.py", "ir may include base, not plan")

    def test_layers_finds_what_a_public_header_may_not_include(self):
        self.write("include/coda/graph.h", _LICENCE + '#include "ir/node.h"\n')
        self.write("include/coda/plan.h", _LICENCE + "#include <fmt/format.h>\n")
        self.write("examples/net.cc", _LICENCE + '#include "ir/node.h"\n')
        self.assert_finds("check_layers.py", "include/coda/graph.h:2", "include/coda/plan.h:2",
                          "examples/net.cc:2")

    def test_layers_finds_what_the_command_and_the_benchmarks_may_not_include(self):
        self.write("lab/cpu/tune.cc", _LICENCE + '#include "ir/node.h"\n')
        self.write("tools/flags.h", _LICENCE + "#pragma once\n")
        self.write("bench/block/block.h", _LICENCE + "#pragma once\n")
        self.write("bench/block/main.cc", _LICENCE + '#include "block.h"\n#include "flags.h"\n')
        self.write("tools/emit.cc", _LICENCE + '#include <fmt/format.h>\n#include "coda/dim.h"\n'
                   '#include "flags.h"\n#include "bench/block/block.h"\n#include "base/size.h"\n')
        self.assert_finds("check_layers.py", "bench/block/main.cc:3: includes flags.h",
                          "tools/emit.cc:6: includes base/size.h", "2 problems")

    def test_layers_finds_relative_paths_and_unlisted_folders(self):
        self.write("src/ir/node.cc", _LICENCE + '#include "../base/size.h"\n#include "node.h"\n')
        self.write("src/other/thing.cc", _LICENCE)
        self.assert_finds("check_layers.py", "instead of '..'", "node.cc:3: includes node.h",
                          "no coda_library(other ...)")

    def test_layers_refuses_a_folder_that_uses_a_later_one(self):
        self.write("CMakeLists.txt", "coda_library(base ir)\ncoda_library(ir)\n")
        self.assert_finds("check_layers.py", "base uses ir, which is not listed before it")

    def test_lengths_finds_wide_lines(self):
        self.write("src/ir/wide.cc", _LICENCE + "// " + "x" * 98 + "\n")
        self.assert_finds("check_lengths.py", "src/ir/wide.cc:2: 101 columns", "1 problem")

    def test_lengths_counts_characters(self):
        self.write("src/ir/wide.cc", _LICENCE + "// " + "⊙" * 97 + "\n")
        self.assertEqual(self.run_check("check_lengths.py")[0], 0)

    def test_text_finds_each_fault(self):
        self.write("src/ir/a.cc", "// no licence\n")
        self.write("src/ir/b.cc", _LICENCE + "// TO" + "DO: later\n")
        self.write("src/ir/c.cc", _LICENCE + "int\ta; \n")
        self.write("src/ir/d.cc", _LICENCE + "int a;")
        self.write("docs/page.md", "see [this](missing.md#part)\n")
        self.write("lab/results/run.txt", "a\nkept in /ro" + "ot/.cache/x\n")
        self.assert_finds("check_text.py", "a.cc:1: starts without", "b.cc:2: do it",
                          "c.cc:2: a tab", "c.cc:2: blanks", "d.cc: must end",
                          "docs/page.md:1: links to missing.md",
                          "run.txt:2: a path of one machine")

    def test_headers_finds_one_that_needs_another_first_and_looks_again_after_a_change(self):
        self.write("build/CMakeCache.txt", "")
        self.assertEqual(self.run_check("check_headers.py", "build")[0], 0)
        self.write("include/coda/dim.h", _LICENCE + "#pragma once\nusing Text = std::string;\n")
        status, said = self.run_check("check_headers.py", "build")
        self.assertEqual(status, 1, said)
        # It and the two that include it.
        for name in ("include/coda/dim.h", "src/base/size.h", "src/ir/node.h"):
            self.assertIn(name + ": does not compile alone", said)

    def test_headers_leaves_to_the_build_what_its_own_source_includes_first(self):
        self.write("build/CMakeCache.txt", "")
        self.write("src/plan/order.h", _LICENCE + "#pragma once\nusing Text = std::string;\n")
        for first, status in (("plan/order.h", 0), ("ir/node.h", 1), ("plan/order.h", 0)):
            self.write("src/plan/order.cc",
                       _LICENCE + f'#include "{first}"\n#include "plan/order.h"\n')
            self.assertEqual(self.run_check("check_headers.py", "build")[0], status, first)

    def test_headers_passes_over_what_is_known_clean_but_for_a_daily_sample(self):
        self.write("build/CMakeCache.txt", "")
        self.assertIn("3 headers (3 compiled)", self.run_check("check_headers.py", "build")[1])
        self.assertEqual(self.run_check("known_clean.py", "build")[0], 0)
        (self.root / "build/headers_checked.json").unlink()
        # Another 64th is checked every day: in 64 days each of the three headers once.
        script = ("import sys; sys.path.insert(0, 'scripts'); import pathlib, time, check_headers\n"
                  "for day in range(64):\n"
                  "  build = pathlib.Path(f'build{day}'); build.mkdir()\n"
                  "  (build / 'CMakeCache.txt').touch()\n"
                  "  time.time = lambda: day * 86400; sys.argv = ['', str(build)]\n"
                  "  assert check_headers.main() == 0\n")
        said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                              cwd=self.root, check=True).stdout
        looked_at = sum(map(int, re.findall(r"3 headers \((\d) compiled\)", said)))
        self.assertEqual(looked_at, 3)
        # A comment changes nothing; code changes what is known of the file and who includes it.
        is_known = ("import sys; sys.path.insert(0, 'scripts'); import known_clean, pathlib\n"
                   "clean = known_clean.KnownClean(pathlib.Path('build/none.json'))\n"
                   "root = known_clean.sources.ROOT\n"
                   "import check_headers; how = ''.join(check_headers._FLAGS)\n"
                   "for name in ('include/coda/dim.h', 'src/base/size.h', 'src/ir/node.h'):\n"
                   "  print(any(clean.has(root / name, how, day) for day in range(64)), end=' ')")

        def known_now():
            return subprocess.run([sys.executable, "-c", is_known], capture_output=True, text=True,
                                  cwd=self.root, check=True).stdout.split()

        self.write("src/base/size.h", _LICENCE + "// Of\n/* all. */\n#pragma once\n"
                   '#include "coda/dim.h"  // why\n')
        self.assertEqual(known_now(), ["True", "True", "True"])
        self.write("src/base/size.h", _LICENCE + "#pragma once\nusing Text = std::string;\n")
        self.assertEqual(known_now(), ["True", "False", "False"])
        self.assertEqual(self.run_check("check_headers.py", "build")[0], 1)

    def test_known_clean_code_is_without_comments_but_those_that_tools_read(self):
        sys.path.insert(0, str(_SCRIPTS))
        import known_clean

        self.assertEqual(known_clean.code_of('f(/*rows=*/3,  g("// no", \'"\'));  // yes\n'
                                             'h();  // NOLINT: why\n/* a\n b */ R"(/* c */)"'),
                         'f(/*rows=*/3, g("// no", \'"\')); h(); // NOLINT: why R"(/* c */)"')


if __name__ == "__main__":
    unittest.main()
