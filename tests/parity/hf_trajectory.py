#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains as `coda train` did and says how far the run is from PyTorch's.

Usage: hf_trajectory.py --data FILE [the training flags of the runs] RUN...

Each RUN is a folder of `coda train` with the checkpoint of step 0 and that of the last step. From
the weights of step 0 the same steps are made twice with transformers, torch.optim.AdamW and
clip_grad_norm_:

    exactly      in float64, on weights rounded before each pass to the type that the checkpoint
                 stores them in, with a master copy behind them
    yardstick    by PyTorch in the run's type, fp32 or bf16 (all parameters of the model, and what
                 it computes), with fp32 masters: what PyTorch's own roundings do

A line for each loss and each parameter:

    RUN loss STEP OURS YARDSTICK      relative errors against the exact loss; the yardstick's is the
                                      root mean square over the steps
    RUN weight NAME OURS YARDSTICK    ||w - exact|| / ||exact - start||, or 0 where nothing moved

The rate, the choice of rows and what decays are written here from their documentation, not taken
from the run.
"""

import argparse
import json
import math
import os
import pathlib

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from transformers.utils import logging

MASK = (1 << 64) - 1


def mixed(x: int) -> int:
    """splitmix64's finalizer."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def batch_of(f: argparse.Namespace, text: bytes, step: int, accumulated: int):
    """Inputs and targets [batch, sequence] of a pass; rows are counted through a step's passes."""
    rows = []
    for row in range(accumulated * f.batch, (accumulated + 1) * f.batch):
        bits = mixed(mixed(mixed(f.seed) ^ step) ^ row)
        start = (bits * (len(text) - f.sequence)) >> 64
        rows.append(list(text[start:start + f.sequence + 1]))
    tokens = torch.tensor(rows)
    return tokens[:, :-1], tokens[:, 1:]


def rate_of(f: argparse.Namespace, step: int) -> float:
    """Of step 0, 1, ...: a line up to the peak, half a cosine down to its share `final_lr`."""
    if step < f.warmup:
        return f.lr * (step + 1) / f.warmup
    done = (step - f.warmup) / (f.steps - f.warmup)
    floor = f.lr * f.final_lr
    return floor + (f.lr - floor) * (1 + math.cos(math.pi * done)) / 2


def train(f: argparse.Namespace, text: bytes, folder: pathlib.Path, start: dict,
          storage: dict, arithmetic: torch.dtype) -> tuple[list[float], dict]:
    """Losses of the steps, and the master weights after them."""
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=arithmetic, attn_implementation="eager").eval()
    wide = torch.promote_types(arithmetic, torch.float32)  # masters and gradients
    parameters = dict(model.named_parameters())
    masters = {name: torch.nn.Parameter(start[name].to(wide, copy=True)) for name in parameters}
    groups = [
        {"params": [p for p in masters.values() if p.dim() > 1], "weight_decay": f.decay},
        {"params": [p for p in masters.values() if p.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(f.beta1, f.beta2), eps=f.adam_eps)
    losses = []
    for step in range(f.steps):
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(masters[name].to(storage[name]))
        for master in masters.values():
            master.grad = torch.zeros_like(master)
        loss_of_step = 0.0
        for accumulated in range(f.accumulate):
            tokens, targets = batch_of(f, text, step, accumulated)
            model.zero_grad()
            logits = model(input_ids=tokens, use_cache=False).logits.to(wide)
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
            (loss / f.accumulate).backward()
            loss_of_step += loss.item() / f.accumulate
            for name, parameter in parameters.items():
                masters[name].grad += parameter.grad.to(wide)
        losses.append(loss_of_step)
        torch.nn.utils.clip_grad_norm_(masters.values(), f.clip)
        for group in optimizer.param_groups:
            group["lr"] = rate_of(f, step)
        optimizer.step()
    return losses, {name: master.detach().double() for name, master in masters.items()}


def masters_of(checkpoint: pathlib.Path) -> tuple[dict, dict]:
    """fp32 weights by name, and the types that the checkpoint stores them in."""
    weights = load_file(checkpoint / "model.safetensors")
    storage = {name: weight.dtype for name, weight in weights.items()}
    state = load_file(checkpoint / "optimizer.safetensors")
    return {name: state.get("master." + name, weight) for name, weight in weights.items()}, storage


def judge(f: argparse.Namespace, text: bytes, run: pathlib.Path) -> None:
    last = run / f"step-{f.steps:06d}"
    start, storage = masters_of(run / "step-000000")
    ours, _ = masters_of(last)
    points = json.loads((last / "run_state.json").read_text())["train_losses"]
    exact_losses, exact = train(f, text, last, start, storage, torch.float64)
    is_bf16 = torch.bfloat16 in storage.values()
    yardstick_losses, yardstick = train(
        f, text, last, start, storage, torch.bfloat16 if is_bf16 else torch.float32)
    assert [step for step, _ in points] == list(range(1, f.steps + 1)), "a loss for each step"
    yardstick_error = math.sqrt(sum(
        (y / x - 1) ** 2 for x, y in zip(exact_losses, yardstick_losses)) / f.steps)
    for (step, loss), exact_loss in zip(points, exact_losses):
        print(f"{run.name} loss {step} {abs(loss / exact_loss - 1):.3e} {yardstick_error:.3e}")
    for name, weight in exact.items():
        moved = (weight - start[name].double()).norm().item()
        errors = [(other[name].double() - weight).norm().item() for other in (ours, yardstick)]
        print(f"{run.name} weight {name} "
              + " ".join(f"{error / moved if moved else error:.3e}" for error in errors))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    for name in ("steps", "batch", "accumulate", "sequence", "seed", "warmup"):
        parser.add_argument("--" + name, type=int, required=True)
    for name in ("lr", "final-lr", "decay", "beta1", "beta2", "adam-eps", "clip"):
        parser.add_argument("--" + name, type=float, required=True)
    parser.add_argument("runs", type=pathlib.Path, nargs="+", metavar="RUN")
    f = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    text = f.data.read_bytes()
    for run in f.runs:
        judge(f, text, run)


if __name__ == "__main__":
    main()
