# SPDX-License-Identifier: Apache-2.0
"""Packed batches: attention runs within documents where the graph proves that the mask is that of
documents that follow each other. The tests run the operators' implementation for CPUs, which
otherwise is not used: PyTorch has attention of this kind only on GPUs."""

import collections
import itertools
import random
import unittest
import unittest.mock

import torch
import torch._dynamo
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from coda_cpp.torch_backend import attention, documents, mask_proof
from compiled import VOCABULARY, Recorder, error, llama, mistral, outcome, qwen3
from mask_proof_test import packed_mask

N = 16


def positions(*lengths):
    return torch.cat([torch.arange(n) for n in lengths])[None]


def batch(*lengths):
    ids = torch.randint(0, VOCABULARY, (1, sum(lengths)))
    return {"input_ids": ids, "labels": ids, "position_ids": positions(*lengths)}


def anywhere():
    """A context in which all devices have attention within documents."""
    return unittest.mock.patch.object(attention, "has_documents", lambda query: True)


def _i():
    return torch.arange(N)[:, None]


def _j():
    return torch.arange(N)[None]


def _steps(x):
    return torch.diff(x, dim=-1, prepend=x[:, :1] - 1)


def _eq(x):
    return x[:, None, :, None] == x[:, None, None, :]


def _written(x):
    documents = (_steps(x) != 1).cumsum(-1)
    documents[:, 3] = 0
    return (_j() <= _i()) & _eq(documents)


def _indexed(x):
    documents, batch = (x == 0).cumsum(-1), torch.arange(len(x))[:, None, None, None]
    return (_j() <= _i()) & (documents[batch, _i()] == documents[batch, _j()])


def _behind_an_end(x):
    is_end = x == 2
    return (_j() <= _i()) & _eq(is_end.cumsum(-1) - is_end.to(torch.int64))


# Each mask is computed from positions [batch, tokens].
PACKED = {
    "by positions": lambda x: (_j() <= _i()) & _eq((_steps(x) != 1).cumsum(-1)),
    "in the order of positions": lambda x: (
        (x[:, None, None, :] <= x[:, None, :, None]) & _eq((_steps(x) != 1).cumsum(-1))),
    "indexed": _indexed,
    "behind an end": _behind_an_end,
    "numbered from 0": lambda x: (_j() <= _i()) & _eq((x == 0).cumsum(-1) - 1),
    "of a matrix": lambda x: (_j() <= _i()) & _eq((x == 0).cumsum(-1))[0, 0],
    "two borders": lambda x: (_j() <= _i()) & _eq((x == 0).cumsum(-1)) & _eq((x > 3).cumsum(-1)),
    "window": lambda x: (_j() <= _i()) & (_j() > _i() - 5) & _eq((x == 0).cumsum(-1)),
    "window of positions": lambda x: (
        (x[:, None, None, :] <= x[:, None, :, None])
        & (x[:, None, None, :] > x[:, None, :, None] - 5) & _eq((_steps(x) != 1).cumsum(-1))),
    "only a window": lambda x: ((_j() <= _i()) & (_j() > _i() - 5)).expand(len(x), 1, N, N),
    "added": lambda x: torch.where((_j() <= _i()) & _eq((x == 0).cumsum(-1)), 0.0, -torch.inf),
}
OTHERS = {
    "numbers of documents that are given": lambda x: (_j() <= _i()) & _eq(x),
    "not causal": lambda x: _eq((x == 0).cumsum(-1)),
    "numbers that decrease": lambda x: (_j() <= _i()) & _eq((x == 0).cumsum(-1) % 2),
    "numbers that wrap": lambda x: (_j() <= _i()) & _eq(
        (x == 0).cumsum(-1, dtype=torch.int8) + 126),
    "counted along the batch": lambda x: (_j() <= _i()) & _eq((x == 0).cumsum(0)),
    "other steps": lambda x: (x[:, None, None, :] <= x[:, None, :, None]) & _eq(
        (_steps(x) != 2).cumsum(-1)),
    "steps of others": lambda x: (x[:, None, None, :] <= x[:, None, :, None]) & _eq(
        (_steps(x + 1) != 1).cumsum(-1)),
    "in the other order": lambda x: (x[:, None, None, :] >= x[:, None, :, None]) & _eq(
        (_steps(x) != 1).cumsum(-1)),
    "of shifted tokens": lambda x: (_j() <= _i()) & _eq((x == 0).cumsum(-1).roll(1, -1)),
    "of the next tokens": lambda x: (_j() <= _i()) & (
        ((x == 0).cumsum(-1) + 1)[:, None, :, None] == (x == 0).cumsum(-1)[:, None, None, :]),
    "written to": _written,
    "without the token in front": lambda x: (_j() <= _i()) & (_j() > _i() - 1) & _eq(
        (x == 0).cumsum(-1)),
    "a window ahead": lambda x: (_j() <= _i()) & (_j() <= _i() - 2) & _eq((x == 0).cumsum(-1)),
    "padded": lambda x: (_j() <= _i()) & (x > 0)[:, None, None, :] & _eq((x == 0).cumsum(-1)),
}


