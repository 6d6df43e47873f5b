# SPDX-License-Identifier: Apache-2.0
"""A function over tiles has its backward: autograd calls what the compiler derived."""

import torch
from torch.nn import functional

import coda_cpp
from coda_cpp import tiles


@coda_cpp.program
def activation(x: "[M, K]", w: "[N, K]"):
    return tiles.elementwise("silu", tiles.gemm(x, w))


x, w = torch.randn(6, 4, requires_grad=True), torch.randn(5, 4, requires_grad=True)
v = torch.randn(3, 5)
ours = torch.autograd.grad((activation(x, w) @ v.T).sum(), (x, w))
theirs = torch.autograd.grad((functional.silu(x @ w.T) @ v.T).sum(), (x, w))
for a, b in zip(ours, theirs):
    torch.testing.assert_close(a, b)
print(activation.explain({"M": 6, "N": 5, "K": 4}))
