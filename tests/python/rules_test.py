# SPDX-License-Identifier: Apache-2.0
"""Each rule of the importer over its arguments: results and gradients against float64, beside what
eager PyTorch makes of the same rounded inputs, in each type and at scales from 1e-3 to 100. A case
is a function of what a linear layer makes and of more operands, and all of it has to be fused.
"""

import dataclasses
import functools
import itertools
import math
import re
import unittest
from collections.abc import Callable
from pathlib import Path

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from coda_cpp.torch_backend import canonical, coda, options, report
from coda_cpp.torch_backend.rules import RULES

B, T, K, N = 2, 24, 32, 64
SCALES = (1e-3, 0.02, 1.0, 100.0)
FEW, MANY = 2, 32  # seeds

# Operands by letters: what they are of, and whether they have a gradient.
OPERANDS = {
    "w": lambda: torch.rand(N) + 0.5,  # a vector of columns
    "b": lambda: torch.randn(N),
    "s": lambda: torch.tensor(0.7),  # a learned scalar
    "S": lambda: torch.tensor([1.3]),
    "x": lambda: torch.randn(B, T, N),  # a matrix
    "v": lambda: torch.randn(B, 1, N),  # a vector of a batch
    "p": lambda: torch.randn(1, T, N),  # one of a position
    "t": lambda: torch.randn(1, T, 1),
    "r": lambda: torch.rand(B, T, 1) + 0.5,  # a number of a row
    "h": lambda: torch.rand(4, 1) + 0.5,  # a number of a head
    "H": lambda: torch.rand(4, 16) + 0.5,
    "d": lambda: torch.rand(16) + 0.5,
    "q": lambda: torch.rand(T, 1, 16).tanh().detach(),  # numbers of a position, for each head
    "m": lambda: torch.rand(B, T, N) < 0.7,  # masks
    "k": lambda: torch.rand(B, T, 1) < 0.7,
    "c": lambda: torch.rand(N) < 0.7,
    "i": lambda: (torch.rand(B, T, 1) < 0.7).long(),
    "j": lambda: torch.randint(-3, 4, (T, 1)),
    "o": lambda: torch.randn(40, N) / 8,  # weights
    "O": lambda: torch.randn(N, 40) / 8,
    "3": lambda: torch.randn(N, 5, 8) / 8,
}


@dataclasses.dataclass
class Case:
    function: Callable
    operands: str = ""
    left: int = 0  # number of operations that PyTorch runs
    kinks: tuple = ()  # arguments at which the value or the derivative is discontinuous


def heads(h):
    return h.view(B, T, 4, 16)


def rotated(h, angle):
    a, b = h.chunk(2, -1)
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)


def rotated_whole(h, table):
    """As language models do it: the halves of a head turned, by tables as wide as a head."""
    a, b = h.chunk(2, -1)
    return h * table.cos() + torch.cat((-b, a), -1) * table.sin()


def twice(x, dim):
    return torch.cat((x, x), dim)


