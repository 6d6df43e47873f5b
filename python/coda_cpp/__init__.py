# SPDX-License-Identifier: Apache-2.0
"""Transformer blocks as GEMM-plus-epilogue programs: graphs, programs, plans, and sessions that run
them on tensors. docs/pytorch.md has an introduction."""

from coda_cpp._core import (
    Backend, Error, Graph, InternalError, Plan, Program, TensorInfo, Value, compile, lift, version,
    why_no_gpu)
from coda_cpp import _core, builders, tiles
from coda_cpp.session import Session, backend

__all__: list[str] = []
try:
    import torch as _torch  # noqa: F401
except ImportError:  # graphs, plans and sessions work on NumPy's arrays without PyTorch
    pass
else:
    from coda_cpp import ops
    from coda_cpp._operators import checking
    from coda_cpp.torch_backend.explain import explain, tune
    from coda_cpp.torch_backend.logits import without_logits
    from coda_cpp.torch_backend.verify import verify
    from coda_cpp.modules import (
        GatedMLP, LinearCrossEntropy, LinearResidualRMS, LinearRope, RMSLinear)
    from coda_cpp.optim import AdamW
    from coda_cpp.programs import GraphFunction, TileFunction, program

    __all__ += ["AdamW", "GatedMLP", "GraphFunction", "LinearCrossEntropy", "LinearResidualRMS",
                "LinearRope", "RMSLinear", "TileFunction", "checking", "explain", "ops",
                "program", "tune", "verify", "without_logits"]

__version__ = version
__all__ += ["Backend", "Error", "Graph", "InternalError", "Plan", "Program", "Session",
            "TensorInfo", "Value", "backend", "builders", "compile", "lift", "tiles", "why_no_gpu"]
