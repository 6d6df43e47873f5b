# SPDX-License-Identifier: Apache-2.0
"""The planted bugs of tests/mutants/ still apply, and the script that plants them says where one
does not."""

import pathlib
import shutil
import sys
import tempfile
import unittest

_ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(_ROOT / "scripts"))

import mutate

_ENTRY = """# A comment.
src/ir/sum.cc: a sum is a difference
tests: ir_test Sum.*
tests: plan_test
-  const int c =
-      a + b;
+  const int c = a - b;
"""


class Mutants(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("src/ir/sum.cc", "int f(int a, int b) {\n    const int c =\n  a + b;\n}\n")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def mutants(self, entry):
        self.write("tests/mutants/one.txt", entry)
        return mutate.read_list(self.root)

    def test_every_planted_bug_of_this_project_applies(self):
        mutants = mutate.read_list(_ROOT)
        self.assertEqual(mutate.problems_of(mutants, _ROOT), [])
        self.assertGreaterEqual(len(mutants), 60)

    def test_an_entry_names_its_tests_and_applies_whatever_the_indentation(self):
        [mutant] = self.mutants(_ENTRY)
        self.assertEqual(mutant.tests, [("ir_test", "Sum.*"), ("plan_test", "*")])
        self.assertEqual(mutate.apply(mutant, self.root),
                         "int f(int a, int b) {\n    const int c = a - b;\n}\n")

    def test_without_a_test_it_is_the_folders(self):
        [mutant] = self.mutants("src/ir/sum.cc: no sum\n-  a + b;\n+  a;\n")
        self.assertEqual(mutant.tests, [("ir_test", "*")])

    def test_a_text_that_moved_or_stands_twice_is_named(self):
        mutants = self.mutants(_ENTRY)
        self.write("src/ir/sum.cc", "int g() { return 0; }\n")
        [problem] = mutate.problems_of(mutants, self.root)
        self.assertIn("stands 0 times in src/ir/sum.cc", problem)
        self.assertIn("a sum is a difference", problem)
        self.write("src/ir/sum.cc", "const int c =\n a + b;\nconst int c =\n a + b;\n")
        self.assertIn("stands 2 times", mutate.problems_of(mutants, self.root)[0])
        shutil.rmtree(self.root / "src")
        self.assertIn("there is no src/ir/sum.cc", mutate.problems_of(mutants, self.root)[0])


if __name__ == "__main__":
    unittest.main()
