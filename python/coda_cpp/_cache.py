# SPDX-License-Identifier: Apache-2.0
"""The folder of what is kept on this machine from process to process: compiled kernels and measured
times."""

from __future__ import annotations

import os
import pathlib


def folder() -> pathlib.Path | None:
    """The same folder as gpu::default_cache_folder() in C++; None if no variable names one."""
    for variable, below in (("CODA_CACHE_DIR", ""), ("XDG_CACHE_HOME", "coda"),
                            ("HOME", ".cache/coda")):
        if os.environ.get(variable):
            return pathlib.Path(os.environ[variable], below)
    return None
