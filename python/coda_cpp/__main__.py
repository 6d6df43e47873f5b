# SPDX-License-Identifier: Apache-2.0
"""python -m coda_cpp: prints what coda-cpp found on this machine, what works, and remedies."""

from __future__ import annotations

import os
import pathlib
import sys
from collections.abc import Callable

import coda_cpp
from coda_cpp import _core
from coda_cpp._cache import folder as cache_folder
from coda_cpp._core import Error

_OLDEST = (2, 11)  # version of PyTorch


def _cache() -> str:
    folder = cache_folder()
    if folder is None:
        return "none, so kernels are compiled anew in each process: set CODA_CACHE_DIR"
    parent = next(p for p in (folder, *folder.parents) if p.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        return f"{folder} cannot be written: set CODA_CACHE_DIR"
    kernels = list((folder / "cubins").glob("*.cubin"))
    megabytes = sum(kernel.stat().st_size for kernel in kernels) / 1e6
    return f"{folder}, {len(kernels)} kernels, {megabytes:.1f} MB"


def _torch() -> str:
    try:
        import torch
    except ImportError:
        return "none: install it for torch.compile and operators; graphs and sessions work without"
    version = tuple(map(int, torch.__version__.split("+")[0].split(".")[:2]))
    text = f"{torch.__version__}, CUDA {torch.version.cuda or 'none'}"
    if version < _OLDEST:
        return text + f": too old, install {_OLDEST[0]}.{_OLDEST[1]} or newer"
    named = "coda" in torch._dynamo.list_backends()
    return text + (", knows the backend \"coda\"" if named else "")


def _gpu() -> str:
    why = coda_cpp.why_no_gpu()
    if why:
        return "none that there are kernels for: " + why
    try:
        import torch
        return torch.cuda.get_device_name() if torch.cuda.is_available() else (
            "usable, but PyTorch has no CUDA: install a build of PyTorch for CUDA")
    except ImportError:
        return "usable"


def _driver() -> str:
    for path in ("/proc/driver/nvidia/version",):
        if os.path.exists(path):
            return pathlib.Path(path).read_text().split("\n")[0]
    return "none of NVIDIA's is loaded"


def _nvrtc() -> str:
    try:
        _core.precompile([], 132)  # an empty list: only looks for NVRTC
    except Error as why:
        return str(why)
    return "found"


def _cudnn() -> str:
    try:
        import torch
        version = torch.backends.cudnn.version()
        return str(version) if version else "none: attention on a GPU then runs without it"
    except ImportError:
        return "not looked for, as PyTorch is not installed"


def _works() -> str:
    """Compiles a plan and runs it on the CPU."""
    import numpy

    plan = coda_cpp.Program.parse("program twice { store(y:f32, tile(x[M, N]:f32) * 2) }").plan()
    x, y = numpy.ones((2, 3), numpy.float32), numpy.zeros((2, 3), numpy.float32)
    coda_cpp.Session(plan, {"M": 2, "N": 3}).run({"x": x, "y": y})
    return "the CPU" if (y == 2).all() else "nothing: a plan of the CPU computes wrongly, report it"


def _answer(ask: Callable[[], str]) -> str:
    try:
        return " ".join(ask().split())
    except Exception as why:  # noqa: BLE001 (one line each, whatever is broken)
        return f"cannot be told: {type(why).__name__}: {why}"


def main() -> None:
    gpu, nvrtc = _answer(_gpu), _answer(_nvrtc)
    has_gpu = not coda_cpp.why_no_gpu() and nvrtc == "found"
    works = _answer(_works) + (" and the GPU" if has_gpu else "")
    facts = {
        "coda-cpp": f"{coda_cpp.__version__}, {pathlib.Path(coda_cpp.__file__).parent}",
        "Python": sys.version.split()[0],
        "PyTorch": _answer(_torch),
        "GPU": gpu,
        "driver": _answer(_driver),
        "NVRTC": nvrtc,
        "cuDNN": _answer(_cudnn),
        "kernel cache": _answer(_cache),
        "works on": works,
        "otherwise": "backend=\"coda\" leaves all to Inductor on a GPU without kernels; "
                     "coda_cpp.explain(model, ...) says what is fused",
    }
    width = max(map(len, facts))
    for name, text in facts.items():
        print(f"{name:{width}}  {text}")


if __name__ == "__main__":
    main()
