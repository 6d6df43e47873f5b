# SPDX-License-Identifier: Apache-2.0
"""Blocks in which the operand of a linear layer does not have the layout [..., rows, columns], as
in PyTorch's own modules and in other packages. All linear layers must be fused, and results and
gradients must be as exact as in eager mode."""

import copy
import unittest

import torch
import torch._dynamo
from torch import nn
from torch.nn import functional

from compiled import Recorder, error, ids, llama, outcome

WIDTH, HEADS = 32, 4


class Attended(nn.Module):
    """PyTorch's MultiheadAttention, as self-attention of x, or as cross-attention to `other`, which
    has its own norm."""

    def __init__(self, is_crossed=False, **named):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(1 + is_crossed))
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, **named)

    def forward(self, x, other):
        q = self.norms[0](x)
        k = self.norms[1](other) if len(self.norms) > 1 else q
        return x + self.attention(q, k, k, need_weights=False)[0]


class NoNorm(nn.Module):
    """Queries, keys and values of an input that no region computes (i0 is not supported), without a
    norm before them. Queries and keys are normalised; values go to attention as they are."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.norm, self.last = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, other):
        x = torch.special.i0(x / 8)
        q, k, v = (layer(x) for layer in self.parts)
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2)
                   for part in (self.norm(q), self.norm(k), v))
        y = functional.scaled_dot_product_attention(q, k, v)
        return other + self.last(y.transpose(1, 2).flatten(2))


class Convolved(nn.Module):
    """Tensors with tokens in the last dimension, as convolutions have them, and a GEMM with the
    weight on the left."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Conv1d(WIDTH, WIDTH, 3, padding=1, groups=WIDTH)
        self.first, self.second = nn.Linear(WIDTH, 8), nn.Linear(8, WIDTH)

    def forward(self, x, other):
        mixed = functional.silu(self.mix(x.mT)).mT
        steps = self.second.weight @ self.first(mixed).mT + self.second.bias[:, None]
        return functional.softplus(steps).mT * other


class EachHead(nn.Module):
    """A linear layer that is applied to each head, with the same weight."""

    def __init__(self):
        super().__init__()
        self.norm, self.up = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH // HEADS, WIDTH // HEADS)

    def forward(self, x, other):
        heads = self.up(self.norm(x)).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        return functional.gelu(self.head(heads)).transpose(1, 2).flatten(2) + other


class Windowed(nn.Module):
    """Attention within windows of 2 x 2 pixels of an image of 2 x 4 pixels, as in Swin."""

    def __init__(self):
        super().__init__()
        self.norm, self.first, self.second = (
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))

    def forward(self, x, other):
        windows = self.norm(x).view(-1, 2, 2, 2, WIDTH).transpose(1, 2).reshape(-1, 1, 4, WIDTH)
        rows = self.first(windows)
        mixed = self.second(functional.scaled_dot_product_attention(rows, rows, rows))
        image = functional.dropout(mixed, 0.0).view(-1, 2, 2, 2, WIDTH).transpose(1, 2)
        return image.reshape(x.shape) + other


class Cached(nn.Module):
    """The first use of a key-value cache: new values are concatenated to an empty tensor."""

    def __init__(self):
        super().__init__()
        self.norm, self.down, self.up = (
            nn.RMSNorm(8), nn.Linear(WIDTH, 8), nn.Linear(8, WIDTH))

    def forward(self, x, other):
        low = self.norm(self.down(functional.silu(x)))
        return self.up(torch.cat((low.new_empty(0), low), dim=-2))


class Widened(nn.Module):
    """A weight that is concatenated with a parameter of no elements: the parameter would widen an
    embedding, but the embedding has the width of the model already."""

    def __init__(self):
        super().__init__()
        self.first, self.table = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.more = nn.Parameter(torch.empty(0, 2 * WIDTH))

    def forward(self, x, other):
        weight = torch.cat((self.table.weight.t(), self.more))
        return functional.gelu(functional.silu(self.first(x)) @ weight).unflatten(
            -1, (2, WIDTH)).sum(-2) + other


