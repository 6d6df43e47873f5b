#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares examples/qwen3.cc with transformers' Qwen3ForCausalLM: loss and all gradients, in fp32.

Usage: qwen3.py PROGRAM. The program runs as for a user, for one step from weights that transformers
saved. The text has one sequence, so all rows of the batch are equal. Gradients, clipped to a norm
of 1, are AdamW's first moments after one step divided by (1 - beta1). Exits with 77 if torch or
transformers is missing.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

try:
    import torch
    from safetensors.torch import load_file
    from transformers import Qwen3Config, Qwen3ForCausalLM
    from transformers.utils import logging
except ImportError as error:
    print(f"skipped: {error}; scripts/setup.sh judges installs it")
    sys.exit(77)

TOLERANCE = 1e-4
KEPT = 0.9  # beta1 of the example
LENGTH = 64
TEXT = bytes(1 + (i * i * 7 + i // 3 * 11) % 251 for i in range(LENGTH + 1))


def make_model(tied: bool) -> torch.nn.Module:
    config = Qwen3Config(
        vocab_size=256, hidden_size=64, intermediate_size=160, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=32, rms_norm_eps=1e-6,
        max_position_embeddings=LENGTH, tie_word_embeddings=tied, attn_implementation="eager",
        rope_parameters=dict(rope_type="default", rope_theta=10000.0))
    model = Qwen3ForCausalLM(config).float().eval()
    # Weights far enough from the usual start that norms, softmax and activations are not linear.
    random = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for _, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=random)
            parameter.copy_(noise * 0.15 if parameter.dim() == 2 else 1 + noise * 0.2)
    return model


def distance(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return ((ours.double() - theirs.double()).norm() / theirs.double().norm()).item()


def check(program: str, tied: bool) -> list[str]:
    """What is not as it should be."""
    model = make_model(tied)
    ids = torch.tensor([list(TEXT)])
    logits = model(input_ids=ids[:, :-1], use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model.save_pretrained(folder / "weights")
        (folder / "text").write_bytes(TEXT)
        command = [program, folder / "text", folder / "run", "1", folder / "weights"]
        output = subprocess.run(command + ([] if tied else ["untied"]), check=True, text=True,
                                capture_output=True).stdout
        moments = load_file(folder / "run/latest/optimizer.safetensors")
    errors = {"loss": abs(float(re.search(r"step 1: loss (\S+)", output)[1]) / loss.item() - 1)}
    gradients = dict(model.named_parameters())
    ours = {key[2:]: value for key, value in moments.items() if key.startswith("m.")}
    if ours.keys() != gradients.keys():
        return [f"other parameters: {sorted(ours.keys() ^ gradients.keys())}"]
    for key, parameter in gradients.items():
        errors[key] = distance(ours[key] / (1 - KEPT), parameter.grad)
    print(f"tied {tied}: loss {loss.item():.6f}, largest error {max(errors.values()):.1e} of "
          f"{len(errors)}")
    return [f"{key}: {value:.1e}" for key, value in errors.items() if not value < TOLERANCE]


def main() -> int:
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    wrong = [line for tied in (True, False) for line in check(sys.argv[1], tied)]
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
