# SPDX-License-Identifier: Apache-2.0
"""ops.attention against the formula in float64, and the recognition of that formula in graphs."""

import itertools
import math
import unittest
from unittest import mock

import torch
import torch._dynamo
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import (
    Gemma2Config, Gemma2ForCausalLM, GptOssConfig, GptOssForCausalLM, MistralConfig,
    MistralForCausalLM)

import coda_cpp
from coda_cpp import _attention, ops
from coda_cpp.torch_backend import attention as recognition
from compiled import SIZES, Recorder, error, ids, llama, mistral, outcome

VARIANTS = (
    {"causal": True}, {"causal": False}, {"causal": True, "softcap": 2.0},
    {"causal": True, "window": 5}, {"causal": True, "window": 100, "softcap": 0.5, "scale": 0.7},
    {"causal": False, "softcap": 1.5, "scale": 0.2})
# Batch, heads, key-value heads, tokens, sizes of keys and of values. A CPU's block has 96 tokens.
SHAPES = ((2, 4, 4, 37, 16, 16), (1, 4, 2, 97, 24, 8), (2, 3, 1, 1, 8, 8), (1, 2, 1, 200, 7, 40))


def seen(tokens, causal, window=None):
    i, j = torch.arange(tokens)[:, None], torch.arange(tokens)
    made = j <= i if causal else torch.ones(tokens, tokens, dtype=torch.bool)
    return made if window is None else made & (j > i - window)


def plain(q, k, v, *, causal=False, window=None, softcap=None, scale=None, sinks=None):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores.masked_fill(~seen(q.shape[2], causal, window), -torch.inf)
    if sinks is not None:
        scores = torch.cat((scores, sinks[:, None, None].expand(len(q), -1, q.shape[2], 1)), -1)
    shares = scores.softmax(-1, dtype=torch.promote_types(q.dtype, torch.float32)).to(q.dtype)
    return shares[..., :k.shape[2]] @ v


def tensors(shape, dtype=torch.float32):
    batch, heads, kv_heads, tokens, size, value_size = shape
    return [torch.randn(batch, tokens, count, of, dtype=dtype).transpose(1, 2).requires_grad_()
            for count, of in ((heads, size), (kv_heads, size), (kv_heads, value_size))]


def results(function, given, **options):
    """The result and all gradients."""
    made = function(*given, **options)
    upstream = torch.linspace(-1, 1, made.numel()).reshape(made.shape).to(made.dtype)
    return made, *torch.autograd.grad(made, given, upstream)


def _distance(found, exact):
    found, exact = (torch.cat([x.detach().double().flatten() for x in given])
                    for given in (found, exact))
    return (found - exact).norm() / exact.norm()


