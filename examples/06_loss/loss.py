# SPDX-License-Identifier: Apache-2.0
"""A loss as mathematics: the compiler finds the two programs, and those of its backward."""

import torch
from torch.nn import functional

import coda_cpp
from coda_cpp import builders

graph = coda_cpp.Graph()
h, w = graph.input("h", ("M", 4)), graph.parameter("w", (5, 4))
target = graph.table("target", ("M", 1), "i32")
_, mean = builders.cross_entropy(builders.linear(h, w), target)
loss = coda_cpp.GraphFunction([h, w, target], {"loss": mean}, name="loss")

tensors = [torch.randn(3, 4, requires_grad=True), torch.randn(5, 4, requires_grad=True)]
targets = torch.tensor([0, 1, 2])
ours = loss(*tensors, targets.to(torch.int32))
theirs = functional.cross_entropy(tensors[0] @ tensors[1].T, targets)
torch.testing.assert_close(ours.reshape(()), theirs)
for a, b in zip(torch.autograd.grad(ours.sum(), tensors), torch.autograd.grad(theirs, tensors)):
    torch.testing.assert_close(a, b)
print(loss.explain({"M": 3}))
