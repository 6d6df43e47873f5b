# SPDX-License-Identifier: Apache-2.0
"""A graph has a text of its own: it is parsed, compiled and run as one that Python builds."""

import pathlib

import torch
from torch.nn import functional

import coda_cpp

TEXT = (pathlib.Path(__file__).parent / "block.coda").read_text()
M, MLP = 48, 96
NAMES = ["x", "norm", "wq", "wk", "wv", "cos", "sin", "position", "wo", "gate", "up", "down"]

graph, inputs, outputs, _ = coda_cpp.Graph.parse(TEXT)
block = coda_cpp.GraphFunction([inputs[name] for name in NAMES], outputs, name="block")


def turned(z, cos, sin, position):
    heads = z.view(M, 2, 32)
    a, b = heads[..., :16], heads[..., 16:]
    c, s = cos[position.long()][:, None], sin[position.long()][:, None]
    return torch.cat([a * c - b * s, b * c + a * s], -1).view(1, M, 2, 32).transpose(1, 2)


def plain(x, norm, wq, wk, wv, cos, sin, position, wo, gate, up, down):
    h = functional.rms_norm(x, (64,), norm, 1e-6)
    q, k = (turned(h @ w.T, cos, sin, position) for w in (wq, wk))
    v = (h @ wv.T).view(1, M, 2, 32).transpose(1, 2)
    o = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    x1 = x + o.transpose(1, 2).reshape(M, 64) @ wo.T
    return x1 + (functional.silu(x1 @ gate.T) * (x1 @ up.T)) @ down.T


torch.manual_seed(1)
shapes = {"x": (M, 64), "norm": (64,), "cos": (M, 16), "sin": (M, 16), "gate": (MLP, 64),
          "up": (MLP, 64), "down": (64, MLP)}
tensors = {name: 0.3 * torch.randn(shapes.get(name, (64, 64))) for name in NAMES}
tensors["position"] = torch.arange(M).to(torch.int32)
trained = [name for name in NAMES if name not in ("cos", "sin", "position")]
for name in trained:
    tensors[name].requires_grad_()
ours = block(*tensors.values())
theirs = plain(**tensors)
torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
for a, b in zip(torch.autograd.grad(ours.square().sum(), [tensors[n] for n in trained]),
                torch.autograd.grad(theirs.square().sum(), [tensors[n] for n in trained])):
    torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)
print(graph.text(outputs, "block"))
