# SPDX-License-Identifier: Apache-2.0
"""What a region returns: each value once, however many operations outside it read the value."""

import unittest

import torch
import torch._dynamo
from torch import nn
from torch.nn import functional

from compiled import Recorder, error


class Adapted(nn.Module):
    """Three linear layers in bf16 behind a norm, each with an adapter in fp32, as PEFT adds them:
    each adapter converts the normed value. PyTorch runs the adapters."""

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(32, eps=1e-5, dtype=torch.bfloat16)
        self.layers = nn.ModuleList(nn.Linear(32, 48, False, dtype=torch.bfloat16)
                                    for _ in range(3))
        self.adapters = nn.ParameterList(torch.randn(32, 48) / 8 for _ in range(3))

    def forward(self, x):
        normed = self.norm(x)
        made = [layer(normed).float() + torch.special.i0(normed.float()) @ adapter
                for layer, adapter in zip(self.layers, self.adapters)]
        return torch.stack(made).square().mean()


class Viewed(nn.Module):
    """A value that leaves the region in two shapes, and that others write into a copy of."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(32, 48), nn.Linear(48, 32)

    def forward(self, x):
        y = self.down(functional.gelu(self.up(x)))
        return y, y.flatten(0, 1), y.clone()


class Results(unittest.TestCase):
    def _compiled(self, model):
        torch._dynamo.reset()
        recorder = Recorder()
        return torch.compile(model, backend=recorder), recorder

    def _functions(self, recorder):
        return [entry.region.function.function for entry in recorder.reports[0].fused]

    def test_a_value_that_three_adapters_convert_is_returned_once(self):
        torch.manual_seed(0)
        model, x = Adapted(), torch.randn(2, 24, 32, dtype=torch.bfloat16, requires_grad=True)
        called, recorder = self._compiled(model)
        wanted = [x, *model.parameters()]
        found = torch.autograd.grad(called(x), wanted)
        function = self._functions(recorder)[0]
        self.assertEqual([output.value.shape[1] for output in function.outputs].count(32), 1)
        exact = Adapted().double()
        exact.load_state_dict(model.state_dict())
        self._as_float64(exact)
        wide = x.detach().double().requires_grad_()
        expected = torch.autograd.grad(exact(wide), [wide, *exact.parameters()])
        eager = torch.autograd.grad(model(x), wanted)
        self.assertLess(error(found, expected), 1.1 * error(eager, expected))

    @staticmethod
    def _as_float64(model):
        model.forward = lambda x: torch.stack(
            [layer(model.norm(x)) + torch.special.i0(model.norm(x)) @ adapter
             for layer, adapter in zip(model.layers, model.adapters)]).square().mean()

    def test_views_of_a_value_are_one_result_and_a_copy_is_another(self):
        torch.manual_seed(0)
        model, x = Viewed(), torch.randn(2, 24, 32)
        called, recorder = self._compiled(model)
        made, expected = called(x), model(x)
        self.assertEqual(len(self._functions(recorder)[0].outputs), 2)
        torch.testing.assert_close(made, expected)
        made[2].detach().zero_()
        torch.testing.assert_close(made[0], expected[0])
        gradients, right = (torch.autograd.grad(sum((i + 1.0) * part.square().sum()
                                                    for i, part in enumerate(results)),
                                                list(model.parameters()))
                            for results in (called(x), model(x)))
        torch.testing.assert_close(gradients, right)


if __name__ == "__main__":
    unittest.main()
