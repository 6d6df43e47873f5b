#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of bench/train_step: whole optimizer steps of a language model on a GPU.

    train_step_torch.py --model 1b --batch 16 --sequence 2048 [--float8 tensorwise]
    train_step_torch.py --backend inductor coda --turns 3 [--explain]
    train_step_torch.py --backend inductor coda --starts
    train_step_torch.py --backend inductor coda --parts
    torchrun --nproc-per-node 2 train_step_torch.py --batch 32 --parallel ddp

The model is a plain one (models_torch.py), compiled as a whole with its loss. PyTorch's attention
is cuDNN's (is_causal, grouped heads); Hugging Face's model passes its own mask, and PyTorch chooses
the implementation. Weights are fp32 under bf16 autocast; AdamW is fused; ids are random. Without
`--clip` gradients are not clipped, unlike in our C++ benchmark, which is an advantage for PyTorch.
Prints a line of JSON for each `--backend`: the median milliseconds of a step by CUDA events, after
`--heat` seconds of steps, with backends in turns; the first backend's median divided by this; the
peak memory of PyTorch's allocator, other GPU memory since the start of the run (sessions, kernels),
and the sum; and the losses of the first steps from a common state. With `--starts` it instead
measures the seconds to the first step in separate processes, with empty and with full kernel
caches: from the model on, and from the start of the process, because the imports of torch.compile
before its first call depend on the backend. `--parts` also prints the kernels of a step by part
(step_parts.py). A backend without its package is reported and skipped. Without a GPU only the
losses are printed: `--model tiny --batch 2 --sequence 64`.

With several processes each has a GPU and its share of the batch (`--parallel`): DDP, with the model
compiled as a whole, or FSDP2 as in torchtitan, with each block and the loss compiled, bf16
parameters instead of autocast, and gradients summed in fp32. Rank 0 prints.
"""

import argparse
import importlib.util
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel

from models_torch import HUGGING_FACE, LLAMA, MODELS, Liger, Plain, model_of
from step_parts import parts_of_step

RANK, WORLD = (int(os.environ.get(name, default)) for name, default in
               (("RANK", "0"), ("WORLD_SIZE", "1")))
HEATING_OF_SEVERAL = 8  # steps, the same number in all processes
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# In this order. If only cuDNN's were allowed, coda would keep it too.
ATTENTION = ([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION] if DEVICE == "cuda"
             else [SDPBackend.MATH])
OF_MASKS = [*ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
TUNED = "max-autotune-no-cudagraphs"
BACKENDS = ("inductor", "coda", TUNED, "liger")
CACHES = ("CODA_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


def outside_allocator():
    """Used GPU memory outside PyTorch's allocator, in bytes."""
    if DEVICE != "cuda":
        return 0
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


def sharded(model, named):
    for block in model.blocks:
        block.compile(**named)
    model.loss = torch.compile(model.loss, **named)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32,
                                  cast_forward_inputs=False)  # RoPE's tables stay fp32
    mesh = dist.device_mesh.init_device_mesh(DEVICE, (WORLD,))
    for part in (*model.blocks, model):
        fully_shard(part, mesh=mesh, mp_policy=policy)
    return model


def compiled(model, backend, arguments):
    named = {"dynamic": False, "backend": "coda" if backend == "coda" else "inductor"}
    if backend == TUNED:
        named = {"dynamic": False, "mode": TUNED}
    elif backend == "coda":
        named["options"] = {"products": arguments.products, "objective": arguments.objective}
    if WORLD > 1 and arguments.parallel == "fsdp2":
        return sharded(model, named)
    if WORLD > 1:
        model = DistributedDataParallel(model, gradient_as_bucket_view=True,
                                        bucket_cap_mb=arguments.bucket_mb)
    return torch.compile(model, **named)


def mean_of_all(loss):
    if WORLD > 1:
        dist.all_reduce(loss)
    return loss.item() / WORLD


