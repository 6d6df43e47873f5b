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

    def _losses(self, model, folder, **named):
        rows = ids(16)
        arguments = TrainingArguments(
            folder, max_steps=4, per_device_train_batch_size=2, gradient_accumulation_steps=2,
            learning_rate=1e-3, logging_steps=1, report_to=[], use_cpu=True, save_strategy="no",
            disable_tqdm=True, **named)
        trainer = Trainer(model, arguments,
                          train_dataset=[{"input_ids": row, "labels": row} for row in rows])
        with contextlib.redirect_stdout(io.StringIO()):
            trainer.train()
        return torch.tensor([entry["loss"] for entry in trainer.state.log_history
                             if "loss" in entry])

    def test_trainer(self):
        with tempfile.TemporaryDirectory() as folder:
            model = llama(num_hidden_layers=1)
            reference = copy.deepcopy(model)
            recorder = Recorder(strict=True)
            model.compile(backend=recorder)
            torch.manual_seed(1)
            found = self._losses(model, folder, bf16=True)
            torch.manual_seed(1)
            expected = self._losses(reference, folder, bf16=True)
            torch.testing.assert_close(found, expected, rtol=2e-3, atol=0)
            self.assertEqual([len(report.taken) for report in recorder.reports], [2])

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
