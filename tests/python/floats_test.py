# SPDX-License-Identifier: Apache-2.0
"""Python floats that change from call to call: Dynamo compiles for the first value, then once for
all others. The operation that takes the float is PyTorch's, and what is around it stays fused."""

import copy
import unittest

import torch
import torch._dynamo
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from compiled import Recorder, error, outcome, system_compiler

WIDTH = 32


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm = nn.RMSNorm(WIDTH)

    def forward(self, x, scale):
        y = functional.silu(self.up(self.norm(x))) * scale + (2 * scale + 1)
        return (x + functional.gelu(self.down(y))).square().mean() / scale


class Checkpointed(Scaled):
    def forward(self, x, scale):
        return checkpoint(super().forward, x, scale, use_reentrant=False)


class CheckpointedOfTwice(Scaled):
    def forward(self, x, scale):
        return checkpoint(super().forward, x, 2 * scale, use_reentrant=False)


class Floats(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        torch.manual_seed(0)

    def _check(self, kind, **options):
        model, x = kind(), torch.randn(4, 8, WIDTH)
        recorder = Recorder(**options)
        called = torch.compile(model, backend=recorder)
        for scale in (0.5, 0.25, -1.75, 3.3, 1e-3, 0.6, 0.7, 0.8, 0.9, 1.1, 1.2, 1.3):
            found, gradients = outcome(called, model, x, scale)
            exact = copy.deepcopy(model).double()
            expected, wanted = outcome(exact, exact, x.double(), scale)
            torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=0)
            self.assertLess(error(gradients, wanted), 2e-5)
        return recorder.reports

    def test_two_compilations_for_all_values(self):
        reports = self._check(Scaled)
        self.assertEqual(len(reports), 2)
        for report in reports:
            self.assertTrue(all(layer.is_fused for layer in report.layers))

    def test_two_compilations_with_inductor(self):
        with system_compiler():
            self.assertEqual(len(self._check(Scaled, inner="inductor")), 2)

    def test_within_a_checkpoint(self):
        reports = self._check(Checkpointed)
        self.assertLessEqual(len(reports), 2)
        self.assertEqual([len(report.layers) for report in reports], [2] * len(reports))
        for report in reports:
            self.assertTrue(all(layer.is_fused for layer in report.layers))

    def test_computed_for_a_checkpoint(self):
        for report in self._check(CheckpointedOfTwice):
            self.assertEqual([layer.is_fused for layer in report.layers], [True, True])


if __name__ == "__main__":
    unittest.main()