def interleaved(h):
    a, b = h.view(B, T, N // 2, 2).unbind(-1)
    return torch.stack((a - 0.5 * b, b + 0.5 * a), -1).flatten(-2)


CASES = {
    # Arithmetic.
    "add": Case(lambda h, x: h + x, "x"), "add a number": Case(lambda h: h + 0.3),
    "add alpha": Case(lambda h, x: torch.add(h, x, alpha=-0.5), "x"),
    "add alpha to a number": Case(lambda h: torch.add(h, 2, alpha=0.25)),
    "sub": Case(lambda h, x: h - x, "x"), "sub alpha": Case(lambda h, x: h.sub(x, alpha=3), "x"),
    "rsub": Case(lambda h: 1 - h), "rsub alpha": Case(lambda h: torch.rsub(h, 2, alpha=0.5)),
    "mul": Case(lambda h, x: h * x, "x"), "mul itself": Case(lambda h: h * h),
    "div": Case(lambda h, r: h / r, "r"),
    "div by a matrix": Case(lambda h, x: x / (2 + h.abs()), "x"),
    "reciprocal": Case(lambda h: 1 / (h.abs() + 0.1)), "neg": Case(lambda h: -h),
    "abs": Case(torch.abs, kinks=(0,)),
    "square": Case(torch.square),
    "sqrt": Case(lambda h: (h.abs() + 1e-3).sqrt()),
    "rsqrt": Case(lambda h: (h * h + 0.01).rsqrt()), "exp": Case(lambda h: (-h.abs()).exp()),
    "log": Case(lambda h: (h.abs() + 0.5).log()), "erf": Case(torch.erf), "tanh": Case(torch.tanh),
    "sigmoid": Case(torch.sigmoid), "clamp": Case(
        lambda h: h.clamp(-0.75, 0.5), kinks=(-0.75, 0.5)),
    "clamp by min": Case(lambda h: h.clamp(min=-0.015625), kinks=(-0.015625,)),
    "clamp by max": Case(lambda h: h.clamp(max=0.015625), kinks=(0.015625,)),
    "clip": Case(lambda h: h.clip(0, 1), kinks=(0, 1)),
    "clamp_min": Case(lambda h: h.clamp_min(0.125), kinks=(0.125,)),
    "clamp_max": Case(lambda h: h.clamp_max(-0.125), kinks=(-0.125,)),
    **{f"power {p}": Case(lambda h, p=p: (h.abs() + 0.2) ** p)
       for p in (1, 2, 3, 4, 5, 7, 0.5, -0.5, -1, -2, -3)},
    "odd power": Case(lambda h: h ** 3),
    "maximum": Case(torch.maximum, "x"), "minimum": Case(torch.minimum, "x"),
    "addcmul": Case(lambda h, x, w: torch.addcmul(x, h, w, value=0.5), "xw"),
    "lerp": Case(lambda h, x: torch.lerp(x, h, 0.3), "x"),
    # Activations.
    **{name: Case(getattr(F, name)) for name in (
        "silu", "gelu", "elu", "celu", "softplus", "mish", "logsigmoid", "softsign", "glu")},
    **{name: Case(getattr(F, name), kinks=(0,)) for name in ("relu", "leaky_relu", "selu")},
    "relu6": Case(F.relu6, kinks=(0, 6)), "hardtanh": Case(F.hardtanh, kinks=(-1, 1)),
    "hardswish": Case(F.hardswish, kinks=(-3, 3)),
    "hardsigmoid": Case(F.hardsigmoid, kinks=(-3, 3)),
    "gelu tanh": Case(lambda h: F.gelu(h, approximate="tanh")),
    "quick gelu": Case(lambda h: h * torch.sigmoid(1.702 * h)),
    "relu squared": Case(lambda h: F.relu(h).square()),
    "leaky relu of a slope": Case(lambda h: F.leaky_relu(h, 0.3), kinks=(0,)),
    "elu of an alpha": Case(lambda h: F.elu(h, 0.4), kinks=(0,)),
    "celu of an alpha": Case(lambda h: F.celu(h, 2.5)),
    "softplus of a beta": Case(lambda h: F.softplus(h, 3.0, 15.0)),
    "softplus of a threshold": Case(lambda h: F.softplus(h, 2.0, 1.0), kinks=(0.5,)),
    "hardtanh of bounds": Case(
        lambda h: F.hardtanh(h, -0.25, 0.625), kinks=(-0.25, 0.625)),
    "threshold": Case(lambda h: F.threshold(h, 0.125, 0.25), kinks=(0.125,)),
    "prelu": Case(F.prelu, "S", kinks=(0,)),
    "swiglu": Case(lambda h: F.silu(h[..., :32]) * h[..., 32:]),
    "relu glu": Case(lambda h: F.relu(h.chunk(2, -1)[0]) * h.chunk(2, -1)[1]),
    # Masks and choices.
    "mask": Case(lambda h, m: h * m, "m"), "mask of rows": Case(lambda h, k: h * k, "k"),
    "mask of columns": Case(lambda h, c: h * c, "c"), "integers": Case(lambda h, i: h * i, "i"),
    "integers of positions": Case(lambda h, j: h * j, "j"),
    "masked_fill": Case(lambda h, k: h.masked_fill(~k, 0.5), "k"),
    "where": Case(lambda h, m, x: torch.where(m, h, x), "mx"),
    "where with a number": Case(lambda h, k: torch.where(k, h, 0.25), "k"),
    "where with a number first": Case(lambda h, c: torch.where(c, -0.25, h), "c"),
    "where it is positive": Case(
        lambda h: torch.where(h > 0, h, 0.1 * h), kinks=(0,)),
    "times where": Case(lambda h: h * (h >= 0.015625), kinks=(0.015625,)),
    "both masks": Case(
        lambda h, m: h.masked_fill(m & (h > 0), 0.5) + h.masked_fill(m | ~(h < 0.125), 0),
        "m", kinks=(0, 0.125)),
    # Factors and terms of fewer dimensions.
    "layer scale": Case(lambda h, w, x: x + h * w, "wx"), "scalar": Case(lambda h, s: h * s, "s"),
    "scalar of one dimension": Case(lambda h, S: h + S, "S"),
    "row's factor": Case(lambda h, r: h * r, "r"),
    "position's factor": Case(lambda h, t: h * t, "t"),
    "batch's vector": Case(lambda h, v: h + v, "v"),
    "position's vector": Case(lambda h, p: h + p, "p"),
    "modulation": Case(lambda h, v: F.layer_norm(h, (N,)) * (1 + v) + 0.5 * v, "v", left=2),
    "head's factor": Case(lambda h, f: (heads(h) * f).flatten(-2), "h"),
    "head's vectors": Case(lambda h, f: (heads(h) * f).flatten(-2), "H"),
    "each head's vector": Case(lambda h, f: (heads(h) * f).flatten(-2), "d"),
    "several branches": Case(lambda h, x, w: x + h * w + F.silu(h) + 0.5 * h.square(), "xw"),
    # Sums and norms.
    "mean": Case(lambda h: h - h.mean(-1, keepdim=True)),
    "sum": Case(lambda h: h + h.sum(-1, keepdim=True)),
    "mean without its dimension": Case(lambda h: h - h.mean(-1).unsqueeze(-1)),
    "mean of heads": Case(lambda h: (heads(h) - heads(h).mean(-1, keepdim=True)).flatten(-2)),
    "variance": Case(lambda h: h * (h.var(-1, keepdim=True) + 1).rsqrt()),
    "deviation": Case(lambda h: h / (h.std(-1, keepdim=True, unbiased=False) + 0.1)),
    "variance of heads": Case(
        lambda h: (heads(h) * (heads(h).var(-1, keepdim=True) + 1)).flatten(-2)),
    "rms_norm": Case(lambda h, w: F.rms_norm(h, (N,), w), "w"),
    "rms_norm without weight": Case(lambda h: F.rms_norm(h, (N,))),
    "rms_norm of an epsilon": Case(lambda h, w: F.rms_norm(h, (N,), w, 0.01), "w"),
    "rms_norm of heads": Case(lambda h, d: F.rms_norm(heads(h), (16,), d).flatten(-2), "d"),
    "rms_norm over heads": Case(
        lambda h, H: F.rms_norm(heads(h), (4, 16), H, 1e-5).flatten(-2), "H"),
    "rms norm by hand": Case(
        lambda h, w: w * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)), "w"),
    "layer_norm": Case(lambda h, w, b: F.layer_norm(h, (N,), w, b), "wb"),
    "layer_norm without bias": Case(lambda h, w: F.layer_norm(h, (N,), w), "w"),
    "layer_norm with only a bias": Case(lambda h, b: F.layer_norm(h, (N,), None, b), "b"),
    "layer_norm without weight": Case(lambda h: F.layer_norm(h, (N,), None, None, 1e-3)),
    "layer_norm of heads": Case(lambda h, d: F.layer_norm(heads(h), (16,), d).flatten(-2), "d"),
    "layer_norm of heads, of an epsilon": Case(
        lambda h, d: F.layer_norm(heads(h), (16,), d, None, 0.1).flatten(-2), "d"),
    "layer_norm over heads": Case(lambda h, H: F.layer_norm(heads(h), (4, 16), H).flatten(-2), "H"),
    # Parts, views and conversions.
    **{f"part {start}:{end}:{step}": Case(lambda h, part=slice(start, end, step): -h[..., part])
       for start, end, step in ((0, 16, 1), (32, None, 1), (-16, None, 1), (5, 12, 1),
                                (0, None, 2), (1, None, 2), (0, 32, 1))},
    "narrow": Case(lambda h: -h.narrow(-1, 8, 16)), "split": Case(
    lambda h: F.silu(h.split((16, 48), -1)[0]).sum(-1, keepdim=True) + h.split((16, 48), -1)[1]),
    "heads of a part": Case(lambda h: -h.view(B, T, 2, 4, 8).select(2, 1).flatten(-2)),
    "unbind": Case(lambda h: torch.mul(*h.view(B, T, 2, 32).unbind(2))),
    "cat": Case(lambda h, x: torch.cat((h, x * 2 + h), -1), "x"),
    "cat of parts": Case(lambda h: torch.cat((h[..., 48:] * 2, h[..., :48]), -1)),
    "rotation": Case(lambda h, d: rotated(heads(h), d[:8]).flatten(-2) * 1.0, "d", left=4),
    "position's vector of heads": Case(lambda h, q: (heads(h) * q).flatten(-2), "q"),
    "rotation by tables": Case(lambda h, q: rotated_whole(heads(h), q).flatten(-2) * 1.0, "q",
                               left=2),
    "rotation by tables of equal halves": Case(
        lambda h, q: rotated_whole(heads(h), twice(q[..., :8], -1)).flatten(-2) * 1.0, "q", left=3),
    "rotation by tables of equal rows": Case(
        lambda h, q: rotated_whole(heads(h), twice(q[:12], 0)).flatten(-2) * 1.0, "q", left=3),
    "rotation by tables of parts that are turned": Case(
        lambda h, q: rotated_whole(heads(h), torch.cat((q[..., 8:], q[..., :8]), -1)).flatten(-2)
        * 1.0, "q", left=3),
    "interleaved": Case(interleaved), "transposed heads": Case(
        lambda h, d: (heads(h).transpose(1, 2) * d).transpose(1, 2).reshape(B, T, N), "d"),
    "clone": Case(lambda h: F.silu(h).clone() * 2), "expand": Case(
        lambda h: h / h.square().sum(-1, keepdim=True).add(0.1).expand_as(h)),
    "normalize": Case(
        lambda h, x: h * 2 / (h + x).abs().sum(-1, keepdim=True).clamp_min(1e-3), "x"),
    "to fp32 and back": Case(lambda h: F.silu(h.float()).to(h.dtype)),
    # Products.
    "linear": Case(lambda h, o, b: F.linear(F.silu(h), o, b[:40]), "ob"),
    "matmul": Case(lambda h, O: F.silu(h) @ O, "O"),
    "matmul of a weight to the left": Case(lambda h, o: (o @ F.silu(h).mT).mT, "o"),
    "matmul of a transpose": Case(lambda h, o: F.relu(h) @ o.T, "o"),
    "linear of a transpose": Case(lambda h, O: F.linear(F.silu(h), O.t()), "O"),
    "mm": Case(lambda h, O: torch.mm(F.silu(h).flatten(0, 1), O), "O"),
    "addmm": Case(lambda h, O, b: torch.addmm(b[:40], F.silu(h).flatten(0, 1), O), "Ob"),
    "einsum": Case(lambda h, o: torch.einsum("btd,od->bto", F.silu(h), o), "o"),
    "einsum of several dimensions": Case(
        lambda h, w: torch.einsum("...d,dhk->...hk", F.silu(h), w), "3"),
}


