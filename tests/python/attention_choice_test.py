# SPDX-License-Identifier: Apache-2.0
"""On a GPU on which no kernel of this project ever ran, each call of attention is run once by
coda-cpp's kernels and by PyTorch's, and the faster ones are used if they are right. Here a CPU
stands for such a GPU, and its times are made up."""

import itertools
import os
import tempfile
import unittest
from unittest import mock

import torch
import torch._dynamo
from transformers import Gemma2Config, Gemma2ForCausalLM

from coda_cpp import _attention, session
from coda_cpp.torch_backend import attention_choice, measure
from coda_cpp.torch_backend.attention_choice import Call, Choice
from compiled import SIZES, Recorder, error, ids, llama, mistral, outcome, padded

KINDS = (
    {"causal": False}, {"causal": True}, {"causal": True, "window": 5},
    {"causal": True, "padding": (-1, 0)}, {"causal": False, "padding": (-1, -1)},
    {"causal": True, "padding": (4, 0)}, {"causal": False, "padding": (3, 2)},
    {"causal": True, "softcap": 0.5, "instead_of": "formula"},
    {"causal": False, "softcap": 0.5, "instead_of": "formula"},
    {"causal": True, "softcap": 0.5, "window": 6, "has_documents": True, "instead_of": "formula"},
    {"causal": True, "window": 6, "has_sinks": True, "instead_of": "formula"},
    {"causal": True, "has_documents": True, "has_sinks": True, "instead_of": "formula"},
    *({"causal": True, "padding": (7, 0), "instead_of": "formula", **facts}
      for facts in ({}, {"softcap": 0.5}, {"has_sinks": True})))


def call(heads=4, kv_heads=2, tokens=24, needs=True, **facts):
    return Call(*(torch.empty(3, tokens, count, 8).transpose(1, 2)
                  for count in (heads, kv_heads, kv_heads)), needs, 0.7, **facts)


def compiler(part, operands):
    """The inner compiler: it compiles nothing."""
    return part


def times(ours, theirs):
    """A context in which runs take so many seconds, coda-cpp's first."""
    return mock.patch.object(measure, "_seconds", side_effect=itertools.cycle((ours, theirs)))


