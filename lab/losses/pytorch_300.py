#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""300 steps of a small LLaMA on text in bf16: is the backend "coda" within eager's own noise?

    lab/losses/pytorch_300.py --out lab/results/train_step/pytorch_300_h200.jsonl

From one state and over the same batches a model of PyTorch's (bench/peers/models_torch.py) trains

- in eager mode with each of several implementations of attention, and with the batch in two halves
  whose gradients are added, and with the residual stream in bf16, as a bf16 model has it and as
  the backend stores it: how far these curves lie from one another is eager's noise,
- with torch.compile(model, backend="coda") twice, which must give the same bits,
- in eager mode in fp32, which says where all of them should be.

A curve is made of means over 20 steps, since single batches differ more than runs do. The
distance of two curves is the root of the mean square of their differences. The verdict is good
where the mean of our distances to eager's curves is at most the largest between two of eager's,
and our two runs have the same losses and weights, bit for bit. Distances to fp32 are told too.
Prints a line of JSON a run and the verdict, and fails if that is bad. All runs are with PyTorch's
deterministic algorithms.
"""

import argparse
import contextlib
import itertools
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402 (reads the variable)
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "peers"))

from models_torch import Llama  # noqa: E402 (lies beside the benchmarks)

import coda_cpp  # noqa: E402, F401 (makes the backend known)

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# Those that take grouped heads and have a backward that repeats its bits.
ATTENTIONS = {"math": SDPBackend.MATH, "flash": SDPBackend.FLASH_ATTENTION}
MEAN = 20


def text_of(path):
    """Bytes of a file, or of all pages of a folder in the order of their names."""
    files = [path] if path.is_file() else sorted(path.rglob("*.md"))
    return torch.tensor(list(b"\n".join(file.read_bytes() for file in files)))


def train(arguments, ids, state, attention, backend=None, low=True, parts=1,
          narrow=False):
    """The losses and the weights at the end."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.device(DEVICE):
        model = model_of(arguments)
    model.load_state_dict(state)
    called = model
    if narrow:
        model.embedding.register_forward_hook(lambda module, given, made: made.bfloat16())
    if backend:
        # Small regions too: the question here is what they compute, not what they gain.
        called = torch.compile(model, backend=backend, dynamic=False, options={
            "cost_model": False, "strict": True, "inner": arguments.inner})
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.rate, betas=(0.9, 0.95))
    generator = torch.Generator().manual_seed(1)
    losses = []
    for step in range(arguments.steps):
        for group in optimizer.param_groups:
            group["lr"] = arguments.rate * min(1, (step + 1) / 20)
        starts = torch.randint(0, len(ids) - arguments.sequence - 1, (arguments.batch,),
                               generator=generator)
        rows = torch.stack([ids[i:i + arguments.sequence + 1] for i in starts]).to(DEVICE)
        loss = torch.zeros((), device=DEVICE)
        for part in rows.chunk(parts):
            cast = torch.autocast(DEVICE, torch.bfloat16) if low else contextlib.nullcontext()
            with cast, sdpa_kernel(ATTENTIONS[attention]):
                of_part = called(part[:, :-1], part[:, 1:]) / parts
            of_part.backward()
            loss += of_part.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss)
    return torch.stack(losses).float().cpu(), [p.detach().cpu() for p in model.parameters()]


def model_of(arguments):
    return Llama(arguments.sequence, layers=arguments.layers, hidden=arguments.hidden,
                 heads=arguments.hidden // 64, kv_heads=arguments.hidden // 128,
                 mlp=3 * arguments.hidden, tied=True, vocabulary=256)


def distance(a, b):
    a, b = (curve[:len(curve) // MEAN * MEAN].view(-1, MEAN).mean(1) for curve in (a, b))
    return (a - b).square().mean().sqrt().item()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, default=ROOT / "docs",
                        help="a file, or a folder with .md files")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=512, help="a multiple of 128")
    parser.add_argument("--batch", type=int, default=16, help="an even number")
    parser.add_argument("--sequence", type=int, default=256)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--inner", default="inductor", help="what compiles what is left over")
    parser.add_argument("--out", type=Path, help="where the lines go too")
    arguments = parser.parse_args()
    if arguments.steps < MEAN:
        parser.error(f"--steps: at least {MEAN}")
    torch.use_deterministic_algorithms(True)
    ids = text_of(arguments.text)
    torch.manual_seed(0)
    state = model_of(arguments).state_dict()

    lines = []

    def tell(found):
        lines.append(json.dumps(found))
        print(lines[-1] if "losses" not in found else json.dumps(
            {**found, "losses": f"{len(found['losses'])} of them"}), flush=True)

    curves, weights = {}, {}
    kinds = {f"eager bf16, {name} attention": (name, None, True) for name in ATTENTIONS}
    kinds |= {"eager bf16, batch in halves": ("math", None, True, 2),
              "eager bf16, residual stream in bf16": ("math", None, True, 1, True)}
    kinds |= {"coda bf16": ("math", "coda", True), "coda bf16, again": ("math", "coda", True),
              "eager fp32": ("math", None, False)}
    for kind, how in kinds.items():
        curves[kind], weights[kind] = train(arguments, ids, state, *how)
        tell({"run": kind, "last_20": round(curves[kind][-MEAN:].mean().item(), 4),
              "losses": [round(loss, 5) for loss in curves[kind].tolist()]})
    eager = [kind for kind in kinds if kind.startswith("eager bf16")]
    noise = [distance(curves[a], curves[b]) for a, b in itertools.combinations(eager, 2)]
    ours = [distance(curves["coda bf16"], curves[kind]) for kind in eager]
    is_repeatable = torch.equal(curves["coda bf16"], curves["coda bf16, again"]) and all(
        map(torch.equal, weights["coda bf16"], weights["coda bf16, again"]))
    to_fp32 = {kind: distance(curves[kind], curves["eager fp32"]) for kind in [*eager, "coda bf16"]}
    is_within = sum(ours) / len(ours) <= max(noise)
    tell({"verdict": "good" if is_within and is_repeatable else "bad",
          "within_eagers_noise": is_within, "same_bits_twice": is_repeatable,
          "between_eager_runs": [round(d, 5) for d in noise],
          "ours_to_eager_runs": [round(d, 5) for d in ours],
          "to_fp32": {kind: round(found, 5) for kind, found in to_fp32.items()},
          "torch": torch.__version__, "model": {name: getattr(arguments, name) for name in (
              "layers", "hidden", "batch", "sequence", "rate", "steps")},
          "on": torch.cuda.get_device_name() if DEVICE == "cuda" else "cpu"})
    if arguments.out:
        arguments.out.write_text("\n".join(lines) + "\n")
    sys.exit(not (is_within and is_repeatable))


if __name__ == "__main__":
    main()
