# SPDX-License-Identifier: Apache-2.0
"""Attention of padded batches without the hidden keys: the operators against the formula in
float64, and models with padding, here as if a CPU were a GPU with such kernels."""

import copy
import itertools
import unittest
from unittest import mock

import torch
import torch._dynamo
from torch.utils.checkpoint import checkpoint
from transformers import (
    BertConfig, BertForMaskedLM, Gemma2Config, Gemma2ForCausalLM, GptOssConfig, GptOssForCausalLM,
    ModernBertConfig, ModernBertForMaskedLM)

from coda_cpp import _attention
from coda_cpp.torch_backend import attention as recognition
from coda_cpp.torch_backend import padded_formula, padding
from compiled import SIZES, VOCABULARY, Recorder, error, ids, llama, mistral, outcome


def patterns(batch, tokens):
    """Which tokens of each sequence are seen, by name."""
    place = torch.arange(tokens)
    length = torch.randint(1, tokens + 1, (batch, 1))
    return {"behind": place < length, "in front": place >= tokens - length,
            "holes": torch.rand(batch, tokens) < 0.6,
            "none hidden": torch.ones(batch, tokens, dtype=torch.bool),
            "all hidden": torch.zeros(batch, tokens, dtype=torch.bool)}


def mask_of(seen, before, behind):
    """[batch, 1, tokens, tokens]"""
    tokens = seen.shape[1]
    distance = torch.arange(tokens)[:, None] - torch.arange(tokens)
    mask = seen[:, None, None].expand(-1, 1, tokens, tokens)
    mask = mask & (distance <= before) if before >= 0 else mask
    return mask & (-distance <= behind) if behind >= 0 else mask


def formula(q, k, v, mask, softcap, scale):
    """Of [batch, tokens, heads, size]; a row that sees nothing is 0."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(2, 3) * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    shares = scores.masked_fill(~mask, torch.finfo(q.dtype).min).softmax(-1).masked_fill(~mask, 0)
    return (shares @ v).transpose(1, 2)


def with_added_mask(q, k, v, mask, softcap, scale, sinks=None):
    """Of [batch, tokens, heads, size], with a mask that is added to the scores."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = q @ k.mT * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores + mask
    if sinks is None:
        return (scores.softmax(-1) @ v).transpose(1, 2)
    of_rows = sinks[:, None, None].expand(*scores.shape[:3], 1)
    weights = torch.cat([scores, of_rows], -1).softmax(-1)
    return (weights[..., :-1] @ v).transpose(1, 2)


