# SPDX-License-Identifier: Apache-2.0
"""A program is a product and what is done with it. Here it is only returned."""

import torch

import coda_cpp
from coda_cpp import tiles


@coda_cpp.program
def gemm(x: "[M, K]", w: "[N, K]"):
    return tiles.gemm(x, w)


x, w = torch.randn(3, 4), torch.randn(5, 4)
torch.testing.assert_close(gemm(x, w), x @ w.T)
print(gemm.text())
