# SPDX-License-Identifier: Apache-2.0
"""The option "cost_model": "measure": each region is timed once on a machine, and the faster of
coda-cpp's and the inner compiler's is used."""

import math
import os
import tempfile
import unittest
from unittest.mock import patch

import torch
import torch._dynamo
from torch import nn

import coda_cpp
from coda_cpp import _precompile
from coda_cpp.torch_backend import coda as backend, measure, region_times
from coda_cpp.torch_backend.coda import coda
from coda_cpp.torch_backend.report import RegionReport, Report
from compiled import error, outcome


class Block(nn.Module):
    """Of two equal layers and a third one, each with a residual."""

    def __init__(self):
        super().__init__()
        self.up = nn.ModuleList([nn.Linear(32, 96), nn.Linear(32, 96), nn.Linear(32, 64)])
        self.down = nn.ModuleList([nn.Linear(96, 32), nn.Linear(96, 32), nn.Linear(64, 32)])

    def forward(self, x):
        for up, down in zip(self.up, self.down):
            x = torch.special.i0(x + nn.functional.dropout(down(nn.functional.gelu(up(x))), 0.1))
        return x.sum()


class Rotated(nn.Module):
    """Queries as in LLaMA: the region reads one half of the tables, because both are equal."""

    def __init__(self):
        super().__init__()
        self.norm, self.q = nn.RMSNorm(32), nn.Linear(32, 32, bias=False)
        self.register_buffer("angles", torch.randn(7, 8))

    def forward(self, x):
        angles = torch.cat((self.angles, self.angles), dim=-1)
        q = self.q(self.norm(x)).view(4, 7, 2, 16).transpose(1, 2)
        rotated = torch.cat((-q[..., 8:], q[..., :8]), dim=-1)
        cos, sin = (table.expand(4, 1, 7, 16) for table in (angles.cos(), angles.sin()))
        return torch.special.i0(q * cos + rotated * sin).sum()


