#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads checkpoint folders with transformers; a line "loss X" for each on given token ids, in fp32.

Usage: hf_load.py CHECKPOINT... IDS. IDS is either a .safetensors file with `tokens` and `targets`,
as hf_reference.py writes it, or a text file with a sequence of ids a line, all equally long; then
the target of each position is the next id. A checkpoint with a tokenizer.json is given what its
tokenizer makes of short.txt, beside IDS, instead. Fails if a checkpoint lacks a
weight or has one more.
"""

import os
import pathlib
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

IGNORED = -100


def read_ids(path: pathlib.Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and targets, [B, T]."""
    if path.suffix == ".safetensors":
        tensors = load_file(path)
        return tensors["tokens"].long(), tensors["targets"].long()
    lines = [line.split() for line in path.read_text().splitlines() if line.strip()]
    if not lines or len(lines[0]) < 2 or any(len(line) != len(lines[0]) for line in lines):
        sys.exit(f"hf_load: {path}: needs lines of token ids, two or more, as many in each line")
    tokens = torch.tensor([[int(word) for word in line] for line in lines])
    targets = torch.full_like(tokens, IGNORED)
    targets[:, :-1] = tokens[:, 1:]
    return tokens, targets


def text_ids(checkpoint: str, text: pathlib.Path) -> tuple[torch.Tensor, torch.Tensor]:
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    tokens = torch.tensor([tokenizer(text.read_text())["input_ids"]])
    return tokens[:, :-1], tokens[:, 1:]


def loss_of(checkpoint: str, tokens: torch.Tensor, targets: torch.Tensor) -> float:
    model, loaded = AutoModelForCausalLM.from_pretrained(
        checkpoint, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if loaded[what]:
            sys.exit(f"hf_load: {checkpoint}: {what.replace('_', ' ')}: {sorted(loaded[what])}")
    with torch.no_grad():
        logits = model.eval()(input_ids=tokens, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
    return loss.item()


def main() -> None:
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    logging.disable_progress_bar()
    *checkpoints, ids = sys.argv[1:]
    tokens, targets = read_ids(pathlib.Path(ids))
    for checkpoint in checkpoints:
        batch = tokens, targets
        if (pathlib.Path(checkpoint) / "tokenizer.json").exists():
            batch = text_ids(checkpoint, pathlib.Path(ids).parent / "short.txt")
        print(f"loss {loss_of(checkpoint, *batch):.9g}", flush=True)


if __name__ == "__main__":
    main()
