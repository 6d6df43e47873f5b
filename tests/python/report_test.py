# SPDX-License-Identifier: Apache-2.0
"""What the backend tells a user: which linear layers are fused, which are not, where and why."""

import unittest

import torch
import torch._dynamo
from torch import nn
from torch.utils.checkpoint import checkpoint

import coda_cpp
from compiled import Recorder

WIDTH = 16
_HERE = r"report_test\.py:\d+"


class Products(nn.Module):
    """A linear layer in each way that it is written; nothing beside any is understood."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH))
        self.bias = nn.Parameter(torch.randn(WIDTH))
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        ways = (
            lambda x: self.layer(x),
            lambda x: x @ self.weight,
            lambda x: torch.einsum("bti,ij->btj", x, self.weight),
            lambda x: torch.addmm(self.bias, x.flatten(0, 1), self.weight),
            lambda x: torch.mm(x.flatten(0, 1), self.weight.t()),
            lambda x: torch.bmm(x, self.weight.expand(len(x), WIDTH, WIDTH)))
        return sum(torch.special.i0(way(torch.special.i0(x))).sum() for way in ways)


class Mlp(nn.Module):
    def __init__(self, between=nn.SiLU):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.between = between()

    def forward(self, x):
        return self.down(self.between(self.up(x)))


class Unknown(nn.Module):
    def forward(self, x):
        return torch.special.i0(x)


class Reports(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        torch.manual_seed(0)

    def _report(self, model, *arguments, **options):
        recorder = Recorder(**options)
        torch.compile(model, backend=recorder)(*arguments)
        self.assertEqual(len(recorder.reports), 1)
        return recorder.reports[0]

    def test_a_linear_layer_is_told_however_it_is_written(self):
        layers = self._report(Products(), torch.randn(2, 4, WIDTH)).layers
        self.assertEqual(len(layers), 6)
        for layer in layers:
            self.assertFalse(layer.is_fused)
            self.assertRegex(layer.place, _HERE)
            self.assertRegex(layer.reason, r"i0 behind \(has no rule\)|as a linear layer")
            self.assertEqual(layer.flops, 2 * (2 * 4) * WIDTH * WIDTH)
        self.assertEqual(len({layer.place for layer in layers}), 6)

    def test_a_product_of_two_activations_is_no_linear_layer(self):
        report = self._report(lambda x: x @ x.mT, torch.randn(2, 4, WIDTH))
        self.assertEqual(report.layers, [])

    def test_strict_names_every_layer_that_is_left(self):
        model = nn.Sequential(Mlp(), Mlp(Unknown))
        for is_checkpointed in (False, True):
            torch._dynamo.reset()
            called = torch.compile(
                (lambda x: checkpoint(model, x, use_reentrant=False)) if is_checkpointed else model,
                backend=Recorder(strict=True))
            with self.assertRaisesRegex(Exception, rf"linear layers are left to PyTorch: .*"
                                        rf"down \({_HERE}\): nothing beside it .*i0 before"):
                called(torch.randn(2, 4, WIDTH))

    def test_what_the_cost_model_leaves_is_no_error(self):
        report = self._report(Mlp(), torch.randn(2, 4, WIDTH), strict=True, cost_model=True)
        self.assertEqual([layer.by_cost_model for layer in report.layers], [True, True])
        self.assertEqual(report.not_fused, [])
        self.assertIn("0 of 2 linear layers fused", report.total())
        self.assertIn("the cost model left 2", report.total())

    def test_equal_layers_are_told_once_with_their_number(self):
        model = nn.Sequential(*[part for _ in range(3) for part in (Mlp(Unknown), Unknown())])
        with self.assertLogs("coda_cpp") as logged:
            report = self._report(model, torch.randn(2, 4, WIDTH))
        self.assertEqual(len(report.not_fused), 6)
        warnings = [record.getMessage() for record in logged.records
                    if record.levelname == "WARNING"]
        self.assertEqual(len(warnings), 1)
        self.assertIn("0 of 6 linear layers fused", warnings[0])
        self.assertRegex(warnings[0], rf"\*\.down \(3 layers, {_HERE}\): nothing beside it")

    def test_a_graph_that_cannot_be_read_tells_its_layers_too(self):
        def step(x):
            with torch.no_grad():
                y = model(x)
            return model(y)

        model = Mlp().requires_grad_(True)
        report = self._report(step, torch.randn(2, 4, WIDTH, requires_grad=True))
        for layer in report.not_fused:
            self.assertRegex(layer.place, _HERE)
            self.assertTrue(layer.reason)
        self.assertEqual(len(report.layers), 4)

    def test_explain_begins_with_totals(self):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second = Mlp(), Mlp(Unknown)

            def forward(self, x):
                x = self.first(x)
                torch._dynamo.graph_break()
                return self.second(x)

        text = coda_cpp.explain(Model(), torch.randn(2, 4, WIDTH), options={"cost_model": False})
        first, *others = text.split("\n")
        self.assertEqual(first, "2 of 4 linear layers fused (50 % of their multiplications), in 1 "
                                "region")
        self.assertRegex(others[0], "2 graphs.*graph_break")
        self.assertRegex(others[1], r"in all \d+ programs; .* MB moved, .* MB saved for the "
                                    r"backward; predicted .* ms")
        self.assertRegex(text, rf"second\.down \({_HERE}\): nothing beside it.*\n    remedy: ")


if __name__ == "__main__":
    unittest.main()
