# SPDX-License-Identifier: Apache-2.0
"""Graphs, programs and plans from Python, and sessions on tensors of PyTorch and NumPy."""

import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock

import numpy
import torch

import coda_cpp
from coda_cpp import _core, _precompile, session
from coda_cpp import builders as b

_PROGRAM = """program scaled {
  acc = gemm(x[M, K], w[N, K])
  store(y, acc * per_row(r[M]) + 1)
}
"""


def _swiglu():
    """A graph of silu(x·gateᵀ) * (x·upᵀ): the graph, its result and a plan with its gradients."""
    graph = coda_cpp.Graph()
    x = graph.input("x", ("M", 24))
    gate, up = graph.parameter("gate", (40, 24)), graph.parameter("up", (40, 24))
    y = b.swiglu(b.linear(x, gate), b.linear(x, up))
    upstream = graph.input("upstream", ("M", 40))
    plan = coda_cpp.compile(
        graph, [("y", y)], [(y, upstream)],
        [(x, "dx", "f32"), (gate, "dgate", "f32"), (up, "dup", "f32")], {"M": 64})
    return graph, y, plan


class Sessions(unittest.TestCase):
    def test_a_plan_and_its_backward_give_what_pytorch_does(self):
        plan = _swiglu()[2]
        for rows in (1, 33, 64):
            with self.subTest(rows=rows):
                tensors = {"x": torch.randn(rows, 24), "gate": torch.randn(40, 24),
                           "up": torch.randn(40, 24), "upstream": torch.randn(rows, 40)}
                for part in plan.split():
                    for info in part.tensors:
                        if info.name not in tensors:
                            shape = coda_cpp.session.shape_of(info, {"M": rows})
                            tensors[info.name] = torch.full(shape, float("nan"))
                    session = coda_cpp.Session(part, {"M": rows})
                    session.run({info.name: tensors[info.name] for info in part.tensors})
                x, gate, up = (tensors[n].double().requires_grad_() for n in ("x", "gate", "up"))
                y = torch.nn.functional.silu(x @ gate.T) * (x @ up.T)
                y.backward(tensors["upstream"].double())
                for name, expected in (("y", y), ("dx", x.grad), ("dgate", gate.grad),
                                       ("dup", up.grad)):
                    expected = expected.detach()
                    error = (tensors[name] - expected).norm() / expected.norm()
                    self.assertLess(float(error), 1e-6, name)

    def test_an_array_of_another_byte_order_is_refused(self):
        session = coda_cpp.Session(coda_cpp.Program.parse(_PROGRAM).plan(),
                                   {"M": 3, "K": 8, "N": 5})
        tensors = {"x": numpy.ones((3, 8), numpy.float32), "w": torch.ones(5, 8),
                   "r": torch.zeros(3), "y": numpy.zeros((3, 5), numpy.float32)}
        with self.assertRaisesRegex(coda_cpp.Error, "another byte order"):
            session.run(tensors | {"x": tensors["x"].astype(">f4")})
        # The imaginary part of a conjugate is a negated view.
        with self.assertRaisesRegex(coda_cpp.Error, r"pass tensor\.resolve_neg\(\)"):
            session.run(tensors | {"x": torch._neg_view(torch.ones(3, 8))})

    def test_numpy_arrays_and_torch_tensors_may_meet(self):
        session = coda_cpp.Session(coda_cpp.Program.parse(_PROGRAM).plan(),
                                   {"M": 3, "K": 8, "N": 5})
        x, w = numpy.ones((3, 8), numpy.float32), torch.ones(5, 8)
        y = numpy.zeros((3, 5), numpy.float32)
        session.run({"x": x, "w": w, "r": torch.tensor([0.0, 1.0, 2.0]), "y": y})
        numpy.testing.assert_array_equal(y, [[1] * 5, [9] * 5, [17] * 5])

    def test_threads_may_run_at_once(self):
        plan = coda_cpp.Program.parse(_PROGRAM).plan()
        results = {}

        def work(i):
            session = coda_cpp.Session(plan, {"M": 40, "K": 8, "N": 5})
            y = torch.zeros(40, 5)
            for _ in range(50):
                session.run({"x": torch.full((40, 8), float(i)), "w": torch.ones(5, 8),
                             "r": torch.ones(40), "y": y})
            results[i] = y

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for i in range(4):
            self.assertTrue((results[i] == 8 * i + 1).all())

    def test_what_does_not_fit_is_an_error_that_names_it(self):
        session = coda_cpp.Session(coda_cpp.Program.parse(_PROGRAM).plan(),
                                   {"M": 3, "K": 8, "N": 5})
        good = {"x": torch.ones(3, 8), "w": torch.ones(5, 8), "r": torch.ones(3),
                "y": torch.zeros(3, 5)}
        for name, tensor, message in (
                ("x", torch.ones(3, 9), r"'x' is f32 \[3, 8\].*\[3, 9\]"),
                ("x", torch.ones(3, 8).double(), r"'x' is f32 .*float64"),
                ("x", torch.ones(8, 3).T, r"'x' is not contiguous"),
                ("x", [1, 2], r"list is no tensor"),
                ("y", numpy.broadcast_to(numpy.float32(1), (3, 5)), r"'y' is not contiguous"),
                ("z", torch.ones(1), r"no tensor z; it takes x, w, r, y")):
            with self.subTest(message=message):
                with self.assertRaisesRegex(coda_cpp.Error, message):
                    session.run({**good, name: tensor})
        with self.assertRaisesRegex(coda_cpp.Error, "'r' is missing"):
            session.run({n: t for n, t in good.items() if n != "r"})
        with self.assertRaisesRegex(coda_cpp.Error, "backend 'tpu'|'tpu'"):
            coda_cpp.backend("tpu")