class Operators(unittest.TestCase):
    def test_against_float64(self):
        torch.manual_seed(0)
        kinds = [(-1, 0), (-1, -1), (4, 0), (100, 0), (0, 0), (5, 3), (-1, 2), (7, -1)]
        for (before, behind), (batch, tokens), softcap in itertools.product(
                kinds, ((3, 37), (1, 130), (2, 8)), (0.0, 2.0)):
            causal = behind == 0
            for name, seen in patterns(batch, tokens).items():
                with self.subTest(before=before, behind=behind, tokens=tokens, hidden=name):
                    given = [torch.randn(batch, tokens, heads, size, requires_grad=True)
                             for heads, size in ((4, 16), (2, 16), (2, 16))]
                    order, spans = padding.SPANS(seen, before, behind)
                    made = padding.ATTENTION(*given, order, spans, causal, softcap, 0.25)[0]
                    exact = formula(*(x.double() for x in given), mask_of(seen, before, behind),
                                    softcap, 0.25)
                    upstream = torch.randn(made.shape)
                    for found, expected in zip(
                            (made, *torch.autograd.grad(made, given, upstream)),
                            (exact, *torch.autograd.grad(exact, given, upstream.double()))):
                        torch.testing.assert_close(found.double(), expected.double(), rtol=1e-5,
                                                   atol=1e-5)

    def test_added_masks_against_float64(self):
        """Also of queries that see no key, whose weights are equal or NaN, and of their gradients.
        """
        torch.manual_seed(0)
        least = torch.finfo(torch.float32).min
        for (before, behind), softcap, hidden, has_sinks in itertools.product(
                ((-1, 0), (-1, -1), (4, 0), (5, 3)), (0.0, 2.0), (least, -torch.inf),
                (False, True)):
            for name, seen in patterns(3, 37).items():
                with self.subTest(before=before, behind=behind, softcap=softcap, hidden=hidden,
                                  pattern=name, has_sinks=has_sinks):
                    given = [torch.randn(3, 37, heads, 16, requires_grad=True)
                             for heads in (4, 2, 2)]
                    given += [torch.randn(4, requires_grad=True)] if has_sinks else []
                    mask = torch.zeros(3, 1, 37, 37).masked_fill(
                        ~mask_of(seen, before, behind), hidden)
                    order, spans = padding.SPANS(seen, before, behind)
                    made = padded_formula.FORMULA(
                        *given[:3], order, spans, behind == 0, softcap, 0.25, hidden, True,
                        *given[3:])
                    exact = with_added_mask(*(x.double() for x in given[:3]), mask.double(),
                                            softcap, 0.25, *(x.double() for x in given[3:]))
                    upstream = torch.randn(made.shape)
                    for found, expected in zip(
                            (made, *torch.autograd.grad(made, given, upstream)),
                            (exact, *torch.autograd.grad(exact, given, upstream.double()))):
                        torch.testing.assert_close(found.double(), expected.double(), rtol=1e-5,
                                                   atol=1e-5, equal_nan=True)

    def test_groups_of_queries_that_see_no_key(self):
        torch.manual_seed(0)
        given = [torch.randn(2, 9, heads, 8, requires_grad=True) for heads in (4, 2, 2)]
        order, spans = padding.SPANS(torch.arange(9).expand(2, 9) >= 5, -1, 0)
        whole, parts = [], []
        for most, made in ((1 << 24, whole), (20, parts)):
            with mock.patch.object(padded_formula, "_MOST_SCORES", most):
                y = padded_formula.FORMULA(*given, order, spans, True, 2.0, 0.3, -1e38, True)
                made += [y, *torch.autograd.grad(y.square().sum(), given)]
        torch.testing.assert_close(whole, parts)

    def test_spans(self):
        """They ascend, and say which keys a query sees and which queries see a key."""
        torch.manual_seed(1)
        for before, behind in ((-1, 0), (-1, -1), (2, 0), (2, 1), (-1, 2), (3, -1)):
            for name, seen in patterns(2, 9).items():
                with self.subTest(before=before, behind=behind, hidden=name):
                    order, spans = padding.SPANS(seen, before, behind)
                    place = torch.arange(18)
                    self.assertTrue(torch.equal(order[0][order[1]], place))
                    self.assertTrue(bool((spans.diff(dim=0) >= 0).all()))
                    of_queries, of_keys = (
                        (place[:, None] >= ends[:, 0]) & (place[:, None] < ends[:, 1])
                        for ends in (spans[:, :2], spans[:, 2:]))  # [token, query or key]
                    shown = torch.block_diag(*mask_of(seen, before, behind)[:, 0])[:, order[0]]
                    self.assertTrue(torch.equal(of_queries.T, shown))
                    self.assertTrue(torch.equal(of_keys, shown))

    def test_pytorchs_checks(self):
        seen = torch.rand(2, 9) < 0.7
        torch.library.opcheck(padding.SPANS, (seen, 3, 0))
        given = [torch.randn(2, 9, heads, 8, requires_grad=True) for heads in (4, 2, 2)]
        torch.library.opcheck(
            padding.ATTENTION, (*given, *padding.SPANS(seen, 3, 0), True, 0.0, 0.3))
        order, spans = padding.SPANS(seen, 3, 0)
        for sinks in ([], [torch.randn(4, requires_grad=True)]):
            torch.library.opcheck(padded_formula.FORMULA, (
                *given, order, spans, True, 0.0, 0.3, -1e38, True, *sinks))


