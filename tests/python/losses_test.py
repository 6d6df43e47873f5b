# SPDX-License-Identifier: Apache-2.0
"""Losses of a head's logits as people write them: each is fused with the head's product, and as
near to float64 as eager. The forms of post-training are TRL's, written anew."""

import unittest

import torch
import torch._dynamo
from torch.nn import functional as F

from compiled import Recorder

_BATCH, _TOKENS, _WIDTH, _CLASSES = 2, 24, 32, 96


def selected(logits, index):
    """TRL's selective_log_softmax: of fp32 by logsumexp, of bf16 by log_softmax, in a loop."""
    if logits.dtype in (torch.float32, torch.float64):
        chosen = logits.gather(-1, index.unsqueeze(-1))
        sums = torch.stack([torch.logsumexp(one, dim=-1) for one in logits])
        return (chosen - sums.unsqueeze(-1)).squeeze(-1)
    rows = [F.log_softmax(one, dim=-1).gather(dim=-1, index=of.unsqueeze(-1))
            for one, of in zip(logits, index, strict=True)]
    return torch.stack(rows).squeeze(-1)


def entropies(logits, chunk=16):
    """TRL's entropy_from_logits, in chunks of rows."""
    found = []
    for part in logits.reshape(-1, logits.shape[-1]).split(chunk, dim=0):
        log = F.log_softmax(part, dim=-1)
        found.append(-(torch.exp(log) * log).sum(-1))
    return torch.cat(found, dim=0).reshape(logits.shape[:-1])


def grpo(logits, t, mask, _):
    log = selected(logits / 0.9, t)
    ratio = torch.exp(log - log.detach())
    advantages = torch.linspace(-1, 1, _BATCH, dtype=log.dtype).unsqueeze(1)
    clipped = torch.clamp(ratio, 0.8, 1.2)
    each = -torch.min(ratio * advantages, clipped * advantages)
    reference = log.detach() + 0.1
    kl = torch.exp(reference - log) - (reference - log) - 1
    each = each + 0.04 * kl
    return (each * mask).sum() / mask.sum().clamp(min=1.0)


def ppo(logits, t, mask, _):
    log, old = selected(logits, t), -4.5
    ratio = torch.exp(log - old)
    losses = torch.max(-0.3 * ratio, -0.3 * torch.clamp(ratio, 0.8, 1.2))
    return (losses * mask).sum() / mask.sum() - 0.01 * (entropies(logits) * mask).mean()


def dpo(logits, t, mask, _):
    labels = torch.where(mask > 0.2, t, -100)[:, 1:]
    logits, counts = logits[:, :-1], labels != -100
    log = selected(logits, torch.where(counts, labels, 0))
    chosen, rejected = torch.where(counts, log, 0.0).sum(-1).chunk(2)
    return -F.logsigmoid(0.1 * (chosen - rejected)).mean()


def capped(logits):
    return 5.0 * torch.tanh(logits / 5.0)


def rows(logits):
    return logits.reshape(-1, _CLASSES)


def ignoring(t, mask):
    return torch.where(mask > 0.3, t, -100).reshape(-1)