class Measure(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for patched in (patch.dict(os.environ, CODA_CACHE_DIR=folder.name),
                        patch.object(RegionReport, "gains", self._gains(RegionReport.gains)),
                        patch.object(measure, "_known", {}), patch.object(measure, "_spent", 0.0),
                        patch.object(measure, "_longest", 0.0),
                        patch.object(measure, "SECONDS", 1e3)):  # for a busy machine
            patched.start()
            self.addCleanup(patched.stop)

    @staticmethod
    def _gains(gains):
        """Of small sizes the prediction is that nothing gains."""
        return property(lambda entry: gains.fget(entry) if entry.measured else True)

    def _compiled(self, **options):
        torch._dynamo.reset()
        torch.manual_seed(0)
        model, report = Block(), Report()
        options = {"inner": "aot_eager", "cost_model": "measure", **options}

        def backend(module, inputs):
            return coda(module, inputs, options=options, report=report)

        x = torch.randn(4, 7, 32, requires_grad=True)  # else the first layer is another one
        state = torch.get_rng_state()
        loss, gradients = outcome(torch.compile(model, backend=backend), model, x)
        torch.set_rng_state(state)
        expected_loss, expected = outcome(model, model, x)
        self.assertLess(abs(loss - expected_loss) / abs(expected_loss), 1e-5)
        self.assertLess(error(gradients, expected), 1e-4)
        return report

    def test_a_region_is_timed_once_and_then_known_to_the_process_and_the_machine(self):
        with patch.object(region_times, "_measure", wraps=region_times._measure) as timed:
            first = self._compiled()
            regions = first.fused + first.without_gain
            self.assertEqual(len(regions), 3)
            self.assertEqual(timed.call_count, 2)  # two of them are equal
            for ours, theirs in (region.measured for region in regions):
                self.assertGreater(min(ours, theirs), 0)
            self._compiled()
            self.assertEqual(timed.call_count, 2)
            measure._known.clear()  # as in another process
            again = self._compiled()
            self.assertEqual(timed.call_count, 2)
            self.assertEqual([region.measured for region in again.fused + again.without_gain],
                             [region.measured for region in regions])
            self._compiled(objective="speed")
            self.assertEqual(timed.call_count, 4)

    def test_the_faster_one_is_used_and_told(self):
        for times, is_left in (((2e-3, 1e-3), True), ((1e-3, 2e-3), False)):
            measure._known.clear()
            with patch.object(measure, "_stored", return_value=times):
                report = self._compiled()
            self.assertEqual(len(report.without_gain), 3 * is_left)
            self.assertEqual(len(report.fused), 3 * (not is_left))
            self.assertEqual("a call of the fused region took 2.000 ms, of PyTorch's operations "
                             "1.000 ms" in report.text(), is_left)
            self.assertEqual("measured 3.000 ms, 6.000 ms without" in report.text(), not is_left)
            self.assertFalse(report.not_fused)  # so that "strict" allows it

    def test_kernels_are_compiled_while_the_inner_compiler_works(self):
        calls = []

        def noted(name, called):
            return patch.object(*called, lambda *args, real=getattr(*called), **kwargs: (
                calls.append(name), real(*args, **kwargs))[1])

        with noted("prepare", (backend, "prepare")), noted("wait", (_precompile, "wait")), \
             noted("compile", (region_times, "_returning_a_tuple")), \
             noted("time", (measure, "compared")):
            self._compiled()
            once = ["prepare", "compile", "wait", "time"]
            self.assertEqual(calls, [*once, "prepare", *once])  # the second layer is as the first
            calls.clear()
            with patch.object(RegionReport, "gains", False):
                self._compiled()
            self.assertEqual(calls, [])

    def test_within_the_noise_of_measurements_a_region_is_fused(self):
        for times, is_left in (((1.01e-3, 1e-3), False), ((1.03e-3, 1e-3), True)):
            measure._known.clear()
            with patch.object(measure, "_stored", return_value=times):
                self.assertEqual(len(self._compiled().without_gain), 3 * is_left)

    def test_under_autocast_and_with_tables_of_equal_halves_results_are_those_of_pytorch(self):
        # Autocast's weights get their gradients as fp32 tensors, which follow the operands.
        for model in (Block(), Rotated()):
            torch._dynamo.reset()
            report = Report()
            options = {"inner": "aot_eager", "cost_model": "measure"}
            call = torch.compile(model, backend=lambda module, inputs: coda(
                module, inputs, options=options, report=report))
            with torch.autocast("cpu", torch.bfloat16):
                call(torch.randn(4, 7, 32, requires_grad=True)).backward()
            regions = report.fused + report.without_gain
            self.assertTrue(regions)
            for region in regions:
                self.assertLess(max(region.measured), math.inf)

    def test_without_time_or_memory_the_prediction_decides(self):
        with patch.object(measure, "SECONDS", 0.0):
            report = self._compiled()
        self.assertEqual([region.measured for region in report.fused], [None] * 3)
        measure._known.clear()
        with patch.object(region_times, "_random", side_effect=RuntimeError("out of memory")):
            report = self._compiled()
        self.assertEqual([region.measured for region in report.fused], [None] * 3)

    def test_on_a_gpu_without_experience_only_what_was_right_and_faster_is_fused(self):
        def on_new_gpu(module=measure, **patches):
            measure._known.clear()
            with patch.object(backend, "is_new_gpu", return_value=True), \
                    patch.multiple(module, **patches):
                return self._compiled(cost_model=True)

        report = on_new_gpu(_seconds=lambda *_: 1.0)
        self.assertEqual([region.measured for region in report.fused], [(1.0, 1.0)] * 3)
        for why, patches in (
                ("not been timed", {"SECONDS_OF_NEW_GPUS": 1e-9}),
                ("not been timed", {"module": region_times, "_random": lambda *_: 1 / 0}),
                ("results differ", {"module": region_times, "_LARGEST_ERROR": -1.0})):
            with self.subTest(why), tempfile.TemporaryDirectory() as folder, patch.dict(
                    os.environ, CODA_CACHE_DIR=folder):
                report = on_new_gpu(**patches)
                self.assertEqual((len(report.fused), len(report.without_gain)), (0, 3))
                self.assertIn(why, report.text())

    def test_explain_compares_with_the_inner_compiler_and_does_not_run_it(self):
        with patch.object(backend, "_compiler", wraps=backend._compiler) as compiler:
            coda_cpp.explain(Block(), torch.randn(4, 7, 32, requires_grad=True),
                             options={"inner": "eager", "cost_model": "measure"})
        self.assertEqual([call.args[0] for call in compiler.call_args_list],
                         ["eager"] * 2 + ["aot_eager"])  # two regions are equal

    def test_results_are_compared(self):
        wrong, x = torch.ones(3, 4), torch.ones(3, 4)
        wrong[1, 2] = 2
        self.assertAlmostEqual(measure._error([x, wrong], [x, x]), 12 ** -0.5)
        self.assertTrue(math.isnan(measure._error([x * math.nan, x], [x, x])))

    def test_no_measurement_begins_that_would_exceed_the_time_and_the_next_process_goes_on(self):
        seconds = iter((0.0, 6.0, 7.0, 8.0))  # one takes 6 s, so another would end behind 10
        with patch.object(measure, "SECONDS", 10.0), patch.object(
                region_times, "_measure", return_value=(1e-3, 2e-3)) as timed, patch.object(
                measure.time, "perf_counter", side_effect=lambda: next(seconds)):
            self._compiled()
            self.assertEqual(timed.call_count, 1)
            measure._known.clear()  # as in another process
            measure._spent = measure._longest = 0.0
            report = self._compiled()
            self.assertEqual(timed.call_count, 2)
        self.assertEqual([region.measured for region in report.fused], [(1e-3, 2e-3)] * 3)

    def test_a_damaged_file_is_measured_anew(self):
        self._compiled()
        folder = os.path.join(os.environ["CODA_CACHE_DIR"], "times")
        files = os.listdir(folder)
        self.assertEqual(len(files), 2)
        for name in files:
            with open(os.path.join(folder, name), "w") as file:
                file.write("[1.0")
        measure._known.clear()
        with patch.object(region_times, "_measure", wraps=region_times._measure) as timed:
            self._compiled()
        self.assertEqual(timed.call_count, 2)

    def test_another_value_is_an_error(self):
        with self.assertRaisesRegex(coda_cpp.Error, "'cost_model' is 'measured'.*'measure'"):
            torch.compile(Block(), backend="coda", options={"cost_model": "measured"})(
                torch.randn(2, 32))


if __name__ == "__main__":
    unittest.main()