class Decoder(nn.Module):
    """Two steps with attention to `other`. Two products read concatenations of a state, which a
    region computes, and a context, which it does not."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.score = (
            nn.Linear(WIDTH, 32), nn.Linear(WIDTH, 32), nn.Linear(32, 1, bias=False))
        self.next, self.shown = nn.Linear(3 * WIDTH, WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x, other):
        state, shown, keys = functional.silu(x[:, 0]), [], self.key(other)
        for step in (1, 2):
            scores = self.score(torch.tanh(self.query(state)[:, None] + keys)).squeeze(-1)
            context = (scores.softmax(-1)[:, None] @ other).squeeze(1)
            state = torch.tanh(self.next(torch.cat((x[:, step], context, state), -1)))
            shown.append(self.shown(torch.cat((state, context), -1)))
        return torch.stack(shown, 1)


class Blocks(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        torch.manual_seed(0)

    def _check(self, model, layers, autocast=False):
        x, other = torch.randn(2, 8, WIDTH), torch.randn(2, 8, WIDTH)
        recorder = Recorder()
        called = torch.compile(model, backend=recorder, fullgraph=True)
        exact = copy.deepcopy(model).double()

        def loss_of(run, *given):
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast and run is not exact):
                return run(*given).square().mean()

        found, eager, truth = (
            (loss, *gradients) for loss, gradients in (
                outcome(lambda *given, run=run: loss_of(run, *given), way, *given)
                for run, way, given in ((called, model, (x, other)), (model, model, (x, other)),
                                        (exact, exact, (x.double(), other.double())))))
        self.assertLess(error(found, truth), 1.5 * error(eager, truth) + 1e-6)
        report = recorder.reports[0]
        self.assertEqual([layer.reason for layer in report.layers], [""] * layers)

    def test_multihead_attention(self):
        for is_first in (True, False):
            for named in ({}, {"bias": False}):
                with self.subTest(is_first=is_first, **named):
                    self._check(Attended(batch_first=is_first, **named), 2)
                    self._check(Attended(batch_first=is_first, **named), 2, autocast=True)

    def test_multihead_attention_to_another(self):
        for autocast in (False, True):
            self._check(Attended(is_crossed=True, batch_first=True), 3, autocast)

    def test_multihead_attention_that_gives_its_weights(self):
        class Weighted(Attended):
            def forward(self, x, other):
                q = self.norms[0](x)
                y, weights = self.attention(q, q, q)
                return x + y * weights.amax(-1, keepdim=True)

        self._check(Weighted(batch_first=True), 2)

    def test_concatenations_in_a_decoders_loop(self):
        self._check(Decoder(), 9)

    def test_values_of_what_no_norm_precedes(self):
        self._check(NoNorm(), 4)

    def test_columns_elsewhere(self):
        self._check(Convolved(), 2)

    def test_a_layer_of_each_head(self):
        self._check(EachHead(), 2)

    def test_windows_of_an_image(self):
        self._check(Windowed(), 2)

    def test_a_caches_first_use(self):
        self._check(Cached(), 2)

    def test_weights_without_elements_have_gradients(self):
        model, x = Widened(), torch.randn(2, 8, WIDTH)
        torch.compile(model, backend=Recorder(), fullgraph=True)(x, x).sum().backward()
        self.assertEqual(model.more.grad.shape, model.more.shape)

    def test_one_key_value_head_at_batch_1(self):
        for batch in (1, 2):
            with self.subTest(batch=batch):
                torch._dynamo.reset()
                model, given = llama(num_key_value_heads=1), ids(batch)
                recorder = Recorder(strict=True)
                called = torch.compile(model, backend=recorder, fullgraph=True)
                loss, gradients = outcome(called, model, input_ids=given, labels=given)
                expected, wanted = outcome(model, model, input_ids=given, labels=given)
                torch.testing.assert_close(loss, expected)
                self.assertLess(error(gradients, wanted), 1e-5)
                self.assertEqual(len(recorder.reports[0].fused), 3)


if __name__ == "__main__":
    unittest.main()