def _by_chance(draw):
    """A mask of conditions drawn by chance, most of them those of packed documents."""
    def numbers(x):
        found = draw.choice((x, x, x, x + 1, x.flip(-1), -x))
        is_border = draw.choice((
            lambda: _steps(found) != draw.choice((1, 1, 1, 2, 0)), lambda: found == 0,
            lambda: found > 3, lambda: _steps(found) <= 0))()
        counts = is_border.cumsum(draw.choice((-1, -1, -1, -1, -1, 0)))
        return draw.choice((
            lambda: found, lambda: counts - 1, lambda: 5 - counts, lambda: counts.roll(1, -1),
            lambda: counts - is_border.to(torch.int64), *[lambda: counts] * 7))()

    def related(one, other):
        one, other = one[:, None, :, None], other[:, None, None, :]
        how = draw.choice("eeeeeeeegl")
        return one == other if how == "e" else one >= other if how == "g" else other + 2 > one

    def mask(x):
        counts, moved = numbers(x), draw.choice((0, 0, 0, 0, 0, 0, 1, -1))
        conditions = [
            _j() <= _i() + moved if draw.random() < 0.7 else (
                x[:, None, None, :] <= x[:, None, :, None] + moved),
            related(counts, counts if draw.random() < 0.9 else numbers(x))]
        conditions += draw.choice((lambda: [], lambda: [related(counts, counts)],
                                   lambda: [_j() > _i() - 4], lambda: [_j() > _i() - 4],
                                   lambda: [x[:, None, None, :] > x[:, None, :, None] - 4],
                                   lambda: [x[:, None, None, :] > 0]))()
        draw.shuffle(conditions)
        made = conditions[0]
        for one in conditions[1:]:
            made = made | one if draw.random() < 0.05 else made & one
        return made.expand(len(x), 1, N, N)
    return mask