def inputs_of(case, dtype, scale, seed):
    torch.default_generator.manual_seed(seed)  # manual_seed() asks every device, which takes longer
    given = [torch.randn(B, T, K) * scale, torch.randn(N, K) / math.sqrt(K)]
    given += [OPERANDS[letter]() for letter in case.operands]
    return [t.to(dtype).requires_grad_() if t.is_floating_point() else t for t in given]


def whole(case):
    return lambda x, w, *more: case.function(F.linear(x, w), *more)


def away_from_kinks(case, given):
    """1 for an element that rounding in its type cannot move across a kink of the case, else 0. A
    few elements on the wrong side of a kink would contribute more error than all others."""
    dtype, h = given[0].dtype, F.linear(given[0].detach().double(), given[1].detach().double())
    finfo = torch.finfo(dtype)
    # Above the error of a sum in fp32, and above the magnitudes that are rounded to zero.
    least = 2 ** -20 * h.abs().max() + 4 * finfo.tiny * finfo.eps
    kept = torch.ones_like(h, dtype=torch.bool)
    for kink in case.kinks:
        kept &= (h - kink).abs() > 4 * finfo.eps * abs(kink) + least
    return kept


def outcome(called, given, seed, exact=False, kept=None):
    """The result, multiplied by the mask `kept`, and the gradients of all inputs that need one."""
    if exact:
        given = [t.detach().double().requires_grad_() if t.is_floating_point() else t
                 for t in given]
    torch.default_generator.manual_seed(seed)
    made = called(*given)
    if kept is not None:
        made = made * kept
    torch.default_generator.manual_seed(1000 + seed)
    upstream = torch.randn(made.shape).to(given[0].dtype if not exact else torch.float32)
    if not exact:
        upstream = upstream.to(made.dtype)
    wanted = [t for t in given if t.requires_grad]
    return [made.detach(), *torch.autograd.grad(made, wanted, upstream.to(made.dtype))]


