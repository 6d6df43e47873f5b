# SPDX-License-Identifier: Apache-2.0
"""Modules made by chance from the blocks that people build models of, compiled with the backend
coda and compared with eager: results and gradients, each within eager's own error against float64.
Where a module is ill-conditioned or a value lies at a kink, eager's error may be small by chance:
then it is the largest of several runs whose inputs and weights differ by a rounding. Where ours is
larger than this too, the medians of such runs are compared.

    python tests/python/random_modules.py --count 20000 --seed 0

prints each failure with its seed (--only SEED runs one again, and prints the module) and exits with
1 if there was one.
"""

import argparse
import copy
import functools
import random
import statistics
import sys

import torch
import torch._dynamo
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from coda_cpp.torch_backend import coda, report

ACTIVATIONS = (F.silu, F.gelu, F.relu, F.mish, F.elu, F.softplus, F.hardswish, F.leaky_relu,
               torch.tanh, torch.sigmoid, lambda x: F.relu(x).square(),
               lambda x: x * torch.sigmoid(1.702 * x), lambda x: F.gelu(x, approximate="tanh"))

# "frozen": half of the parameters get no gradient. "lengths": the call that is compared comes after
# one with another number of tokens.
USES = (*["plain"] * 4, "autocast", "checkpointed", "frozen", "lengths")


class Norm(nn.Module):
    def __init__(self, chance, width):
        super().__init__()
        self.kind = chance.choice(("layer", "layer", "rms", "rms", "hand", "no weight"))
        self.eps = chance.choice((1e-6, 1e-5, 1e-3))
        self.weight = nn.Parameter(torch.rand(width) + 0.5)
        self.bias = nn.Parameter(torch.randn(width) * 0.1) if chance.random() < 0.5 else None

    def forward(self, x):
        size = self.weight.shape
        if self.kind == "layer":
            return F.layer_norm(x, size, self.weight, self.bias, self.eps)
        if self.kind == "rms":
            return F.rms_norm(x, size, self.weight, None if self.bias is None else self.eps)
        if self.kind == "no weight":
            return F.layer_norm(x, size)
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


class Mlp(nn.Module):
    def __init__(self, chance, width):
        super().__init__()
        inner = width * chance.choice((1, 2, 3))
        self.kind = chance.choice(("plain", "gated", "packed", "lora", "matmul"))
        self.activation = chance.choice(ACTIVATIONS)
        bias = chance.random() < 0.5
        self.up = nn.Linear(width, inner * (2 if self.kind == "packed" else 1), bias=bias)
        self.gate = nn.Linear(width, inner, bias=bias) if self.kind == "gated" else None
        self.down = nn.Linear(inner, width, bias=chance.random() < 0.5)
        if self.kind == "lora":
            self.a, self.b = nn.Linear(width, 8, bias=False), nn.Linear(8, inner, bias=False)
        self.in_place = chance.random() < 0.2

    def forward(self, x):
        h = x @ self.up.weight.t() if self.kind == "matmul" else self.up(x)
        if self.kind == "lora":
            h = h + 0.5 * self.b(self.a(x))
        if self.kind == "packed":
            gate, h = h.chunk(2, -1)
            h = self.activation(gate) * h
        elif self.kind == "gated":
            h = self.activation(self.gate(x)) * h
        else:
            h = self.activation(h)
        if self.in_place:
            h = h.clone()
            h.mul_(1.5)
        return self.down(h)


