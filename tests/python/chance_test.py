# SPDX-License-Identifier: Apache-2.0
"""Programs made by chance of PyTorch's operations, around linear layers: views, parts, broadcasts,
reductions along any dimension, products in every spelling, writes in place, conversions and random
numbers. Whatever of a program is fused, its result and its gradients are eager's.

    python tests/python/chance_test.py 0 2000

runs the seeds of a range and prints the programs that are wrong."""

import random
import sys
import unittest

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from coda_cpp.torch_backend import coda, options, report

B, T, N = 2, 6, 32
SHAPES = ((B, T, N), (N,), (B, T, 1), (B, 1, N), (1, T, N), (T, N), (1,), (), (8,), (4, 1), (4, 8),
          (T, 1, 8), (T, 1), (B, 1, 1))
INNER = (8, 16, 32)  # contractions for which there are weights
ELEMENTWISE = (F.silu, torch.tanh, torch.sigmoid, F.gelu, F.softplus, torch.sin, torch.neg,
               lambda x: x * 0.5 + 0.25, lambda x: (x * x + 0.5).rsqrt(), lambda x: 1 - x,
               lambda x: x.exp() / (1 + x.exp()), lambda x: torch.addcmul(x, x, x, value=0.25))


class Program:
    """Draws the operations while it runs, by shapes alone, so that each run of a seed is the same.
    `told`: what was drawn."""

    def __init__(self, seed):
        self.seed, self.told = seed, []

    def _pick(self, *of):
        made = self.draw.choice(of)
        self.told.append(made if isinstance(made, (int, str, tuple)) else "")
        return made

    def _dim(self, x):
        return self._pick(*range(-x.dim(), x.dim()))

    def __call__(self, x, w, mask, *more):
        self.draw, self.told[:] = random.Random(self.seed), []
        operands, weights = more[:len(SHAPES)], dict(zip(INNER, more[len(SHAPES):]))
        self.operands, self.weights, self.mask = operands, weights, mask
        h = F.linear(x, w)
        for _ in range(self.draw.randint(3, 9)):
            kind = self._pick("elementwise", "elementwise", "binary", "binary", "view", "view",
                              "parts", "parts", "reduction", "norm", "product", "product",
                              "written", "masked", "converted", "several")
            h = getattr(self, f"_{kind}")(h)
            if h.numel() > 8192 or h.dim() > 5:
                h = h.flatten()[:64].reshape(-1, 8)
        return h

    def _elementwise(self, h):
        return ELEMENTWISE[self._pick(*range(len(ELEMENTWISE)))](h)

    def _binary(self, h):
        fitting = [i for i, one in enumerate(self.operands) if _fits(one.shape, h.shape)]
        other = self.operands[self._pick(*fitting)].to(h.dtype)
        how = self._pick("add", "sub", "mul", "div", "rsub", "lerp", "alpha")
        if how == "div":
            return h / (2 + other * other)
        if how == "rsub":
            return other - h
        if how == "lerp":
            return torch.lerp(h, other.expand_as(h), 0.25)
        if how == "alpha":
            return torch.add(h, other, alpha=-0.5)
        return getattr(torch, how)(h, other)

    def _view(self, h):
        how = self._pick("split", "split", "merge", "transpose", "permute", "movedim", "unsqueeze",
                         "squeeze", "rows", "expand")
        if how == "split" and h.dim() and h.shape[-1] % 4 == 0:
            return h.unflatten(-1, (self._pick(2, 4), -1))
        if how == "merge" and h.dim() > 1:
            dim = self._pick(*range(h.dim() - 1))
            return h.flatten(dim, dim + 1)
        if how == "transpose" and h.dim():
            return h.transpose(self._dim(h), self._dim(h))
        if how == "permute" and h.dim():
            order = list(range(h.dim()))
            self.draw.shuffle(order)
            self.told.append(tuple(order))
            return h.permute(order[:-1] + [order[-1] - h.dim()])
        if how == "movedim" and h.dim():
            return h.movedim(self._dim(h), self._dim(h))
        if how == "unsqueeze":
            return h.unsqueeze(self._pick(*range(-h.dim() - 1, h.dim() + 1)))
        if how == "squeeze":
            return h.squeeze()
        if how == "rows" and h.dim():
            return h.reshape(-1, h.shape[-1])
        return h.expand(self._pick(1, 2), *h.shape)

    def _parts(self, h):
        if not h.dim():
            return h
        dim = self._dim(h)
        size = h.shape[dim]
        how = self._pick("slice", "narrow", "select", "chunk", "split", "unbind", "step", "stack",
                         "cat", "rotated")
        if how == "rotated" and h.shape[-1] % 2 == 0:
            a, b = h.chunk(2, -1)
            angle = self.operands[8][:h.shape[-1] // 2] if h.shape[-1] <= 16 else 0.5
            return torch.cat((a * angle - b, b * angle + a), -1)
        if how == "narrow":
            start = self._pick(*range(-size, size))
            return h.narrow(dim, start, self._pick(*range(1, size - start % size + 1)))
        if how == "select":
            return h.select(dim, self._pick(*range(-size, size)))
        if how == "chunk" and size > 1:
            return self._joined(h.chunk(self._pick(2, 3), dim), dim)
        if how == "split" and size > 1:
            first = self._pick(*range(1, size))
            return self._joined(torch.split(h, [first, size - first], dim=dim)
                                if self._pick(0, 1) else h.split((first, size - first), dim), dim)
        if how == "unbind" and size <= 8:
            parts = h.unbind(dim)
            return torch.stack(parts[::-1], dim) if self._pick(0, 1) else parts[-1]
        if how == "step":
            return h[..., self._pick(0, 1)::2] if h.shape[-1] > 1 else h
        if how == "stack":
            return torch.stack((h, h * 0.5), dim)
        if how == "cat":
            return torch.cat((h, F.silu(h)), dim)
        places = slice(self._pick(None, 0, 1, -3, 100), self._pick(None, size, -1, 2))
        index = [slice(None)] * (dim % h.dim()) + [places]
        return h[tuple(index)] if h[tuple(index)].numel() else h

    def _joined(self, parts, dim):
        """Parts again, some other way."""
        how = self._pick("first", "last", "turned", "of halves")
        if how == "turned" or len({part.shape for part in parts}) > 1:
            return torch.cat([part * (i + 1) for i, part in enumerate(parts)][::-1], dim)
        return parts[0] if how == "first" else parts[-1] if how == "last" else parts[0] * parts[-1]

    def _reduction(self, h):
        if not h.dim():
            return h
        dim, keepdim = self._dim(h), self._pick(True, True, False)
        how = self._pick("sum", "mean", "var", "logsumexp", "softmax", "log_softmax", "std")
        if how in ("softmax", "log_softmax"):
            return getattr(torch, how)(h, dim)
        if how in ("var", "std"):
            unbiased = bool(self._pick(0, 1))
            if h.shape[dim] < 2:
                return h
            made = torch.var(h, dim, unbiased, keepdim) + 0.1
            if how == "var" or h.dtype != torch.float32:  # a root near 0 is not exact
                return made
            return torch.std(h * 0.5 + 1, dim, unbiased, keepdim) + made
        made = getattr(h, how)(dim, keepdim=keepdim)
        return h - made if keepdim and self._pick(0, 1) else made

    def _norm(self, h):
        if not h.dim() or h.shape[-1] < 2:
            return h
        sizes = h.shape[-self._pick(1, min(2, h.dim())):]
        eps = self._pick("1e-1", "1e-2")
        if self._pick(0, 1):
            return F.layer_norm(h, sizes, eps=float(eps))
        return F.rms_norm(h, sizes, eps=float(eps))

    def _product(self, h):
        if h.dim() < 2 or h.shape[-1] not in INNER:
            return h
        size = h.shape[-1]
        weight, bias = self.weights[size].to(h.dtype), self.operands[4][0, 0, :16].to(h.dtype)
        how = self._pick("linear", "bias", "matmul", "left", "turned", "addmm", "factors", "matrix",
                         "einsum", "einsum of others", "several")
        if how == "bias":
            return F.linear(h, weight, bias)
        if how == "matmul":
            return h @ weight.t()
        if how == "left":
            return weight @ h.transpose(-1, -2)
        if how == "turned" and h.shape[-2] == size:
            return weight @ h
        if how in ("addmm", "factors", "matrix"):
            rows = h.reshape(-1, size)
            named = {"beta": 0.5, "alpha": 2} if how == "factors" else {}
            term = rows[:, :1].expand(-1, 16) if how == "matrix" else bias
            return torch.addmm(term, rows, weight.t(), **named)
        if how == "einsum" and h.dim() == 3:
            equation = self._pick("btd,od->bto", "btd,od->bot", "btd,od->tbo", "bdt,od->bto")
            turned = equation.startswith("bdt")
            return torch.einsum(equation, h.transpose(1, 2) if turned else h, weight)
        if how == "einsum of others" and h.shape[0] == 16 and h.dim() == 2:
            return torch.einsum("ot,od->td", h, weight)
        return F.linear(h, weight)

    def _several(self, h):
        """Two products of the same value."""
        if h.dim() < 2 or h.shape[-1] not in INNER:
            return h
        weight = self.weights[h.shape[-1]].to(h.dtype)
        return F.silu(F.linear(h, weight)) * F.linear(h, weight * 0.5)

    def _written(self, h):
        if not h.dim() or not h.numel():
            return h
        h = h.clone()
        dim = self._dim(h)
        how = self._pick("slice", "select", "narrow", "permuted", "split", "unbind", "whole",
                         "view", "typed", "copied", "turned")
        if how == "slice":
            h[..., 1:] += 0.5
        elif how == "select":
            h.select(dim, -1).mul_(2)
        elif how == "narrow":
            h.narrow(dim, h.shape[dim] // 2, 1).fill_(0.25)
        elif how == "permuted" and h.dim() > 2:
            h.permute(2, 0, 1, *range(3, h.dim()))[0].add_(1).sigmoid_()
        elif how in ("split", "unbind"):  # autograd takes no writes to one of several views
            made = torch.ones_like(h)
            if how == "split" and h.shape[dim] > 1:
                torch.split(made, [1, h.shape[dim] - 1], dim=dim)[1].neg_()
            else:
                made.unbind(dim)[-1].mul_(made.unbind(dim)[0] * 0.5)
            return h * made
        elif how == "view":
            h.view(-1)[::3].zero_()
        elif how == "typed":
            h.add_(self.mask.flatten()[:1].long())
        elif how == "copied":
            h.copy_(h.select(dim, 0).unsqueeze(dim) * 0.5)
        elif how == "turned":
            h.unsqueeze_(dim).mul_(0.5)
        else:
            h.mul_(0.5).add_(h)
        return h

    def _masked(self, h):
        if not _fits(self.mask.shape, h.shape):
            return h
        mask, other = self.mask, self.operands[2] > 0
        how = self._pick("where", "fill", "xor", "and", "logical", "times", "least")
        if how == "where":
            return torch.where(mask, h, 0.5)
        if how == "fill":
            return h.masked_fill(~mask | other, 0.25)
        if how == "xor":
            return torch.where(mask ^ other, h, -h)
        if how == "and":
            return h * (mask & other)
        if how == "logical":
            return h * torch.logical_and(mask.long() * 2, other.long())
        if how == "least":
            return h * (mask.long() >= 1) + (mask.long() * 2 > 2).to(h.dtype)
        return h * mask

    def _converted(self, h):
        how = self._pick("wide", "clone", "detach", "dropout", "drawn", "bool", "double")
        if how == "wide":
            return F.silu(h.float()).to(h.dtype)
        if how == "detach":
            return h + F.silu(h).detach()
        if how == "dropout":
            return F.dropout(F.silu(F.dropout(h.contiguous(), 0.25, True)), 0.5, True)
        if how == "drawn":
            return F.dropout(h.contiguous(), 0.25, True) + torch.rand(h.shape)
        if how == "bool":
            return h * self.operands[6].bool()
        if how == "double":
            return h.double().tanh().to(h.dtype)
        return h.clone()


def _fits(shape, whole):
    try:
        return torch.broadcast_shapes(shape, whole) == whole
    except RuntimeError:
        return False


def inputs_of(seed, dtype):
    torch.default_generator.manual_seed(seed)
    made = [torch.randn(B, T, 16), torch.randn(N, 16) / 4, torch.rand(B, T, 1) < 0.7,
            *(torch.randn(shape) for shape in SHAPES),
            *(torch.randn(16, size) / size ** 0.5 for size in INNER)]
    return [t.to(dtype).requires_grad_() if t.is_floating_point() else t for t in made]


def outcome(called, given):
    torch.default_generator.manual_seed(3)
    made = called(*given)
    upstream = torch.linspace(-1, 1, made.numel()).view(made.shape).to(made.dtype)
    gradients = torch.autograd.grad(made, [t for t in given if t.requires_grad], upstream,
                                    allow_unused=True)
    return [made.detach(), *gradients]


def failure(seed):
    """What is wrong with the program of a seed, "" for nothing; what was fused; what was drawn."""
    dtype = torch.bfloat16 if seed % 4 == 3 else torch.float32
    program, given, made = Program(seed), inputs_of(seed, dtype), report.Report()
    graph = make_fx(program, tracing_mode="fake", pre_dispatch=True)(*given)
    for node in graph.graph.find_nodes(op="placeholder"):
        node.meta["example_value"] = node.meta["val"]  # as Dynamo says it
    fused = coda.fuse(graph, given, made, options.Options(cost_model=False))
    ours, eagers = outcome(fused, given), outcome(program, given)
    # Of a gradient that is small beside the others only as much counts as can be seen there.
    least = 0.05 * max(float(t.double().norm()) for t in eagers[1:] if t is not None)
    wrong = []
    for i, (found, expected) in enumerate(zip(ours, eagers, strict=True)):
        if (found is None) != (expected is None):
            wrong.append(f"{i}: one has no gradient")
            continue
        if expected is None or not bool(expected.isfinite().all()):
            continue
        if (found.dtype, found.shape) != (expected.dtype, expected.shape):
            wrong.append(f"{i}: {found.dtype} {found.shape}, not {expected.dtype} {expected.shape}")
            continue
        size = max(float(expected.double().norm()), least if i else 0.0, 5e-2)
        error = float((found.double() - expected.double()).norm()) / size
        if not error < (0.1 if dtype == torch.bfloat16 else 1e-3):
            wrong.append(f"{i}: error {error:.1e}")
    return "; ".join(wrong), made, program.told


class Programs(unittest.TestCase):
    def test_they_equal_eager(self):
        fused = 0
        for seed in range(100):
            why, made, told = failure(seed)
            self.assertEqual(why, "", f"seed {seed}: {told}")
            fused += len(made.fused)
        self.assertGreater(fused, 80)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        unittest.main()
    for number in range(*map(int, sys.argv[1:])):
        reason, what, drawn = failure(number)
        if reason:
            print(number, reason, drawn, what.regions, flush=True)
