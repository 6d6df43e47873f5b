#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of bench/train_step: whole optimizer steps of a LLaMA on a GPU.

    train_step_torch.py --model 1b --batch 16 --sequence 2048 [--float8 tensorwise]
    train_step_torch.py --backend inductor coda --turns 3 [--explain]
    torchrun --nproc-per-node 2 train_step_torch.py --batch 32 --parallel ddp

A plain LLaMA as torchtitan writes it, torch.compile of the whole model with its loss, attention
through cuDNN (is_causal, grouped heads), fp32 master weights under bf16 autocast, fused AdamW,
random ids. Unlike ours it does not clip the gradients, which is to its advantage. Prints a line of
JSON for each `--backend`: the median of the steps' milliseconds by CUDA events, after
`--heat` seconds of steps, in turns; peak memory; and the losses of the first steps from one state.
Without a GPU it only says the losses: `--model tiny --batch 2 --sequence 64`.

Of several processes each has a GPU and its share of the batch (`--parallel`): DDP, whose model is
compiled as a whole, or FSDP2 as torchtitan has it, each block and the loss compiled, with bf16
parameters in place of autocast and gradients added up in fp32. Rank 0 prints.
"""

import argparse
import json
import logging
import os
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel

SIZES = {
    "tiny": {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "mlp": 128, "tied": True},
    "1b": {"layers": 16, "hidden": 2048, "heads": 32, "kv_heads": 8, "mlp": 8192, "tied": True},
    "8b": {"layers": 4, "hidden": 4096, "heads": 32, "kv_heads": 8, "mlp": 14336, "tied": False},
}
VOCABULARY = 128256
ROPE_BASE = 500000
RANK, WORLD = (int(os.environ.get(name, default)) for name, default in
               (("RANK", "0"), ("WORLD_SIZE", "1")))
HEATING_OF_SEVERAL = 8  # steps: as many in all processes
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ATTENTION = SDPBackend.CUDNN_ATTENTION if DEVICE == "cuda" else SDPBackend.MATH


def rotate(x, cos, sin):
    first, second = x.float().chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).type_as(x)


class Attention(nn.Module):
    def __init__(self, hidden, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.head = heads, kv_heads, hidden // heads
        self.q = nn.Linear(hidden, heads * self.head, bias=False)
        self.k = nn.Linear(hidden, kv_heads * self.head, bias=False)
        self.v = nn.Linear(hidden, kv_heads * self.head, bias=False)
        self.o = nn.Linear(heads * self.head, hidden, bias=False)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        q = self.q(x).view(batch, length, self.heads, self.head).transpose(1, 2)
        k = self.k(x).view(batch, length, self.kv_heads, self.head).transpose(1, 2)
        v = self.v(x).view(batch, length, self.kv_heads, self.head).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o(y.transpose(1, 2).reshape(batch, length, -1))


class Block(nn.Module):
    def __init__(self, hidden, heads, kv_heads, mlp):
        super().__init__()
        self.attention_norm = nn.RMSNorm(hidden, eps=1e-5)
        self.attention = Attention(hidden, heads, kv_heads)
        self.mlp_norm = nn.RMSNorm(hidden, eps=1e-5)
        self.gate = nn.Linear(hidden, mlp, bias=False)
        self.up = nn.Linear(hidden, mlp, bias=False)
        self.down = nn.Linear(mlp, hidden, bias=False)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.attention_norm(x), cos, sin)
        h = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self, layers, hidden, heads, kv_heads, mlp, tied, vocabulary, sequence):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads, kv_heads, mlp) for _ in range(layers))
        self.norm = nn.RMSNorm(hidden, eps=1e-5)
        self.head = nn.Linear(hidden, vocabulary, bias=False)
        if tied:
            self.head.weight = self.embedding.weight
        half = hidden // heads // 2
        angles = torch.outer(torch.arange(sequence).float(),
                             ROPE_BASE ** (-torch.arange(half).float() / half))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, targets):
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.loss(x, targets)

    def loss(self, x, targets):
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def sharded(model):
    for block in model.blocks:
        block.compile(dynamic=False)
    model.loss = torch.compile(model.loss, dynamic=False)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32,
                                  cast_forward_inputs=False)  # RoPE's tables stay fp32
    mesh = dist.device_mesh.init_device_mesh(DEVICE, (WORLD,))
    for part in (*model.blocks, model):
        fully_shard(part, mesh=mesh, mp_policy=policy)
    return model


def compiled(model, backend, arguments):
    if WORLD > 1 and arguments.parallel == "fsdp2":
        return sharded(model)
    if WORLD > 1:
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    options = {"products": arguments.products} if backend == "coda" else None
    return torch.compile(model, dynamic=False, backend=backend, options=options)


def mean_of_all(loss):
    if WORLD > 1:
        dist.all_reduce(loss)
    return loss.item() / WORLD


class Run:
    """A backend's compiled model and its optimizer, over weights that are the runs' in common."""

    def __init__(self, backend, model, arguments, state):
        self.backend, self.arguments, self.state = backend, arguments, state
        self.model = model
        self.compiled = compiled(model, backend, arguments)
        self.has_autocast = not isinstance(next(model.parameters()), DTensor)
        self.ms, self.peak, self.losses, self.first_step = [], 0, [], 0.0
        self.optimizer = None

    def begin(self):
        """The same weights and no moments, so that every run's curve begins at one place."""
        for name, tensor in self.model.state_dict().items():
            whole = self.state[name]
            if isinstance(tensor, DTensor):
                whole = distribute_tensor(whole.to(DEVICE), tensor.device_mesh, tensor.placements)
            tensor.copy_(whole)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=1e-4, betas=(0.9, 0.95), fused=True)
        self.ids = torch.Generator().manual_seed(1)

    def step(self):
        size = self.arguments.batch, self.arguments.sequence + 1
        ids = torch.randint(0, self.arguments.vocabulary, size, generator=self.ids)
        ids = ids.chunk(WORLD)[RANK].to(DEVICE)
        autocast = torch.autocast(DEVICE, torch.bfloat16, enabled=self.has_autocast)
        with autocast, sdpa_kernel(ATTENTION):
            loss = self.compiled(ids[:, :-1], ids[:, 1:])
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss

    def start(self):
        started = time.perf_counter()
        self.begin()
        for _ in range(self.arguments.first):
            self.losses.append(round(mean_of_all(self.step().detach()), 4))
            self.first_step = self.first_step or time.perf_counter() - started

    def turn(self):
        if DEVICE != "cuda":
            return
        torch.cuda.reset_peak_memory_stats()
        hot, heating = time.perf_counter(), 0
        while (heating < HEATING_OF_SEVERAL if WORLD > 1 else
               time.perf_counter() - hot < self.arguments.heat):
            self.step()
            torch.cuda.synchronize()
            heating += 1
        events = [torch.cuda.Event(enable_timing=True) for _ in range(self.arguments.steps + 1)]
        events[0].record()
        for event in events[1:]:
            self.loss = self.step()
            event.record()
        torch.cuda.synchronize()
        self.ms.append(statistics.median(a.elapsed_time(b) for a, b in zip(events, events[1:])))
        self.peak = max(self.peak, torch.cuda.max_memory_allocated())

    def end(self):
        """What a run keeps between its turns would stand in the other's peak memory."""
        self.optimizer = None
        for parameter in self.model.parameters():
            parameter.grad = None

    def line(self, products):
        facts = self.arguments
        who = "torch.compile" if self.backend == "inductor" else f"backend {self.backend}"
        if WORLD > 1:
            who += {"ddp": ", DDP", "fsdp2": ", FSDP2"}[facts.parallel]
        found = {
            "who": f"{who} {torch.__version__}", "gpus": WORLD, "products": products,
            "model": facts.model, "batch": facts.batch, "sequence": facts.sequence,
            "first_step_s": round(self.first_step, 1), "first_losses": self.losses}
        if DEVICE == "cuda":
            ms = statistics.median(self.ms)
            found |= {
                "attention": f"cuDNN {torch.backends.cudnn.version()}", "ms": round(ms, 2),
                "turns_ms": [round(ms, 2) for ms in self.ms],
                "tokens_per_second": round(1e3 * facts.batch * facts.sequence / ms),
                "loss": round(self.loss.item(), 4), "peak_gib": round(self.peak / 2**30, 2),
                "gpu": torch.cuda.get_device_name()}
        return json.dumps(found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(SIZES), default="1b")
    parser.add_argument("--batch", type=int, default=16, help="of all processes")
    parser.add_argument("--sequence", type=int, default=2048)
    parser.add_argument("--backend", choices=("inductor", "coda"), nargs="+", default=["inductor"])
    parser.add_argument("--parallel", choices=("ddp", "fsdp2"), default="ddp",
                        help="what several processes do")
    parser.add_argument("--explain", action="store_true", help="says what backend coda has taken")
    parser.add_argument("--first", type=int, default=5, help="steps whose losses are told")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--heat", type=float, default=4)
    parser.add_argument("--products", choices=("", "fp8", "fp8-body", "fp8-all"), default="",
                        help="backend coda: products in 8 bits (docs/fp8.md)")
    parser.add_argument("--float8", choices=("tensorwise", "rowwise"),
                        help="products of the blocks in 8 bits, by torchao; the head stays bf16")
    arguments = parser.parse_args()
    arguments.vocabulary = VOCABULARY if arguments.model != "tiny" else 512

    if arguments.explain:
        logging.basicConfig()
        logging.getLogger("coda_cpp").setLevel(logging.INFO)
    if "coda" in arguments.backend:
        import coda_cpp  # noqa: F401 (makes the backend known)
    if WORLD > 1:
        if DEVICE == "cuda":
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", RANK)))
        dist.init_process_group("nccl" if DEVICE == "cuda" else "gloo")
    torch.manual_seed(0)
    with torch.device(DEVICE):
        model = Llama(**SIZES[arguments.model], vocabulary=arguments.vocabulary,
                      sequence=arguments.sequence)
    products = "bf16"
    if arguments.float8:
        import torchao
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training
        products = f"torchao {torchao.__version__} {arguments.float8}"
        convert_to_float8_training(
            model, config=Float8LinearConfig.from_recipe_name(arguments.float8),
            module_filter_fn=lambda module, name: "head" not in name)
    state = {name: tensor.to("cpu", copy=True) for name, tensor in model.state_dict().items()}
    runs = [Run(backend, model, arguments, state) for backend in arguments.backend]
    for run in runs:
        run.start()
        run.end()
    for _ in range(arguments.turns):
        for run in runs:
            run.begin()
            run.turn()
            run.end()
    for run in runs if RANK == 0 else ():
        print(run.line(arguments.products if run.backend == "coda" and arguments.products
                       else products))
    if WORLD > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
