# SPDX-License-Identifier: Apache-2.0
"""What a user is told once: a GPU that there are no kernels for, where everything is the inner
compiler's, and products in 8 bits that do nothing."""

import os
import unittest
from unittest.mock import patch

import torch
import torch._dynamo
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

import coda_cpp
from coda_cpp import session
from coda_cpp.torch_backend import coda, notices
from coda_cpp.torch_backend.options import Options
from compiled import Recorder

WIDTH = 32
_H200 = 132, "NVIDIA H200", (9, 0)
_A100 = ("GPU 0 (NVIDIA A100-SXM4-80GB) has compute capability 8.0: the GPU backend's kernels "
         "need 9.0")


def _on_a_gpu():
    """A graph of Dynamo's kind whose inputs are on a GPU."""
    graph, mode = fx.Graph(), FakeTensorMode(allow_non_fake_inputs=True)
    x, weight = graph.placeholder("x"), graph.placeholder("weight")
    graph.output((graph.call_function(functional.silu, (
        graph.call_function(functional.linear, (x, weight)),)),))
    with mode:
        inputs = [torch.empty(64, WIDTH, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
        made = torch.empty(64, 64, device="cuda", dtype=torch.bfloat16)
    values = [*inputs, made, made, (made,)]
    for node, value in zip(graph.nodes, values):
        node.meta["example_value"] = value
    return fx.GraphModule({}, graph), inputs


class Gpus(unittest.TestCase):
    def setUp(self):
        notices._why_no_kernels.cache_clear()
        notices.warn_once.cache_clear()
        self.addCleanup(notices._why_no_kernels.cache_clear)

    def _compiled(self, **options):
        """What the inner compiler was given, the report and the warnings of two compilations."""
        module, inputs = _on_a_gpu()
        given, reports = [], [coda.Report(), coda.Report()]

        def inner(module, inputs):
            given.append(module)
            return module.forward

        with patch.object(coda, "_inner", lambda *_, **__: inner), \
                self.assertLogs("coda_cpp") as logged:
            for report in reports:
                coda.coda(module, inputs, options={"cost_model": False, **options}, report=report)
        warnings = [r.getMessage() for r in logged.records if r.levelname == "WARNING"]
        return module, given, reports[0], warnings

    def _nothing_is_done(self, why):
        module, given, report, warnings = self._compiled()
        self.assertEqual([one is module for one in given], [True, True])
        self.assertEqual(report.fused, [])
        self.assertEqual(len(warnings), 1)
        self.assertRegex(warnings[0], why)
        self.assertRegex(str(report), "0 of 1 linear layer fused(.|\n)*" + why)
        with self.assertRaisesRegex(coda_cpp.Error, why):
            self._compiled(strict=True)

    def test_a_gpu_without_kernels(self):
        with patch.object(notices, "backend", side_effect=coda_cpp.Error(_A100)):
            self._nothing_is_done("everything is left to PyTorch: GPU 0 .*capability 8.0")

    def test_no_compiler_of_kernels(self):
        with patch.object(notices, "backend"), patch.object(
                notices._core, "precompile", side_effect=coda_cpp.Error("cannot find NVRTC")):
            self._nothing_is_done("cannot find NVRTC")

    def test_no_driver(self):
        error = coda_cpp.Error("the CUDA driver at libcuda.so.1 is too old")
        with patch.object(notices, "backend", side_effect=error):
            self._nothing_is_done("driver .* is too old")

    def test_products_in_8_bits_on_a_gpu_without_them(self):
        """They stay in 16 bits, and the user is told which GPUs have them."""
        why = "an A100 has no kernels for 8-bit floats (sm90 does, on an H100 or H200)"
        asked = []

        def fuse(module, inputs, report, options, **_):
            asked.append(options.products)
            return module

        with patch.object(notices, "backend") as opened, patch.object(
                notices._core, "precompile"), patch.object(coda, "fuse", fuse):
            opened.return_value.why_no_eight_bits = why
            *_, report, warnings = self._compiled(products="fp8")
        self.assertEqual(asked, ["", ""])
        said = f"GEMMs stay in 16 bits, although 'products' is 'fp8': {why}"
        self.assertEqual((report.notes, warnings), ([said], ["coda: " + said]))

    def test_a_gpu_with_kernels(self):
        with patch.object(notices, "backend"), patch.object(notices._core, "precompile"):
            self.assertEqual(notices.why_no_kernels(_on_a_gpu()[1]), "")

    def test_a_gpu_on_which_kernels_were_never_run(self):
        """Its regions are measured, unless the user chose the kernels."""
        _, inputs = _on_a_gpu()
        for gpu, target, is_new in (((108, "NVIDIA A100", (8, 0)), "", True), (_H200, "", False),
                                    ((108, "NVIDIA A100", (8, 0)), "sm80", False)):
            with self.subTest(gpu=gpu[1], target=target), patch.object(
                    session, "gpu_of", return_value=gpu), patch.dict(
                    os.environ, CODA_GPU_TARGET=target):
                self.assertEqual(session.is_new_gpu(inputs[0].device), is_new)
        self.assertFalse(session.is_new_gpu(torch.device("cpu")))

    def test_operands_on_several_devices_stay_pytorchs(self):
        module, inputs = _on_a_gpu()
        graph = module.graph
        product, = graph.find_nodes(op="call_function", target=functional.linear)
        with graph.inserting_before(product), inputs[0].fake_mode:
            number = graph.placeholder("number")
            number.meta["example_value"] = torch.empty((), dtype=torch.bfloat16, device="cpu")
        with graph.inserting_after(product):
            scaled = graph.call_function(torch.mul, (product, number))
        scaled.meta["example_value"] = product.meta["example_value"]
        product.replace_all_uses_with(scaled, lambda user: user is not scaled)
        report = coda.Report()
        made = coda.fuse(module, [*inputs, number.meta["example_value"]], report,
                         Options(cost_model=False))
        self.assertEqual((made, report.fused), (module, []), report.left)
        self.assertIn("several devices", "".join(report.left))


class Alone(nn.Module):
    """A linear layer in its own Dynamo graph, with one unsupported operation after it."""

    def __init__(self, behind=torch.special.i0):
        super().__init__()
        self.layer, self.behind = nn.Linear(WIDTH, WIDTH), behind

    def forward(self, x):
        torch._dynamo.graph_break()
        return self.behind(self.layer(x))


class Warnings(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        notices.warn_once.cache_clear()

    def _warnings(self, *models):
        with self.assertLogs("coda_cpp", "INFO") as logged:
            for model in models:
                called = torch.compile(
                    model, backend="coda",
                    options={"inner": "aot_eager", "cost_model": False})
                called(torch.randn(4, WIDTH))
        records = [(r.levelname, r.getMessage()) for r in logged.records]
        told = sum("0 of 1 linear layer fused" in text for kind, text in records if kind == "INFO")
        return [text for kind, text in records if kind == "WARNING"], told

    def test_one_warning_a_model_however_many_graphs(self):
        warnings, told = self._warnings(nn.Sequential(
            *map(Alone, (torch.special.i0, torch.special.i1, torch.special.i0e))))
        self.assertEqual((len(warnings), told), (1, 3))
        self.assertRegex(warnings[0], "0 of 1 linear layer fused.*i0 .not supported.*"
                                      "all graphs of the model")

    def test_another_model_is_told_too(self):
        self.assertEqual(len(self._warnings(Alone(), Alone(torch.special.i1))[0]), 2)

    def test_what_strict_raises_is_an_error_of_ours_alone(self):
        called = torch.compile(Alone(), backend=Recorder(strict=True))
        with self.assertRaises(coda_cpp.Error) as raised:
            called(torch.randn(4, WIDTH))
        self.assertRegex(str(raised.exception),
                         r"^backend coda: linear layers are left to PyTorch: layer "
                         r"\(notices_test.py:\d+\): no neighbouring operation can be fused: .*"
                         r"its result goes to special_i0 \(not supported\)$")


class Modes(unittest.TestCase):
    """torch.compile's `mode` holds for what Inductor compiles."""

    def setUp(self):
        torch._dynamo.reset()
        notices.warn_once.cache_clear()

    def _settings(self, model, x=None, **named):
        """Inductor's settings for each graph, and the warnings."""
        x = torch.randn(4, WIDTH) if x is None else x
        found = []

        def compile_fx(module, inputs, config_patches=None):
            found.append(config_patches)
            return module.forward

        with patch("torch._inductor.compile_fx.compile_fx", compile_fx), \
                self.assertLogs("coda_cpp", "INFO") as logged:
            torch.compile(model, backend="coda", dynamic=False, **named)(x)
        return found, [r.getMessage() for r in logged.records if r.levelname == "WARNING"]

    def test_with_fused_regions_all(self):
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU())
        found = self._settings(model, options={"mode": "max-autotune", "cost_model": False})
        self.assertEqual(found, ([{"max_autotune": True, "coordinate_descent_tuning": True,
                                   "triton.cudagraphs": True}], []))

    def test_cuda_graphs_are_off_with_products_in_8_bits(self):
        """Also if Inductor's own configuration asks for them."""
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU()).bfloat16()
        options = {"products": "fp8", "cost_model": False}
        for mode, configured in (("reduce-overhead", False), ("", True)):
            torch._dynamo.reset()
            notices.warn_once.cache_clear()
            with patch("torch._inductor.config.triton.cudagraphs", configured):
                settings, warnings = self._settings(
                    model, torch.randn(16, WIDTH).bfloat16(), options={**options, "mode": mode})
            self.assertEqual(settings, [{"triton.cudagraphs": False}])
            self.assertRegex("".join(warnings), "^coda: CUDA graphs are off .*8 bits")

    def test_without_regions_all(self):
        settings, warnings = self._settings(nn.SiLU(), mode="reduce-overhead")
        self.assertEqual((settings, warnings), ([{"triton.cudagraphs": True}], []))

    def test_by_default_none(self):
        for mode in ("default", None):
            torch._dynamo.reset()
            self.assertEqual(self._settings(nn.SiLU(), mode=mode), ([None], []))


class EightBits(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        notices.warn_once.cache_clear()

    def _notes(self, model, x, **options):
        recorder = Recorder(products="fp8", **options)
        called = torch.compile(model, backend=recorder)
        for _ in range(2):
            called(x).sum().backward()
        return recorder.reports[0].notes

    def test_a_model_in_fp32(self):
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU())
        with self.assertLogs("coda_cpp", "WARNING") as logged:
            note, = self._notes(model, torch.randn(32, WIDTH))
        self.assertRegex(note, "'products' is 'fp8', and the model is in torch.float32.*autocast")
        self.assertEqual(sum(note in line for line in logged.output), 1)

    def test_rows_that_are_no_multiple(self):
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU()).bfloat16()
        note, = self._notes(model, torch.randn(30, WIDTH).bfloat16())
        self.assertIn("not a multiple of 16", note)

    def test_nothing_is_said_where_products_are_in_8_bits(self):
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU()).bfloat16()
        self.assertEqual(self._notes(model, torch.randn(32, WIDTH).bfloat16()), [])


