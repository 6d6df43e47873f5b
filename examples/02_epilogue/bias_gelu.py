# SPDX-License-Identifier: Apache-2.0
"""What happens to a tile of a product before it goes to memory is its epilogue: no pass over memory
for the bias, none for the activation."""

import torch
from torch.nn import functional

import coda_cpp
from coda_cpp import tiles


@coda_cpp.program
def bias_gelu(x: "[M, K]", w: "[N, K]", bias: "[N]"):
    return tiles.elementwise("gelu", tiles.gemm(x, w) + tiles.per_column(bias))


x, w, bias = torch.randn(3, 4), torch.randn(5, 4), torch.randn(5)
torch.testing.assert_close(bias_gelu(x, w, bias), functional.gelu(x @ w.T + bias))
print(bias_gelu.text())
