# SPDX-License-Identifier: Apache-2.0
"""Python floats that change from call to call: Dynamo compiles for the first value, then once for
all others, as often as with PyTorch's own backends. A region reads the float as an operand."""

import copy
import unittest

import torch
import torch._dynamo
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from compiled import Recorder, error, outcome, system_compiler

WIDTH = 32
VALUES = (0.5, 0.25, -1.75, 3.3, 1e-3, 0.6, 0.7, 0.8, 0.9, 1.1, 1.2, 1.3)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm, self.scale = nn.RMSNorm(WIDTH), 1.0

    def scaled(self, y, x, scale):
        return y * scale + (2 * scale + 1)

    def forward(self, x, scale):
        y = self.scaled(functional.silu(self.up(self.norm(x))), x, scale)
        return (x + functional.gelu(self.down(y))).square().mean() / scale


class Checkpointed(Scaled):
    def forward(self, x, scale):
        return checkpoint(super().forward, x, scale, use_reentrant=False)


class CheckpointedOfTwice(Scaled):
    def forward(self, x, scale):
        return checkpoint(super().forward, x, 2 * scale, use_reentrant=False)


class Everywhere(Scaled):
    """The float in each operation that takes one, and in arithmetic of Python."""

    def scaled(self, y, x, scale):
        y = torch.lerp(y, x, scale).clamp(-abs(scale) - 1, 3 + abs(scale))
        y = torch.where(4 * x > scale, y, scale).clamp_max(2 * abs(scale) + 3)
        y = torch.add(y, x, alpha=scale) - (1 - scale) / 3 * x
        return y.masked_fill(8 * x < -scale, -scale) + max(scale, 0.2) + x / (1 + abs(scale))


class Attribute(Scaled):
    def forward(self, x, scale):
        return super().forward(x, self.scale)


class Floats(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        torch.manual_seed(0)

    def _check(self, kind, **options):
        """The reports of all compilations. Each has one region, with the float in it."""
        model, x = kind(), torch.randn(4, 8, WIDTH)
        recorder = Recorder(**options)
        called = torch.compile(model, backend=recorder)
        for scale in VALUES:
            model.scale = scale
            found, gradients = outcome(called, model, x, scale)
            exact = copy.deepcopy(model).double()
            expected, wanted = outcome(exact, exact, x.double(), scale)
            torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=0)
            self.assertLess(error(gradients, wanted), 2e-5)
        for report in recorder.reports:
            self.assertTrue(all(layer.is_fused for layer in report.layers))
            self.assertEqual([len(report.layers), len(report.fused)], [2, 1])
        return recorder.reports

    def _with_pytorch(self, kind, backend):
        """The number of compilations without us."""
        torch._dynamo.reset()
        counter = CompileCounterWithBackend(backend)
        model, x = kind(), torch.randn(4, 8, WIDTH)
        called = torch.compile(model, backend=counter)
        for scale in VALUES:
            model.scale = scale
            outcome(called, model, x, scale)
        return counter.frame_count

    def test_as_many_compilations_as_pytorch(self):
        for kind in (Scaled, Attribute, Checkpointed, CheckpointedOfTwice):
            with self.subTest(kind.__name__):
                torch._dynamo.reset()
                reports = self._check(kind)
                self.assertEqual(len(reports), self._with_pytorch(kind, "aot_eager"))

    def test_as_many_compilations_as_inductor(self):
        with system_compiler():
            reports = self._check(Scaled, inner="inductor")
            self.assertEqual(len(reports), self._with_pytorch(Scaled, "inductor"))

    def test_two_compilations_where_pytorch_needs_one_for_each_value(self):
        self.assertEqual(len(self._check(Everywhere)), 2)

    def test_in_16_bits_the_float_is_not_rounded(self):
        """As in eager mode, where the factor of a product with a bf16 tensor is an fp32 number."""
        class Factor(nn.Module):
            def __init__(self):
                super().__init__()
                self.up = nn.Linear(WIDTH, WIDTH, bias=False)

            def forward(self, x, scale):
                return functional.relu(self.up(x)) * scale

        model, recorder = Factor().bfloat16(), Recorder()
        nn.init.eye_(model.up.weight)
        called = torch.compile(model, backend=recorder)
        x = torch.linspace(1, 2, 4 * WIDTH).reshape(4, WIDTH).bfloat16()
        for scale in (1.001, 1.003, 1.007):  # in bf16 they are 1.0, 1.0 and 1.0078
            self.assertTrue(torch.equal(called(x, scale), model(x, scale)))
        self.assertEqual([len(report.fused) for report in recorder.reports], [1, 1])

    def test_dynamic_attributes(self):
        """With dynamic=True every float is a symbol, also the epsilon of a norm."""
        class Normed(nn.Module):
            def __init__(self):
                super().__init__()
                self.up, self.factor, self.eps = nn.Linear(WIDTH, WIDTH), 0.5, 1e-5

            def forward(self, x):
                x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)
                return functional.relu(self.up(x)) * self.factor

        model, recorder, x = Normed(), Recorder(), torch.randn(4, WIDTH)
        called = torch.compile(model, backend=recorder, dynamic=True)
        for model.eps, model.factor in ((1e-5, 0.5), (1e-5, 0.75), (1e-5, -2.5), (2.0, 1.25)):
            torch.testing.assert_close(called(x), model(x))
        self.assertEqual([len(report.fused) for report in recorder.reports], [1])

    def test_numbers_that_pytorch_makes_constants(self):
        class Normed(nn.Module):
            def __init__(self):
                super().__init__()
                self.up, self.factor = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.rand(WIDTH))

            def forward(self, x, number):
                y = functional.rms_norm(functional.relu(self.up(x)), (WIDTH,), self.factor, number)
                y = functional.layer_norm(y, (WIDTH,), eps=2 * number) * number
                return functional.cross_entropy(y, torch.arange(4), label_smoothing=number)

        for dynamic in (None, True):
            torch._dynamo.reset()
            model, recorder, x = Normed(), Recorder(), torch.randn(4, WIDTH)
            called = torch.compile(model, backend=recorder, dynamic=dynamic)
            for number in (0.5, 0.25, 0.125):
                torch.testing.assert_close(called(x, number), model(x, number))
            if not dynamic:
                for report in recorder.reports:
                    self.assertEqual(len(report.fused), 1)


if __name__ == "__main__":
    unittest.main()
