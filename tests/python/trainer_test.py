# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Trainer and the example that trains on a text, with models compiled by the backend
"coda"."""

import contextlib
import copy
import io
import runpy
import sys
import tempfile
import unittest
from pathlib import Path

import torch
import torch._dynamo
from transformers import LlamaForCausalLM, Trainer, TrainingArguments

from compiled import Recorder, ids, llama

_EXAMPLE = Path(__file__).parents[2] / "examples" / "finetune_hugging_face.py"


class Training(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        torch.manual_seed(0)

    def _losses(self, model, folder, resume=None, **named):
        rows, labels = ids(16), ids(16)
        for i, row in enumerate(labels):
            row[:2 * i] = -100  # microbatches with unequal numbers of tokens
        arguments = TrainingArguments(folder, **{
            "max_steps": 4, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2,
            "learning_rate": 1e-3, "logging_steps": 1, "report_to": [], "use_cpu": True,
            "save_strategy": "no", "disable_tqdm": True, "bf16": True, **named})
        trainer = Trainer(model, arguments,
                          train_dataset=[{"input_ids": row, "labels": of}
                                         for row, of in zip(rows, labels)])
        with contextlib.redirect_stdout(io.StringIO()):
            trainer.train(resume_from_checkpoint=resume)
        return torch.tensor([entry["loss"] for entry in trainer.state.log_history
                             if "loss" in entry])

    def _check(self, **named):
        """Trains a model with the backend and compares its losses with those of the same model
        without the backend. Returns the backend's reports."""
        with tempfile.TemporaryDirectory() as folder:
            torch._dynamo.reset()
            model = llama(num_hidden_layers=1)
            reference = copy.deepcopy(model)
            recorder = Recorder(strict=True)
            model.compile(backend=recorder)
            torch.manual_seed(1)
            found = self._losses(model, folder, **named)
            torch.manual_seed(1)
            torch.testing.assert_close(found, self._losses(reference, folder, **named), rtol=2e-3,
                                       atol=0)
        return recorder.reports

    def test_trainer(self):
        self.assertEqual([len(report.fused) for report in self._check()], [2])

    def test_checkpointing(self):
        for is_reentrant in (False, True):
            with self.subTest(is_reentrant=is_reentrant):
                reports = self._check(
                    max_steps=2, gradient_checkpointing=True,
                    gradient_checkpointing_kwargs={"use_reentrant": is_reentrant})
                layers = [layer for report in reports for layer in report.layers]
                self.assertEqual((len(layers), [l.reason for l in layers if not l.is_fused]),
                                 (8, []))

    def test_a_run_that_is_resumed(self):
        with tempfile.TemporaryDirectory() as folder:
            model = llama(num_hidden_layers=1)
            first = copy.deepcopy(model)
            for one in (model, first):
                one.compile(backend=Recorder(strict=True))
            torch.manual_seed(1)
            whole = self._losses(model, f"{folder}/whole")
            torch.manual_seed(1)
            self._losses(first, f"{folder}/parts", max_steps=4, save_strategy="steps", save_steps=2)
            other = llama(num_hidden_layers=1)
            other.compile(backend=Recorder(strict=True))
            torch.manual_seed(1)
            resumed = self._losses(other, f"{folder}/parts", f"{folder}/parts/checkpoint-2")
            torch.testing.assert_close(resumed[-2:], whole[-2:], rtol=1e-5, atol=0)
            saved = LlamaForCausalLM.from_pretrained(f"{folder}/parts/checkpoint-4")
            for name, value in first.state_dict().items():
                torch.testing.assert_close(saved.state_dict()[name], value)

    def test_example(self):
        with tempfile.TemporaryDirectory() as folder:
            text = Path(folder) / "text.txt"
            text.write_text("The quick brown fox jumps over the lazy dog. " * 40)
            before, printed = sys.argv, io.StringIO()
            sys.argv = [str(_EXAMPLE), "--text", str(text), "--out", f"{folder}/out", "--steps",
                        "20", "--batch", "2", "--length", "48", "--rate", "2e-3", "--inner",
                        "aot_eager"]
            try:
                with contextlib.redirect_stdout(printed):
                    runpy.run_path(str(_EXAMPLE), run_name="__main__")
            finally:
                sys.argv = before
            losses = [float(line.split()[3].rstrip(",")) for line in printed.getvalue().split("\n")
                      if line.startswith("step ")]
            self.assertEqual(len(losses), 3)
            self.assertLess(losses[-1], 0.6 * losses[0])
            saved = LlamaForCausalLM.from_pretrained(f"{folder}/out")
            rows = torch.tensor(list(text.read_bytes()[:64]))[None]
            self.assertLess(saved(input_ids=rows, labels=rows).loss.item(), 0.7 * losses[0])


if __name__ == "__main__":
    unittest.main()
