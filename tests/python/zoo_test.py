# SPDX-License-Identifier: Apache-2.0
"""Runs two of the models of docs/results/models.md (bench/zoo.py). The digest of the backend's
sources selects the models, so each change of the backend tests two others. At least as many linear
layers must be fused as on the page, and loss and gradients must be as exact as in eager mode."""

import hashlib
import re
import sys
import unittest
from pathlib import Path

import torch
import torch._dynamo
import transformers

import coda_cpp.torch_backend

_ROOT = Path(__file__).parents[2]
_PAGE = (_ROOT / "docs" / "results" / "models.md").read_text()
_VERSIONS = (f"PyTorch {torch.__version__.partition('+')[0]}, "
             f"transformers {transformers.__version__}")
sys.path.insert(0, str(_ROOT / "bench"))

import zoo  # a script of bench/, found through sys.path

_ROW = re.compile(r"\| (.+?) \| (float32|bfloat16) \| (\d+) of (\d+) \| \d+ \| \S+ \| (\S+) \|")


def _rows():
    """(model, type) -> number of fused and of all linear layers. Leaves out models that need timm
    or diffusers, and models whose error in eager mode is 0.1 or more: their experts may be chosen
    differently on another machine."""
    return {(name, dtype): (int(fused), int(layers))
            for name, dtype, fused, layers, error in _ROW.findall(_PAGE)
            if zoo.models().get(name) not in (None, "timm", "diffusers") and float(error) < 0.1}


class Zoo(unittest.TestCase):
    def test_the_page_has_at_least_60_architectures(self):
        self.assertGreaterEqual(len({name for name, _ in _rows()}), 60)

    def test_the_page_is_of_the_versions_that_tests_have(self):
        required = (_ROOT / "requirements.txt").read_text()
        torch_version, transformers_version = (
            re.search(rf"^{name}==(\S+)", required, re.MULTILINE)[1]
            for name in ("torch", "transformers"))
        self.assertIn(f"PyTorch {torch_version}, transformers {transformers_version}.", _PAGE)

    @unittest.skipUnless(_VERSIONS in _PAGE, "the page is of other versions")
    def test_two_models(self):
        sources = sorted(Path(coda_cpp.torch_backend.__file__).parent.rglob("*.py"))
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).digest()
        rows = sorted(_rows().items())
        for i in (0, 1):
            (name, dtype), expected = rows[int.from_bytes(digest[4 * i:4 * i + 4]) % len(rows)]
            with self.subTest(model=name, dtype=dtype):
                torch._dynamo.reset()
                row = zoo.row_of(name, dtype)
                self.assertGreaterEqual((row["fused"], row["layers"]), expected)
                self.assertFalse(zoo.is_wrong(row), row)


if __name__ == "__main__":
    unittest.main()