class OnANewGpu(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        torch._dynamo.reset()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for patched in (mock.patch.dict(os.environ, CODA_CACHE_DIR=folder.name),
                        mock.patch.object(attention_choice, "is_new_gpu", lambda device: True),
                        mock.patch.object(attention_choice, "_LITTLE_WORK", 0),
                        mock.patch.multiple(measure, _known={}, _spent=0.0, _longest=0.0,
                                            SECONDS_OF_NEW_GPUS=1e3)):  # for a busy machine
            patched.start()
            self.addCleanup(patched.stop)
        patched = mock.patch.object(
            attention_choice, "_measured", wraps=attention_choice._measured)
        self.timed = patched.start()
        self.addCleanup(patched.stop)

    def test_both_compute_the_same_for_every_kind_of_call(self):
        for heads, needs, facts in itertools.product((2, 4), (True, False), KINDS):
            with self.subTest(heads=heads, needs=needs, **facts), mock.patch.object(
                    attention_choice, "_LARGEST_ERROR", 1e-5), times(1e-3, 2e-3):
                choice = Choice(compiler)
                self.assertTrue(choice.is_own(call(heads, needs=needs, **facts)), choice.notes)

    def test_the_faster_one_is_used_and_told(self):
        for ours, theirs, is_own, words in (
                (1e-3, 2e-3, True, "which take 1.000 ms, PyTorch's 2.000 ms: coda-cpp's are used"),
                (2e-3, 1e-3, False, "which take 2.000 ms, PyTorch's 1.000 ms: PyTorch's are used"),
                (1e-6, 2e-6, False, "PyTorch's are used")):  # the host starts PyTorch's sooner
            with self.subTest(words), times(ours, theirs):
                measure._known.clear()
                with tempfile.TemporaryDirectory() as folder, mock.patch.dict(
                        os.environ, CODA_CACHE_DIR=folder):
                    choice = Choice(compiler)
                    self.assertEqual(choice.is_own(call(causal=True, padding=(-1, 0))), is_own)
                note, = choice.notes
                self.assertIn("attention of [3, 4, 24, 8] and [3, 2, 24, 8] in float32, causal, "
                              "padding: coda-cpp's kernels, ", note)
                self.assertIn(words, note)

    def test_a_call_is_timed_once_on_a_machine(self):
        given = call(causal=True)
        with times(1e-3, 2e-3):
            for _ in range(2):
                self.assertTrue(Choice(compiler).is_own(given))
            measure._known.clear()  # as in another process
            self.assertTrue(Choice(compiler).is_own(given))
            self.assertEqual(self.timed.call_count, 1)
            for other in (call(causal=False), call(causal=True, needs=False),
                          call(causal=True, tokens=25), call(causal=True, window=3)):
                self.assertTrue(Choice(compiler).is_own(other))
        self.assertEqual(self.timed.call_count, 5)

    def test_wrong_results_are_never_used(self):
        def wrong(*given, right=_attention.ATTENTION):
            return right(*given[:4], not given[4], *given[5:])

        with mock.patch.object(attention_choice.kernels, "ATTENTION", wrong), times(1e-3, 2e-3):
            choice = Choice(compiler)
            with self.assertLogs("coda_cpp", "WARNING") as logged:
                self.assertFalse(choice.is_own(call(causal=True)))
        self.assertIn("results of attention differ from PyTorch's by", logged.output[0])
        measure._known.clear()  # as in another process
        with self.assertNoLogs("coda_cpp", "WARNING"):
            self.assertFalse(choice.is_own(call(causal=True)))
        self.assertIn("whose results differ from PyTorch's", "".join(choice.notes))

    def test_without_time_or_memory_pytorchs_kernels_stay(self):
        for patches in ({"_spent": 600.0, "_longest": 401.0},
                        {"random": mock.Mock(side_effect=RuntimeError("out of memory"))}):
            measure._known.clear()
            choice = Choice(compiler)
            with self.subTest(list(patches)), mock.patch.multiple(measure, **patches):
                self.assertFalse(choice.is_own(call(causal=True)))
            self.assertIn("a later process times it", "".join(choice.notes))

    def test_small_calls_and_flex_attention_stay_untimed(self):
        choice = Choice(compiler)
        with mock.patch.object(attention_choice, "_LITTLE_WORK", 4 * 3 * 4 * 24 * 24 * 8 + 1):
            self.assertFalse(choice.is_own(call(causal=True)))
        self.assertFalse(choice.is_own(call(causal=True, softcap=2.0, instead_of="flex")))
        self.assertEqual((self.timed.call_count, len(choice.notes)), (0, 0))

    def test_without_the_cost_model_everything_runs_untimed(self):
        choice = Choice(compiler, is_measured=False)
        for facts in (*KINDS, {"causal": True, "softcap": 2.0, "instead_of": "flex"}):
            self.assertTrue(choice.is_own(call(**facts)))
        self.assertFalse(choice.is_own(Call(*[torch.empty(3, 2, 24, 8).double()] * 3, True, 0.7,
                                            True)))
        self.assertEqual(self.timed.call_count, 0)

    def test_where_the_answer_is_known_nothing_is_timed(self):
        for is_fastest in (True, False):
            with mock.patch.object(attention_choice, "is_new_gpu", session.is_new_gpu), \
                    mock.patch.object(_attention, "is_fastest", lambda query, value: is_fastest):
                choice = Choice(compiler)
                self.assertEqual(choice.is_own(call(causal=True)), is_fastest)
                self.assertFalse(choice.is_own(call(causal=True), least=1e9))
                self.assertTrue(choice.is_own(call(causal=True, instead_of="formula")))
        self.assertEqual((self.timed.call_count, len(choice.notes)), (0, 0))

    def test_on_an_h200_only_padding_of_heads_without_an_answer_is_timed(self):
        with mock.patch.object(attention_choice, "is_new_gpu", lambda device: False), \
                mock.patch.object(attention_choice, "_is_hopper", lambda device: True), \
                times(1e-3, 2e-3):
            choice = Choice(compiler)
            self.assertFalse(choice.is_own(call(causal=True)))
            self.assertFalse(choice.is_own(call(causal=True, padding=(-1, 0)), least=1e9))
            self.assertEqual(self.timed.call_count, 0)
            self.assertTrue(choice.is_own(call(causal=True, padding=(-1, 0))))
            self.assertTrue(choice.is_own(call(causal=True, softcap=1.0, instead_of="formula")))
            self.assertEqual(self.timed.call_count, 1)
            self.assertTrue(choice.is_own(call(
                causal=True, softcap=1.0, padding=(-1, 0), instead_of="formula")))
            self.assertEqual(self.timed.call_count, 2)
        for gpu, target, is_hopper in (((132, "NVIDIA H200", (9, 0)), "", True),
                                       ((132, "NVIDIA H200", (9, 0)), "sm80", False),
                                       ((108, "NVIDIA A100", (8, 0)), "", False)):
            with self.subTest(gpu[1], target=target), mock.patch.object(
                    attention_choice, "is_new_gpu", session.is_new_gpu), mock.patch.object(
                    session, "gpu_of", return_value=gpu), mock.patch.dict(
                    os.environ, CODA_GPU_TARGET=target):
                self.assertEqual(attention_choice._is_hopper(torch.device("cuda", 0)), is_hopper)

    def test_nothing_is_timed_while_a_cuda_graph_is_recorded(self):
        timed = mock.Mock()
        with mock.patch.object(torch.cuda, "is_current_stream_capturing", lambda: True), \
                mock.patch.object(torch.cuda, "get_device_name", lambda device: "a GPU"):
            self.assertIsNone(measure.once("attention", "", torch.device("cuda", 0), timed))
        self.assertFalse(timed.called)

    def _trained(self, model, batches, ours, theirs, **settings):
        """The reports; loss and gradients are eager mode's."""
        torch._dynamo.reset()
        measure._known.clear()
        self.timed.reset_mock()
        recorder = Recorder(cost_model=True)
        compiled = torch.compile(model, backend=recorder, **settings)
        with times(ours, theirs), tempfile.TemporaryDirectory() as folder, mock.patch.dict(
                os.environ, CODA_CACHE_DIR=folder):
            for batch in batches:
                found, expected = (outcome(f, model, **batch) for f in (compiled, model))
                torch.testing.assert_close(found[0], expected[0])
                self.assertLess(error(found[1], expected[1]), 1e-4)
        return recorder.reports

    def test_models(self):
        batch = {"input_ids": ids(2, 24), "labels": ids(2, 24)}
        gemma = Gemma2Config(**SIZES, sliding_window=7, attn_implementation="eager")
        for model, given, count, name in (
                (llama(num_hidden_layers=3), padded(24), 1, "padded"),
                (llama(num_hidden_layers=1), batch, 1, "own"),
                (mistral(num_hidden_layers=1, sliding_window=7), batch, 1, "packed"),
                (mistral(num_hidden_layers=1, sliding_window=7), padded(24), 1, "padded"),
                (Gemma2ForCausalLM(gemma), batch, 2, "written_out"),
                (Gemma2ForCausalLM(gemma), padded(24), 2, "written_out")):
            layers = model.config.num_hidden_layers
            with self.subTest(type(model).__name__, calls=name):
                report, = self._trained(model, [given], 1e-3, 2e-3)
                self.assertEqual((getattr(report, name), self.timed.call_count), (layers, count))
                self.assertIn("coda-cpp's are used", report.text())
                report, = self._trained(model, [given], 2e-3, 1e-3)
                self.assertEqual((getattr(report, name), self.timed.call_count), (0, count))
                self.assertIn("PyTorch's are used", report.text())

    def test_checkpointed_blocks(self):
        model = llama(num_hidden_layers=2).train()
        model.gradient_checkpointing_enable({"use_reentrant": False})
        reports = self._trained(model, [padded(24)], 1e-3, 2e-3)
        # PyTorch 2.11 makes a graph of its own of what follows checkpointed blocks.
        self.assertEqual({report.padded for report in reports} - {0}, {2})
        self.assertEqual(self.timed.call_count, 1)
        self.assertEqual([len(report.notes) for report in reports if report.padded], [1])

    def test_lengths_that_vary_are_timed_with_the_current_one(self):
        batches = [padded(tokens) for tokens in (24, 31, 40)]
        reports = self._trained(llama(num_hidden_layers=1), batches, 1e-3, 2e-3, dynamic=True)
        self.assertEqual({report.padded for report in reports}, {1})
        self.assertEqual([call.args[0].query.shape[2].node.hint
                          for call in self.timed.call_args_list], [24])


if __name__ == "__main__":
    unittest.main()
