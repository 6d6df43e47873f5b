# SPDX-License-Identifier: Apache-2.0
"""Models that return a loss and logits, of which mostly only the loss is differentiated: how much
memory a step takes, and that gradients through logits are right nevertheless."""

import unittest

import torch
import torch._dynamo
from torch import nn
from torch.nn import functional

from compiled import Recorder, error

VOCABULARY, TOKENS = 4096, 256


class Headed(nn.Module):
    """Its logits are much larger than all else. `width`: models of one width share functions, and
    so what was learnt about the use of their results."""

    def __init__(self, width):
        super().__init__()
        self.table, self.norm = nn.Embedding(VOCABULARY, width), nn.LayerNorm(width)
        self.up, self.head = nn.Linear(width, width), nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.table(tokens)
        logits = self.head(self.norm(x + functional.gelu(self.up(x))))
        return functional.cross_entropy(logits.flatten(0, -2), tokens.flatten()), logits


def tokens_of(count):
    return torch.randint(0, VOCABULARY, (2, count // 2))


def losses(model, tokens):
    """Losses that are differentiated through one of the results, or both."""
    loss, logits = model(tokens)
    further = logits.float().square().mean()
    return loss, further, loss + further


def allocations(run, least):
    """The bytes of each allocation of at least `least` bytes in the run."""
    with torch.profiler.profile(profile_memory=True) as profile:
        run()
    sizes = [event.nbytes() for event in profile.profiler.kineto_results.events()
             if event.name() == "[memory]"]
    return [size for size in sizes if size >= least]


def compiled(model):
    torch._dynamo.reset()
    recorder = Recorder()
    return torch.compile(model, backend=recorder), recorder


class LastRegion(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def test_the_loss_alone_makes_no_further_tensor_as_large_as_the_logits(self):
        for autocast, size, width in ((False, 4, 16), (True, 2, 24)):
            called, recorder = compiled(Headed(width))

            def run(tokens=tokens_of(TOKENS), called=called, autocast=autocast):
                with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                    loss, logits = called(tokens)
                self.assertTrue(logits.requires_grad)
                loss.backward()

            run()
            self.assertEqual(len(recorder.reports[0].fused), 1)
            logits = TOKENS * VOCABULARY * size
            self.assertEqual(allocations(run, logits // 2), [logits])
            run(tokens_of(TOKENS // 2))  # this compiles for any length
            self.assertEqual(allocations(run, logits // 2), [logits])

    def test_gradients_are_right_through_the_loss_the_logits_or_both(self):
        for autocast, bound in ((False, 1e-5), (True, 2e-2)):
            for which in range(3):
                model = Headed(32 + 8 * which)
                called, _ = compiled(model)
                for tokens in map(tokens_of, (TOKENS, TOKENS, TOKENS // 2)):
                    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                        found, expected = (
                            torch.autograd.grad(losses(m, tokens)[which], model.parameters())
                            for m in (called, model))
                    self.assertLess(error(found, expected) / len(found) ** 0.5, bound)

    def test_another_head_whose_weights_the_loss_does_not_read(self):
        class Valued(Headed):
            def __init__(self, width):
                super().__init__(width)
                self.value = nn.Linear(width, 1)

            def forward(self, tokens):
                x = self.norm(self.table(tokens))
                x = x + functional.gelu(self.up(x))
                loss = functional.cross_entropy(self.head(x).flatten(0, -2), tokens.flatten())
                return loss, self.value(x)

        for autocast, bound in ((False, 1e-5), (True, 2e-2)):
            model, tokens = Valued(72), tokens_of(TOKENS)
            called, recorder = compiled(model)
            for which in range(3):
                with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                    found, expected = (torch.autograd.grad(
                        losses(m, tokens)[which], model.parameters(), allow_unused=True)
                        for m in (called, model))
                # A gradient is None, or zeros.
                pairs = [(x, y) for x, y in zip(found, expected) if y is not None]
                self.assertLess(error(*zip(*pairs)) / len(pairs) ** 0.5, bound)
                self.assertFalse(any(x.any() for x, y in zip(found, expected)
                                     if y is None and x is not None))
            self.assertEqual([layer.reason for layer in recorder.reports[0].layers], [""] * 3)

    def test_a_loss_beside_other_operations_on_the_logits(self):
        """Behind the region PyTorch runs what is no view: the graph is compiled as a whole."""
        class Counted(Headed):
            def forward(self, tokens):
                loss, logits = super().forward(tokens)
                return loss, logits.argmax(-1).eq(tokens).sum(), logits

        model, tokens = Counted(64), tokens_of(TOKENS)
        called, recorder = compiled(model)
        found, expected = (losses(lambda x, m=m: m(x)[::2], tokens) for m in (called, model))
        torch.testing.assert_close(found, expected)
        self.assertEqual(len(recorder.reports[0].fused), 1)


if __name__ == "__main__":
    unittest.main()