class Texts(unittest.TestCase):
    def test_programs_are_parsed_and_printed(self):
        program = coda_cpp.Program.parse(_PROGRAM)
        self.assertEqual(coda_cpp.Program.parse(program.text()), program)
        with self.assertRaisesRegex(coda_cpp.Error, "text:2:[0-9]+: error: "):
            coda_cpp.Program.parse("program p {\n  x = gem(a, b)\n}")

    def test_graphs_are_parsed_and_printed(self):
        text = """graph gated {
  x = input(x[M, 8]:bf16)
  gate = gemm(x, parameter(wg[N, 8]:bf16))
  y = gate * sigmoid(gate) - reduce_rows(max(x))
  store(y:bf16, y)
  store(indices, select_column(y, table(ids[M, 1]:i32)))
}
"""
        graph, inputs, outputs, types = coda_cpp.Graph.parse(text)
        self.assertEqual((sorted(inputs), list(outputs)), (["ids", "wg", "x"], ["y", "indices"]))
        self.assertEqual(types, {"y": "bf16"})
        self.assertTrue(inputs["ids"].is_table)
        printed = graph.text(outputs, "gated", types)
        self.assertIn("  store(y:bf16, y)\n", printed)
        again, _, same_outputs, same_types = coda_cpp.Graph.parse(printed)
        self.assertEqual(again.text(same_outputs, "gated", same_types), printed)
        with self.assertRaisesRegex(coda_cpp.Error, "did you mean 'gemm'"):
            coda_cpp.Graph.parse("graph g {\n  y = gem(a, b)\n}")
        with self.assertRaisesRegex(coda_cpp.Error, "of another graph"):
            again.text(outputs)

    def test_builders_make_the_graph_of_the_text(self):
        # tests/graph_text/faces_test.cc has the same calls in C++.
        file = pathlib.Path(__file__).parent.parent / "graph_text" / "faces" / "head.coda"
        text = file.read_text()
        graph = coda_cpp.Graph()
        x = graph.input("x", ("M", "2*D"), "bf16")
        h = b.rms_norm(x, graph.parameter("norm", (1, "2*D")), 1e-5)
        z = b.linear(h, graph.parameter("w", ("4*D", "2*D"), "bf16"))
        gate = b.split_pair(z, "4*D", 0)
        up = b.split_pair(z, "4*D", 1)
        y = x + b.swiglu(gate, up) / 2.0
        logits = b.soft_cap(b.linear(y, graph.parameter("head", ("V", "2*D"))), 30.0)
        lse = b.row_logsumexp(logits)
        rows = lse - b.select_column(logits, graph.table("target", ("M", 1), "i32"))
        self.assertEqual(graph.text({"y": y, "rows": rows}, "head", {"y": "bf16"}), text)
        parsed, _, outputs, types = coda_cpp.Graph.parse(text)
        self.assertEqual(parsed.text(outputs, "head", types), text)

    def test_a_plan_says_what_was_fused(self):
        graph, y, plan = _swiglu()
        self.assertIn("gemm(", graph.text({"y": y}))
        text = plan.explain({"M": 64})
        self.assertIn("sigmoid", text)
        self.assertIn("saved for the backward", text)
        self.assertEqual(len(plan.forward_steps), 1)  # one GEMM with its epilogue

    def test_programs_are_lifted_to_a_graph(self):
        graph, inputs, outputs = coda_cpp.lift([coda_cpp.Program.parse(_PROGRAM)])
        self.assertEqual(set(inputs), {"x", "w", "r"})
        self.assertEqual(outputs["y"].shape, ("M", "N"))
        self.assertIs(type(graph), coda_cpp.Graph)


