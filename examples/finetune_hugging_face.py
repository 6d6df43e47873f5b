#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a Hugging Face model on a text, on a GPU if there is one and else on the CPU.

    finetune_hugging_face.py --text book.txt                      a small LLaMA over bytes, from new
    finetune_hugging_face.py --text book.txt --model FOLDER       a checkpoint with its tokenizer

What differs from plain PyTorch is the line with backend="coda". The model that is saved is as
Hugging Face saves any.
"""

import argparse
import contextlib
import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

import coda_cpp


def load(folder, text, length):
    """The model, and the text as ids."""
    if folder is not None:
        tokens = AutoTokenizer.from_pretrained(folder)(text)["input_ids"]
        return AutoModelForCausalLM.from_pretrained(folder, dtype="float32"), torch.tensor(tokens)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=256, hidden_size=256, intermediate_size=704, num_hidden_layers=4,
        num_attention_heads=4, max_position_embeddings=length))
    return model, torch.tensor(list(text.encode()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--model", type=Path, help="a folder with a checkpoint and its tokenizer")
    parser.add_argument("--out", type=Path, help="where the trained model is saved")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=256, help="tokens of a sequence")
    parser.add_argument("--rate", type=float, default=3e-4)
    parser.add_argument("--inner", default="inductor", help="what compiles what is left over")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, ids = load(arguments.model, arguments.text.read_text(), arguments.length)
    if len(ids) <= arguments.length:
        parser.error(f"the text has {len(ids)} tokens, and one sequence takes {arguments.length}")
    model = coda_cpp.without_logits(model.to(device).train())
    model.config.use_cache = False
    compiled = torch.compile(model, backend="coda", options={"inner": arguments.inner})

    def batch():
        starts = torch.randint(0, len(ids) - arguments.length, (arguments.batch,))
        return torch.stack([ids[i:i + arguments.length] for i in starts]).to(device)

    def autocast():  # products in bf16 on a GPU; a CPU computes in fp32
        return (torch.autocast(device, torch.bfloat16) if device == "cuda"
                else contextlib.nullcontext())

    with autocast():
        first = batch()
        print(coda_cpp.explain(model, input_ids=first, labels=first))
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.rate)
    started, tokens = time.perf_counter(), 0
    for step in range(1, arguments.steps + 1):
        rows = batch()
        with autocast():
            loss = compiled(input_ids=rows, labels=rows).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        tokens += rows.numel()
        if step == 1:  # it compiled
            started, tokens = time.perf_counter(), 0
        if step % 10 == 0 or step in (1, arguments.steps):
            speed = tokens / (time.perf_counter() - started)
            print(f"step {step}: loss {loss.item():.4f}, {speed:.0f} tokens/s")
    if arguments.out is not None:
        model.save_pretrained(arguments.out)
        print(f"saved in {arguments.out}")


if __name__ == "__main__":
    main()
