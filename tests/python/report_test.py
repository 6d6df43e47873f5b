# SPDX-License-Identifier: Apache-2.0
"""What the backend tells a user: which linear layers are fused, which are not, where and why."""

import unittest
from contextlib import nullcontext
from types import SimpleNamespace
from unittest.mock import patch

import torch
import torch._dynamo
from torch import nn
from torch.utils.checkpoint import checkpoint

import coda_cpp
from coda_cpp import builders as b
from coda_cpp.function import Function, Input, Output
from coda_cpp.torch_backend import coda
from coda_cpp.torch_backend.layout import NotUnderstood
from coda_cpp.torch_backend.linears import LinearLayer
from coda_cpp.torch_backend.report import RegionReport, Report, grouped
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
            self.assertRegex(layer.reason, r"i0 \(not supported\)|always runs in PyTorch")
            self.assertEqual(layer.flops, 2 * (2 * 4) * WIDTH * WIDTH)
        self.assertEqual(len({layer.place for layer in layers}), 6)

    def test_multiplications_are_those_of_the_sizes(self):
        """2 times the sizes of rows, contraction and columns, which all differ."""
        rows, inner, columns = 6, 5, 7
        weight = nn.Parameter(torch.randn(inner, columns))
        bias = nn.Parameter(torch.randn(columns))
        layer = nn.Linear(inner, columns)
        ways = {
            "linear": lambda x: layer(x), "matmul": lambda x: x @ weight,
            "einsum": lambda x: torch.einsum("bti,ij->btj", x, weight),
            "addmm": lambda x: torch.addmm(bias, x.flatten(0, 1), weight),
            "mm": lambda x: torch.mm(x.flatten(0, 1), weight),
            "bmm": lambda x: torch.bmm(x, weight.expand(len(x), inner, columns))}

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight, self.bias, self.layer = weight, bias, layer

            def forward(self, x):
                return sum(torch.special.i0(way(torch.special.i0(x))).sum()
                           for way in ways.values())

        for is_read in (True, False):  # in the normal form, and as Dynamo has them
            torch._dynamo.reset()
            patched = (nullcontext() if is_read else
                       patch.object(coda, "Normal", side_effect=NotUnderstood("why")))
            with patched:
                found = self._report(Model(), torch.randn(2, 3, inner))
            self.assertEqual([layer.flops for layer in found.layers],
                             [2 * rows * inner * columns] * len(ways))

    def test_the_share_is_of_multiplications(self):
        made = Report(layers=[LinearLayer("a", "", 900, ""), LinearLayer("b", "", 50, "why"),
                              LinearLayer("c", "", 50, "gains nothing", by_cost_model=True)])
        self.assertEqual(made.total(), "1 of 3 linear layers fused (90 % of their "
                                       "multiplications), in 0 regions; the cost model left 1")

    def test_layers_are_told_together_by_kind_place_and_reason(self):
        layers = [LinearLayer(f"h.{i}.up", place, 1, reason) for i, (place, reason) in enumerate((
            ("m.py:1", "x"), ("m.py:1", "x"), ("m.py:1", "y"), ("m.py:2", "x")))]
        self.assertEqual([text for _, text in grouped(layers)],
                         ["h.*.up (2 layers, m.py:1): x", "h.2.up (m.py:1): y",
                          "h.3.up (m.py:2): x"])

    def test_a_region_has_to_gain_more_than_its_calls_cost(self):
        """Of costs by number: operations, bytes and seconds of ours and of theirs."""
        def entry(ours, theirs, needs=0):
            function = SimpleNamespace(
                costs=lambda _: ((1, 2e6, ours), (1, 5e6, theirs)), nominal_sizes=dict,
                has_plain_products=False,
                phases=lambda _: SimpleNamespace(again=None, plans=[], plan=SimpleNamespace(
                    saved_bytes=lambda _: 7e6)))
            return RegionReport("fused_0", "linear, silu", SimpleNamespace(
                needs=needs, function=SimpleNamespace(function=function)))

        self.assertTrue(entry(1e-4, 1.3e-4).gains)
        self.assertFalse(entry(1e-4, 1.2e-4).gains)
        self.assertTrue(entry(1e-4, 1.6e-4, needs=1).gains)  # the backward is a call too
        self.assertFalse(entry(1e-4, 1.4e-4, needs=1).gains)
        both = Report.of([Report(fused=[entry(1e-4, 3e-4)], causal=1, notes=["n"], left=["1 x a"]),
                          Report(fused=[entry(2e-4, 4e-4)], causal=2, notes=["n"],
                                 without_gain=[entry(1.0, 1.0)], left=["2 x b"])])
        self.assertEqual((len(both.fused), len(both.without_gain), both.causal, both.notes,
                          both.left), (2, 1, 3, ["n"], ["1 x a", "2 x b"]))
        self.assertIn("total: 0 programs; 4.00 MB moved, 10.00 MB without fusion; 14.00 MB saved "
                      "for the backward; predicted 0.300 ms, 0.700 ms without fusion", both.text())

    def test_gemms_in_fp32_are_left_to_pytorch_on_a_gpu(self):
        """They have no tensor cores: adapters of LoRA took 30 times as long."""
        graph = coda_cpp.Graph()
        x = graph.input("x", ("M", 1024))
        down, up = graph.parameter("down", (16, 1024)), graph.parameter("up", (2048, 16))
        y = b.gelu(b.linear(b.linear(x, down), up))
        for storage, for_gpu in (("f32", True), ("bf16", True), ("f32", False)):
            inputs = [Input(value.name, value, storage) for value in (x, down, up)]
            function = Function("adapter", graph, inputs, [Output("y", y, storage)],
                                storage=storage, for_gpu=for_gpu, nominal={"M": 1 << 17})
            entry = RegionReport("fused_0", "linear, linear, gelu", SimpleNamespace(
                needs=0, function=SimpleNamespace(function=function)))
            is_left = storage == "f32" and for_gpu
            self.assertEqual(entry.gains, not is_left)
            self.assertEqual("in fp32 on a GPU" in entry.why_left, is_left)

    def test_layers_of_blocks_that_are_left_are_told(self):
        model = nn.Sequential(Mlp(), Mlp())
        with patch.object(coda, "Normal", side_effect=NotUnderstood("why")):
            report = self._report(lambda x: checkpoint(model, x, use_reentrant=False).sum(),
                                  torch.randn(2, 4, WIDTH, requires_grad=True))
        self.assertEqual([layer.reason for layer in report.layers], ["why"] * 4)

    def test_explain_takes_the_options(self):
        model, x = Mlp(), torch.randn(2, 4, WIDTH)
        for cost_model, expected in ((True, "0 of 2"), (False, "2 of 2")):
            text = coda_cpp.explain(model, x, options={"cost_model": cost_model})
            self.assertTrue(text.startswith(expected), text)

    def test_explain_leaves_the_model_and_random_numbers_as_they_are(self):
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.GELU(),
                              nn.Dropout(0.5), nn.Linear(WIDTH, WIDTH))
        x = torch.randn(8, WIDTH)
        before = [buffer.clone() for buffer in model.buffers()], torch.get_rng_state()
        coda_cpp.explain(model, x, options={"inner": "aot_eager"})
        torch.testing.assert_close((list(model.buffers()), torch.get_rng_state()), before,
                                   rtol=0, atol=0)

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
                                        rf"down \({_HERE}\): no neighbouring operation .*"
                                        "input comes from special_i0"):
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
        self.assertRegex(warnings[0], rf"\*\.down \(3 layers, {_HERE}\): no neighbouring operation")

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
        self.assertRegex(others[1], r"total: \d+ programs; .* MB moved, .* MB saved for the "
                                    r"backward; predicted .* ms")
        self.assertRegex(
            text, rf"second\.down \({_HERE}\): no neighbouring operation.*\n    remedy: ")


if __name__ == "__main__":
    unittest.main()