class Graphs(unittest.TestCase):
    def test_values_that_do_not_fit_are_refused_in_one_line(self):
        graph = coda_cpp.Graph()
        x, w = graph.input("x", ("M", 8)), graph.parameter("w", (4, 9))
        with self.assertRaisesRegex(coda_cpp.Error, r"^matmul\(x: .*contracts 8 with 9.*conv1d\)$"):
            b.linear(x, w)
        with self.assertRaisesRegex(coda_cpp.Error, "different graphs"):
            x + coda_cpp.Graph().input("x", ("M", 8))
        with self.assertRaisesRegex(coda_cpp.Error, "'f8' is no storage type"):
            graph.input("y", (1, 1), "f8")

    def test_a_value_keeps_its_graph(self):
        value = coda_cpp.Graph().input("x", ("M", 8)) * 2 + 1
        self.assertEqual((-value).shape, ("M", 8))
        self.assertEqual(len(value.graph) > 2, True)


_GPU_PROGRAM = """program scaled {
  acc = gemm(x[M, 256]:bf16, w[512, 256]:bf16)
  store(y:bf16, acc * per_row(r[M]))
}
"""


_GPU = (132, "NVIDIA H200", (9, 0))


class _Compiler:
    """Stands for the compiler and the GPU: compiling lasts until end(). `made`: the numbers of rows
    of the sessions made, `compiled`: of the plans compiled in the background, `ran`: the sessions
    that ran. With `finds_all` all kernels are in the cache."""

    def __init__(self, test):
        self.made, self.compiled, self.ran, self.finds_all = [], [], [], False
        self._test, self._may_end = test, threading.Event()
        self._runners = session.Runners(coda_cpp.Program.parse(_GPU_PROGRAM).plan())
        self._device = unittest.mock.Mock(type="cuda", index=0)

    def __enter__(self):
        patch = unittest.mock.patch
        with contextlib.ExitStack() as stack:
            for patched in (
                    patch.object(session, "backend"),
                    patch.object(_precompile._core, "precompile", self._precompile),
                    patch.object(session, "gpu_of", return_value=_GPU),
                    patch.object(session._core, "PlanRunner", self._runner),
                    patch("torch._C._cuda_getCurrentRawStream", lambda _: self._stream,
                          create=True),
                    patch("torch._C._cuda_isCurrentStreamCapturing", lambda: self._records,
                          create=True)):
                stack.enter_context(patched)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.end()
        self._stack.close()

    def run(self, rows, stream=0, records=False):
        """On that stream, which a CUDA graph records or not. The session that ran."""
        self._stream, self._records = stream, records
        self._runners.run((("M", rows),), self._device, [])
        return self.ran[-1]

    def end(self):
        self._may_end.set()
        _precompile.wait()

    def _precompile(self, plans, *_):
        self.compiled.extend(sizes["M"] for _, sizes in plans)
        self._test.assertTrue(self._may_end.wait(60))
        return 0 if self.finds_all else len(plans)

    def _runner(self, plan, backend, sizes, order, is_lent):
        self.made.append(sizes["M"])
        runner = unittest.mock.Mock(lent_bytes=0)
        runner.run = lambda *_: self.ran.append(runner)
        return runner


