# SPDX-License-Identifier: Apache-2.0
"""torch.compile(model, backend="coda") called with lengths that vary: how often it compiles, and
what it computes at each length."""

import unittest

import torch
import torch._dynamo
from compiled import Recorder, error, gpt2, outcome, padded, qwen3, system_compiler
from torch import nn
from torch.utils.checkpoint import checkpoint

from coda_cpp.torch_backend import coda

LENGTHS = (32, 48, 16, 40, 64, 24)


class Weighted(nn.Module):
    """A feed-forward block of which tensors over the tokens, whose last dimension is the length,
    are computed beside it."""

    def __init__(self):
        super().__init__()
        self.norm, self.up = nn.LayerNorm(32), nn.Linear(32, 64)
        self.down = nn.Linear(64, 32)

    def forward(self, x, weights):
        added = (1 - weights) * torch.finfo(weights.dtype).min  # [batch, tokens]
        shares = torch.softmax(added, -1)
        y = self.down(nn.functional.gelu(self.up(self.norm(x))))
        return ((x + y).square().mean(-1) * shares).sum()


class Dropped(nn.Module):
    """Rows of two dimensions, and dropouts within a block and within one that is checkpointed."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def _block(self, x):
        return nn.functional.dropout(self.down(nn.functional.dropout(self.up(x), 0.3).relu()))

    def forward(self, x):
        x = self._block(x.flatten(0, 1)) + 1
        return checkpoint(self._block, x, use_reentrant=False).square().mean()


class Convolved(nn.Module):
    """Scaled heads that are saved for the backward, and then a convolution over the tokens, as in
    Mamba-2."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
        self.mix = nn.Conv1d(32, 32, 2, groups=32, padding=1)

    def forward(self, x):
        heads = self.up(x).relu().unflatten(2, (2, 16))
        heads = (heads * (heads.mT @ heads).sum(2, keepdim=True)).sigmoid()
        y = (heads * (heads.mT @ heads).sum(2, keepdim=True)).flatten(2).mT
        return self.down(self.mix(y)[..., 1:].mT).square().mean()


