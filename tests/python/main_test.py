# SPDX-License-Identifier: Apache-2.0
"""python -m coda_cpp: ten lines of what was found, whatever is missing."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import coda_cpp

_NAMES = ["coda-cpp", "Python", "PyTorch", "GPU", "driver", "NVRTC", "cuDNN", "kernel cache",
          "works on", "otherwise"]


class Main(unittest.TestCase):
    def _facts(self, start=(), **variables):
        run = subprocess.run(
            [sys.executable, *(start or ["-m", "coda_cpp"])], capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": str(pathlib.Path(coda_cpp.__file__).parents[1]),
                 **variables})
        self.assertEqual(run.returncode, 0, run.stderr)
        lines = run.stdout.splitlines()
        self.assertEqual([line[:12].strip() for line in lines], _NAMES)
        return {line[:12].strip(): line[14:] for line in lines}

    def test_what_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            facts = self._facts(CODA_CACHE_DIR=folder)
            self.assertIn(f"{folder}, 0 kernels", facts["kernel cache"])
        self.assertTrue(facts["coda-cpp"].startswith(coda_cpp.__version__))
        self.assertIn('knows the backend "coda"', facts["PyTorch"])
        self.assertTrue(facts["works on"].startswith("the CPU"))

    def test_what_is_missing(self):
        facts = self._facts(CODA_CACHE_DIR=f"{__file__}/cache", CODA_NVRTC="/nowhere",
                            CODA_CUDA_DRIVER="/nowhere/libcuda.so.1")
        self.assertRegex(facts["GPU"], "^none.*CUDA driver.*Remedy")
        self.assertRegex(facts["NVRTC"], "^cannot find NVRTC.*Remedy")
        self.assertRegex(facts["kernel cache"], "cannot be written: set CODA_CACHE_DIR")
        self.assertEqual(facts["works on"], "the CPU")

    def test_without_pytorch(self):
        facts = self._facts(("-c", "import sys, runpy; sys.modules['torch'] = None\n"
                             "runpy.run_module('coda_cpp', run_name='__main__')"))
        self.assertRegex(facts["PyTorch"], "^none: install it")


if __name__ == "__main__":
    unittest.main()
