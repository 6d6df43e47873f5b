#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `coda eval` with transformers on a random LLaMA of 134 million parameters.

Usage: hf_eval_large.py CODA FOLDER. CODA is the built command; FOLDER gets the checkpoint (0.6 GB)
and a file of token ids. Fails unless the losses differ by less than 1e-4 of theirs. Takes a few
minutes, so no test runs it by default.
"""

import json
import os
import pathlib
import subprocess
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from transformers import LlamaConfig, LlamaForCausalLM

TOKENS = 512


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    coda, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    config = LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
        num_attention_heads=9, num_key_value_heads=3, max_position_embeddings=2048,
        tie_word_embeddings=True, rms_norm_eps=1e-5, initializer_range=0.04,
        attn_implementation="eager")
    torch.manual_seed(1)
    model = LlamaForCausalLM(config).float().eval()
    model.save_pretrained(folder / "checkpoint")
    ids = torch.randint(0, config.vocab_size, (1, TOKENS))
    ids.to(torch.int32).numpy().astype("<u4").tofile(folder / "ids.bin")
    with torch.no_grad():
        theirs = model(input_ids=ids, labels=ids, use_cache=False).loss.item()
    count = sum(p.numel() for p in model.parameters())
    result = subprocess.run(
        [coda, "eval", folder / "checkpoint", "--ids", folder / "ids.bin", "--id-bytes", "4",
         "--sequence", str(TOKENS), "--json"], check=True, stdout=subprocess.PIPE)
    ours = json.loads(result.stdout)["loss"]
    error = abs(ours - theirs) / theirs
    print(f"{count / 1e6:.1f}M parameters: transformers {theirs:.6f}, coda {ours:.6f}, "
          f"relative difference {error:.1e}")
    sys.exit(0 if error < 1e-4 else "hf_eval_large: the losses differ")


if __name__ == "__main__":
    main()