class Models(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        torch._dynamo.reset()
        for module, name, value in ((_attention, "is_fastest", lambda query, value: True),
                                    (recognition, "_MUCH_MASKED_WORK", 0)):
            patched = mock.patch.object(module, name, value)
            patched.start()
            self.addCleanup(patched.stop)

    def _check(self, model, lengths, calls, **settings):
        """Loss, logits and gradients are eager mode's for all patterns, also of tokens that are
        padding. `calls`: of attention without the hidden keys, in a graph that has some. Returns
        the number of graphs."""
        recorder = Recorder()
        compiled = torch.compile(model, backend=recorder, **settings)
        for tokens in lengths:
            for name, seen in patterns(3, tokens).items():
                batch = {"input_ids": ids(3, tokens), "attention_mask": seen.long()}
                batch["labels"] = batch["input_ids"].masked_fill(~seen, -100)
                if name == "all hidden":
                    continue  # its loss is NaN
                with self.subTest(hidden=name, tokens=tokens):
                    found, expected = (outcome(f, model, **batch) for f in (compiled, model))
                    torch.testing.assert_close(found[0], expected[0])
                    self.assertLess(error(found[1], expected[1]), 1e-4)
                    with torch.no_grad():
                        torch.testing.assert_close(compiled(**batch).logits, model(**batch).logits,
                                                   rtol=1e-4, atol=1e-4)
        # PyTorch 2.11 makes a graph of its own of what follows checkpointed blocks.
        self.assertEqual({report.padded for report in recorder.reports} - {0}, {calls})
        return len(recorder.reports)

    def test_a_decoder(self):
        self._check(llama(num_hidden_layers=2), (24,), 2)

    def test_equal_layers(self):
        self._check(llama(num_hidden_layers=5), (24,), 5)

    def test_a_window(self):
        self._check(mistral(num_hidden_layers=1, sliding_window=7), (24,), 1)

    def test_checkpointed_blocks(self):
        model = llama(num_hidden_layers=2).train()
        model.gradient_checkpointing_enable(
            gradient_checkpointing_kwargs={"use_reentrant": False})
        self._check(model, (24,), 2)

    def test_encoders(self):
        """Also with windows to both sides, as ModernBERT has, without an attention_mask too."""
        sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4,
                 "vocab_size": 128, "num_hidden_layers": 2, "pad_token_id": 0}
        bert = BertForMaskedLM(BertConfig(**sizes, attention_probs_dropout_prob=0.0,
                                          hidden_dropout_prob=0.0))
        for name, parameter in bert.named_parameters():
            parameter.requires_grad_(not name.endswith("key.bias"))  # its gradient is 0
        modern = ModernBertForMaskedLM(ModernBertConfig(
            **sizes, global_attn_every_n_layers=2, local_attention=8, **dict.fromkeys(
                ("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"))))
        for model, calls in ((bert, 2), (modern, 2)):
            torch._dynamo.reset()
            self._check(model, (24,), calls)
        torch._dynamo.reset()
        recorder = Recorder()
        batch = {"input_ids": ids(2, 24), "labels": ids(2, 24)}
        found, expected = (outcome(f, modern, **batch) for f in (
            torch.compile(modern, backend=recorder), modern))
        torch.testing.assert_close(found[0], expected[0])
        self.assertLess(error(found[1], expected[1]), 1e-4)
        self.assertEqual([report.padded for report in recorder.reports], [1])

    def test_lengths_that_vary(self):
        graphs = self._check(llama(num_hidden_layers=1), (24, 31, 40), 1)
        self.assertLessEqual(graphs, 4)  # of one length and of any, with gradients and without