class Packed(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        torch.manual_seed(0)

    def test_which_masks_are_known(self):
        x = torch.cat([positions(3, 8, 1, 1, 3), positions(5, 11)])
        for name, mask in {**PACKED, **OTHERS}.items():
            def attend(q, x):
                return functional.scaled_dot_product_attention(q, q, q, mask(x))

            with self.subTest(name), anywhere():
                torch._dynamo.reset()
                given = x[:1] if "matrix" in name else x
                q = torch.randn(len(given), 2, N, 16, requires_grad=True)
                recorder = Recorder()
                made = torch.compile(attend, backend=recorder)(q, given)
                expected = attend(q, given)
                torch.testing.assert_close(made, expected, equal_nan=True)
                self.assertEqual(recorder.reports[0].packed, int(name in PACKED))
                upstream = torch.randn_like(made)
                torch.testing.assert_close(*(torch.autograd.grad(one, q, upstream)[0]
                                             for one in (made, expected)),
                                           rtol=1e-5, atol=3e-5, equal_nan=True)

    def test_what_is_said_of_masks_by_chance_is_so(self):
        inputs = [torch.cat([positions(3, 8, 1, 1, 3), positions(5, 11)]),
                  torch.cat([positions(16), positions(*[1] * 16)]) + 4,
                  torch.randint(-2, 4, (2, N)), torch.randint(0, 2, (2, N)).cumsum(-1)]
        counts = collections.Counter()
        for seed in range(240):
            traced = make_fx(_by_chance(random.Random(seed)), pre_dispatch=True)(inputs[0])
            mask = traced.graph.output_node().args[0]
            prover = mask_proof.Prover(mask_proof.written(traced.graph))
            found = mask_proof.packed(prover, mask)
            counts[type(found).__name__, getattr(found, "window", None)] += 1
            for x in inputs if found is not None else ():
                made = traced(x)
                self.assertTrue(torch.equal(made, packed_mask(made, found.window)), (seed, x))
        self.assertGreater(counts["Packed", None], 8)
        self.assertGreater(counts["Packed", 3], 8)
        self.assertGreater(counts["NoneType", None], 100)

    def test_the_operators(self):
        """Against attention with the mask, with gradients, for fewer heads of keys and windows."""
        for lengths, heads, window, dtype in (
                ((5, 1, 7, 3), 4, -1, torch.float32), ((16,), 2, -1, torch.float32),
                ((9, 7), 1, 3, torch.float32), ((1,) * 16, 2, -1, torch.float32),
                ((5, 8, 3), 2, -1, torch.bfloat16)):
            with self.subTest(lengths=lengths, heads=heads, window=window, dtype=dtype):
                begins = positions(*lengths)[0] == 0
                bounds, spans, sizes = documents.BOUNDS(begins)
                self.assertEqual(sizes.tolist(), [len(lengths), max(lengths)])
                ends = [0, *itertools.accumulate(lengths)]
                self.assertEqual(bounds.tolist(), ends + [N] * (N - len(lengths)))
                self.assertEqual(spans.tolist(), [
                    [first, last] for first, last in zip(ends, ends[1:])
                    for _ in range(first, last)])
                q, k, v = (torch.randn(N, count, 8, dtype=dtype, requires_grad=True)
                           for count in (4, heads, heads))
                given = q, k, v, bounds, spans, sizes, 0.3, window, 0.0, True
                made, _ = documents.ATTENTION(*given)
                seen = torch.ones(N, N, dtype=torch.bool)
                seen.diagonal(-1).copy_(~begins[1:])
                expected = functional.scaled_dot_product_attention(
                    *(x.double().transpose(0, 1)[None] for x in (q, k, v)),
                    packed_mask(seen, None if window < 0 else window), scale=0.3,
                    enable_gqa=True)[0].transpose(0, 1)
                limits = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {
                    "rtol": 2e-2, "atol": 2e-2}
                torch.testing.assert_close(made.double(), expected, **limits)
                upstream = torch.randn_like(made)
                found = torch.autograd.grad(made, (q, k, v), upstream)
                wanted = torch.autograd.grad(expected, (q, k, v), upstream.double())
                torch.testing.assert_close(found, wanted, **limits)
                torch.library.opcheck(documents.ATTENTION, given)
                torch.library.opcheck(documents.BOUNDS, (begins,))

    def _trained(self, model, batches, packed, **options):
        """The reports of the compilations."""
        recorder = Recorder(**options)
        compiled = torch.compile(model, backend=recorder)
        for one in batches:
            with anywhere():
                loss, gradients = outcome(compiled, model, **one)
            expected_loss, expected = outcome(model, model, **one)
            torch.testing.assert_close(loss, expected_loss, rtol=1e-5, atol=0)
            self.assertLess(error(gradients, expected) / len(expected) ** .5, 1e-5)
        for report in recorder.reports:
            self.assertEqual((report.packed, report.causal), (packed, 0))
            self.assertTrue(all(layer.is_fused for layer in report.layers))
        return recorder.reports

    def test_models_of_hugging_face(self):
        """Any number of documents is one graph, and any number of tokens a second one."""
        batches = [batch(*lengths) for lengths in (
            (5, 7, 12), (3, 1, 1, 8, 2, 9), (10, 20, 30), (70,))]
        for model in (qwen3(), llama(num_hidden_layers=5)):
            with self.subTest(type(model).__name__):
                torch._dynamo.reset()
                layers = model.config.num_hidden_layers
                reports = self._trained(model, batches, packed=layers)
                self.assertEqual(len(reports), 2)
                self.assertIn(f"{layers} calls of attention with a mask of packed documents",
                              reports[0].text())

    def test_sliding_windows(self):
        """Packed or not, where the window is shorter than the text."""
        self._trained(mistral(sliding_window=6), [batch(5, 7, 12), batch(24)], packed=2)

    def test_checkpointed_blocks(self):
        """The documents' bounds are computed once, in front of the blocks."""
        model = qwen3().train()
        model.gradient_checkpointing_enable({"use_reentrant": False})
        self._trained(model, [batch(5, 7, 12), batch(24)], packed=2)
        targets = []

        def inner(module, inputs):
            for graph in module.modules():
                if isinstance(graph, torch.fx.GraphModule):
                    targets.extend(node.target for node in graph.graph.nodes)
            return module

        torch._dynamo.reset()
        torch._dynamo.register_backend(inner, name="inner_of_packed_test")
        self._trained(model, [batch(5, 7, 12)], packed=2, inner="inner_of_packed_test")
        self.assertEqual(targets.count(documents.BOUNDS), 1)

    def test_what_stays_a_mask(self):
        """Padding within a packed batch, and all masks on a CPU."""
        model, recorder = qwen3(), Recorder()
        padded = {**batch(5, 7, 12), "attention_mask": torch.ones(1, 24, dtype=torch.int64)}
        compiled = torch.compile(model, backend=recorder)
        with anywhere():
            torch.testing.assert_close(compiled(**padded).loss, model(**padded).loss)
        one = batch(5, 7, 12)
        torch.testing.assert_close(compiled(**one).loss, model(**one).loss)
        self.assertEqual([(report.packed, report.causal) for report in recorder.reports],
                         [(0, 0), (0, 0)])


if __name__ == "__main__":
    unittest.main()