class Kernels(unittest.TestCase):
    def test_what_was_begun_is_in_the_cache_once_it_was_waited_for(self):
        """Without NVRTC nothing is begun, and whoever asks is told what is missing."""
        plan = coda_cpp.Program.parse(_GPU_PROGRAM).plan()
        sizes = {"M": 1024}
        with tempfile.TemporaryDirectory() as folder:
            with unittest.mock.patch.dict(os.environ, CODA_CACHE_DIR=folder):
                for _ in range(2):
                    _precompile.start(plan, sizes, _GPU)
                _precompile.wait()
                try:
                    self.assertEqual(_core.precompile([(plan, sizes)], 132), 0)
                    other = coda_cpp.Program.parse(_GPU_PROGRAM.replace("bf16", "f16")).plan()
                    self.assertEqual(_core.precompile([(plan, sizes), (other, sizes)], 132), 1)
                except coda_cpp.Error as error:
                    self.assertIn("NVRTC", str(error))

    def test_a_session_of_other_sizes_does_not_wait_for_its_own_kernels(self):
        with _Compiler(self) as compiler:
            for rows in (8, 16, 24, 16, 8):
                compiler.run(rows)
            self.assertEqual(compiler.made, [8, 16, 24])
            compiler.end()
            self.assertEqual(sorted(compiler.compiled), [16, 24])
            for rows in (8, 16, 24, 16, 24):
                compiler.run(rows)
            self.assertEqual(compiler.made, [8, 16, 24, 16, 24])
            compiler.finds_all = True
            compiler.run(32)
            compiler.end()
            for rows in (32, 16):
                compiler.run(rows)
            self.assertEqual(compiler.made, [8, 16, 24, 16, 24, 32])

    def test_a_first_session_does_not_wait_for_kernels_of_other_plans(self):
        """It is replaced afterwards: it may use kernels that were loaded in place of its own."""
        with _Compiler(self) as compiler:
            other = coda_cpp.Program.parse(_GPU_PROGRAM).plan()
            _precompile.start(other, {"M": 64}, _GPU)
            compiler.run(8)
            self.assertEqual(compiler.made, [8])
            compiler.end()
            for _ in range(2):
                compiler.run(8)
            self.assertEqual(compiler.made, [8, 8])

    def test_a_cuda_graph_gets_the_session_of_an_earlier_run_for_good(self):
        """If possible, of the same stream."""
        with _Compiler(self) as compiler:
            other, same = compiler.run(8, stream=1), compiler.run(8, stream=2)
            self.assertIs(compiler.run(8, stream=2, records=True), same)
            self.assertIs(compiler.run(8, stream=2, records=True), same)  # an equal layer's call
            self.assertIs(compiler.run(8, stream=3, records=True), other)
            later = [compiler.run(8, stream=stream) for stream in (1, 2, 3)]
            self.assertFalse({other, same} & {*later})
            self.assertEqual([compiler.run(8, stream=stream) for stream in (1, 2, 3)], later)
            self.assertIs(compiler.run(8, stream=2, records=True), same)

    def test_a_cuda_graph_cannot_record_a_first_run(self):
        with _Compiler(self) as compiler:
            compiler.run(8, stream=1)
            with self.assertRaisesRegex(coda_cpp.Error, "run the same calls once before"):
                compiler.run(16, stream=1, records=True)
            self.assertEqual(compiler.made, [8])

    def test_no_session_is_replaced_while_a_cuda_graph_records(self):
        with _Compiler(self) as compiler:
            compiler.run(8, stream=1)
            earlier = compiler.run(16, stream=1)
            compiler.end()
            self.assertIs(compiler.run(16, stream=1, records=True), earlier)
            self.assertEqual(compiler.made, [8, 16])
            compiler.run(16, stream=1)
            self.assertEqual(compiler.made, [8, 16, 16])

    def test_a_process_that_ends_while_kernels_are_compiled_ends_well(self):
        script = f"""
import coda_cpp
from coda_cpp import _precompile
plan = coda_cpp.Program.parse({_GPU_PROGRAM!r}).plan()
_precompile.start(plan, {{"M": 1024}}, (132, "NVIDIA H200", (9, 0)))
"""
        with tempfile.TemporaryDirectory() as folder:
            ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                                   env=os.environ | {"CODA_CACHE_DIR": folder}, check=False)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))

if __name__ == "__main__":
    unittest.main()
