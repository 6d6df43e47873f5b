# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's models for other tasks than language modelling, as people first train them: with
dropout, padded batches and lengths that vary."""

import unittest

import torch
import torch._dynamo
import transformers
from compiled import SIZES, VOCABULARY, Recorder, outcome, padded
from torch import nn
from torch._dynamo.testing import CompileCounter

_T5 = {"vocab_size": VOCABULARY, "d_model": 64, "d_ff": 96, "d_kv": 16, "num_layers": 1,
       "num_heads": 4, "decoder_start_token_id": 0}
_IMAGE = {"image_size": 32, "patch_size": 8}


def _model(name, layers=1, changes=None, **arguments):
    """With three classes and the model's default dropout. Some tests need no layers, because other
    tests have the same ones."""
    made = getattr(transformers, name)
    sizes = {**SIZES, "num_hidden_layers": layers, "num_labels": 3, "pad_token_id": 0,
             "problem_type": "single_label_classification", **(changes or {})}
    return made(made.config_class(**sizes), **arguments)


def _texts(tokens):
    return {**padded(tokens), "labels": torch.tensor([2, 0])}


def _tokens(tokens):
    batch = padded(tokens)
    return {**batch, "labels": batch["labels"].where(batch["labels"] == -100, 2)}


def _masked(tokens):
    batch = padded(tokens)
    batch["labels"][:, ::2] = -100
    return batch


def _spans(tokens):  # the last one is cut off, and so ignored
    batch = padded(tokens)
    del batch["labels"]
    return {**batch, "start_positions": torch.tensor([1, 2]),
            "end_positions": torch.tensor([3, tokens + 1])}


def _choices(tokens):
    batch = {name: value.view(2, 3, tokens) for name, value in padded(tokens, batch=6).items()}
    for value in batch.values():
        torch._dynamo.mark_static(value, 1)
    return {**batch, "labels": torch.tensor([2, 0])}


def _images(images):
    return {"pixel_values": torch.randn(images, 3, 32, 32), "labels": torch.arange(images) % 3}


def _pairs(tokens):
    one, other = padded(tokens), padded(tokens + 5)
    return {"ids": one["input_ids"], "mask": one["attention_mask"],
            "other_ids": other["input_ids"], "other_mask": other["attention_mask"]}


class _Sentences(nn.Module):
    """Training of embeddings: the mean of a sentence's tokens, and a contrastive loss."""

    def __init__(self):
        super().__init__()
        self.encoder = _model("BertModel", add_pooling_layer=False)

    def _embedding(self, ids, mask):
        tokens = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(-1).expand(tokens.shape).float()
        mean = (tokens * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
        return nn.functional.normalize(mean, dim=1)

    def forward(self, ids, mask, other_ids, other_mask):
        scores = 20 * self._embedding(ids, mask) @ self._embedding(other_ids, other_mask).T
        return nn.functional.cross_entropy(scores, torch.arange(len(scores)))


class Tasks(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    @torch._dynamo.config.patch(specialize_float=True)  # else PyTorch compiles dropouts twice
    def _check(self, model, batch, is_autocast=False, calls=1):
        """One graph for all sizes, or as many as PyTorch makes without the backend (PyTorch 2.11
        makes four of T5). All linear layers are fused. Loss and gradients are eager's with the same
        dropout. `calls`: of each layer."""
        def run(called, size):
            torch.manual_seed(size)
            with torch.autocast("cpu", torch.bfloat16, enabled=is_autocast):
                loss, gradients = outcome(called, model, **batches[size])
            return torch.cat([loss.flatten(), *map(torch.flatten, gradients)])

        torch._dynamo.reset()
        model, recorder = model.train(), Recorder(strict=True, inner="eager")
        batches = {size: batch(size) for size in (16, 24)}
        compiled = torch.compile(model, backend=recorder, dynamic=True)
        for size in batches:
            found, expected = run(compiled, size), run(model, size)
            difference = float((found - expected).norm() / expected.norm())
            self.assertLess(difference, 3e-2 if is_autocast else 1e-5)
        layers = [layer for report in recorder.reports for layer in report.layers]
        self.assertEqual(sum(layer.is_fused for layer in layers), calls * sum(
            isinstance(module, nn.Linear) for module in model.modules()))
        if len(recorder.reports) > 1:
            torch._dynamo.reset()
            counter = CompileCounter()
            compiled = torch.compile(model, backend=counter, dynamic=True)
            for size in batches:
                run(compiled, size)
            self.assertEqual(len(recorder.reports), counter.frame_count)

    def test_classes_of_texts(self):
        self._check(_model("BertForSequenceClassification"), _texts, is_autocast=True)

    def test_classes_of_texts_by_their_last_token(self):
        self._check(_model("Qwen3ForSequenceClassification"), _texts)

    def test_classes_of_tokens(self):
        self._check(_model("RobertaForTokenClassification", 0), _tokens)

    def test_answers(self):
        self._check(_model("BertForQuestionAnswering", 0, {"num_labels": 2}), _spans)

    def test_masked_tokens(self):
        self._check(_model("BertForMaskedLM", 0), _masked)

    def test_choices(self):
        self._check(_model("BertForMultipleChoice", 0), _choices)

    def test_images(self):
        self._check(_model("ViTForImageClassification", changes=_IMAGE), _images)

    def test_embeddings_of_sentences(self):
        self._check(_Sentences(), _pairs, calls=2)

    def test_texts_from_texts(self):
        self._check(transformers.T5ForConditionalGeneration(transformers.T5Config(**_T5)), padded,
                    is_autocast=True)


if __name__ == "__main__":
    unittest.main()
