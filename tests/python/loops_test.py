# SPDX-License-Identifier: Apache-2.0
"""Training loops of other packages with compiled models: TRL's SFTTrainer (packed or not),
DPOTrainer and GRPOTrainer, PEFT's adapters, Lightning, accelerate. In each loop the losses equal
those without the backend, and the expected number of linear layers is fused. Tests of packages that
are not installed are skipped; `make test-loops` installs the packages."""

import contextlib
import importlib.util
import io
import tempfile
import unittest
import unittest.mock
import warnings

import torch
import torch._dynamo
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from coda_cpp.torch_backend import attention
from coda_cpp.torch_backend.report import Report
from compiled import SIZES, Recorder, ids, llama

_LAYERS = 15  # linear layers of _model() and llama()


def _needs(*packages):
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return unittest.skipIf(missing, f"not installed: {', '.join(missing)}")


def _tokenizer():
    """A tokenizer with one token for each word."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["<pad>", "<s>", "</s>", *(f"w{i}" for i in range(125))]
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<pad>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", bos_token="<s>",
                                   eos_token="</s>")


def _text(count, seed):
    generator = torch.Generator().manual_seed(seed)
    return " ".join(f"w{int(i)}" for i in torch.randint(0, 125, (count,), generator=generator))


def _model(**changes):
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**{
        **SIZES, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        "max_position_embeddings": 256, **changes}))


class _Loop(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        warnings.simplefilter("ignore")

    def _same(self, run, make=_model, layers=_LAYERS, left=0, rtol=1e-4):
        """Compares the losses that run(model) returns for the compiled model with those of the
        model without the backend. In the graph with the most linear layers, which has `layers` of
        them, all but `left` must be fused."""
        expected = run(make())
        model, recorder = make(), Recorder()
        model.compile(backend=recorder)
        torch.testing.assert_close(run(model), expected, rtol=rtol, atol=rtol)
        whole = max(recorder.reports, key=lambda report: len(report.layers))
        reasons = [(layer.module, layer.reason) for layer in whole.layers if not layer.is_fused]
        self.assertEqual((len(whole.layers), len(reasons)), (layers, left), reasons)
        return recorder


@_needs("trl", "datasets")
class Trl(_Loop):
    def _losses(self, kind, config, model, rows, **named):
        import trl
        from datasets import Dataset

        with tempfile.TemporaryDirectory() as folder:
            arguments = getattr(trl, config)(
                folder, max_steps=2, learning_rate=1e-3, logging_steps=1, report_to=[],
                use_cpu=True, save_strategy="no", disable_tqdm=True, seed=3, bf16=False,
                gradient_checkpointing=False, **named)
            others = {
                "GRPOTrainer": {"reward_funcs": lambda completions, **_: [
                    float(len(set(text.split()))) for text in completions]},
                "DPOTrainer": {"ref_model": _model()}}.get(kind, {})
            trainer = getattr(trl, kind)(model=model, args=arguments, processing_class=_tokenizer(),
                                         train_dataset=Dataset.from_list(rows), **others)
            with contextlib.redirect_stdout(io.StringIO()):
                trainer.train()
        return torch.tensor([entry["loss"] for entry in trainer.state.log_history
                             if "loss" in entry])

    def _sft(self, **named):
        rows = [{"text": _text(5 + 3 * i, i)} for i in range(16)]
        return lambda model: self._losses(
            "SFTTrainer", "SFTConfig", model, rows, per_device_train_batch_size=2,
            **{"max_length": 32, **named})

    def test_sft(self):
        self._same(self._sft(), layers=_LAYERS - 1)  # TRL computes the head in its own function

    def test_sft_of_packed_rows(self):
        """TRL passes positions instead of a mask, so attention runs within documents."""
        for named in ({"packing": True, "packing_strategy": "bfd_split"},
                      {"padding_free": True, "max_length": None}):
            with self.subTest(**named), unittest.mock.patch.object(
                    attention, "has_documents", lambda query: True):
                torch._dynamo.reset()
                recorder = self._same(self._sft(**named), layers=_LAYERS - 1)
                self.assertEqual({report.packed for report in recorder.reports
                                  if len(report.layers) > 1}, {2})

    def test_dpo(self):
        rows = [{"prompt": _text(4 + i, i), "chosen": " " + _text(6, 50 + i),
                 "rejected": " " + _text(4, 90 + i)} for i in range(8)]
        self._same(lambda model: self._losses(
            "DPOTrainer", "DPOConfig", model, rows, per_device_train_batch_size=2, max_length=32),
            layers=_LAYERS - 1)

    def test_grpo(self):
        rows = [{"prompt": _text(4, i)} for i in range(8)]
        self._same(lambda model: self._losses(
            "GRPOTrainer", "GRPOConfig", model, rows, per_device_train_batch_size=4,
            num_generations=2, max_completion_length=6), left=1)  # the head, of the last rows only


@_needs("peft")
class Peft(_Loop):
    def _steps(self, model):
        torch.manual_seed(1)
        wanted = [p for p in model.parameters() if p.requires_grad]
        optimizer, losses = torch.optim.AdamW(wanted, 1e-2), []
        for _ in range(3):
            batch = ids()
            loss = model(input_ids=batch, labels=batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        return torch.stack(losses)

    def _adapted(self, dtype=torch.float32, **named):
        from peft import LoraConfig, get_peft_model

        torch.manual_seed(0)
        model = get_peft_model(llama().to(dtype), LoraConfig(
            r=4, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM", **named))
        torch.manual_seed(2)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.1)
        return model

    def test_lora(self):
        self._same(self._steps, self._adapted, _LAYERS + 12)

    def test_lora_in_fp32_on_bf16(self):
        self._same(self._steps, lambda: self._adapted(torch.bfloat16), _LAYERS + 12, rtol=5e-3)

    def test_dora(self):
        """With PyTorch 2.13 each DoRA module of PEFT breaks Dynamo's graph, with 2.11 and 2.15
        none does."""
        breaks = torch.__version__.startswith("2.13.")
        count = _LAYERS + (12 if breaks else 24)
        recorder = self._same(self._steps, lambda: self._adapted(use_dora=True),
                              2 if breaks else count)
        layers = Report.of(recorder.reports).layers
        alone = {layer.kind.rpartition(".")[2] for layer in layers if not layer.is_fused}
        self.assertEqual((len(layers), alone), (count, {"k_proj", "o_proj"} if breaks else set()))

    def test_adapters_added_after_compiling(self):
        from peft import LoraConfig, inject_adapter_in_model

        def run(model):
            batch = ids()
            with torch.no_grad():
                first = model(input_ids=batch, labels=batch).loss
            torch.manual_seed(5)
            inject_adapter_in_model(LoraConfig(
                r=4, target_modules=["q_proj", "down_proj"], init_lora_weights=False), model)
            return torch.cat([first[None], self._steps(model)])

        self._same(lambda model: (torch.manual_seed(4), run(model))[1], _model, _LAYERS + 8)


@_needs("pytorch_lightning")
class Lightning(_Loop):
    def test_fit(self):
        import pytorch_lightning

        class Module(pytorch_lightning.LightningModule):
            def __init__(self, model):
                super().__init__()
                self.model, self.losses = model, []

            def training_step(self, batch, which):
                loss = self.model(input_ids=batch, labels=batch).loss
                self.losses.append(loss.detach())
                return loss

            def configure_optimizers(self):
                return torch.optim.AdamW(self.parameters(), 1e-3)

        def run(model):
            torch.manual_seed(1)
            module = Module(model)
            with tempfile.TemporaryDirectory() as folder:
                pytorch_lightning.Trainer(
                    max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
                    enable_progress_bar=False, enable_model_summary=False, precision="bf16-mixed",
                    accumulate_grad_batches=2, default_root_dir=folder,
                ).fit(module, torch.utils.data.DataLoader(list(ids(8)), batch_size=2))
            return torch.stack(module.losses)

        self._same(run, rtol=5e-3)


@_needs("accelerate")
class Accelerate(_Loop):
    def test_unequal_counts_of_tokens(self):
        """The loss is summed over the tokens of all microbatches, as in Hugging Face's loop."""
        from accelerate import Accelerator

        def run(model):
            accelerator, losses = Accelerator(cpu=True, mixed_precision="bf16"), []
            torch.manual_seed(1)
            model, optimizer = accelerator.prepare(
                model, torch.optim.AdamW(model.parameters(), 1e-3))
            for _ in range(2):
                parts = []
                for length in (12, 32, 20):
                    batch = ids(2, length)
                    labels = batch.clone()
                    labels[0, length // 2:] = -100
                    parts.append((batch, labels))
                count = sum((labels[:, 1:] != -100).sum() for _, labels in parts)
                total = 0
                for batch, labels in parts:
                    logits = model(input_ids=batch).logits[:, :-1].flatten(0, 1)
                    loss = functional.cross_entropy(
                        logits.float(), labels[:, 1:].flatten(), reduction="sum") / count
                    accelerator.backward(loss)
                    total += loss.detach()
                optimizer.step()
                optimizer.zero_grad()
                losses.append(total)
            return torch.stack(losses)

        self._same(run, rtol=5e-3)


if __name__ == "__main__":
    unittest.main()
