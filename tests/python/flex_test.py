# SPDX-License-Identifier: Apache-2.0
"""FlexAttention in a compiled model: where its functions are those of other attention and its block
mask hides what they hide, it becomes that attention; the results are those of the formula."""

import random
import unittest
import unittest.mock

import torch
import torch._dynamo
from torch import fx, nn
from torch.nn.attention import flex_attention as flex
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, create_block_mask
from torch.utils.checkpoint import checkpoint
from transformers import Gemma2Config, Gemma2ForCausalLM

import coda_cpp
from coda_cpp.torch_backend import attention, attention_choice, flex_checks
from coda_cpp.torch_backend.flex_checks import Form, Mask
from coda_cpp.torch_backend.layout import NotUnderstood
from compiled import SIZES, Recorder, ids, llama, system_compiler

T = 40
NAMES = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices",
         "q_num_blocks", "q_indices", "full_q_num_blocks", "full_q_indices")


def causal(b, h, q, k):
    return k <= q


def windowed(size):
    return lambda b, h, q, k: (k <= q) & (k > q - size)


def of_documents(numbers):
    return lambda b, h, q, k: (k <= q) & (numbers[b, q] == numbers[b, k])


def of_positions(numbers, positions, size):
    """As Hugging Face computes the mask of a packed batch."""
    def seen(b, h, q, k):
        return (numbers[b, q] == numbers[b, k]) & (positions[b, k] <= positions[b, q]) & (
            positions[b, k] > positions[b, q] - size)
    return seen


def capped(softcap):
    return lambda score, b, h, q, k: softcap * torch.tanh(score / softcap)


def hiding(mask, modify=None):
    return lambda score, b, h, q, k: torch.where(
        mask(b, h, q, k), score if modify is None else modify(score, b, h, q, k), -float("inf"))


def numbers_of(*borders, tokens=T):
    return sum((torch.arange(tokens) >= border).long() for border in borders)


def dense(mask, batch, queries, keys):
    return mask(torch.arange(batch)[:, None, None, None], torch.tensor(0),
                torch.arange(queries)[:, None], torch.arange(keys)).expand(
                    batch, 1, queries, keys)


def formula(q, k, v, seen, softcap=0.0, scale=None):
    """In float64. Rows that see nothing are 0."""
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    scores = softcap * torch.tanh(scores / softcap) if softcap else scores
    return scores.masked_fill(~seen, -torch.inf).softmax(-1).nan_to_num(0.0) @ v


def blocks_of(mask, tokens=T, batch=None, size=16):
    return create_block_mask(mask, batch, None, tokens, tokens, device="cpu", BLOCK_SIZE=size)


def heads(batch=2, tokens=T, count=2, size=8):
    return [torch.randn(batch, tokens, n, size).transpose(1, 2) for n in (count, count, count)]


def trained(q, k, v, blocks, score_mod=None):
    """flex_attention() itself refuses operands with gradients on a CPU."""
    return torch.ops.higher_order.flex_attention(
        q, k, v, score_mod or (lambda score, *_: score), blocks.as_tuple(), q.shape[-1] ** -0.5,
        {"BACKEND": "AUTO"})[0]