class WrittenOut(unittest.TestCase):
    """Models with attn_implementation="eager" on a CPU, which has kernels for them."""

    def setUp(self):
        torch.manual_seed(0)
        torch._dynamo.reset()

    def _check(self, model, count=2, lengths=(24,)):
        """Logits and gradients are eager mode's, also those of tokens that see no other token and
        that no visible token reads. `count`: of attentions that are written out."""
        model.train()
        recorder = Recorder()
        compiled = torch.compile(model, backend=recorder)
        for tokens in lengths:
            upstream = torch.randn(3, tokens, VOCABULARY)
            for name, seen in patterns(3, tokens).items():
                batch = {"input_ids": ids(3, tokens), "attention_mask": seen.long()}
                with self.subTest(type(model).__name__, hidden=name, tokens=tokens):
                    found, expected = (outcome(
                        lambda f=f, b=batch: (f(**b).logits * upstream).mean(), model)
                        for f in (compiled, model))
                    torch.testing.assert_close(found[0], expected[0], rtol=1e-4, atol=1e-6)
                    for gradient, wanted in zip(found[1], expected[1]):
                        self.assertLessEqual((gradient - wanted).norm(),
                                             1e-4 * wanted.norm() + 1e-9)
                    with torch.no_grad():
                        torch.testing.assert_close(compiled(**batch).logits, model(**batch).logits,
                                                   rtol=1e-4, atol=1e-4)
        self.assertEqual({report.written_out for report in recorder.reports} - {0}, {count})

    def test_gemma2(self):
        """Soft-capped, with a window and without one, with lengths that vary, and checkpointed."""
        def make():
            return Gemma2ForCausalLM(Gemma2Config(
                **SIZES, sliding_window=7, attn_logit_softcapping=0.5,
                attn_implementation="eager"))

        self._check(make(), lengths=(24, 33, 40))
        model = make()
        model.gradient_checkpointing_enable({"use_reentrant": False})
        torch._dynamo.reset()
        self._check(model)

    def test_equal_layers(self):
        self._check(llama(num_hidden_layers=5, attn_implementation="eager"), 5)

    def test_a_window(self):
        self._check(mistral(sliding_window=7, attn_implementation="eager"))

    def test_sinks(self):
        model = GptOssForCausalLM(GptOssConfig(
            **SIZES | {"num_local_experts": 2}, num_experts_per_tok=2, sliding_window=7))
        for layer in model.model.layers:
            torch.nn.init.normal_(layer.self_attn.sinks)
        self._check(model)

    def test_an_encoder(self):
        model = BertForMaskedLM(BertConfig(
            hidden_size=32, intermediate_size=64, num_attention_heads=4, vocab_size=VOCABULARY,
            num_hidden_layers=2, attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.0,
            attn_implementation="eager"))
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(not name.endswith("key.bias"))  # its gradient is 0
        self._check(model)

    def test_masks(self):
        """Masks that are added or choose scores, also for queries that see no key. Boolean masks
        that are added as 1, and masks of other numbers, are not recognised."""
        least = torch.finfo(torch.float32).min

        def causal(seen):
            place = torch.arange(seen.shape[1])
            return (place <= place[:, None]) & seen[:, None, None]

        def added(mask):
            return lambda scores, seen: scores + mask(seen)

        whole = torch.ones(2, 11, dtype=torch.bool)
        for name, count, masked in (
                ("least", 1, added(lambda seen: torch.where(causal(seen), 0.0, least))),
                ("infinite", 1, added(lambda seen: torch.where(causal(seen), 0.0, -torch.inf))),
                ("a large number", 1, added(lambda seen: torch.where(causal(seen), 0.0, -1e31))),
                ("with which the sum depends on scores", 0, added(
                    lambda seen: torch.where(causal(seen), 0.0, -1e9))),
                ("two numbers", 0, added(lambda seen: torch.where(
                    causal(seen), 0.0, -1e31).masked_fill(~seen[:, None, None], least))),
                ("made by moves", 1, added(lambda seen: torch.zeros(2, 11, 11).masked_fill(
                    ~causal(seen)[:, 0], least)[:, None].contiguous())),
                ("one row for all queries", 1, added(lambda seen: torch.where(
                    seen[:, None, None], 0.0, least))),
                ("filled", 1, lambda scores, seen: scores.masked_fill(~causal(seen), least)),
                ("filled with infinity", 1, lambda scores, seen: scores.masked_fill(
                    ~causal(seen), -torch.inf)),
                ("filled keys", 1, lambda scores, seen: scores.masked_fill(
                    ~seen[:, None, None], -1e30)),
                ("filled in place", 1, lambda scores, seen: scores.masked_fill_(
                    ~causal(seen), least)),
                ("chosen", 1, lambda scores, seen: torch.where(causal(seen), scores, least)),
                ("chosen otherwise", 1, lambda scores, seen: torch.where(
                    ~causal(seen), -torch.inf, scores)),
                ("chosen by a tensor", 1, lambda scores, seen: torch.where(
                    causal(seen), scores, torch.full([], least))),
                ("chosen by a constant", 1, lambda scores, seen: torch.where(
                    causal(seen), scores, torch.tensor(least))),
                ("a sum of two masks", 0, added(lambda seen: torch.where(
                    seen[:, None, None], 0.0, least) + torch.where(causal(whole), 0.0, least))),
                ("boolean", 0, added(causal)),
                ("boolean, without padding", 0, added(lambda seen: causal(whole))),
                ("a small number", 0, added(lambda seen: torch.where(causal(seen), 0.0, -9.0))),
                ("filled with a small number", 0, lambda scores, seen: scores.masked_fill(
                    ~causal(seen), -1e4)),
                ("filled with the largest number", 0, lambda scores, seen: scores.masked_fill(
                    ~causal(seen), -least)),
                ("scores of hidden keys", 0, lambda scores, seen: torch.where(
                    causal(seen), least, scores)),
                ("rounded to infinity", 0, lambda scores, seen: (
                    scores + torch.where(causal(seen), 0.0, least)).bfloat16()),
                ("of integers", 0, added(
                    lambda seen: (1.0 - seen.float())[:, None, None] * least))):
            def function(q, k, v, seen, masked=masked):
                scores = masked(q @ k.transpose(2, 3) * 0.3, seen)
                return scores.softmax(-1, dtype=torch.float32) @ v

            recorder = Recorder()
            torch._dynamo.reset()
            compiled = torch.compile(function, backend=recorder)
            for hidden, seen in patterns(2, 11).items():
                with self.subTest(name, hidden=hidden):
                    given = [torch.randn(2, 4, 11, 8, requires_grad=True) for _ in "qkv"]
                    made, expected = compiled(*given, seen), function(*given, seen)
                    upstream = torch.randn(made.shape)
                    for x, y in zip((made, *torch.autograd.grad(made, given, upstream)),
                                    (expected, *torch.autograd.grad(expected, given, upstream))):
                        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5, equal_nan=True)
            self.assertEqual([report.written_out for report in recorder.reports], [count], name)

    def test_a_causal_mask_that_hides(self):
        """A checkpointed block is told that a mask of its inputs is causal, and hides these keys.
        """
        def block(q, k, v, mask):
            scores = (q @ k.transpose(2, 3) * 0.3).masked_fill(mask, -1e30)
            return scores.softmax(-1) @ v

        def function(q, k, v):
            place = torch.arange(q.shape[2])
            return checkpoint(block, q, k, v, place <= place[:, None], use_reentrant=False)

        given = [torch.randn(2, 4, 11, 8, requires_grad=True) for _ in "qkv"]
        recorder = Recorder()
        torch.testing.assert_close(torch.compile(function, backend=recorder)(*given),
                                   function(*given))
        self.assertEqual([report.written_out for report in recorder.reports], [0])

    def test_in_16_bits(self):
        """No less exact than eager mode, in bf16 and under autocast, also for texts that begin with
        padding."""
        model = Gemma2ForCausalLM(Gemma2Config(
            **SIZES, sliding_window=7, attn_implementation="eager"))
        batch = {"input_ids": ids(3, 24), "attention_mask": patterns(3, 24)["in front"].long()}
        upstream = torch.randn(3, 24, VOCABULARY)
        for is_autocast in (True, False):
            with self.subTest(is_autocast=is_autocast):
                model = model.float() if is_autocast else model.bfloat16()
                exact = copy.deepcopy(model).float()  # in float64 the mask is NaN in eager mode
                torch._dynamo.reset()
                recorder = Recorder()
                errors = []
                wanted = outcome(lambda: (exact(**batch).logits * upstream).mean(), exact)
                for called in (torch.compile(model, backend=recorder), model):
                    with torch.autocast("cpu", torch.bfloat16, enabled=is_autocast):
                        found = outcome(
                            lambda f=called: (f(**batch).logits * upstream).mean(), model)
                    errors.append(error(found[1], wanted[1]))
                self.assertLess(errors[0], 1.1 * errors[1])
                self.assertEqual(recorder.reports[0].written_out, 2)