class Lengths(unittest.TestCase):
    def _train(self, model, batches, autocast):
        recorder = Recorder()
        torch._dynamo.reset()
        compiled = torch.compile(model, backend=recorder)
        for batch in batches:
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                loss, gradients = outcome(compiled, model, **batch)
                expected_loss, expected = outcome(model, model, **batch)
            self.assertLess(abs(loss - expected_loss) / expected_loss, 2e-2 if autocast else 1e-5)
            self.assertLess(error(gradients, expected) / len(expected) ** .5,
                            4e-2 if autocast else 1e-4)
        for report in recorder.reports:
            self.assertTrue(report.fused)
        return len(recorder.reports)

    def test_no_graph_for_varying_lengths_calls_attention_of_cudnn(self):
        """cuDNN compiles anew for every length."""
        uses = []

        def inner(module, inputs):
            uses.append(torch.backends.cuda.cudnn_sdp_enabled())
            return module

        torch._dynamo.reset()
        torch._dynamo.register_backend(inner, name="inner_of_this_test")
        compiled = torch.compile(nn.Sequential(nn.Linear(8, 8), nn.GELU()), backend="coda",
                                 options={"inner": "inner_of_this_test"})
        for tokens in LENGTHS:
            compiled(torch.randn(tokens, 8))
        self.assertEqual(uses, [True, False])
        self.assertTrue(torch.backends.cuda.cudnn_sdp_enabled())

    def test_models_compile_twice_for_any_number_of_lengths(self):
        for make, layers, autocast in ((qwen3, {"num_hidden_layers": 1}, True),
                                       (gpt2, {"n_layer": 1}, False)):
            with self.subTest(model=make.__name__):
                torch.manual_seed(0)
                compilations = self._train(make(**layers), map(padded, LENGTHS), autocast)
                self.assertLessEqual(compilations, 2)

    def test_blocks_of_logits_are_as_large_as_for_long_inputs(self):
        class Head(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(8, 65536)

            def forward(self, x, targets):
                return nn.functional.cross_entropy(self.head(x), targets)

        torch.manual_seed(0)
        recorder, model = Recorder(strict=True), Head()
        compiled = torch.compile(model, backend=recorder)
        for rows in (24, 1100, 1300):
            batch = torch.randn(rows, 8), torch.randint(0, 65536, (rows,))
            (loss, gradients), (wanted, expected) = (
                outcome(run, model, *batch) for run in (compiled, model))
            torch.testing.assert_close(loss, wanted)
            for a, e in zip(gradients, expected, strict=True):
                torch.testing.assert_close(a, e)
        short, varying = (report.fused[0].plan for report in recorder.reports)
        self.assertIn("blocks begin above", "".join(short.notes))
        self.assertIn("for blocks of 1024 rows", varying.explain({"M": 1100}, False))

    def test_numbers_that_change_are_read_at_each_call(self):
        """A Python float that is an argument, or an attribute of a module that is changed."""
        class Scaled(nn.Module):
            def __init__(self):
                super().__init__()
                self.up, self.norm, self.factor = nn.Linear(32, 64), nn.LayerNorm(64), 1.0

            def forward(self, x, number):
                return self.norm(nn.functional.silu(self.up(x) * number) * self.factor + number)

        for dynamic in (None, True):
            torch._dynamo.reset()
            model, x, recorder = Scaled(), torch.randn(2, 5, 32), Recorder()
            compiled = torch.compile(model, backend=recorder, dynamic=dynamic)
            for number, factor in ((0.5, 1.0), (1.5, 1.0), (-0.25, 1.0), (3.0, 1.0), (3.0, 0.5)):
                if factor == 1:  # the second compilation is for any number
                    self.assertLessEqual(len(recorder.reports), 2)
                model.factor = factor
                torch.testing.assert_close(compiled(x, number), model(x, number))

    def test_dropouts_of_any_length_are_fused_and_draw_what_eager_draws(self):
        torch.manual_seed(0)
        model, recorder = Dropped(), Recorder(strict=True)
        compiled = torch.compile(model, backend=recorder)
        for tokens in LENGTHS[:4]:
            x, found = torch.randn(3, tokens, 32), []
            for called in (compiled, model):
                torch.manual_seed(tokens)
                loss, gradients = outcome(called, model, x)
                found.append([loss, *gradients])
            torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)
        self.assertEqual([len(report.fused) for report in recorder.reports], [2, 2])
        self.assertFalse([one for report in recorder.reports for one in report.left
                          if one.split(" x ")[1].startswith("dropout")])

    def test_a_size_that_a_weight_fixes_is_a_number(self):
        """With dynamic=True all sizes of an input are symbols, also the number of columns."""
        class Doubled(nn.Module):
            def __init__(self):
                super().__init__()
                self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

            def forward(self, x):
                y = self.up(x).relu()
                return self.down(torch.cat([y, y.flip(1)], 1).square()).relu()

        torch._dynamo.reset()
        model, recorder = Doubled(), Recorder(strict=True)
        compiled = torch.compile(model, backend=recorder, dynamic=True)
        for tokens in (5, 7):
            x = torch.randn(2, tokens, 32)
            torch.testing.assert_close(compiled(x), model(x))
        self.assertEqual([[layer.is_fused for layer in report.layers]
                          for report in recorder.reports], [[True, True]])

    def test_inductor_compiles_what_is_around_a_convolution_over_the_tokens(self):
        """On a CPU it fails with its setting layout_optimization."""
        torch._dynamo.reset()
        torch.manual_seed(0)
        model, recorder = Convolved(), Recorder(strict=True, inner="inductor")
        compiled = torch.compile(model, backend=recorder, dynamic=True)
        for tokens in (9, 12):  # Inductor compiles a convolution's backward for each length
            x = torch.randn(2, tokens, 16)
            with system_compiler():
                found = outcome(compiled, model, x)
            torch.testing.assert_close(found, outcome(model, model, x), rtol=1e-4, atol=1e-6)

    def test_convolutions_keep_their_layout_if_only_the_batch_varies(self):
        found = []

        def noted(module, inputs):
            found.append("layout_optimization" in coda._settings_of_varying_sizes(module))
            return module

        x, image = torch.randn(2, 16, 40), torch.randn(2, 3, 40, 50)
        for layer, given, dim in ((nn.Conv1d(16, 8, 2), x, 2), (nn.Conv1d(16, 8, 2), x, 0),
                                  (nn.Conv2d(3, 8, 2), image, 3), (nn.Conv2d(3, 8, 2), image, 0)):
            torch._dynamo.reset()
            varying = given.clone()
            torch._dynamo.mark_dynamic(varying, dim)
            torch.compile(layer, backend=noted)(varying)
        self.assertEqual(found, [True, False, True, False])

    def test_tensors_whose_columns_are_the_length_do_not_fix_it(self):
        torch.manual_seed(0)
        batches = ({"x": torch.randn(2, tokens, 32), "weights": torch.rand(2, tokens).round()}
                   for tokens in LENGTHS)
        self.assertLessEqual(self._train(Weighted(), batches, autocast=False), 2)


if __name__ == "__main__":
    unittest.main()
