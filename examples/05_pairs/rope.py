# SPDX-License-Identifier: Apache-2.0
"""Pairs of columns: a tile has both members, wherever they lie: no weight is permuted in memory."""

import torch

import coda_cpp
from coda_cpp import tiles


@coda_cpp.program
def rope(h: "[M, K]", w: "[256, K]", cos: "[S, 32]", sin: "[S, 32]", position: "[M]:i32"):
    c = tiles.tile(cos, rows=position, repeat=4)
    s = tiles.tile(sin, rows=position, repeat=4)
    a, b = tiles.split_pairs(tiles.gemm(h, w), 64)
    return tiles.merge_pairs(a * c - b * s, b * c + a * s, 64)


h, w, cos, sin = torch.randn(3, 4), torch.randn(256, 4), torch.randn(10, 32), torch.randn(10, 32)
position = torch.tensor([7, 0, 3], dtype=torch.int32)
a, b = (h @ w.T).view(3, 4, 2, 32).unbind(2)
c, s = cos[position][:, None], sin[position][:, None]
expected = torch.cat((a * c - b * s, b * c + a * s), dim=2).view(3, 256)
torch.testing.assert_close(rope(h, w, cos, sin, position), expected)
print(rope.text())
