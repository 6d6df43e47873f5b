# SPDX-License-Identifier: Apache-2.0
"""Modes of torch.compile with CUDA graphs: what Inductor gets to record, and that the results are
right. A processor records nothing; session_test.py has the sessions that a CUDA graph records."""

import copy
import unittest
from unittest.mock import patch

import torch
import torch._dynamo
import torch._inductor.compile_fx
from functorch.compile import make_boxed_func
from torch import nn
from torch._functorch import config as functorch_config
from torch.nn import functional
from transformers import BertConfig, BertForSequenceClassification

from coda_cpp.function import Function
from coda_cpp.programs import GRAPH
from compiled import VOCABULARY, ids, llama, outcome, system_compiler

MODE = "reduce-overhead"
WIDTH, HIDDEN, CLASSES = 32, 48, 80  # all differ, so that shapes name tensors
TOKENS = BATCH, LENGTH = 3, 16
BODY = [(CLASSES, WIDTH), (HIDDEN, WIDTH), (HIDDEN,), (WIDTH, HIDDEN), (WIDTH,)]
HEAD = [(CLASSES, WIDTH), (CLASSES,)]


class Model(nn.Module):
    """Regions between sums of tokens, which are not fused. With `has_loss` the last region ends in
    the loss and also returns logits."""

    def __init__(self, has_loss=False, layers=1):
        super().__init__()
        self.table, self.head = nn.Embedding(CLASSES, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, WIDTH))
            for _ in range(layers))
        self.has_loss = has_loss

    def forward(self, tokens):
        x = self.table(tokens)
        for layer in self.layers:
            x = (x + layer(x)).cumsum(1)
        logits = self.head(x)
        if not self.has_loss:
            return functional.silu(logits)
        return functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()), logits


class WithBuffer(Model):
    def __init__(self):
        super().__init__()
        self.register_buffer("scales", torch.rand(BATCH, 1, 1))

    def forward(self, tokens):
        return super().forward(tokens) * self.scales


class WithConstant(Model):
    def forward(self, tokens):
        return super().forward(tokens) * torch.tensor([[[0.5]], [[1.0]], [[2.0]]])


class Counting(nn.Module):
    """Writes statistics and the number of its calls into buffers."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)
        self.layers = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, WIDTH))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.layers(self.norm(x)).square().mean() / self.calls


def tokens():
    return torch.randint(0, CLASSES, TOKENS)


def compiled(model, mode=MODE):
    return torch.compile(model, backend="coda", options={
        "mode": mode, "cost_model": False, "strict": True})


def forwards(model, *arguments, mode=MODE):
    """The forward graphs that Inductor compiles: for each, the shapes of the inputs with fixed
    addresses, and those of the others."""
    found = []

    def inner(module, inputs, *, static_input_idxs=(), **_):
        shapes = [tuple(given.shape) for given in inputs]
        fixed = set(static_input_idxs)
        found.append((sorted(shapes[i] for i in fixed),
                      [shape for i, shape in enumerate(shapes) if i not in fixed]))
        return make_boxed_func(module.forward)

    torch._dynamo.reset()
    with patch.object(torch._inductor.compile_fx, "_compile_fx_inner", inner), \
            functorch_config.patch(enable_autograd_cache=False):  # else it may not be called
        compiled(model, mode)(*arguments or [tokens()])
    return found


def lasting(seconds):
    """All regions are predicted to take these seconds on a GPU."""
    return patch.multiple(Function, is_for_gpu=True,
                          costs=lambda *_: ((0, 0, seconds), (0, 0, seconds)))


class Recorded(unittest.TestCase):
    """What Inductor gets."""

    def test_parameters_buffers_and_constants_have_fixed_addresses(self):
        for model, further in ((Model(), []), (WithBuffer(), [(BATCH, 1, 1)]),
                               (WithConstant(), [(BATCH, 1, 1)])):
            with self.subTest(type(model).__name__):
                self.assertEqual(forwards(model), [(sorted(BODY + HEAD + further), [TOKENS])])

    def test_a_buffer_that_is_read_and_written_has_none(self):
        """The number of calls. The norm's statistics and its own number of calls have."""
        fixed = [(), *[(WIDTH,)] * 5, (HIDDEN, WIDTH), (HIDDEN,), (WIDTH, HIDDEN)]
        self.assertEqual(forwards(Counting(), torch.randn(16, WIDTH)),
                         [(sorted(fixed), [(), (16, WIDTH)])])

    def test_a_long_last_region_is_called_eagerly_behind_the_recorded_graph(self):
        with lasting(2e-3):
            self.assertEqual(forwards(Model(has_loss=True)), [(sorted(BODY), [TOKENS])])

    def test_a_short_last_region_is_recorded(self):
        with lasting(1e-4):
            self.assertEqual(forwards(Model(has_loss=True)), [(sorted(BODY + HEAD), [TOKENS])])
            (_, given), = forwards(Model(has_loss=True), mode="")
        self.assertNotIn((CLASSES,), given)

    def test_equal_layers_are_one_graph(self):
        counts = [len(forwards(Model(layers=6), mode=mode)) for mode in (MODE, "")]
        self.assertEqual(counts[0], 1)
        self.assertGreater(counts[1], 1)

    def test_packed_documents_stay_outside(self):
        """Their operators wait for the GPU. Regions do not."""
        unsafe = torch.Tag.cudagraph_unsafe
        for name in ("document_bounds", "document_attention", "document_attention_backward"):
            self.assertIn(unsafe, getattr(torch.ops.coda_cpp, name).default.tags)
        self.assertNotIn(unsafe, GRAPH.forward.tags)


class Results(unittest.TestCase):
    """Those of Inductor's code on a processor."""

    def setUp(self):
        torch._dynamo.reset()
        torch.manual_seed(0)

    def _same(self, model, *calls):
        expected = copy.deepcopy(model)
        called = compiled(model)
        with system_compiler():
            for given in calls:
                found = outcome(called, model, **given)
                torch.testing.assert_close(found, outcome(expected, expected, **given),
                                           rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(dict(model.named_buffers()), dict(expected.named_buffers()))

    def test_five_equal_layers(self):
        given = ids()
        self._same(llama(num_hidden_layers=5), *[{"input_ids": given, "labels": given}] * 2)

    def test_lengths_that_vary(self):
        self._same(llama(), *({"input_ids": given, "labels": given}
                              for given in (ids(tokens=count) for count in (32, 24, 40))))

    def test_a_classifier(self):
        model = BertForSequenceClassification(BertConfig(
            vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=4, hidden_dropout_prob=0, attention_probs_dropout_prob=0,
            problem_type="single_label_classification"))
        self._same(model, {"input_ids": ids(), "labels": torch.tensor([0, 1])})

    def test_buffers_that_each_call_writes(self):
        self._same(Counting(), *({"x": torch.randn(16, WIDTH)} for _ in range(3)))


if __name__ == "__main__":
    unittest.main()
