# SPDX-License-Identifier: Apache-2.0
"""A block as plain mathematics, x + swiglu(norm(x)·Wgᵀ, norm(x)·Wuᵀ)·Wdᵀ: the compiler finds the
programs of its forward and its backward, and what is saved between them."""

import torch
from torch.nn import functional

import coda_cpp
from coda_cpp import builders

HIDDEN, MLP, EPS = 48, 80, 1e-5

graph = coda_cpp.Graph()
x, norm = graph.input("x", ("M", HIDDEN)), graph.parameter("norm", (1, HIDDEN))
gate, up = graph.parameter("gate", (MLP, HIDDEN)), graph.parameter("up", (MLP, HIDDEN))
down = graph.parameter("down", (HIDDEN, MLP))
h = builders.rms_norm(x, norm, EPS)
y = x + builders.linear(builders.swiglu(builders.linear(h, gate), builders.linear(h, up)), down)
block = coda_cpp.GraphFunction([x, norm, gate, up, down], {"y": y}, name="block")


def plain(x, norm, gate, up, down):
    h = functional.rms_norm(x, (HIDDEN,), norm, EPS)
    return x + (functional.silu(h @ gate.T) * (h @ up.T)) @ down.T


torch.manual_seed(1)
tensors = [0.3 * torch.randn(*shape) for shape in
           ((70, HIDDEN), (HIDDEN,), (MLP, HIDDEN), (MLP, HIDDEN), (HIDDEN, MLP))]
for tensor in tensors:
    tensor.requires_grad_()
ours, theirs = block(*tensors), plain(*tensors)
torch.testing.assert_close(ours, theirs)
for a, b in zip(torch.autograd.grad(ours.square().sum(), tensors),
                torch.autograd.grad(theirs.square().sum(), tensors)):
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
print(block.explain({"M": 70}))
