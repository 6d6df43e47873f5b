#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Losses of `coda train` beside transformers' on the same text, from the same weights and on the
same batches, in fp32 and in bf16.

    compare_transformers.py CODA [--size small] [--steps 200] [--out FILE]

CODA is the command. The model is a LLaMA of random weights, saved as transformers does and read by
`coda train --init`; the text is this repository's documents, a token a byte. With transformers,
torch.optim.AdamW and clip_grad_norm_ the same steps are made

    fp32             once
    bf16             five times: under torch.autocast, the same with each batch in two and in four
                     parts, and with parameters in bf16 (fp32 masters behind them), with each batch
                     whole and in two parts. Only roundings differ, so what these five differ by is
                     what bf16 costs in PyTorch.

Losses of a step are compared: the mean and the largest of |a - b| over the steps. It holds if ours
in fp32 is no further from PyTorch's in fp32, and ours in bf16 on the mean no further from PyTorch's
five, than two of these five are from each other, by the mean difference; else the exit status is
1. It runs on a GPU where there is one, `--size small` some three minutes; `--size tiny` is for a
CPU, 30 seconds of it. FILE gets the losses, a line of JSON a run.
"""

import argparse
import itertools
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "parity"))

import torch
from hf_trajectory import batch_of, rate_of
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

SIZES = {  # of the model, then of a batch
    "tiny": ({"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
              "num_key_value_heads": 2, "intermediate_size": 192}, {"batch": 4, "sequence": 64}),
    "small": ({"hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8,
               "num_key_value_heads": 4, "intermediate_size": 1408},
              {"batch": 16, "sequence": 512})}
TRAINING = {"seed": 1, "lr": 1e-3, "final_lr": 0.1, "warmup": 20, "decay": 0.1, "beta1": 0.9,
            "beta2": 0.95, "adam_eps": 1e-8, "clip": 1.0}


def losses_of_coda(f: argparse.Namespace, dtype: str, model: pathlib.Path, ids: pathlib.Path,
                   out: pathlib.Path) -> list[float]:
    words = [f.coda, "train", "--init", model, "--ids", ids, "--out", out, "--dtype", dtype,
             "--device", "gpu" if f.device == "cuda" else "cpu", "--sample", "0", "--held-out",
             "0", "--save-every", str(f.steps)]
    for name in ("steps", "batch", "sequence", *TRAINING):
        words += ["--" + name.replace("_", "-"), str(getattr(f, name))]
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    points = json.loads((out / "latest" / "run_state.json").read_text())["train_losses"]
    assert [step for step, _ in points] == list(range(1, f.steps + 1)), "a loss for each step"
    return [loss for _, loss in points]


def losses_of_torch(f: argparse.Namespace, folder: pathlib.Path, text: bytes, parts: int = 1,
                    parameters: torch.dtype = torch.float32, autocast: bool = False) -> list[float]:
    model = LlamaForCausalLM.from_pretrained(
        folder, dtype=parameters, attn_implementation="eager").to(f.device)
    model.train()
    own = list(model.parameters())
    masters = own
    if parameters != torch.float32:
        whole = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).to(f.device)
        masters = list(whole.parameters())
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in masters if p.dim() > 1], "weight_decay": f.decay},
         {"params": [p for p in masters if p.dim() == 1], "weight_decay": 0.0}],
        betas=(f.beta1, f.beta2), eps=f.adam_eps)
    losses = []
    for step in range(f.steps):
        tokens, targets = (whole.to(f.device) for whole in batch_of(f, text, step, 0))
        optimizer.zero_grad()
        model.zero_grad()
        loss_of_step = torch.zeros((), device=f.device)
        for part, wanted in zip(tokens.chunk(parts), targets.chunk(parts)):
            with torch.autocast(f.device, torch.bfloat16, enabled=autocast):
                logits = model(input_ids=part, use_cache=False).logits
            loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1),
                                                     wanted.flatten()) / parts
            loss.backward()
            loss_of_step += loss.detach()
        losses.append(loss_of_step.item())
        if masters is not own:
            for master, parameter in zip(masters, own):
                master.grad = parameter.grad.float()
        torch.nn.utils.clip_grad_norm_(masters, f.clip)
        for group in optimizer.param_groups:
            group["lr"] = rate_of(f, step)
        optimizer.step()
        if masters is not own:
            with torch.no_grad():
                for master, parameter in zip(masters, own):
                    parameter.copy_(master)
    return losses


def differences(a: list[float], b: list[float]) -> tuple[float, float]:
    """The mean and the largest."""
    each = [abs(x - y) for x, y in zip(a, b, strict=True)]
    return statistics.mean(each), max(each)


def judge(losses: dict[str, list[float]]) -> bool:
    bf16 = [name for name in losses if name.startswith("PyTorch, bf16")]

    def compared(first: str, second: str) -> float:
        mean, largest = differences(losses[first], losses[second])
        print(f"{first:34}{second:34}{mean:12.2e}{largest:12.2e}")
        return mean

    print(f"\n{'':68}{'mean |a-b|':>12}{'largest':>12}")
    theirs = [compared(a, b) for a, b in itertools.combinations(bf16, 2)]
    fp32 = compared("coda, fp32", "PyTorch, fp32")
    ours = [compared("coda, bf16", name) for name in bf16]
    compared(bf16[0], "PyTorch, fp32")
    compared("coda, bf16", "PyTorch, fp32")
    first, last = (statistics.mean(part) for part in (losses["PyTorch, fp32"][:10],
                                                      losses["PyTorch, fp32"][-10:]))
    print(f"\nPyTorch's loss in fp32 goes from {first:.3f} to {last:.3f} (means of ten steps)")
    holds = True
    for name, found in (("fp32", fp32), ("bf16", statistics.mean(ours))):
        is_within = found <= max(theirs)
        holds &= is_within
        print(f"ours in {name}: {found:.2e} from PyTorch's, "
              f"{'within' if is_within else 'BEYOND'} the {max(theirs):.2e} that two runs of "
              f"PyTorch in bf16 differ by")
    return holds


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("coda")
    parser.add_argument("--size", choices=sorted(SIZES), default="small")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--out", type=pathlib.Path)
    f = parser.parse_args()
    sizes, batch = SIZES[f.size]
    vars(f).update(batch, **TRAINING)
    f.device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(1)  # a small model's threads wait for one another more than they compute
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    torch.backends.cuda.matmul.allow_tf32 = False
    text = b"".join(path.read_bytes() for path in sorted((ROOT / "docs").glob("*.md")))

    losses = {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "text.ids").write_bytes(b"".join(bytes((byte, 0)) for byte in text))
        torch.manual_seed(0)
        LlamaForCausalLM(LlamaConfig(
            vocab_size=256, tie_word_embeddings=True, max_position_embeddings=f.sequence,
            **sizes)).save_pretrained(folder / "model")
        model = folder / "model"
        runs = {
            "coda, fp32": lambda: losses_of_coda(f, "fp32", model, folder / "text.ids",
                                                 folder / "fp32"),
            "coda, bf16": lambda: losses_of_coda(f, "bf16", model, folder / "text.ids",
                                                 folder / "bf16"),
            "PyTorch, fp32": lambda: losses_of_torch(f, model, text),
            "PyTorch, bf16 autocast": lambda: losses_of_torch(f, model, text, autocast=True),
            "PyTorch, bf16 autocast, halves": lambda: losses_of_torch(f, model, text, parts=2,
                                                                      autocast=True),
            "PyTorch, bf16 autocast, quarters": lambda: losses_of_torch(f, model, text, parts=4,
                                                                        autocast=True),
            "PyTorch, bf16 parameters": lambda: losses_of_torch(f, model, text,
                                                                parameters=torch.bfloat16),
            "PyTorch, bf16 parameters, halves": lambda: losses_of_torch(
                f, model, text, parts=2, parameters=torch.bfloat16)}
        for run, train in runs.items():
            started = time.perf_counter()
            losses[run] = train()
            print(f"{run:36} {time.perf_counter() - started:5.1f} s, losses {losses[run][0]:.4f} "
                  f"to {losses[run][-1]:.4f}", flush=True)
    if f.out:
        gpu = torch.cuda.get_device_name() if f.device == "cuda" else "CPU"
        f.out.write_text("".join(
            json.dumps({"run": run, "size": f.size, "on": gpu, "torch": torch.__version__,
                        "losses": [round(loss, 7) for loss in its]}) + "\n"
            for run, its in losses.items()))
    return 0 if judge(losses) else 1


if __name__ == "__main__":
    sys.exit(main())