def fused(case, dtype=torch.float32, given=None):
    """The case as the backend makes it, without Dynamo, and the report."""
    given = inputs_of(case, dtype, 1.0, 0) if given is None else given
    made = report.Report()
    graph = make_fx(whole(case), tracing_mode="fake", pre_dispatch=True)(*given)
    for node in graph.graph.find_nodes(op="placeholder"):
        node.meta["example_value"] = node.meta["val"]  # as Dynamo says it
    return coda.fuse(graph, given, made, options.Options(cost_model=False)), made


class Guide(unittest.TestCase):
    def test_it_names_the_operations(self):
        guide = (Path(__file__).parents[2] / "docs" / "pytorch.md").read_text()
        table = guide.partition("## Operations")[2].partition("## Options")[0]
        names = set(re.findall(r"`(\w+)`", table))
        understood = {str(target.overloadpacket).removeprefix("aten.") for target in RULES}
        self.assertEqual({name for name in understood if not name.startswith("_")} - names, set())
        rewritten = {"matmul", "mm", "addmm", "einsum", "nll_loss", "select", "narrow", "split",
                     "chunk", "unbind", "expand"}  # rewritten by canonical.py and loss_forms.py
        self.assertEqual(names - understood, rewritten)


class Sweep:
    """The cases in one type."""

    dtype: torch.dtype

    def _check(self, case):
        called, made = fused(case, self.dtype)
        self.assertEqual(len(made.fused), 1, made)
        left = sum(int(line.split(" x ")[0]) for line in made.left)
        self.assertEqual(left, case.left, made.left)
        for scale in SCALES:
            self._compare(case, called, scale)

    def _compare(self, case, called, scale):
        """Few seeds decide what is clear; at a kink, and of sums of few numbers, many have to."""
        where = f"at the scale {scale}: of result or gradient"
        for i, (ours, eager) in self._errors(case, called, scale, FEW).items():
            if ours > 1.1 * eager + 1e-6:
                ours, eager = self._errors(case, called, scale, MANY)[i]
                self.assertLessEqual(ours, 1.25 * eager + 1e-6, f"{where} {i}")

    def _errors(self, case, called, scale, seeds):
        """Of each result and gradient ours and eager's, the roots of the means of their squares."""
        squares = {}
        for seed in range(seeds):
            given = inputs_of(case, self.dtype, scale, seed)
            kept = away_from_kinks(case, given) if case.kinks else None
            exact = outcome(whole(case), given, seed, exact=True, kept=kept)
            eager = outcome(whole(case), given, seed, kept=kept)
            ours = outcome(called, given, seed, kept=kept)
            for i, (e, p, o) in enumerate(zip(exact, eager, ours, strict=True)):
                self.assertEqual((o.dtype, o.shape), (p.dtype, p.shape))
                if not bool(p.isfinite().all()):
                    continue  # beyond the type
                self.assertTrue(bool(o.isfinite().all()), (scale, i))
                of = squares.setdefault(i, [0.0, 0.0, 1e-300])
                for place, error in enumerate((o.double() - e, p.double() - e, e)):
                    of[place] += float(error.square().sum())
        return {i: ((ours / size) ** 0.5, (eager / size) ** 0.5)
                for i, (ours, eager, size) in squares.items()}


for _name, _case in CASES.items():  # a test for each: test_add_alpha and so on
    _test = "test_" + re.sub(r"\W+", "_", _name.replace("-", "minus "))
    assert not hasattr(Sweep, _test), _name
    setattr(Sweep, _test, functools.partialmethod(Sweep._check, _case))


class InFp32(Sweep, unittest.TestCase):
    dtype = torch.float32


class InBf16(Sweep, unittest.TestCase):
    dtype = torch.bfloat16


class InFp16(Sweep, unittest.TestCase):
    dtype = torch.float16