class FlexAttention(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        torch.manual_seed(0)

    def check(self, expected, function, *arguments, count=1, **options):
        """`count`: calls of FlexAttention that are replaced."""
        recorder = Recorder(**options)
        with torch.no_grad():
            found = torch.compile(function, backend=recorder)(*arguments)
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
        self.assertEqual([report.flex for report in recorder.reports], [count])
        return recorder

    def test_masks_and_soft_caps_by_chance(self):
        draw = random.Random(0)
        for number in range(14):
            tokens, batch = draw.randint(2, 90), draw.randint(1, 3)
            group, kv_heads = draw.choice((1, 2)), draw.choice((1, 3))
            softcap, window = draw.choice((0.0, 0.7)), draw.randint(2, 50)
            numbers = (torch.rand(batch, tokens) < 0.1).cumsum(-1)
            positions = torch.arange(tokens) - (
                numbers[:, None] < numbers[:, :, None]).sum(-1)
            mask, of_batch = draw.choice((
                (causal, None), (windowed(window), None), (of_documents(numbers), batch),
                (of_positions(numbers, positions, window), batch)))
            with self.subTest(number, tokens=tokens, batch=batch, window=window):
                torch._dynamo.reset()
                q, k, v = (torch.randn(batch, tokens, n, size).transpose(1, 2) for n, size in (
                    (group * kv_heads, 8), (kv_heads, 8), (kv_heads, 8)))
                blocks = blocks_of(mask, tokens, of_batch, draw.choice((16, 32, 128)))
                scale = draw.choice((None, 0.3))

                def attend(q, k, v, blocks, mask=mask, softcap=softcap, scale=scale):
                    return flex.flex_attention(
                        q, k, v, capped(softcap) if softcap else None, blocks, scale, True)

                self.check(formula(q, k, v, dense(mask, batch, tokens, tokens), softcap, scale),
                           attend, q, k, v, blocks)

    def test_gradients(self):
        numbers = torch.stack([numbers_of(9, 23), numbers_of(0, 1, 39)])
        for mask in (causal, windowed(5), of_documents(numbers)):
            torch._dynamo.reset()
            given = [x.requires_grad_() for x in heads()]
            recorder, blocks = Recorder(), blocks_of(mask, batch=2)
            found = torch.compile(trained, backend=recorder)(*given, blocks, capped(0.5))
            expected = formula(*given, dense(mask, 2, T, T), 0.5)
            self.assertEqual(recorder.reports[0].flex, 1)
            upstream = torch.randn_like(found)
            for one, other in zip(torch.autograd.grad(found, given, upstream),
                                  torch.autograd.grad(expected, given, upstream.double())):
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)

    def test_calls_without_a_block_mask(self):
        q, k, v = heads()
        for name, score_mod, mask, softcap in (
                ("nothing", None, lambda b, h, q, k: k >= 0, 0.0),
                ("a mask", hiding(causal), causal, 0.0),
                ("a mask and a soft-cap", hiding(windowed(7), capped(0.5)), windowed(7), 0.5)):
            with self.subTest(name):
                torch._dynamo.reset()
                self.check(formula(q, k, v, dense(mask, 2, T, T), softcap),
                           lambda q, k, v, score_mod=score_mod: flex.flex_attention(
                               q, k, v, score_mod), q, k, v)

    def test_the_graph_may_make_the_block_mask_and_the_documents(self):
        def attend(q, k, v, tokens):
            numbers = (tokens == 0).cumsum(-1)
            blocks = blocks_of(of_documents(numbers), batch=2)
            return flex.flex_attention(q, k, v, block_mask=blocks)

        q, k, v = heads()
        tokens = torch.randint(0, 9, (2, T))
        numbers = (tokens == 0).cumsum(-1)
        self.check(formula(q, k, v, dense(of_documents(numbers), 2, T, T)), attend, q, k, v, tokens)

    def test_what_stays(self):
        numbers, bias = torch.stack([numbers_of(9, 23)] * 2), torch.randn(T)
        unsorted = numbers.clone()
        unsorted[:, 30:] = 0
        is_text = (torch.arange(T) > 3).expand(2, T)
        masks = {
            "shifted": lambda b, h, q, k: k <= q + 1, "strictly": lambda b, h, q, k: k < q,
            "not causal": lambda b, h, q, k: numbers[b, q] == numbers[b, k],
            "numbers that return": of_documents(unsorted),
            "of the next token": lambda b, h, q, k: (k <= q) & (
                numbers[b, (q + 1) % T] == numbers[b, k]),
            "for some heads": lambda b, h, q, k: (k <= q) & ((h == 0) | (k > q - 5)),
            "padded": lambda b, h, q, k: (k <= q) & is_text[b, k],
            "a prefix": flex.or_masks(causal, lambda b, h, q, k: k < 7),
            "both sides": lambda b, h, q, k: (q - k).abs() < 7,
            "chunks": lambda b, h, q, k: (k <= q) & (q // 8 == k // 8),
            "window ahead": lambda b, h, q, k: (k <= q) & (k <= q - 2)}
        q, k, v = heads()
        for name, mask in masks.items():
            with self.subTest(name):
                torch._dynamo.reset()
                seen = torch.vmap(lambda h: dense(  # noqa: B023
                    lambda b, _, q, k: mask(b, h, q, k), 2, T, T))(torch.arange(2))
                recorder = self.check(
                    formula(q, k, v, seen[:, :, 0].transpose(0, 1)),
                    lambda q, k, v, blocks: flex.flex_attention(q, k, v, block_mask=blocks),
                    q, k, v, blocks_of(mask, batch=2), count=0)
                self.assertIn("flex_attention: its mask", recorder.reports[0].left[0])
        blocks = blocks_of(causal)
        for name, reason, call in (
                ("a bias", "score_mod", lambda: flex.flex_attention(
                    q, k, v, lambda score, b, h, q, k: score + bias[k], blocks)),
                ("ALiBi", "score_mod", lambda: flex.flex_attention(
                    q, k, v, lambda score, b, h, q, k: score - (q - k) * 0.1, blocks)),
                ("a chosen score", "form", lambda: flex.flex_attention(
                    q, k, v, lambda score, b, h, q, k: torch.where(k < 9, score, 2.0), blocks)),
                ("log-sum-exp", "log-sum-exp", lambda: flex.flex_attention(
                    q, k, v, block_mask=blocks, return_aux=AuxRequest(lse=True))[1].lse),
                ("a backend", "backend", lambda: flex.flex_attention(
                    q, k, v, block_mask=blocks, kernel_options={"BACKEND": "TRITON"}))):
            with self.subTest(name), torch.no_grad():
                torch._dynamo.reset()
                recorder = Recorder()
                torch.compile(call, backend=recorder)()
                self.assertIn(reason, str(recorder.reports[0].left))
                self.assertEqual(recorder.reports[0].flex, 0)

    def test_on_a_gpu_without_experience_only_pytorchs_kernels_take_its_place(self):
        numbers = torch.stack([numbers_of(9, 23)] * 2)
        q, k, v = heads()
        for mask, softcap, count in ((causal, 0.0, 1), (of_documents(numbers), 0.0, 1),
                                     (of_documents(numbers), 0.7, 0), (causal, 0.7, 0),
                                     (windowed(5), 0.0, 0)):
            with self.subTest(softcap=softcap, count=count), unittest.mock.patch.object(
                    attention_choice, "is_new_gpu", lambda device: True), \
                    unittest.mock.patch.object(attention, "has_documents", lambda query: True):
                torch._dynamo.reset()
                self.check(
                    formula(q, k, v, dense(mask, 2, T, T), softcap),
                    lambda q, k, v, blocks, of=softcap: flex.flex_attention(
                        q, k, v, capped(of) if of else None, blocks),
                    q, k, v, blocks_of(mask, batch=2), count=count, cost_model=True)

    def test_a_check_holds_only_if_the_lists_give_the_form(self):
        draw, counts = random.Random(1), [0, 0]
        for _ in range(300):
            tokens, size = draw.randint(2, 40), draw.choice((4, 8, 64))
            form = draw.choice((Form(True), Form(True, draw.randint(2, 9)), Form()))
            mask = windowed(form.window or 99) if form.causal else lambda b, h, q, k: k >= 0
            wanted = dense(mask, 1, tokens, tokens)[0, 0].long()
            blocks = create_block_mask(mask, 1, 1, tokens, tokens, "cpu", size)
            lists = [getattr(blocks, name).clone() for name in NAMES]
            changed = draw.choice((None, None, *range(4)))
            if changed is not None:
                places = [draw.randrange(n) for n in lists[changed].shape]
                lists[changed][tuple(places)] = draw.randint(0, 4)
            if draw.random() < 0.5:
                lists[4:] = [None] * 4
            is_other = draw.random() < 0.2
            if is_other:
                mask = windowed(draw.randint(2, 9))
            body = fx.symbolic_trace(mask)
            with unittest.mock.patch.object(flex_checks, "_ELEMENTS", draw.choice((1, 50, 2**26))):
                try:
                    holds = flex_checks.has_form(
                        form, Mask(body, None, 0), (size, size), 1, tokens, tokens, *lists)
                except NotUnderstood:
                    holds = False
            seen = dense(mask, 1, tokens, tokens)[0, 0].long()
            times = torch.zeros(tokens, tokens, dtype=torch.long)  # that a score counts
            for number, places, of in ((*lists[:2], seen), (*lists[2:4], torch.ones_like(seen))):
                for row in range(number.shape[2]):
                    for column in places[0, 0, row, :number[0, 0, row]]:
                        part = (slice(row * size, (row + 1) * size),
                                slice(column * size, (column + 1) * size))
                        times[part] += of[part]
            is_form = torch.equal(times, wanted)
            self.assertTrue(is_form or not holds)
            self.assertTrue(holds or changed is not None or is_other)
            counts[holds] += 1
        self.assertGreater(min(counts), 50)

    def test_a_block_mask_that_is_cut_hides_what_it_hides(self):
        # Only the inner compiler's kernels read lists.
        q, k, v = heads(tokens=64)
        blocks = blocks_of(causal, 64, size=32)
        cut = BlockMask.from_kv_blocks(
            blocks.kv_num_blocks, blocks.kv_indices, torch.zeros_like(blocks.full_kv_num_blocks),
            blocks.full_kv_indices, 32, causal, (64, 64))
        near = dense(lambda b, h, q, k: (k <= q) & (k // 32 == q // 32), 2, 64, 64)
        seen = {blocks: dense(causal, 2, 64, 64), cut: near}
        for order in ((blocks, cut, blocks, cut), (cut, blocks)):
            torch._dynamo.reset()
            recorder = Recorder(inner="inductor")
            run = torch.compile(lambda q, k, v, blocks: flex.flex_attention(
                q, k, v, block_mask=blocks), backend=recorder)
            with system_compiler(), torch.no_grad():
                for one in order:
                    torch.testing.assert_close(run(q, k, v, one).double(),
                                               formula(q, k, v, seen[one]), rtol=1e-4, atol=1e-5)
            self.assertEqual([report.flex for report in recorder.reports], [order[0] is blocks])

    def test_inductor_compiles_a_call_that_stays(self):
        """On a CPU its FlexAttention fails for a query that is a view of an operator's result."""
        layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))

        def attend(x, blocks):
            q, k, v = (layer(torch.relu(x)).unflatten(-1, (2, 8)).transpose(1, 2)
                       for layer in layers)
            return flex.flex_attention(q, k, v, block_mask=blocks)

        mask, x = flex.or_masks(causal, lambda b, h, q, k: k < 7), torch.randn(2, T, 16)
        with system_compiler():
            with torch.no_grad():
                q, k, v = (layer(torch.relu(x)).unflatten(-1, (2, 8)).transpose(1, 2)
                           for layer in layers)
            recorder = self.check(formula(q, k, v, dense(mask, 2, T, T)), attend, x,
                                  blocks_of(mask), count=0, inner="inductor")
        self.assertEqual([layer.is_fused for layer in recorder.reports[0].layers], [True] * 3)

    def test_inputs_are_checked_when_they_change(self):
        q, k, v = heads()
        numbers = torch.stack([numbers_of(9, 23)] * 2)
        recorder = Recorder()
        run = torch.compile(lambda q, k, v, numbers, blocks: flex.flex_attention(
            q, k, v, block_mask=BlockMask.from_kv_blocks(
                *(getattr(blocks, name) for name in NAMES[:4]), 16, of_documents(numbers),
                (T, T))), backend=recorder)
        evaluated = unittest.mock.patch.object(
            flex_checks, "has_form", wraps=flex_checks.has_form)
        with evaluated as calls, torch.no_grad():
            def check(blocks, count):
                for _ in range(2):
                    found = run(q, k, v, numbers, blocks)
                torch.testing.assert_close(
                    found.double(), formula(q, k, v, dense(of_documents(numbers), 2, T, T)),
                    rtol=1e-5, atol=1e-5)
                self.assertEqual(calls.call_count, count)
                return blocks

            blocks = check(blocks_of(of_documents(numbers), batch=2), 1)
            numbers[1, 35:] = 0  # they do not ascend any more, so nothing is remembered
            check(blocks, 3)
            check(blocks_of(of_documents(numbers), batch=2), 5)
            numbers.copy_(torch.stack([numbers_of(9), numbers_of(11)]))
            check(blocks_of(of_documents(numbers), batch=2), 6)
        self.assertEqual([report.flex for report in recorder.reports], [1])

    def test_lengths_that_vary(self):
        layer, recorder = nn.Linear(8, 48), Recorder()

        def attend(x, blocks):
            q, k, v = (y.unflatten(-1, (2, 8)).transpose(1, 2) for y in layer(x).chunk(3, -1))
            return flex.flex_attention(q, k, v, capped(0.5), blocks)

        run = torch.compile(attend, backend=recorder)
        for tokens in (70, 90, 300, 150):
            x, numbers = torch.randn(2, tokens, 8), (torch.rand(2, tokens) < 0.1).cumsum(-1)
            mask = of_documents(numbers)
            with torch.no_grad():
                found = run(x, create_block_mask(mask, 2, None, tokens, tokens, "cpu"))
                q, k, v = (y.unflatten(-1, (2, 8)).transpose(1, 2) for y in layer(x).chunk(3, -1))
            torch.testing.assert_close(
                found.double(), formula(q, k, v, dense(mask, 2, tokens, tokens), 0.5),
                rtol=1e-4, atol=1e-5)
        # One graph is of one block, one of any number.
        self.assertEqual([report.flex for report in recorder.reports],
                         [1] * len(recorder.reports))
        self.assertLessEqual(len(recorder.reports), 3)

    def test_autocast(self):
        x = torch.randn(2, T, 16)
        layer = nn.Linear(16, 48)

        def attend(x, blocks):
            with torch.autocast("cpu", torch.bfloat16):
                q, k, v = (y.unflatten(-1, (2, 8)).transpose(1, 2)
                           for y in layer(x).float().chunk(3, -1))
                return flex.flex_attention(q, k, v, block_mask=blocks)

        for mask in (causal, windowed(5)):
            torch._dynamo.reset()
            recorder, blocks = Recorder(), blocks_of(mask)
            with torch.no_grad():
                found = torch.compile(attend, backend=recorder)(x, blocks)
                q, k, v = (y.unflatten(-1, (2, 8)).transpose(1, 2)
                           for y in layer(x).chunk(3, -1))
            self.assertEqual((found.dtype, recorder.reports[0].flex), (torch.bfloat16, 1))
            torch.testing.assert_close(found.double(), formula(q, k, v, dense(mask, 2, T, T)),
                                       rtol=0.03, atol=0.03)

    def test_checkpointing(self):
        layer = nn.Linear(16, 48)
        numbers = torch.stack([numbers_of(9, 23)] * 2)

        def block(x, blocks, attend):
            q, k, v = (y.unflatten(-1, (2, 8)).transpose(1, 2) for y in layer(x).chunk(3, -1))
            return x + attend(q, k, v, blocks).transpose(1, 2).flatten(2)

        def twice(x, blocks):
            for _ in range(2):
                x = checkpoint(block, x, blocks, trained, use_reentrant=False)
            return x

        for mask in (windowed(5), of_documents(numbers)):
            torch._dynamo.reset()
            x, recorder, blocks = torch.randn(2, T, 16), Recorder(), blocks_of(mask, batch=2)
            found = torch.compile(twice, backend=recorder)(x, blocks)
            expected, seen = x, dense(mask, 2, T, T)
            for _ in range(2):
                expected = block(expected, None, lambda q, k, v, _: formula(q, k, v, seen).float())
            self.assertEqual(recorder.reports[0].flex, 2)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(*(torch.autograd.grad(y.square().sum(), layer.weight)[0]
                                         for y in (found, expected)), rtol=1e-4, atol=1e-4)

    def test_hugging_faces_models(self):
        positions = torch.cat([torch.arange(9), torch.arange(23)])[None].expand(2, -1)
        mask = torch.ones(2, 32, dtype=torch.long)
        mask[1, :5] = 0

        def gemma2(**changes):
            return Gemma2ForCausalLM(Gemma2Config(
                **{**SIZES, **changes}, sliding_window=6, attn_logit_softcapping=0.5))

        for make, more, count in ((llama, {"position_ids": positions}, 2), (gemma2, {}, 2),
                                  (llama, {"attention_mask": mask}, 0)):
            model = make(attn_implementation="flex_attention").eval()
            eager = make(attn_implementation="eager").eval()
            eager.load_state_dict(model.state_dict())
            with self.subTest(type(model).__name__, **more), torch.no_grad():
                torch._dynamo.reset()
                recorder, given = Recorder(), {"input_ids": ids(), **more}
                found = torch.compile(model, backend=recorder)(**given).logits
                is_text = more.get("attention_mask", torch.ones(2, 32)) == 1
                torch.testing.assert_close(found[is_text], eager(**given).logits[is_text],
                                           rtol=1e-4, atol=1e-5)
                self.assertEqual(sum(report.flex for report in recorder.reports), count)

    def test_explain_counts_the_calls(self):
        def attend(q, k, v):
            return flex.flex_attention(q, k, v, hiding(causal))

        with torch.no_grad():
            self.assertIn("1 call of FlexAttention", coda_cpp.explain(attend, *heads()))


if __name__ == "__main__":
    unittest.main()