class Calls(unittest.TestCase):
    """Calls of scaled_dot_product_attention."""

    setUp = Models.setUp

    def _check(self, padded, masked, shape=(2, 4, 19, 8), kv_heads=4, own=""):
        recorder = Recorder()
        compiled = torch.compile(masked, backend=recorder)
        batch, heads, tokens, size = shape
        given = [torch.randn(batch, tokens, count, size).transpose(1, 2).requires_grad_()
                 for count in (heads, kv_heads, kv_heads)]
        for seen in (torch.arange(tokens) < 11).expand(batch, tokens), torch.rand(
                batch, tokens).argsort(1) < 12:
            made, expected = compiled(*given, seen), masked(*given, seen)
            upstream = torch.randn(made.shape)
            for x, y in zip((made, *torch.autograd.grad(made, given, upstream)),
                            (expected, *torch.autograd.grad(expected, given, upstream))):
                torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5, equal_nan=True)
        self.assertEqual({report.padded for report in recorder.reports}, {padded})
        if own:
            self.assertIn(f"1 x coda_cpp.{own}", recorder.reports[0].left)

    def test_masks(self):
        def attend(q, k, v, mask, **options):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, **options)

        def places(tokens):
            return torch.arange(tokens)[:, None], torch.arange(tokens)

        def of_keys(q, k, v, seen):
            return attend(q, k, v, seen[:, None, None].expand(-1, 1, q.shape[2], -1))

        def causal(q, k, v, seen):
            i, j = places(q.shape[2])
            return attend(q, k, v, (j <= i) & seen[:, None, None])

        def of_numbers(q, k, v, seen):
            i, j = places(q.shape[2])
            return attend(q, k, v, (seen.long() > 0)[:, None, None] & (j <= i), scale=0.3)

        def grouped(q, k, v, seen):
            i, j = places(q.shape[2])
            return attend(q, k, v, (j <= i) & seen[:, None, None], enable_gqa=True)

        def of_queries(q, k, v, seen):
            i, j = places(q.shape[2])
            return attend(q, k, v, (j <= i) & seen[:, None, :, None])

        def either(q, k, v, seen):
            i, j = places(q.shape[2])
            return attend(q, k, v, (j <= i) | seen[:, None, None])

        def added(q, k, v, seen):
            i, j = places(q.shape[2])
            hidden = ~((j <= i) & seen[:, None, None])
            return attend(q, k, v, torch.zeros(hidden.shape).masked_fill(hidden, -1e9))

        def of_one_sequence(q, k, v, seen):
            i, j = places(q.shape[2])
            return attend(q, k, v, (j <= i) & seen[:1, None, None])

        def written(q, k, v, seen):
            i, j = places(q.shape[2])
            mask = (j <= i) & seen[:, None, None]
            mask[:, :, 3, 0] = True
            return attend(q, k, v, mask)

        for masked, padded in ((of_keys, 1), (causal, 1), (of_numbers, 1), (of_queries, 0),
                               (either, 0), (added, 0), (of_one_sequence, 0), (written, 0)):
            torch._dynamo.reset()
            with self.subTest(masked.__name__):
                self._check(padded, masked)
        torch._dynamo.reset()
        self._check(1, grouped, kv_heads=2)

    def test_a_window_without_padding(self):
        """It needs neither documents nor padding, also where PyTorch has attention for both."""
        def windowed(q, k, v, seen):
            i, j = torch.arange(q.shape[2])[:, None], torch.arange(q.shape[2])
            mask = ((j <= i) & (j > i - 5)).expand(len(q), 1, -1, -1)
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)

        with mock.patch.object(recognition, "has_documents", lambda query: True):
            self._check(0, windowed, own="attention")
        torch._dynamo.reset()
        with mock.patch.object(recognition, "has_documents", lambda query: True), \
                mock.patch.object(_attention, "is_fastest", lambda query, value: False):
            self._check(0, windowed, own="document_attention")

    def test_what_stays(self):
        def causal(q, k, v, seen, **options):
            i, j = torch.arange(q.shape[2])[:, None], torch.arange(q.shape[2])
            return torch.nn.functional.scaled_dot_product_attention(
                q, k, v, (j <= i) & seen[:, None, None], **options)

        with mock.patch.object(recognition, "_MUCH_MASKED_WORK", 4 * 2 * 4 * 19 * 19 * 8 + 1):
            self._check(0, causal)
        torch._dynamo.reset()
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            self._check(0, causal)
        torch._dynamo.reset()
        recorder = Recorder()
        given = [torch.randn(2, 4, 19, 8) for _ in range(3)]
        torch.compile(causal, backend=recorder)(
            *given, torch.ones(2, 19, dtype=torch.bool), dropout_p=0.5)
        self.assertEqual(recorder.reports[0].padded, 0)


if __name__ == "__main__":
    unittest.main()