class Faults(unittest.TestCase):
    """An error that the backend does not raise on purpose, such as that of a function of PyTorch's
    which has other parameters in another version."""

    def setUp(self):
        torch._dynamo.reset()
        notices.warn_once.cache_clear()
        self.model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.x = torch.randn(4, WIDTH)

    def test_a_fault_is_the_backends_and_the_model_runs(self):
        for step in ("Normal", "cut", "as_region", "prepare", "_compiled"):
            recorder = Recorder(may_fall_back=True)
            torch._dynamo.reset()
            notices.warn_once.cache_clear()
            with self.subTest(step), patch.object(coda, step, side_effect=TypeError("5 given")), \
                    self.assertLogs("coda_cpp", "WARNING") as logged:
                found = torch.compile(self.model, backend=recorder)(self.x)
                torch.testing.assert_close(found, self.model(self.x))
                self.assertEqual(len(logged.output), 1)
                self.assertIn(f"a fault of this backend, not of the model (coda_cpp "
                              f"{coda_cpp.__version__} with PyTorch {torch.__version__}): "
                              "TypeError: 5 given", logged.output[0])
                if step != "_compiled":
                    self.assertIn("remedy: report it", str(recorder.reports[0]))
                torch._dynamo.reset()
                with self.assertRaisesRegex(Exception, "left to PyTorch: .*5 given"):
                    torch.compile(self.model, backend=Recorder())(self.x)

    def test_an_error_of_the_inner_compiler_is_its_own(self):
        def broken(module, inputs):
            raise OSError("no compiler")

        module = torch.fx.symbolic_trace(nn.Identity())
        with patch.object(coda, "_inner", lambda *_, **__: broken), \
                patch.object(coda, "fuse", lambda *_: fx.GraphModule({}, fx.Graph())), \
                patch.object(coda, "inline", lambda _: True), \
                patch.object(coda.equal_layers, "compiled", lambda *_: None), \
                self.assertNoLogs("coda_cpp", "WARNING"), \
                self.assertRaisesRegex(OSError, "no compiler"):
            coda.coda(module, [self.x])


if __name__ == "__main__":
    unittest.main()