# loss(logits, t, mask, a teacher's logits); the operation that shows that it is fused.
_FORMS = {
    "mean": (lambda l, t, m, u: F.cross_entropy(rows(l), ignoring(t, m)), "cross_entropy"),
    "sum": (lambda l, t, m, u: F.cross_entropy(rows(l), ignoring(t, m), reduction="sum"),
            "cross_entropy"),
    "of each row": (lambda l, t, m, u: (F.cross_entropy(rows(l), ignoring(t, m), reduction="none")
                                     ** 2).sum(), "cross_entropy"),
    "weighted": (lambda l, t, m, u: (F.cross_entropy(rows(l), t.flatten(), reduction="none")
                                  * m.flatten()).sum() / m.sum(), "cross_entropy"),
    "smoothed, of each row": (lambda l, t, m, u: (F.cross_entropy(
        rows(l), ignoring(t, m), reduction="none", label_smoothing=0.2) * m.flatten()).mean(),
        "cross_entropy"),
    "shifted": (lambda l, t, m, u: F.cross_entropy(rows(l[:, :-1]), t[:, 1:].reshape(-1)),
                "cross_entropy"),
    "shifted, in fp32": (lambda l, t, m, u: F.cross_entropy(
        rows(l[..., :-1, :].contiguous().float() if l.dtype != torch.float64 else l[:, :-1]),
        t[..., 1:].contiguous().view(-1)).to(l.dtype), "cross_entropy"),
    "the last tokens": (lambda l, t, m, u: F.cross_entropy(rows(l[:, -9:]), t[:, -9:].reshape(-1)),
                        "cross_entropy"),
    "class weights": (lambda l, t, m, u: F.cross_entropy(
        rows(l), ignoring(t, m), weight=torch.linspace(0.5, 2, _CLASSES, dtype=l.dtype)),
        "cross_entropy"),
    "class weights, sum": (lambda l, t, m, u: F.cross_entropy(
        rows(l), ignoring(t, m), weight=torch.linspace(0.5, 2, _CLASSES, dtype=l.dtype),
        reduction="sum"), "cross_entropy"),
    "[B, V, T]": (lambda l, t, m, u: F.cross_entropy(l.transpose(1, 2), t), "cross_entropy"),
    "[B, V, T], of each": (lambda l, t, m, u: (F.cross_entropy(
        l.transpose(1, 2), t, reduction="none") * m).sum(-1).mean(), "cross_entropy"),
    "nll_loss": (lambda l, t, m, u: F.nll_loss(F.log_softmax(rows(l), -1), ignoring(t, m)),
                 "cross_entropy"),
    "gathered": (lambda l, t, m, u: -F.log_softmax(l, -1).gather(-1, t.unsqueeze(-1)).mean(),
                 "cross_entropy"),
    "gathered, with the log-sum-exp": (lambda l, t, m, u: (selected(l, t) * m).sum(), ""),
    "a distribution's": (lambda l, t, m, u: torch.distributions.Categorical(
        logits=l, validate_args=False).log_prob(t).mean(), "gather"),
    "soft-capped": (lambda l, t, m, u: F.cross_entropy(rows(capped(l)), t.flatten()),
                    "cross_entropy"),
    "z-loss": (lambda l, t, m, u: F.cross_entropy(rows(l), t.flatten())
               + 1e-2 * torch.logsumexp(l, -1).square().mean(), "cross_entropy"),
    "entropies": (lambda l, t, m, u: (entropies(l) * m).sum() / m.sum(), "sum"),
    "entropies by probabilities": (
        lambda l, t, m, u: -(F.softmax(l, -1) * F.log_softmax(l, -1)).sum(-1).mean(), "sum"),
    "KL": (lambda l, t, m, u: F.kl_div(F.log_softmax(l, -1), F.log_softmax(u, -1),
                                    reduction="batchmean", log_target=True), "kl_div"),
    "KL of probabilities": (lambda l, t, m, u: F.kl_div(
        rows(F.log_softmax(l, -1)), rows(F.softmax(u, -1)), reduction="none").sum(-1)
        .mean(), "kl_div"),
    "reverse KL": (lambda l, t, m, u: (F.softmax(l, -1) * (
        F.log_softmax(l, -1) - F.log_softmax(u, -1))).sum(-1).mean(), "sum"),
    "DFT": (lambda l, t, m, u: -(torch.exp(selected(l, t).detach()) * selected(l, t) * m).sum(),
            ""),
    "GRPO": (grpo, ""), "PPO": (ppo, ""), "DPO": (dpo, ""),
}


