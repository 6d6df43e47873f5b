#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of a training step: transformers' LLaMA or GPT-2 with AdamW, on the CPU.

    train_torch.py --config FOLDER --batch B --sequence T [--dtype fp32|bf16] [--compile]

FOLDER has a config.json; weights and token ids are random. A step is forward, cross-entropy,
backward, clipping to norm 1 and AdamW. bf16 is autocast over fp32 weights. Attention is PyTorch's
fused one. Prints one JSON object: the median seconds of a step after two warm-up steps, the tokens
per second, the peak resident memory of the process (VmHWM), and its increase since before the first
step (which includes the gradients and the optimizer's state, but not the weights).
"""

import argparse
import json
import os
import statistics
import time

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from transformers import AutoConfig, AutoModelForCausalLM

import block_torch

WARM_UP_STEPS = 2


def make_step(model, batch: int, sequence: int, dtype: str):
    vocabulary = model.config.vocab_size
    decayed = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        lr=1e-4, betas=(0.9, 0.95))
    random = torch.Generator().manual_seed(1)

    def step() -> float:
        ids = torch.randint(0, vocabulary, (batch, sequence + 1), generator=random)
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            logits = model(input_ids=ids[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(
            logits.float().flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, metavar="FOLDER")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--sequence", type=int, required=True)
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(arguments.config)
    model = AutoModelForCausalLM.from_config(
        config, dtype=torch.float32, attn_implementation="sdpa").train()
    parameters = sum(p.numel() for p in model.parameters())
    if arguments.compile:
        model.compile(dynamic=False)
    before = block_torch.status_bytes("VmRSS")
    step = make_step(model, arguments.batch, arguments.sequence, arguments.dtype)
    seconds = []
    for index in range(WARM_UP_STEPS + arguments.steps):
        start = time.perf_counter()
        step()
        if index >= WARM_UP_STEPS:
            seconds.append(time.perf_counter() - start)
    median = statistics.median(seconds)
    highest = block_torch.status_bytes("VmHWM")
    print(json.dumps({
        "torch": torch.__version__, "threads": arguments.threads, "compiled": arguments.compile,
        "dtype": arguments.dtype, "parameters": parameters, "seconds": median,
        "tokens_per_second": arguments.batch * arguments.sequence / median,
        "highest_bytes": highest, "added_bytes": highest - before}))


if __name__ == "__main__":
    main()