class Operator(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        torch._dynamo.reset()

    def test_against_float64(self):
        """Result and gradients together have at most twice the error of the formula in the same
        type, which rounds scores too."""
        for dtype, shape, options in itertools.product(
                (torch.float32, torch.bfloat16, torch.float16), SHAPES, VARIANTS):
            with self.subTest(dtype=dtype, shape=shape, **options):
                given = tensors(shape, dtype)
                exact = results(plain, [x.detach().double().requires_grad_() for x in given],
                                **options)
                found = results(ops.attention, given, **options)
                self.assertEqual([(x.shape, x.dtype) for x in found],
                                 [(x.shape, dtype) for x in exact])
                self.assertLess(_distance(found, exact), 1e-6 + 2 * _distance(
                    results(plain, given, **options), exact))  # of one token eager's is 0

    def test_sinks(self):
        """As above, with a learned score of each head, in fp32 or in the type of the tensors."""
        for (dtype, shape), options in itertools.product(itertools.product(
                (torch.float32, torch.bfloat16, torch.float16), SHAPES), VARIANTS[1:5]):
            with self.subTest(dtype=dtype, shape=shape, **options):
                own = dtype if options["causal"] else torch.float32
                given = [*tensors(shape, dtype),
                         torch.randn(shape[1]).mul(2).to(own).requires_grad_()]
                exact, rounded, found = (
                    results(lambda q, k, v, s, of=function: of(q, k, v, sinks=s, **options), x)
                    for function, x in (
                        (plain, [x.detach().double().requires_grad_() for x in given]),
                        (plain, given), (ops.attention, given)))
                self.assertEqual([x.dtype for x in found], [dtype] * 4 + [own])
                self.assertLess(_distance(found, exact), 1e-6 + 2 * _distance(rounded, exact))
        q, k, v = tensors((2, 2, 1, 0, 8, 8))
        sinks = torch.zeros(2, requires_grad=True)
        ops.attention(q, k, v, sinks=sinks).sum().backward()
        self.assertTrue(torch.equal(sinks.grad, torch.zeros(2)))

    def test_where_tensors_lie(self):
        """Columns of a fused projection are read in place; other strides give the same bits."""
        batch, tokens, heads, size = 2, 19, 3, 8
        dense = [torch.randn(batch, tokens, heads, size) for _ in range(3)]
        fused = torch.stack(dense, 2)  # [batch, tokens, 3, heads, size]
        apart = [x.transpose(1, 2).contiguous() for x in dense]  # [batch, heads, tokens, size]
        wanted = results(ops.attention, [x.transpose(1, 2).requires_grad_() for x in dense],
                         causal=True)
        for name, given, is_in_place in (
                ("fused", [x.transpose(1, 2) for x in fused.unbind(2)], True),
                ("apart", apart, False),
                ("every second", [torch.stack([x, x], -1)[..., 0].transpose(1, 2) for x in dense],
                 False)):
            with self.subTest(name):
                for x in given:
                    distance = _attention._distance(x.transpose(1, 2))
                    self.assertEqual(distance is not None, is_in_place)
                made = results(ops.attention, [x.detach().requires_grad_() for x in given],
                               causal=True)
                self.assertTrue(all(map(torch.equal, made, wanted)))
        self.assertTrue(wanted[0].transpose(1, 2).is_contiguous())
        expanded = torch.autograd.grad(  # a sum's gradient has strides of 0
            ops.attention(*(x.requires_grad_() for x in apart)).sum(), apart)
        self.assertLess(error(expanded[2:], torch.autograd.grad(plain(*apart).sum(), apart)[2:]),
                        1e-5)

    def test_no_tokens(self):
        for shape in ((0, 2, 1, 4, 8, 8), (2, 2, 1, 0, 8, 8)):
            made, *gradients = results(ops.attention, tensors(shape), causal=True)
            self.assertEqual([made.numel(), *(g.numel() for g in gradients)], [0, 0, 0, 0])

    def test_compiled(self):
        """One graph for all lengths; autocast; checkpointing."""
        compiled = torch.compile(ops.attention, backend="aot_eager", fullgraph=True, dynamic=True)
        options = {"causal": True, "softcap": 2.0, "window": 9}
        for tokens in (5, 33):
            given = tensors((2, 4, 2, tokens, 16, 16))
            self.assertTrue(all(map(torch.equal, results(compiled, given, **options),
                                    results(ops.attention, given, **options))))
        given = tensors((2, 4, 2, 20, 16, 16))
        options["sinks"] = torch.randn(4)
        with torch.autocast("cpu", torch.bfloat16):
            made = [function(*given, **options) for function in (compiled, ops.attention)]
        self.assertEqual([x.dtype for x in made], [torch.bfloat16] * 2)
        self.assertTrue(torch.equal(*made))

        def saved(*given):
            return checkpoint(ops.attention, *given, use_reentrant=False, **options)

        self.assertTrue(all(map(torch.equal, results(saved, given),
                                results(ops.attention, given, **options))))

    def test_pytorchs_checks(self):
        for dtype in (torch.float32, torch.bfloat16):
            q, k, v = (x.detach().transpose(1, 2).requires_grad_()
                       for x in tensors((2, 4, 2, 5, 8, 4), dtype))
            for sinks in ((), (torch.randn(4, requires_grad=True),)):
                torch.library.opcheck(_attention.ATTENTION,
                                      (q, k, v, None, True, 3, 2.0, 0.3, *sinks))

    def test_what_has_no_derivative(self):
        """Gradients of gradients, forward-mode derivatives, and the log-sum-exp's gradient."""
        q, k, v = (x.detach().transpose(1, 2).requires_grad_()
                   for x in tensors((2, 4, 2, 5, 8, 4)))
        made, sums = _attention.ATTENTION(q, k, v, None, True, 0, 0.0, 0.3)
        self.assertFalse(sums.requires_grad)
        of_query, = torch.autograd.grad(made.square().sum(), q, create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "differentiate twice"):
            of_query.sum().backward()
        with torch.autograd.forward_ad.dual_level(), self.assertRaisesRegex(
                NotImplementedError, "jvp"):
            _attention.ATTENTION(torch.autograd.forward_ad.make_dual(q.detach(), q.detach()), k, v,
                                 None, True, 0, 0.0, 0.3)

    def test_errors(self):
        q, k, v = tensors((2, 4, 2, 6, 8, 8))
        for change, words in (
                ({"q": q[0]}, "'q' must be [batch, heads, tokens, size]"),
                ({"k": None}, "'k' must be a tensor"),
                ({"v": v.to_sparse()}, "to_dense"),
                ({"q": q.double()}, "torch.float64; convert it by .to()"),
                ({"k": k.half()}, "must have one type"),
                ({"k": k[:, :, :5], "v": v[:, :, :5]}, "scaled_dot_product_attention"),
                ({"k": k[..., :7]}, "must have the batch and the tokens of q"),
                ({"q": q[:, :3]}, "a multiple of the 2 of k and v"),
                ({"v": v[..., :0]}, "sizes must be positive"),
                ({"q": q.to("meta"), "k": k.to("meta"), "v": v.to("meta")}, "must lie on a CPU"),
                ({"k": k.to("meta")}, "'k' lies on meta"),
                ({"window": 3}, "with causal=True"),
                ({"window": 0, "causal": True}, "a positive whole number"),
                ({"window": 2.5, "causal": True}, "a positive whole number"),
                ({"softcap": -1.0}, "softcap must be None or positive"),
                ({"softcap": 0.0}, "softcap must be None or positive"),
                ({"scale": math.inf}, "scale must be a finite number"),
                ({"documents": (0, 12)}, "'documents' must be a tensor"),
                ({"documents": torch.tensor((0.0, 12.0))}, "int32 or int64 [documents + 1]"),
                ({"documents": torch.tensor((0,))}, "int32 or int64 [documents + 1]"),
                ({"documents": torch.tensor(((0, 12),))}, "int32 or int64 [documents + 1]"),
                ({"documents": torch.tensor((0, 13))}, "both ends must ascend"),
                ({"sinks": 0.0}, "'sinks' must be a tensor"),
                ({"sinks": torch.zeros(2)}, "and [4], one for each head of q"),
                ({"sinks": torch.zeros(4, dtype=torch.int32)}, "of a floating-point type"),
                ({"sinks": torch.zeros(4, device="meta")}, "on cpu, but it is")):
            with self.subTest(words), self.assertRaises(coda_cpp.Error) as caught:
                ops.attention(**{"q": q, "k": k, "v": v, **change})
            self.assertIn(words, str(caught.exception))
            self.assertTrue(str(caught.exception).startswith("attention: "))


def repeated(x, times):
    """As Hugging Face's repeat_kv."""
    batch, heads, tokens, size = x.shape
    return x[:, :, None].expand(batch, heads, times, tokens, size).reshape(
        batch, heads * times, tokens, size)


def added(q, causal=True, window=None, least=None):
    """A mask as Hugging Face's eager_mask makes it."""
    least = torch.finfo(q.dtype).min if least is None else least
    return torch.where(seen(q.shape[2], causal, window)[None, None],
                       torch.zeros((), dtype=q.dtype), least)


def in_fp32(x):
    return torch.nn.functional.softmax(x, dim=-1, dtype=torch.float32)


def eager(q, k, v, scores=lambda x: x * 0.3, mask=added, weights=lambda x: x, softmax=in_fp32):
    k, v = (repeated(x, q.shape[1] // x.shape[1]) for x in (k, v))
    made = scores(q @ k.transpose(2, 3))
    if mask is not None:
        made = made + mask(q)
    return weights(softmax(made).to(q.dtype)) @ v


def with_sinks(sinks, shift=lambda x: x.max(dim=-1, keepdim=True).values, kept=slice(-1)):
    """The softmax of gpt-oss."""
    def softmax(x):
        of_rows = sinks.reshape(1, -1, 1, 1).expand(x.shape[0], -1, x.shape[2], -1)
        x = torch.cat([x, of_rows], dim=-1)
        return torch.nn.functional.softmax(x - shift(x), dim=-1, dtype=x.dtype)[..., kept]
    return softmax


def capped(x):
    return torch.tanh(x * 0.3 / 2.0) * 2.0


class WrittenOut(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        torch._dynamo.reset()

    def _recognised(self, function, given, limit=1e-5):
        """The number of attentions that are fused. Results and gradients are compared."""
        recorder = Recorder()
        torch._dynamo.reset()
        compiled = torch.compile(function, backend=recorder, dynamic=False)
        for found, expected in zip(results(compiled, given), results(function, given)):
            self.assertLess((found - expected).norm() / expected.norm(), limit)
        return sum(report.written_out for report in recorder.reports)

    def test_formulas(self):
        given = tensors((2, 4, 2, 40, 16, 24))
        for name, changes in {
                "plain": {},
                "divided": {"scores": lambda x: x / 4},
                "soft-cap": {"scores": capped},
                "written in place": {"scores": lambda x: capped(x).mul_(0.5)},
                "of one factor": {"scores": lambda x: torch.tanh(x / 8) * 2},
                "window": {"mask": lambda q: added(q, window=7)},
                "soft-cap and window": {
                    "scores": capped, "mask": lambda q: added(q, window=7)},
                "a number as a tensor": {"scores": capped, "mask": lambda q: torch.where(
                    seen(q.shape[2], True), torch.tensor(0.0, dtype=q.dtype), -torch.inf)},
                "infinite": {"mask": lambda q: added(q, least=-torch.inf)},
                "no mask": {"mask": None},
                "no mask, soft-cap": {"mask": None, "scores": capped},
                "no dropout": {
                    "weights": lambda x: torch.nn.functional.dropout(x, 0.0, training=True)},
                "dropout in evaluation": {"scores": capped, "weights": lambda x: (
                    torch.nn.functional.dropout(x, 0.5, training=False))}}.items():
            with self.subTest(name):
                self.assertEqual(self._recognised(
                    lambda q, k, v, c=changes: eager(q, k, v, **c), given), 1)

    def test_einsum(self):
        """In all orders of dimensions. What sums otherwise stays."""
        for count, scores, made in (
                (1, "bhid,bhjd->bhij", "bhij,bhjd->bhid"),
                (1, "bihd,bjhd->bhij", "bhij,bjhd->bihd"),
                (1, "hbid, hbdj -> hbij", "hbij,hbjd->bihd"),
                (0, "bhid,bhjd->bhij", "bhji,bhjd->bhid"),
                (0, "bhid,bhjd->bhji", "bhij,bhjd->bhid"),
                (0, "bhid,bhjd->bhij", "bhij,bhjd->bhjd")):
            names = scores.replace(" ", "").split("->")[0].split(",") + [made[5:9]]
            sizes = {"b": 2, "h": 4, "i": 40, "j": 40, "d": 16}
            given = [torch.randn([sizes[name] for name in of], requires_grad=True) for of in names]
            with self.subTest(scores=scores, made=made):
                self.assertEqual(self._recognised(
                    lambda q, k, v, s=scores, m=made: torch.einsum(m, (
                        torch.einsum(s, q, k) * 0.3 + torch.full((40, 40), -torch.inf).triu(1)
                    ).softmax(-1), v), given), count)

    def test_batch_and_heads_in_one_dimension(self):
        """As in nn.MultiheadAttention that may return its weights, and in fairseq, whose mask and
        softmax are of four dimensions."""
        given = [x.detach().flatten(0, 1).requires_grad_()
                 for x in tensors((2, 4, 4, 40, 16, 24))]

        def scores(q, k):
            return torch.bmm(q * 0.3, k.transpose(1, 2))

        def of_four(q, k, v, mask=None, softmax=in_fp32, back=(8, 40, 40)):
            made = scores(q, k).view(2, 4, 40, 40)
            made = made if mask is None else made + mask
            return torch.bmm(softmax(made).view(back), v)

        for name, count, function in (
                ("no mask", 1, lambda q, k, v: torch.bmm(scores(q, k).softmax(-1), v)),
                ("@", 1, lambda q, k, v: (q @ k.mT * 0.3).softmax(2) @ v),
                ("a mask", 1, lambda q, k, v: torch.bmm((
                    scores(q, k) + torch.full((40, 40), -torch.inf).triu(1)).softmax(-1), v)),
                ("baddbmm", 1, lambda q, k, v: torch.bmm(torch.baddbmm(
                    torch.full((1, 40, 40), -torch.inf).triu(1), q, k.transpose(1, 2), alpha=0.3
                ).softmax(-1), v)),
                ("beta", 0, lambda q, k, v: torch.bmm(torch.baddbmm(
                    torch.full((1, 40, 40), -torch.inf).triu(1), q, k.transpose(1, 2), beta=0.5
                ).softmax(-1), v)),
                ("views", 1, of_four),
                ("views and a mask", 1, lambda q, k, v: of_four(
                    q, k, v, torch.full((40, 40), -torch.inf).triu(1))),
                ("a mask of each batch", 1, lambda q, k, v: of_four(
                    q, k, v, torch.full((2, 1, 40, 40), -torch.inf).triu(1))),
                ("scores of four dimensions", 1, lambda q, k, v: torch.bmm((
                    q.unflatten(0, (2, 4)) @ k.unflatten(0, (2, 4)).mT * 0.3
                ).softmax(-1).flatten(0, 1), v)),
                ("a result of four dimensions", 1, lambda q, k, v: (
                    scores(q, k).softmax(-1).unflatten(0, (2, 4)) @ v.unflatten(0, (2, 4)))),
                ("other heads", 0, lambda q, k, v: (scores(q, k).view(2, 4, 40, 40) + torch.full(
                    (40, 40), -torch.inf).triu(1)).softmax(-1).view(8, 40, 40).view(4, 2, 40, 40)
                    @ v.view(4, 2, 40, 24)),
                ("rows of another length", 0, lambda q, k, v: torch.bmm(
                    scores(q, k[:, :20]).view(2, 4, 20, 40).softmax(-1).view(8, 40, 20),
                    v[:, :20])),
                ("the softmax of queries", 0, lambda q, k, v: torch.bmm(
                    scores(q, k).softmax(1), v)),
                ("heads that broadcast", 0, lambda q, k, v: (
                    scores(q, k).softmax(-1).unflatten(0, (2, 4)) @ v[:4]).flatten(0, 1))):
            with self.subTest(name):
                self.assertEqual(self._recognised(function, given), count)

    def test_pytorchs_module_that_may_return_weights(self):
        """Also if batch and tokens vary from call to call."""
        for masks, count in (({}, 1), ({"is_causal": True}, 1), ({"need_weights": False}, 0)):
            module = nn.MultiheadAttention(32, 4, batch_first=True)

            def attended(x, module=module, masks=masks):
                seen = torch.full((x.shape[1], x.shape[1]), -torch.inf).triu(1)
                return module(x, x, x, **masks, attn_mask=seen if masks else None)[0]

            for is_dynamic in (False, True):
                with self.subTest(masks=masks, is_dynamic=is_dynamic):
                    torch._dynamo.reset()
                    recorder = Recorder()
                    compiled = torch.compile(attended, backend=recorder, dynamic=is_dynamic)
                    for sizes in ((2, 24), (3, 17), (5, 40))[:3 if is_dynamic else 1]:
                        given = [torch.randn(*sizes, 32, requires_grad=True)]
                        for found, expected in zip(results(compiled, given),
                                                   results(attended, given)):
                            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
                    self.assertEqual({r.written_out for r in recorder.reports}, {count})

    def test_views_of_batches_that_vary(self):
        torch._dynamo.reset()
        recorder = Recorder()

        def attended(x):
            batch, heads, tokens, _ = x.shape
            q, k, v = x.reshape(batch * heads, tokens, -1).chunk(3, -1)
            made = torch.bmm(q, k.transpose(1, 2)).view(batch, heads, tokens, tokens)
            made = made + torch.full((tokens, tokens), -torch.inf).triu(1)
            return torch.bmm(made.softmax(-1).view(batch * heads, tokens, tokens), v)

        compiled = torch.compile(attended, backend=recorder, dynamic=True)
        for batch, tokens in ((2, 24), (3, 17)):
            given = [torch.randn(batch, 4, tokens, 48, requires_grad=True)]
            for found, expected in zip(results(compiled, given), results(attended, given)):
                torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        self.assertEqual([report.written_out for report in recorder.reports], [1])

    def test_keys_that_lie_as_columns(self):
        q, k, v = tensors((2, 4, 4, 40, 16, 24))
        columns = k.detach().transpose(2, 3).contiguous().requires_grad_()
        self.assertEqual(self._recognised(
            lambda q, k, v: capped(q @ k).softmax(-1) @ v, (q, columns, v)), 1)
        # As in GPT: [batch, tokens, heads, size] in another order.
        turned = k.detach().transpose(1, 2).contiguous().requires_grad_()
        self.assertEqual(self._recognised(
            lambda q, k, v: capped(q @ k.permute(0, 2, 3, 1)).softmax(-1) @ v, (q, turned, v)), 1)

    def test_sinks(self):
        given = [*tensors((2, 4, 2, 40, 16, 24)), torch.randn(4, requires_grad=True)]
        for name, count, form, changes in (
                ("gpt-oss", 1, with_sinks, {}),
                ("window", 1, with_sinks, {"mask": lambda q: added(q, window=7)}),
                ("soft-cap", 1, with_sinks, {"scores": capped, "mask": None}),
                ("not shifted", 0, lambda s: with_sinks(s, torch.zeros_like), {}),
                ("shifted by the smallest", 0, lambda s: with_sinks(
                    s, lambda x: x.min(dim=-1, keepdim=True).values), {"mask": None}),
                ("shifted by a column's", 0, lambda s: with_sinks(
                    s, lambda x: x.max(dim=-2, keepdim=True).values), {"mask": None}),
                ("of the last key", 0, lambda s: with_sinks(s, kept=slice(1, None)), {}),
                ("two columns", 0, lambda s: lambda x: with_sinks(s)(
                    torch.cat([x, x[..., :1]], -1))[..., :-1], {"mask": None}),
                ("a given mask", 0, with_sinks, {
                    "mask": lambda q: torch.linspace(-1, 0, 40).expand(40, 40)})):
            with self.subTest(name):
                self.assertEqual(self._recognised(
                    lambda q, k, v, s, f=form, c=changes: eager(q, k, v, softmax=f(s), **c),
                    given), count)

    def test_what_stays(self):
        given = tensors((2, 4, 2, 40, 16, 24))
        unproven = torch.rand(40, 40) < 0.7

        def with_weights(q, k, v):
            kept = []
            made = eager(q, k, v, scores=capped, weights=lambda x: kept.append(x) or x)
            return made * kept[0].square().sum(-1, keepdim=True)

        for name, function in {
                "weights": with_weights,
                "a mask that is given": lambda q, k, v: eager(
                    q, k, v, capped, lambda q: torch.where(unproven | seen(40, True), 0.0, -1e9)),
                "a bias": lambda q, k, v: eager(q, k, v, capped, lambda q: added(q) * 1e-40),
                "not causal": lambda q, k, v: eager(
                    q, k, v, capped, lambda q: added(q).transpose(2, 3)),
                "a negative scale": lambda q, k, v: eager(q, k, v, lambda x: x * -0.3),
                "squares": lambda q, k, v: eager(q, k, v, lambda x: x * x),
                "two tanh": lambda q, k, v: eager(q, k, v, lambda x: torch.tanh(capped(x))),
                "another dimension": lambda q, k, v: (
                    capped(q @ repeated(k, 2).transpose(2, 3)).softmax(-2) @ repeated(v, 2)),
                "fewer keys": lambda q, k, v: eager(
                    q, k[:, :, :30], v[:, :, :30], capped, mask=None)}.items():
            with self.subTest(name):
                self.assertEqual(self._recognised(function, given), 0)

    def _trained(self, model, layers, limit=1e-5, left=(), **options):
        """Two lengths, with and without an error of its own. `left`: softmax operations not of
        attention."""
        recorder = Recorder(**options)
        compiled = torch.compile(model, backend=recorder)
        for tokens in (24, 33, 50):
            batch = {"input_ids": ids(2, tokens)}
            batch["labels"] = batch["input_ids"]
            loss, gradients = outcome(compiled, model, **batch)
            expected_loss, expected = outcome(model, model, **batch)
            self.assertLess(abs(loss - expected_loss) / expected_loss, limit)
            self.assertLess(error(gradients, expected) / len(expected) ** .5, limit)
        for report in recorder.reports:
            self.assertEqual(report.written_out, layers)
            self.assertEqual([line for line in report.left if "softmax" in line or "tanh" in line],
                             [*left])
            self.assertRegex(report.text(), rf"\b{layers} attentions? written out")
        self.assertLessEqual(len(recorder.reports), 2)  # any length is the second graph

    def test_gemma2(self):
        """Layers with a window and without one, soft-capped, which PyTorch has no attention for."""
        for checkpointed in (False, True):
            with self.subTest(checkpointed=checkpointed):
                torch._dynamo.reset()
                model = Gemma2ForCausalLM(Gemma2Config(
                    **SIZES, sliding_window=10, attn_logit_softcapping=0.5,
                    attn_implementation="eager")).train()
                if checkpointed:
                    model.gradient_checkpointing_enable({"use_reentrant": False})
                self._trained(model, 2)

    def test_gpt_oss(self):
        """Layers with a window and without one, with sinks; eager is the configuration's default.
        """
        model = GptOssForCausalLM(GptOssConfig(
            **SIZES | {"head_dim": 16, "num_local_experts": 2}, num_experts_per_tok=2,
            sliding_window=10)).train()
        for layer in model.model.layers:
            torch.nn.init.normal_(layer.self_attn.sinks)
        self._trained(model, 2, left=["2 x softmax.int: softmax is fused only into a loss"])

    def test_other_models(self):
        for make, options in ((llama, {}), (mistral, {"sliding_window": 10})):
            torch._dynamo.reset()
            self._trained(make(num_hidden_layers=1, attn_implementation="eager", **options), 1)

    def test_in_16_bits(self):
        """No less exact than eager, in bf16 and under autocast."""
        model = Gemma2ForCausalLM(Gemma2Config(
            **SIZES, sliding_window=10, attn_implementation="eager"))
        tokens = ids(2, 40)

        def trained(called, parameters, **options):
            with torch.autocast("cpu", torch.bfloat16, **options):
                loss = called(input_ids=tokens, labels=tokens).loss
            return loss.detach(), *torch.autograd.grad(loss, list(parameters.parameters()))

        for name, enabled in (("autocast", True), ("bf16", False)):
            with self.subTest(name):
                model = model.float() if enabled else model.bfloat16()
                exact = Gemma2ForCausalLM(model.config).double()
                exact.load_state_dict(model.state_dict())
                torch._dynamo.reset()
                recorder = Recorder()
                compiled = torch.compile(model, backend=recorder)
                wanted = trained(exact, exact, enabled=False)
                found = error(trained(compiled, model, enabled=enabled), wanted)
                self.assertLess(found, error(trained(model, model, enabled=enabled), wanted))
                self.assertEqual(recorder.reports[0].written_out, 2)

    def test_documents(self):
        """Any number of documents is one graph. Without a soft-cap only GPUs have attention for
        them."""
        for layers, made in ((2, Gemma2ForCausalLM(Gemma2Config(
                **SIZES, sliding_window=6, attn_logit_softcapping=0.5,
                attn_implementation="eager"))),
                (0, MistralForCausalLM(MistralConfig(
                    **SIZES, sliding_window=6, attn_implementation="eager")))):
            with self.subTest(type(made).__name__):
                torch._dynamo.reset()
                recorder = Recorder()
                compiled = torch.compile(made, backend=recorder)
                for lengths in ((9, 15), (1, 20, 3)):
                    tokens = ids(1, 24)
                    batch = {"input_ids": tokens, "labels": tokens, "position_ids": torch.cat(
                        [torch.arange(length) for length in lengths])[None]}
                    loss, gradients = outcome(compiled, made, **batch)
                    expected_loss, expected = outcome(made, made, **batch)
                    torch.testing.assert_close(loss, expected_loss)
                    self.assertLess(error(gradients, expected) / len(expected) ** .5, 1e-5)
                self.assertEqual([report.written_out for report in recorder.reports], [layers])

    def test_weights_that_are_returned(self):
        model = Gemma2ForCausalLM(Gemma2Config(**SIZES, attn_implementation="eager"))
        recorder = Recorder()
        compiled = torch.compile(model, backend=recorder)
        tokens = ids(2, 24)
        found, expected = (called(tokens, output_attentions=True).attentions
                           for called in (compiled, model))
        torch.testing.assert_close(found, expected)


class PyTorchsCalls(unittest.TestCase):
    """Calls of scaled_dot_product_attention become coda_cpp::attention where that is the fastest,
    here as if a CPU were a GPU with such kernels."""

    def setUp(self):
        torch.manual_seed(0)
        for module, name, value in ((_attention, "is_fastest", lambda query, value: True),
                                    (recognition, "_MUCH_WORK", 0)):
            patched = mock.patch.object(module, name, value)
            patched.start()
            self.addCleanup(patched.stop)

    def _check(self, own, shape, function=torch.nn.functional.scaled_dot_product_attention,
               **options):
        torch._dynamo.reset()
        given = tensors(shape)
        recorder = Recorder()
        compiled = torch.compile(
            lambda q, k, v: function(q, k, v, **options), backend=recorder)
        for found, expected in zip(results(compiled, given), results(function, given, **options)):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        self.assertEqual(recorder.reports[0].own, own)

    def test_calls_without_a_mask(self):
        for options in ({}, {"is_causal": True}, {"is_causal": True, "scale": 0.3}):
            self._check(1, (2, 4, 4, 33, 16, 16), **options)
        self._check(1, (2, 4, 2, 33, 16, 16), is_causal=True, enable_gqa=True)

    def test_a_causal_mask(self):
        mask = torch.ones(33, 33, dtype=torch.bool).tril()

        def masked(q, k, v):
            i, j = torch.arange(33)[:, None], torch.arange(33)
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=j <= i)

        self._check(1, (2, 4, 4, 33, 16, 16), masked)
        self._check(0, (2, 4, 4, 33, 16, 16), attn_mask=mask)  # a constant is any mask

    def test_what_stays(self):
        self._check(0, (2, 4, 4, 33, 16, 8))  # values of another size
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            self._check(0, (2, 4, 4, 33, 16, 16))
        with mock.patch.object(recognition, "_MUCH_WORK", 4 * 2 * 4 * 33 * 33 * 16 + 1):
            self._check(0, (2, 4, 4, 33, 16, 16))

        def crossed(q, k, v):
            return torch.nn.functional.scaled_dot_product_attention(q[:, :, :7], k, v)

        self._check(0, (2, 4, 4, 33, 16, 16), crossed)

    def test_lengths_that_vary(self):
        torch._dynamo.reset()
        model = llama(num_hidden_layers=1).eval()
        recorder = Recorder()
        compiled = torch.compile(model, backend=recorder, dynamic=True)
        for tokens in (24, 31, 40):
            batch = ids(2, tokens)
            outcomes = [outcome(f, model, input_ids=batch, labels=batch) for f in (compiled, model)]
            torch.testing.assert_close(*(loss for loss, _ in outcomes))
            self.assertLess(error(*(gradients for _, gradients in outcomes)), 1e-4)
        self.assertEqual({report.own for report in recorder.reports}, {1})


class Kept(nn.Module):
    """Attention of 4 heads whose mask is the model's: `kept` as a buffer, or as a plain attribute.
    Its part of the given length is read by hidden(scores, mask) or called(q, k, v, mask)."""

    def __init__(self, kept, hidden=None, called=None, is_buffer=True):
        super().__init__()
        self.input, self.output = nn.Linear(32, 96), nn.Linear(32, 32)
        self.hidden, self.called = hidden, called
        if is_buffer:
            self.register_buffer("kept", kept)
        else:
            self.kept = kept

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (4, 8)).transpose(1, 2)
                   for part in self.input(x).chunk(3, -1))
        mask = self.kept[..., :x.shape[1], :x.shape[1]]
        made = self.called(q, k, v, mask) if self.called else self.hidden(
            q @ k.transpose(2, 3) * 0.3, mask).softmax(-1) @ v
        return self.output(made.transpose(1, 2).flatten(2))


def masked_sdpa(q, k, v, mask):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


class MasksOfModules(unittest.TestCase):
    """Masks that are tensors of a module are told by their values."""

    def _check(self, count, model, calls=(24, 33, 50), between=None):
        torch._dynamo.reset()
        recorder = Recorder()
        compiled = torch.compile(model, backend=recorder)
        for tokens in calls:
            x = torch.randn(2, tokens, 32)
            outcomes = []
            for one in (compiled, model):
                model.zero_grad()
                made = one(x)
                made.square().sum().backward()
                outcomes.append([made, *(p.grad for p in model.parameters())])
            for found, expected in zip(*outcomes):
                torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
            if between:
                between()
        self.assertLessEqual(len(recorder.reports), 2)
        for report in recorder.reports:
            self.assertEqual(report.written_out + report.causal, count)

    def test_causal_ones(self):
        ones, infinite = torch.ones(64, 64), torch.full((64, 64), -torch.inf)
        for name, model in {
                "zeros are hidden": Kept(ones.tril()[None, None], lambda scores, mask: (
                    scores.masked_fill(mask == 0, -torch.inf))),
                "ones are hidden": Kept(ones.triu(1), lambda scores, mask: (
                    scores.masked_fill(mask.bool(), -torch.inf))),
                "booleans": Kept(ones.tril().bool(), lambda scores, mask: (
                    torch.where(mask, scores, torch.finfo(scores.dtype).min))),
                "added": Kept(infinite.triu(1), lambda scores, mask: scores + mask),
                "an attribute": Kept(infinite.triu(1), lambda scores, mask: scores + mask,
                                     is_buffer=False),
                "booleans of a call": Kept(ones.tril().bool(), called=masked_sdpa),
                "numbers of a call": Kept(infinite.triu(1), called=masked_sdpa)}.items():
            with self.subTest(name):
                self._check(1, model)

    def test_in_checkpointed_blocks(self):
        block = Kept(torch.ones(64, 64).tril(), lambda scores, mask: (
            scores.masked_fill(mask == 0, -torch.inf)))

        class Blocks(nn.Module):
            def __init__(self):
                super().__init__()
                self.block = block

            def forward(self, x):
                return checkpoint(self.block, x, use_reentrant=False)

        self._check(1, Blocks())

    def test_values_that_change(self):
        """They are looked at once, and again if they were written."""
        with mock.patch.object(recognition, "_is_causal_tensor",
                               wraps=recognition._is_causal_tensor) as looked:
            model = Kept(torch.ones(64, 64).tril(), lambda scores, mask: (
                scores.masked_fill(mask == 0, -torch.inf)))
            self._check(1, model, (24, 24, 24))
            self.assertEqual(looked.call_count, 1)
            writes = iter((lambda: None, lambda: model.kept.triu_(-3),
                           lambda: model.kept.fill_(1).tril_(), lambda: None))
            self._check(1, model, (24, 24, 24, 24), lambda: next(writes)())
            self.assertEqual(looked.call_count, 4)

    def test_what_stays(self):
        window, least = torch.ones(64, 64).tril().triu(-3), torch.full((64, 64), -1e4).triu(1)
        for name, model in {
                "a window": Kept(window, lambda scores, mask: (
                    scores.masked_fill(mask == 0, -torch.inf))),
                "numbers that hide little": Kept(least, lambda scores, mask: scores + mask),
                "a bias that is learned": Kept(nn.Parameter(torch.full(
                    (64, 64), -torch.inf).triu(1)), lambda scores, mask: scores + mask,
                    is_buffer=False)}.items():
            with self.subTest(name):
                self._check(0, model)


class Documents(unittest.TestCase):
    def test_against_float64(self):
        """Documents of none and of one token, bounds around a CPU's blocks, and two rows whose
        documents do not end with a row; tokens behind the documents get zeros."""
        torch.manual_seed(0)
        shape = 2, 4, 2, 101, 16, 24
        tokens = shape[0] * shape[3]
        for dtype, options, bounds in itertools.product(
                (torch.float32, torch.bfloat16), VARIANTS,
                ((0, 1, 31, 31, 96, 192, tokens), (0, 140, 170))):
            with self.subTest(dtype=dtype, bounds=bounds, **options):
                document = torch.searchsorted(torch.tensor(bounds), torch.arange(tokens),
                                              right=True)
                mask = seen(tokens, options["causal"], options.get("window")) & (
                    document[:, None] == document) & (document < len(bounds))

                def expected(*given, mask=mask, options=options):
                    q, k, v = (x.transpose(1, 2).flatten(0, 1).transpose(0, 1) for x in given)
                    k, v = (x.repeat_interleave(2, 0) for x in (k, v))
                    scores = q @ k.transpose(1, 2) * options.get("scale", 16 ** -0.5)
                    if cap := options.get("softcap"):
                        scores = cap * torch.tanh(scores / cap)
                    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1).masked_fill(
                        ~mask, 0)
                    return (weights @ v).transpose(0, 1).unflatten(0, (2, -1)).transpose(1, 2)

                given = tensors(shape, dtype)
                exact = results(expected, [x.detach().double().requires_grad_() for x in given])
                found = results(ops.attention, given, documents=torch.tensor(bounds), **options)
                again = results(ops.attention, given, **options,
                                documents=torch.tensor(bounds, dtype=torch.int32))
                self.assertTrue(all(map(torch.equal, found, again)))
                self.assertLess(_distance(found, exact), 1e-6 + 2 * _distance(
                    [x.nan_to_num() for x in results(expected, given)], exact))

    def test_compiled(self):
        """Any number of documents is one graph."""
        torch._dynamo.reset()
        compiled = torch.compile(ops.attention, backend="aot_eager", fullgraph=True, dynamic=True)
        for tokens, bounds in ((20, (0, 7, 20)), (33, (0, 1, 9, 30, 33))):
            given = tensors((1, 4, 2, tokens, 16, 16))
            options = {"causal": True, "documents": torch.tensor(bounds)}
            self.assertTrue(all(map(torch.equal, results(compiled, given, **options),
                                    results(ops.attention, given, **options))))

    def test_pytorchs_checks(self):
        q, k, v = (x.detach().transpose(1, 2).requires_grad_() for x in tensors((2, 4, 2, 5, 8, 4)))
        spans = _attention.spans_of(torch.tensor((0, 4, 10)), 10)
        torch.library.opcheck(_attention.ATTENTION, (q, k, v, spans, True, 3, 2.0, 0.3))


if __name__ == "__main__":
    unittest.main()
