# SPDX-License-Identifier: Apache-2.0
"""The backend as a function, to call it from your own backend function for torch.compile:

    report = compiler.Report()
    torch.compile(model, backend=lambda graph, inputs: compiler.coda(graph, inputs, report=report))
"""

from coda_cpp.torch_backend.coda import coda
from coda_cpp.torch_backend.report import Report

__all__ = ["Report", "coda"]
