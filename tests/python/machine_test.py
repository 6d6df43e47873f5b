# SPDX-License-Identifier: Apache-2.0
"""What a machine may lack: PyTorch, a GPU's driver, the compiler of kernels. Each is an Error with
a remedy, and the process goes on. (Of a driver that does not start, and of versions:
tests/gpu/bad_input_test.cc.)

Libraries are opened once in a process, so each case has one of its own.

A wheel's machine may also have an older glibc than the one it was built with."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from coda_cpp import _core

_START = """
import sys
sys.modules["torch"] = None  # as if it were not installed
import numpy
import coda_cpp
from coda_cpp import _core

def twice(dtype):
    return coda_cpp.Program.parse(
        "program twice { store(y:f32, tile(x[M, N]:f32) * 2) }".replace("f32", dtype)).plan()

def on_a_gpu():
    coda_cpp.Session(twice("bf16"), {"M": 2, "N": 3}, on="gpu")

def kernels():
    _core.precompile([(twice("bf16"), {"M": 64, "N": 64})], 132)

try:
    CALL()
    print("nothing is missing")
except coda_cpp.Error as error:
    print(error)
x, y = numpy.ones((2, 3), numpy.float32), numpy.zeros((2, 3), numpy.float32)
coda_cpp.Session(twice("f32"), {"M": 2, "N": 3}).run({"x": x, "y": y})
assert (y == 2).all()
print("went on")
"""
_NO_SUCH = _core.__file__  # a library that has no function of NVIDIA's


class Machine(unittest.TestCase):
    def _told(self, call, what, **variables):
        with tempfile.TemporaryDirectory() as folder:
            run = subprocess.run(
                [sys.executable, "-c", _START.replace("CALL", call)], capture_output=True,
                text=True, env={**os.environ, "CODA_CACHE_DIR": folder, **variables})
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(run.stdout, what + "(.|\n)*went on")

    def test_no_driver(self):
        self._told("on_a_gpu", "cannot find the CUDA driver .*CODA_CUDA_DRIVER=/nowhere/libcuda"
                   ".*Remedy: install NVIDIA's driver", CODA_CUDA_DRIVER="/nowhere/libcuda.so.1")

    def test_an_old_driver(self):
        self._told("on_a_gpu", "the CUDA driver at .* is too old: it has no function cu.*Remedy",
                   CODA_CUDA_DRIVER=_NO_SUCH)

    def test_no_compiler_of_kernels(self):
        self._told("kernels", "cannot find NVRTC.*CODA_NVRTC=/nowhere.*Remedy: "
                   "install it with `pip install nvidia-cuda-nvrtc`", CODA_NVRTC="/nowhere")

    def test_an_old_compiler_of_kernels(self):
        self._told("kernels", "NVRTC.* is too old: it has no function nvrtc"
                   ".*Remedy", CODA_NVRTC=_NO_SUCH)


class Wheels(unittest.TestCase):
    def test_names_of_a_newer_glibc_are_those_that_wheels_replace(self):
        nm = shutil.which("nm", path=os.defpath)  # of the compiler; PATH may be empty here
        said = subprocess.run([nm, "-D", "--undefined-only", _core.__file__], check=True,
                              capture_output=True, text=True).stdout
        versions = dict(re.findall(r" U (\w+)@GLIBC_2\.(\d+)", said))
        self.assertIn("exp", versions)
        text = (pathlib.Path(__file__).parents[2] / "python/src/older_glibc.c").read_text()
        replaced = re.findall(r"^OLDER\([^,]*, (\w+)|^HIDDEN \w+ (?:__wrap_)?(\w+)", text, re.M)
        self.assertEqual({name for name, version in versions.items() if int(version) > 28}
                         - {one or other for one, other in replaced}, set())


if __name__ == "__main__":
    unittest.main()
