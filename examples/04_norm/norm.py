# SPDX-License-Identifier: Apache-2.0
"""What waits for a whole row moves behind the next product, where it commutes: a norm's scale."""

import torch
from torch.nn import functional

import coda_cpp
from coda_cpp import tiles


@coda_cpp.program
def swiglu(h: "[M, K]", wg: "[N, K]", wu: "[N, K]", r: "[M]"):
    scale = tiles.per_row(r)
    gate = tiles.gemm(h, wg) * scale
    up = tiles.gemm(h, wu) * scale
    return tiles.elementwise("silu", gate) * up


h, wg, wu, r = torch.randn(3, 4), torch.randn(5, 4), torch.randn(5, 4), torch.rand(3)
n = h * r[:, None]
torch.testing.assert_close(swiglu(h, wg, wu, r), functional.silu(n @ wg.T) * (n @ wu.T))
print(swiglu.text())