class Losses(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()

    def _check(self, name, loss, operation, dtype):
        def of(x, w, t, mask):
            teacher = F.linear(F.gelu(x.detach()), w.detach().flip(0))
            return loss(F.linear(F.silu(x), w), t, mask, teacher)

        def results(called, x, w, t, mask, dtype):
            x, w = (one.detach().to(dtype).requires_grad_() for one in (x, w))
            made = called(x, w, t, mask.to(dtype))
            return [made, *torch.autograd.grad(made, (x, w))]

        recorder = Recorder()
        compiled = torch.compile(of, backend=recorder, fullgraph=True)
        squares = torch.zeros(2, 3, dtype=torch.float64)
        for seed in range(8):
            torch.manual_seed(seed)
            x = torch.randn(_BATCH, _TOKENS, _WIDTH).to(dtype)
            w = (torch.randn(_CLASSES, _WIDTH) / 3).to(dtype)
            t, mask = torch.randint(0, _CLASSES, (_BATCH, _TOKENS)), torch.rand(_BATCH, _TOKENS)
            mask = mask.to(dtype)
            expected = results(of, x, w, t, mask, torch.float64)
            for i, called in enumerate((compiled, of)):
                found = results(called, x, w, t, mask, dtype)
                for j, (a, e) in enumerate(zip(found, expected)):
                    a, e = a.detach(), e.detach()
                    self.assertEqual((a.dtype, a.shape), (dtype, e.shape))
                    squares[i, j] += ((a.double() - e).norm() / e.norm()).square()
        ours, eager = (squares / 8).sqrt()
        floor = 1e-6 if dtype == torch.float32 else 1e-3
        for found, plain in zip(ours, eager):
            self.assertLessEqual(float(found), max(1.25 * float(plain), floor), name)
        (report,) = recorder.reports
        self.assertTrue(any("linear" in entry.operations and operation in entry.operations
                            for entry in report.fused), report.text())
        for entry in report.fused:  # [rows, columns] of a result are no logits
            for result in entry.region.function.function.outputs:
                self.assertNotEqual(int(str(result.value.shape[1])), _CLASSES, report.text())
        for name in ("softmax", "gather", "logsumexp", "cross_entropy", "kl_div"):
            self.assertNotIn(name, "\n".join(report.left))

    def test_fp32(self):
        for name, (loss, operation) in _FORMS.items():
            with self.subTest(name):
                torch._dynamo.reset()
                self._check(name, loss, operation, torch.float32)

    def test_bf16(self):
        for name, (loss, operation) in _FORMS.items():
            with self.subTest(name):
                torch._dynamo.reset()
                self._check(name, loss, operation, torch.bfloat16)

    def test_large_logits_that_wait_for_a_gradient_of_each_row_are_recomputed(self):
        tokens, classes = 2048, 36000  # fp32: above the 256 MiB that are stored whole
        torch.manual_seed(0)
        x, inner = torch.randn(1, tokens, 32), torch.randn(32, 32, requires_grad=True)
        w, t = torch.randn(classes, 32, requires_grad=True), torch.randint(0, classes, (1, tokens))

        def loss():
            h = F.rms_norm(F.silu(F.linear(x, inner)), (32,))
            return torch.cumsum(selected(F.linear(h, w), t), -1).mean()

        expected = torch.autograd.grad(loss(), (inner, w))
        saved = {}
        for objective in ("memory", "speed"):
            torch._dynamo.reset()
            recorder = Recorder(objective=objective)
            made = torch.compile(loss, backend=recorder)()
            for a, e in zip(torch.autograd.grad(made, (inner, w)), expected):
                self.assertLess(float((a - e).norm() / e.norm()), 1e-5)
            (report,) = recorder.reports
            saved[objective] = sum(entry.saved_bytes for entry in report.fused)
            self.assertEqual("recomputes the logits" in report.text(), objective == "memory")
            # The head alone runs again.
            self.assertNotIn("rms_norm", report.fused[-1].operations)
        self.assertGreater(saved["speed"], 4 * tokens * classes)
        self.assertLess(saved["memory"], 2**20)


if __name__ == "__main__":
    unittest.main()