class Attention(nn.Module):
    def __init__(self, chance, width):
        super().__init__()
        self.heads = chance.choice((1, 2, 4))
        self.packed = chance.choice(("chunk", "permute", None))
        self.q = nn.Linear(width, 3 * width if self.packed else width)
        if not self.packed:
            self.k, self.v = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.norm = Norm(chance, width // self.heads) if chance.random() < 0.4 else None
        self.rotates = chance.random() < 0.5
        self.scale = None
        if chance.random() < 0.2:
            self.scale = nn.Parameter(torch.rand(self.heads, 1) + 0.5)
        self.causal, self.out = chance.random() < 0.5, nn.Linear(width, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        size = width // self.heads
        if self.packed == "permute":
            q, k, v = self.q(x).view(batch, tokens, 3, self.heads, size).permute(2, 0, 3, 1, 4)
        else:
            parts = self.q(x).chunk(3, -1) if self.packed else (self.q(x), self.k(x), self.v(x))
            q, k, v = (part.view(batch, tokens, self.heads, size).transpose(1, 2)
                       for part in parts)
        if self.norm is not None:
            q, k = self.norm(q), self.norm(k)
        if self.scale is not None:
            q = q * self.scale.unsqueeze(-1)
        if self.rotates:
            steps = torch.arange(size // 2, device=x.device)
            angle = torch.arange(tokens, device=x.device)[:, None] / 10.0 ** (2 * steps / size)
            angle = torch.cat((angle, angle), -1)
            cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
            q, k = (t * cos + torch.cat((-t[..., size // 2:], t[..., :size // 2]), -1) * sin
                    for t in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(batch, tokens, width))


class Mixed(nn.Module):
    """Everyday operations."""

    def __init__(self, chance, width):
        super().__init__()
        self.kind = chance.choice(("scale", "modulated", "masked", "parts", "clamped", "scalar",
                                   "types", "positions", "several", "moved", "turned",
                                   "windows"))
        self.weight = nn.Parameter(torch.rand(width) * 0.5)
        self.number = nn.Parameter(torch.tensor(0.5))
        self.table = nn.Parameter(torch.randn(1, 64, width) * 0.1)
        self.linear = nn.Linear(width, width)
        self.of_batch = nn.Linear(width, 2 * width)

    def forward(self, x):
        y = self.linear(x)
        if self.kind == "scale":
            return x + self.weight * y
        if self.kind == "modulated":
            shift, scale = self.of_batch(F.silu(x.mean(1))).chunk(2, -1)
            return F.layer_norm(y, y.shape[-1:]) * (1 + scale[:, None]) + shift.unsqueeze(1)
        if self.kind == "masked":
            mask = torch.arange(x.shape[1], device=x.device) % 3 != 0
            return y.masked_fill(~mask[None, :, None], 0.0) + x * mask[:, None]
        if self.kind == "parts":
            half = y.shape[-1] // 2
            return torch.cat((y[..., half:] * 2, torch.tanh(y[..., :half])), -1)
        if self.kind == "clamped":
            return torch.where(y > 0, y.clamp(max=2.0), 0.1 * y.abs())
        if self.kind == "scalar":
            return y * self.number + (1 - self.number) * x
        if self.kind == "types":
            return F.softplus(y.float()).to(x.dtype)
        if self.kind == "positions":
            return self.linear(y + self.table[:, :x.shape[1]])
        if self.kind == "several":
            return x + self.linear(F.silu(x)) + F.relu(y) - y.square() * 0.1
        if self.kind == "moved":
            return F.gelu(y.transpose(0, 1)).transpose(0, 1)
        turned = torch.tanh(self.linear(x.transpose(0, 1)))
        if self.kind == "windows":  # of two tokens, that overlap
            tokens, *size = turned.shape
            stride, *rest = turned.stride()
            pairs = turned.as_strided((max(tokens - 1, 1), min(tokens, 2), *size),
                                      (stride, stride, *rest))
            turned = turned + F.pad(pairs.mean(1), (0, 0, 0, 0, 0, min(tokens, 2) - 1))
        return turned.transpose(0, 1)


class Model(nn.Module):
    def __init__(self, chance):
        super().__init__()
        width = self.width = chance.choice((32, 48, 64))
        self.blocks = nn.ModuleList(
            chance.choice((Mlp, Mlp, Attention, Mixed, Mixed))(chance, width)
            for _ in range(chance.randint(1, 4)))
        self.norms = nn.ModuleList(Norm(chance, width) for _ in self.blocks)
        self.ways = [chance.choice(("before", "before", "behind", "none")) for _ in self.blocks]
        self.head = chance.choice(("loss", "mean", "tensor"))
        self.out = nn.Linear(width, 40, bias=False)
        self.use = "plain"

    def step(self, i, x):
        block, norm, way = self.blocks[i], self.norms[i], self.ways[i]
        if way == "before":
            return x + block(norm(x))
        return norm(x + block(x)) if way == "behind" else block(x)

    def forward(self, x, targets):
        for i in range(len(self.blocks)):
            x = (checkpoint(self.step, i, x, use_reentrant=False)
                 if self.use == "checkpointed" else self.step(i, x))
        if self.head == "loss":
            return F.cross_entropy(self.out(x).flatten(0, 1).float(), targets.flatten())
        return self.out(x).float().square().mean() if self.head == "mean" else self.out(x)


def outcome(called, model, x, targets):
    model.zero_grad()
    given = x.detach().clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, model.use == "autocast" and x.dtype != torch.double):
        made = called(given, targets)
    (made.float().square().mean() if made.dim() else made).backward()
    gradients = [given.grad, *(p.grad for p in model.parameters() if p.grad is not None)]
    return [made.detach(), *(gradient.clone() for gradient in gradients)]


@functools.cache
def rounded_otherwise(called, model, x, targets, eps):
    """Outcomes for inputs and weights that differ by at most one unit in the last place."""
    def changed(tensor):
        return tensor * (1 + eps * torch.randint_like(tensor, -1, 2))

    kept = [parameter.detach().clone() for parameter in model.parameters()]
    torch.manual_seed(0)
    made = []
    for _ in range(8):
        with torch.no_grad():
            for parameter, value in zip(model.parameters(), kept, strict=True):
                parameter.copy_(changed(value))
        made.append(outcome(called, model, changed(x), targets))
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), kept, strict=True):
            parameter.copy_(value)
    return made


def of_other_sizes(model, chance):
    """Multiplies some weights. Biases do not grow: see the limits in docs/numerics.md."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            sizes = ((0.03, 0.1) if name.endswith("bias") else
                     (0.1, 10.0, 30.0) if parameter.dim() < 2 else (0.3, 3.0))
            if chance.random() < 0.4:
                parameter.mul_(chance.choice(sizes))


def is_within(error, eagers, least):
    # If eager loses the first digit of a gradient (by underflow), ours must be no worse than 0.
    return error <= max(3 * eagers + least, 1.0 if eagers > 0.1 else 0.0)


def failure(seed, use=None):
    """What is wrong with the module of a seed, "" for nothing; it; and its linear layers. One
    module in three has weights of very different sizes, and perhaps inputs far from 0. `use`: one
    of USES."""
    chance = random.Random(seed)
    torch.manual_seed(seed)
    model = Model(chance)
    offset = 0.0
    if seed % 3 == 2:
        of_other_sizes(model, chance)
        offset = chance.choice((0.0, 0.0, 10.0))
    dtype = chance.choice((torch.float32, torch.float32, torch.bfloat16, torch.float16))
    x = (torch.randn(chance.choice((1, 2, 3)), chance.choice((1, 8, 20)), model.width)
         * chance.choice((0.02, 1.0, 1.0, 10.0)) + offset)
    targets = torch.randint(0, 40, x.shape[:2])
    targets[torch.rand(targets.shape) < 0.2] = -100
    model.use = use or chance.choice(USES)
    if model.use == "autocast":
        dtype = torch.float32
    eps = torch.finfo(torch.bfloat16 if model.use == "autocast" else dtype).eps
    model.to(dtype)
    x = x.to(dtype)
    if model.use == "frozen":
        for parameter in model.parameters():
            parameter.requires_grad_(chance.random() < 0.5)
    found_layers = report.Report()

    def backend(module, inputs):
        return coda.coda(module, inputs, options=settings, report=found_layers)

    # AOTAutograd, which "eager" does without, takes half of a module's time. With lengths that vary
    # it fails at as_strided(), also without this backend (PyTorch 2.13).
    fails = model.use == "lengths" and any(
        isinstance(block, Mixed) and block.kind == "windows" for block in model.blocks)
    settings = {"inner": "eager" if seed % 4 or fails else "aot_eager", "cost_model": False}
    rounded_otherwise.cache_clear()
    exact = copy.deepcopy(model).double()
    expected = outcome(exact, exact, x.double(), targets)
    eager = outcome(model, model, x, targets)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=backend)
    try:
        if model.use == "lengths":
            outcome(compiled, model, torch.randn(len(x), 13, model.width).to(dtype),
                    torch.randint(0, 40, (len(x), 13)))
        ours = outcome(compiled, model, x, targets)
    except Exception as error:  # noqa: BLE001 (whatever is raised is the finding)
        return f"{type(error).__name__}: {error}", model, found_layers.layers
    names = ["result", "x", *(n for n, p in model.named_parameters() if p.grad is not None)]
    wrong = []
    least = 4 * eps  # one module is one draw: eager's may be small by chance
    norms = [float(e.norm()) for e in expected]
    largest = max(norms[1:])
    # Behind a saturated softmax a gradient is 0 but for rounding.
    rounding = max(1e-12, eps ** 2) * largest
    sizes = [norms[0] or 1.0, *(largest if n < rounding else n or 1.0 for n in norms[1:])]

    def error(made, i):
        return float((made[i].double() - expected[i]).norm()) / sizes[i]

    def rounded_errors(called, i):
        return [error(made, i) for made in rounded_otherwise(called, model, x, targets, eps)]

    for i, (name, o, p) in enumerate(zip(names, ours, eager, strict=True)):
        found, wanted = ((t.dtype, tuple(t.shape), *((t.stride(),) if name == "result" else ()))
                         for t in (o, p))
        if found != wanted:
            wrong.append(f"{name} is {found}, not {wanted}")
            continue
        if not bool(p.isfinite().all()):
            continue
        errors = [error(ours, i), error(eager, i)]
        if not errors[0] <= 3 * errors[1] + least:
            eagers = rounded_errors(model, i)
            errors[1] = max(errors[1], *eagers)
            if not is_within(*errors, least):
                errors = [statistics.median(rounded_errors(compiled, i)),
                          statistics.median(eagers)]
        if not is_within(*errors, least):
            wrong.append(f"{name}: error {errors[0]:.1e}, eager's {errors[1]:.1e}")
    return "; ".join(wrong), model, found_layers.layers


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    arguments = parser.parse_args()
    seeds = [arguments.only] if arguments.only is not None else range(
        arguments.seed, arguments.seed + arguments.count)
    failures, layers = 0, []
    for seed in seeds:
        why, model, found = failure(seed)
        layers += found
        if why or arguments.only is not None:
            print(f"seed {seed}: {why or 'as eager'}", flush=True)
        if arguments.only is not None:
            print(model, model.use, model.ways,
                  [getattr(block, "kind", "") for block in model.blocks])
        failures += bool(why)
    print(f"{len(seeds)} modules, {failures} wrong; {sum(layer.is_fused for layer in layers)} of "
          f"{len(layers)} linear layers fused")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