def process_seconds():
    """Seconds since the start of this process."""
    with open("/proc/self/stat") as stat:
        started = int(stat.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


class Run:
    """A backend's compiled model and its optimizer. All runs share the weights."""

    def __init__(self, backend, model, arguments, state):
        self.backend, self.arguments, self.state = backend, arguments, state
        self.model = model
        self.compiled = compiled(model, backend, arguments)
        self.has_autocast = not isinstance(next(model.parameters()), DTensor)
        self.ms, self.peak, self.losses, self.outside = [], 0, [], 0
        self.first_step = self.since_process = 0.0
        self.optimizer, self.parts = None, None

    def begin(self):
        """Restores the initial weights and clears the optimizer's state, so that all runs have the
        same start."""
        if self.arguments.model in LLAMA:
            self.model.use(Liger if self.backend == "liger" else Plain)
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
        attention = OF_MASKS if self.arguments.model in HUGGING_FACE else ATTENTION
        with autocast, sdpa_kernel(attention, set_priority=True):
            loss = self.compiled(ids[:, :-1], ids[:, 1:])
        loss.backward()
        if self.arguments.clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.arguments.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss

    def start(self):
        before = outside_allocator()
        started = time.perf_counter()
        self.begin()
        for _ in range(self.arguments.first):
            self.losses.append(round(mean_of_all(self.step().detach()), 4))
            self.first_step = self.first_step or time.perf_counter() - started
            self.since_process = self.since_process or process_seconds()
        self.outside = max(0, outside_allocator() - before)

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
        if self.arguments.parts:
            self.parts = parts_of_step(self.step)

    def end(self):
        """Frees a run's memory between its turns, because it would count in the other run's
        peak."""
        self.optimizer = None
        for parameter in self.model.parameters():
            parameter.grad = None
        if DEVICE == "cuda":
            torch.cuda.empty_cache()

    def line(self, products, first):
        facts = self.arguments
        who = {"inductor": "torch.compile", TUNED: f"torch.compile {TUNED}",
               "liger": "torch.compile and Liger's kernels"}.get(self.backend, "backend coda")
        if WORLD > 1:
            who += {"ddp": ", DDP", "fsdp2": ", FSDP2"}[facts.parallel]
        found = {
            "who": f"{who} {torch.__version__}", "gpus": WORLD, "products": products,
            "model": facts.model, "batch": facts.batch, "sequence": facts.sequence,
            "first_step_s": round(self.first_step, 1), "first_losses": self.losses}
        if WORLD > 1 and facts.parallel == "ddp" and facts.bucket_mb != 25:
            found["bucket_mb"] = facts.bucket_mb
        if facts.layers:
            found["layers"] = facts.layers
        if facts.clip:
            found["clip"] = facts.clip
        if self.backend == "coda" and facts.objective != "memory":
            found["objective"] = facts.objective
        if self.parts:
            found["parts_ms"], found["rest_ms"] = self.parts
        if DEVICE == "cuda":
            ms = statistics.median(self.ms)
            found |= {
                "pytorchs_attention": f"cuDNN {torch.backends.cudnn.version()}", "ms": round(ms, 2),
                "turns_ms": [round(ms, 2) for ms in self.ms],
                "first_backends_over_it": round(statistics.median(first.ms) / ms, 3),
                "tokens_per_second": round(1e3 * facts.batch * facts.sequence / ms),
                "loss": round(self.loss.item(), 4), "peak_gib": round(self.peak / 2**30, 2),
                "outside_allocator_gib": round(self.outside / 2**30, 2),
                "total_gib": round((self.peak + self.outside) / 2**30, 2),
                "gpu": torch.cuda.get_device_name()}
        return json.dumps(found)


def starts(arguments):
    """Seconds to the end of the first step, with empty and with full caches: from the model on, and
    from the start of the process, including imports and the model."""
    for backend in arguments.backend:
        found = {"who": backend, "model": arguments.model, "batch": arguments.batch,
                 "sequence": arguments.sequence}
        with tempfile.TemporaryDirectory() as folder:
            for caches in ("cold", "warm"):
                environment = os.environ | {
                    name: os.path.join(folder, name) for name in CACHES}
                command = [sys.executable, __file__, "--model", arguments.model, "--batch",
                           str(arguments.batch), "--sequence", str(arguments.sequence),
                           "--backend", backend, "--turns", "0", "--first", "1"]
                if arguments.layers:
                    command += ["--layers", str(arguments.layers)]
                line = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True,
                                      check=True).stdout.splitlines()[-1]
                measured = json.loads(line)
                found[f"{caches}_s"] = measured["first_step_s"]
                found[f"{caches}_process_s"] = measured["process_s"]
        print(json.dumps(found), flush=True)


def is_there(backend):
    package = {"coda": "coda_cpp", "liger": "liger_kernel"}.get(backend)
    if package is None or importlib.util.find_spec(package) is not None:
        return True
    print(f"train_step_torch: no {package}, so no row of {backend}", file=sys.stderr)
    return False


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="1b")
    parser.add_argument("--batch", type=int, default=16, help="of all processes")
    parser.add_argument("--sequence", type=int, default=2048)
    parser.add_argument("--layers", type=int, help="fewer of the model's layers")
    parser.add_argument("--backend", choices=BACKENDS, nargs="+", default=["inductor"])
    parser.add_argument("--parallel", choices=("ddp", "fsdp2"), default="ddp",
                        help="what several processes do")
    parser.add_argument("--bucket-mb", type=float, default=25,
                        help="DDP: gradients that are added up at once; the graph is cut there")
    parser.add_argument("--starts", action="store_true", help="only the seconds to the first step")
    parser.add_argument("--parts", action="store_true", help="says what a step consists of")
    parser.add_argument("--explain", action="store_true", help="says what backend coda has taken")
    parser.add_argument("--first", type=int, default=5, help="steps whose losses are told")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--heat", type=float, default=4)
    parser.add_argument("--clip", type=float, default=0,
                        help="largest norm of the gradients; 0: they are not clipped")
    parser.add_argument("--products", default="",
                        help="backend coda: products in 8 bits, by a recipe of docs/fp8.md")
    parser.add_argument("--objective", choices=("memory", "speed"), default="memory",
                        help="backend coda: what comes first")
    parser.add_argument("--float8", choices=("tensorwise", "rowwise"),
                        help="products of the blocks in 8 bits, by torchao; the head stays bf16")
    arguments = parser.parse_args()
    arguments.backend = [backend for backend in arguments.backend if is_there(backend)]
    if not arguments.backend:
        sys.exit("train_step_torch: none of the backends is there")
    if "liger" in arguments.backend and arguments.model not in LLAMA:
        parser.error("--backend liger has kernels for the models of LLaMA's family")
    if arguments.starts:
        starts(arguments)
        return

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
        model, arguments.vocabulary = model_of(
            arguments.model, arguments.sequence, arguments.layers)
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
    if not arguments.turns:  # only measures the start
        print(json.dumps({"first_step_s": round(runs[0].first_step, 2),
                          "process_s": round(runs[0].since_process, 2)}))
        return
    for run in runs if RANK == 0 else ():
        print(run.line(arguments.products if run.backend == "coda" and arguments.products
                       else products, runs[0]))
    if WORLD > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