class Arguments(unittest.TestCase):
    """What a sweep of random inputs does not reach."""

    def test_gradients_at_kinks_are_pytorchs(self):
        kinks = torch.tensor([-3.0, -1.0, 0.0, 1.0, 3.0, 6.0]).repeat(5, 1)
        for name, function in {
                "relu": F.relu, "relu6": F.relu6, "leaky_relu": F.leaky_relu, "elu": F.elu,
                "softplus": F.softplus, "logsigmoid": F.logsigmoid, "hardtanh": F.hardtanh,
                "hardsigmoid": F.hardsigmoid, "mish": F.mish, "selu": F.selu, "abs": torch.abs,
                "clamp": lambda h: h.clamp(-1, 1), "clamp_min": lambda h: h.clamp_min(1),
                "clamp_max": lambda h: h.clamp_max(1), "threshold": lambda h: F.threshold(h, 1, 3),
                "maximum": lambda h: torch.maximum(h, h * h),
                "minimum": lambda h: torch.minimum(h, h * h)}.items():
            with self.subTest(name):
                case = Case(lambda h, f=function: f(h))
                given = [kinks.clone().requires_grad_(), torch.eye(6)]
                called, made = fused(case, given=given)
                self.assertEqual(len(made.fused), 1)
                for found, expected in zip(outcome(called, given, 0),
                                           outcome(whole(case), given, 0), strict=True):
                    torch.testing.assert_close(found, expected)

    def test_losses_by_their_arguments(self):
        for ignored in (-100, -1, 5):
            for smoothing in (0.0, 0.2):
                for reduction in ("mean", "sum"):
                    with self.subTest(ignored=ignored, smoothing=smoothing, reduction=reduction):
                        targets = torch.randint(0, N, (B * T,))
                        targets[::4] = ignored
                        case = Case(lambda h, t, how=(ignored, smoothing, reduction):
                                    F.cross_entropy(h.flatten(0, 1), t, ignore_index=how[0],
                                                    label_smoothing=how[1], reduction=how[2]))
                        given = [*inputs_of(case, torch.float32, 1.0, 0), targets]
                        called, made = fused(case, given=given)
                        self.assertEqual((len(made.fused), made.left), (1, []))
                        for found, expected in zip(outcome(called, given, 0),
                                                   outcome(whole(case), given, 0), strict=True):
                            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)

    def _same(self, function, *operands, name=None, allowed=1e-4):
        """That the function of logits, fused or not, is eager's; the report."""
        case = Case(function)
        given = [*inputs_of(case, torch.float32, 1.0, 0), *operands]
        called, made = fused(case, given=given)
        with self.subTest(name):
            for found, expected in zip(outcome(called, given, 0), outcome(whole(case), given, 0),
                                       strict=True):
                torch.testing.assert_close(found, expected, rtol=allowed, atol=allowed / 10)
        return made

    def test_losses_of_classes_with_weights_and_of_several_dimensions(self):
        for ignored, smoothing, reduction, is_weighted, is_turned in itertools.product(
                (-100, 5), (0.0, 0.2), ("mean", "sum", "none"), (False, True), (False, True)):
            targets = torch.randint(0, N, (B, T))
            targets[:, ::4] = ignored
            named = {"ignore_index": ignored, "label_smoothing": smoothing, "reduction": reduction}

            def loss(h, t, weight, how=(is_weighted, is_turned, named)):
                is_weighted, is_turned, named = how
                h, t = (h.mT, t) if is_turned else (h.flatten(0, 1), t.flatten())
                return F.cross_entropy(h, t, weight if is_weighted else None, **named) * 2

            self._same(loss, targets, torch.rand(N) + 0.5, name=(is_weighted, is_turned, named))

    def test_losses_of_log_probabilities(self):
        targets = torch.randint(0, N, (B * T,))
        targets[::3] = 5
        for dim, ignored, reduction in itertools.product((-1, 1, 0), (-100, 5),
                                                         ("mean", "sum", "none")):
            self._same(lambda h, t, how=(dim, ignored, reduction): F.nll_loss(
                F.log_softmax(F.silu(h).flatten(0, 1), how[0]), t, ignore_index=how[1],
                reduction=how[2]),
                targets, name=(dim, ignored, reduction))

    def test_divergences_by_their_arguments(self):
        p = torch.softmax(torch.randn(B, T, N), -1)
        with_zeros = torch.where(p > p.median(), p, 0.0)
        for reduction, log_target in itertools.product(("mean", "sum", "batchmean", "none"),
                                                       (False, True)):
            self._same(lambda h, p, how=(reduction, log_target): F.kl_div(
                F.log_softmax(h, -1), p, reduction=how[0], log_target=how[1]) * 2,
                p.log() if log_target else with_zeros, name=(reduction, log_target))

    def test_loops_over_parts_of_the_rows(self):
        """Those that are all rows in their order are one operation; others look like them."""
        def entropy(h, dim=-1):
            log = torch.log_softmax(h, dim)
            return -(log.exp() * log).sum(-1)

        def stacked(order, dim=0, along=-1):
            return lambda h: torch.stack([entropy(h[i], along) for i in order], dim)

        def split(order, along=-1, size=16):
            def function(h):
                parts = h.flatten(0, 1).split(size)
                return torch.cat([entropy(parts[i], along) for i in order])
            return function

        loops = {"in order": (stacked((0, 1)), 1), "turned": (stacked((1, 0)), 0),
                 "one twice": (stacked((0, 0)), 0), "the last": (stacked((1,)), 0),
                 "along columns": (stacked((0, 1), 1), 0),
                 "along columns, square": (lambda h: stacked((0, 1), 1)(h[:, :2]), 0),
                 "along rows": (stacked((0, 1), 0, 0), 0),
                 "parts": (split((0, 1, 2)), 1), "parts, turned": (split((2, 0, 1)), 0),
                 "a part twice": (split((0, 1, 1)), 0),
                 "parts, along rows": (split((0, 1, 2), 0), 0)}
        for name, (function, fused_losses) in loops.items():
            made = self._same(lambda h, f=function: f(F.silu(h)), name=name)
            self.assertEqual("log_softmax" in "".join(made.regions), bool(fused_losses), name)

    def test_arguments_that_no_rule_takes(self):
        """Such operations are PyTorch's, or computed as they say."""
        functions = {
            "floor": lambda h, x: torch.div(h, x.abs() + 0.5, rounding_mode="floor"),
            "trunc": lambda h, x: torch.div(h, x.abs() + 0.5, rounding_mode="trunc"),
            "sum in float64": lambda h, x: h.sum(-1, dtype=torch.float64).float() * 2,
            "sum of rows": lambda h, x: h * h.sum(1, keepdim=True),
            "mean of all": lambda h, x: h * h.mean((1, 2), keepdim=True),
            "mean of no dimension": lambda h, x: h * h.mean(()),
            "softmax of rows": lambda h, x: torch.softmax(h, 1) * x,
            "softmax of rows, reduced": lambda h, x: (torch.softmax(h, 1) * 2).sum(-1),
            "log-softmax of rows, reduced": lambda h, x: torch.log_softmax(h, 1).exp().sum(-1),
            "sum of as many rows as columns": lambda h, x: F.silu(h[..., :T]).sum(1) * 2,
            "softmax in float64": lambda h, x: torch.softmax(h, -1, dtype=torch.float64).float(),
            "power": lambda h, x: (h.abs() + 0.5) ** 2.5,
            "power of each": lambda h, x: (h.abs() + 0.5) ** x,
            "bounds of each": lambda h, x: h.clamp(x - 0.5, x + 0.5),
            "where of several types": lambda h, x: torch.where(x > 0, h, x.double()).float(),
            "a wider operand": lambda h, x: (h * x.double()).float(),
            "an empty part of another type": lambda h, x: torch.cat(
                (h.new_empty(0), F.silu(h).bfloat16())) * 2,
            "a norm of rows": lambda h, x: F.layer_norm(h, (T, N)) * 2,
            "logical operations of integers": lambda h, x: h * torch.logical_and(
                x.long() * 2, x.long()),
            "no gradient": lambda h, x: F.silu(h).detach() * h,
            "whether it is 0": lambda h, x: h * F.relu(h).bool(),
            "an expanded operand": lambda h, x: h[:, :1].expand(B, T, N) * x[:1, :1],
            "to a format": lambda h, x: F.silu(h).view(B, T, 8, 8).to(
                memory_format=torch.channels_last) * 2,
            "integers": lambda h, x: F.silu(h) * (x.long() // 2) + (x.long() & 1)}
        for name, function in functions.items():
            made = self._same(lambda h, x, f=function: f(F.silu(h), x), torch.randn(B, T, N),
                              name=name, allowed=1e-2 if name.startswith("an empty") else 1e-4)
            self.assertTrue(made.fused, name)

    def test_a_product_alone_is_no_region(self):
        self.assertEqual(self._same(lambda h: h.view(B, T, 4, 16)).fused, [])

    def test_views_and_parts_by_their_arguments(self):
        """Dimensions from both ends, and starts, sizes and orders of each kind."""
        functions = {
            "moved": lambda h: F.silu(heads(h).movedim(1, 3)) * 2,
            "moved back": lambda h: F.silu(heads(h).movedim(-2, 1)) * 2,
            "turned columns": lambda h: F.silu(heads(h).transpose(2, 3)).flatten(-2) * 2,
            "turned rows": lambda h: F.silu(h.transpose(0, 1)) * 2,
            "turned in a circle": lambda h: F.silu(heads(h).permute(2, 0, -3, -1)) * 2,
            "turned in another": lambda h: F.silu(heads(h).permute(1, 2, 0, 3)) * 2,
            "rows of columns": lambda h: F.silu(h.reshape(B, 4 * T, 16)) * h.view(B, 4 * T, 16),
            "rows of others": lambda h: F.rms_norm(h.reshape(B, T // 2, 2 * N), (2 * N,)),
            "rows and columns mixed": lambda h: F.silu(heads(h).transpose(1, 2)).reshape(
                B * T, N) * 2,
            "narrow from the end": lambda h: F.silu(h.narrow(-1, -24, 16)) * 2,
            "narrow rows from the end": lambda h: F.silu(h.narrow(1, -5, 3)) * 2,
            "the last": lambda h: F.silu(heads(h).select(-2, -1)) * 2,
            "the last column": lambda h: F.silu(h)[..., -1] * 2,
            "split by name": lambda h: torch.mul(*torch.split(F.silu(h), 32, dim=2)),
            "unequal parts": lambda h: F.silu(h.split((8, 16, 40), -1)[2]) * 2,
            "parts of heads": lambda h: F.silu(heads(h).split((4, 12), -1)[1]) * 2,
            "some heads": lambda h: F.silu(heads(h)[:, :, 1:3]) * 2,
            "chunks by name": lambda h: torch.mul(*F.silu(h).chunk(2, dim=2)),
            "unbound": lambda h: F.silu(heads(h).unbind(2)[-1]) * 2,
            "unbound rows": lambda h: F.silu(h).unbind(1)[3] * 2,
            "halves of two sizes": lambda h: heads(h)[..., :8].flatten(-2) * h[..., :32],
            "a half of pairs": lambda h: torch.cat((-heads(h)[..., 8:], heads(h)[..., :8]), -1)
            .flatten(-2)[..., :32] * h[..., 32:],
            "parts of several layouts": lambda h: torch.cat(
                (F.silu(h.transpose(0, 1)).transpose(0, 1), F.silu(heads(h)).flatten(-2)), 1) * 2,
            "side by side along heads": lambda h: torch.cat((heads(h), heads(h) * 2), 2) * 2,
            "stacked": lambda h: torch.stack((h, F.silu(h)), -2).flatten(-2) * 2}
        for name, function in functions.items():
            made = self._same(lambda h, f=function: f(F.silu(h)), name=name)
            self.assertTrue(made.fused, name)
        self._same(lambda h, q: (heads(h) * q).flatten(-2)[..., :32] * h[..., 32:],
                   torch.randn(T, 1, 16), name="a half of a table")

    def test_products_by_their_spelling(self):
        o = (torch.randn(N, N) / 8).requires_grad_()
        functions = {
            "left": lambda h, o: F.silu(o @ F.silu(h).mT) * 2,
            "left of another transpose": lambda h, o: o @ F.silu(h)[:, :16].view(
                B, 4, 4, N).permute(0, 1, 3, 2) * 2,
            "left of what is turned": lambda h, o: o @ F.silu(heads(h)).view(
                B, T, N, 1).transpose(1, 3)[:, 0] * 2,
            "addmm": lambda h, o: torch.addmm(h.flatten(0, 1), F.silu(h).flatten(0, 1), o) * 2,
            "addmm of factors": lambda h, o: torch.addmm(
                o[0], F.silu(h).flatten(0, 1), o, beta=0.5, alpha=2) * 2,
            "addmm of a number": lambda h, o: torch.addmm(
                o[0, :1], F.silu(h).flatten(0, 1), o) * 2,
            **{f"einsum {equation}": lambda h, o, equation=equation: torch.einsum(
                equation, F.silu(h[:, :16]).unflatten(1, (4, 4)), o) * 2
               for equation in ("abtd,od->abto", "abtd,do->abto", "abtd,od->abot", "abtd,od->tabo",
                                "abtd,od->oabt", "abtd,od->abo")},
            "einsum of rows": lambda h, o: torch.einsum(
                "btd,st->bsd", F.silu(h), o[:T, :T]) * 2,
            "einsum of the weight first": lambda h, o: torch.einsum(
                "od,btd->bto", o, F.silu(h)) * 2}
        for name, function in functions.items():
            self.assertTrue(self._same(function, o, name=name).fused, name)
        of_batches, of_rows = ((torch.randn(*shape) / 4).requires_grad_()
                               for shape in ((8, B), (T, T)))
        for name, function, weight in (
                ("left of turned rows", lambda h, w: w @ F.silu(h).transpose(0, 1) * 2, of_batches),
                ("left of rows", lambda h, w: w @ F.silu(h) * 2, of_rows),
                ("einsum of the rows", lambda h, w: torch.einsum(
                    "btd,st->bds", F.silu(h), w) * 2, of_rows),
                ("einsum of rows in place", lambda h, w: torch.einsum(
                    "btd,st->bsd", F.silu(h), w) * 2, of_rows)):
            self.assertTrue(self._same(function, weight, name=name).fused, name)

    def test_writes_through_views(self):
        def written(write):
            def function(h, x):
                made = F.silu(h).clone()
                write(made, x)
                return made * 2 + F.silu(h)
            return function

        def factors(write):  # autograd takes no writes to one of several views
            def function(h, x):
                made = torch.full_like(h, 1.5)
                write(made, x)
                return F.silu(h) * made
            return function

        functions = {
            "permuted": written(lambda y, x: y.permute(1, 2, 0)[0].mul_(2)),
            "permuted, heads": written(lambda y, x: heads(y).permute(2, 0, 3, 1)[1].add_(1)),
            "narrow": written(lambda y, x: y.narrow(1, 3, 4).mul_(2)),
            "narrow of a narrow": written(lambda y, x: y.narrow(1, 3, 8).narrow(2, 8, 4).add_(1)),
            "select": written(lambda y, x: y.select(-2, -1).neg_()),
            "diagonal": written(lambda y, x: y.diagonal(0, 1, 2).add_(1)),
            "unbound": factors(lambda y, x: y.unbind(1)[2].mul_(2)),
            "unbound columns": factors(lambda y, x: y.unbind(-1)[3].add_(x[..., 0])),
            "split by name": factors(lambda y, x: torch.split(y, [8, 16], dim=1)[1].mul_(3)),
            "chunk": factors(lambda y, x: y.chunk(3, -1)[2].add_(1)),
            "bits": factors(lambda y, x: y.view(torch.int32).add_(1 << 23)),
            "another type": factors(lambda y, x: y.copy_(x.double())),
            "integers": written(lambda y, x: y.add_(x.long())),
            "of integers": factors(lambda y, x: y.mul_(
                torch.zeros(B, T, N, dtype=torch.int64).add_(x.long()).add_(1).clamp_(-1, 2))),
            "broadcast": written(lambda y, x: y.copy_(x[:, :1])),
            "a dimension more": written(lambda y, x: y.unsqueeze_(0).mul_(2).squeeze_(0)),
            "turned": factors(lambda y, x: y.transpose_(0, 1).add_(1).transpose_(0, 1))}
        for name, function in functions.items():
            self._same(function, torch.randn(B, T, N), name=name)

    def test_random_numbers_are_drawn_in_their_order(self):
        def function(h):
            p = torch.sigmoid(h)
            one = torch.bernoulli(p.detach())  # of a region that ends behind the next
            two = torch.rand(B, T, N) + torch.special.i0(h)
            return F.dropout(F.silu(h) * p, 0.25, True) * two + one

        self.assertTrue(self._same(function).fused)

    def test_transposes_of_rows_past_products(self):
        """A product that others read too, and a copy of what is written, stay in their place."""
        def read_twice(h, o):
            y = F.linear(F.silu(h), o)
            return F.relu(F.silu(y.transpose(0, 1)).transpose(0, 1)) + y

        def read_before(h, o):
            x = F.silu(h) * 2
            y = F.linear(x, o)
            x.detach().mul_(2)
            return F.relu(F.silu(y)) * 2 + x

        def written(h, o):
            x = F.silu(h)
            rows = x.transpose(0, 1).reshape(-1, N)
            x.detach().mul_(2)
            return F.silu(F.linear(rows, o)).sum() * 2 + x.mean()

        def written_behind(h, o):
            x = F.silu(h)
            y = F.silu(F.linear(x.transpose(0, 1), o))
            x.detach().mul_(2)
            return y.sum() * 2 + x.mean()

        weight = torch.randn(N, N) / 8
        for function in (read_twice, read_before, written, written_behind):
            made = self._same(function, weight, name=function.__name__)
            self.assertTrue(made.fused, function.__name__)

    def test_other_names_of_operations(self):
        """Every name that canonical.py knows is fused, and is what PyTorch computes by it."""
        for old, new in canonical._OTHER_NAMES.items():
            target = canonical._named(old)
            if target is None:
                continue
            packet, _, overload = old.partition(".")
            x = torch.randn(B, T, N)
            is_mask = new.startswith("bitwise") or packet.strip("_") in ("and", "or", "xor")

            def function(h, x, target=target, how=(packet, overload, new, is_mask)):
                packet, overload, new, is_mask = how
                if is_mask:
                    one, other = x > 0.5, x < 1
                    return h * (target(one) if new.endswith("not") else target(one, other))
                if new in ("neg", "abs", "sigmoid"):
                    return target(h)
                if new == "clamp":
                    return target(h, -0.5, 0.25)
                if new == "cat":
                    return target([h, h * x], -1) * 2
                if new == "transpose.int":
                    return (target(heads(h), 1, 2) * 2).transpose(1, 2)
                if new[:2] in ("gt", "lt", "ge", "le", "ne"):
                    other = 1.0 if overload == "Scalar" else x.roll(1, 1)
                    return h * target(x.round(), other)  # of equal numbers too
                return target(h, 1.5 if overload == "Scalar" else x)

            made = self._same(function, x.round() if new[:2] in ("gt", "lt", "ge", "le", "ne")
                              else x, name=old)
            self.assertEqual(len(made.fused), 1, old)

    def test_masks_of_attention_by_their_shapes(self):
        """Heads that are repeated for their queries in any order, and masks of any leading
        dimensions: the causal one alone is dropped, and heads are given once where they can be."""
        causal = torch.ones(T, T, dtype=torch.bool).tril()

        def attention(mask, repeated=lambda k: k, of_values=None):
            def function(h, mask):
                q = h.view(B, T, 4, 16).transpose(1, 2)
                k, v = (h[..., :32].view(B, T, 2, 16).transpose(1, 2) * factor for factor in (2, 3))
                k, v = repeated(k), (of_values or repeated)(v)
                return F.scaled_dot_product_attention(q, k, v, mask) * 2
            return function, mask

        def one_by_one(k):
            return k[:, :, None].expand(B, 2, 2, T, 16).reshape(B, 4, T, 16)

        def in_turns(k):
            return k[:, None].expand(B, 2, 2, T, 16).reshape(B, 4, T, 16)

        def of_one(k):
            return k[:, :1, None].expand(B, 1, 4, T, 16).reshape(B, 4, T, 16)

        of_batches = torch.stack((causal, torch.ones(T, T, dtype=torch.bool)))[:, None]
        for name, (function, mask) in {
                "one by one": attention(causal, one_by_one),
                "in turns": attention(causal, in_turns),
                "values in turns": attention(causal, one_by_one, in_turns),
                "values of one head": attention(causal, one_by_one, of_one),
                "of each batch": attention(of_batches, one_by_one)}.items():
            self._same(function, mask, name=name)

            def tells(h, function=function):  # the same with a mask that can be proven
                mask = torch.ones(T, T, dtype=torch.bool).tril()
                return function(h, mask)

            self.assertEqual(self._same(tells, name=name).causal, 1)

    def test_dropout_draws_what_eager_draws(self):
        def function(h):
            return F.dropout(F.silu(F.dropout(h, 0.3, True)), 0.5, True) + h

        called, made = fused(Case(function), torch.float32)
        self.assertEqual((len(made.fused), made.left), (
            1, ["2 x empty_strided", "2 x native_dropout"]))
        given = inputs_of(Case(function), torch.float32, 1.0, 0)
        found = []
        for run in (called, whole(Case(function))):
            torch.manual_seed(7)
            made = run(*given)
            found.append([made, *torch.autograd.grad(made.square().sum(), given)])
        for one, other in zip(*found):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


if __name__ == "__main__":
    unittest.main()
