# SPDX-License-Identifier: Apache-2.0
"""A reduction over a whole row takes two programs: tiles leave partial sums, a finalizer combines
them. A function that returns a reduction becomes both."""

import torch

import coda_cpp
from coda_cpp import tiles


@coda_cpp.program
def residual(y: "[M, K]", w: "[N, K]", x0: "[M, N]"):
    x = tiles.gemm(y, w) + tiles.tile(x0)
    return x, tiles.row_sum(x * x)


y, w, x0 = torch.randn(3, 4), torch.randn(100, 4), torch.randn(3, 100)
x, squares = residual(y, w, x0)
torch.testing.assert_close(x, x0 + y @ w.T)
torch.testing.assert_close(squares, x.square().sum(-1))
print(residual.text())
