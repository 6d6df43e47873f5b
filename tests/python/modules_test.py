# SPDX-License-Identifier: Apache-2.0
"""Modules hold PyTorch's state dicts, and a small net of them and of AdamW learns as one of
PyTorch's own does."""

import contextlib
import copy
import io
import pathlib
import re
import unittest

import torch
from torch import nn
from torch.nn import functional

import coda_cpp


class Optimizer(unittest.TestCase):
    def test_adamw_goes_pytorchs_way_and_takes_its_state(self):
        torch.manual_seed(0)
        ours = [nn.Parameter(torch.randn(30, 7)), nn.Parameter(torch.randn(5)),
                nn.Parameter(torch.randn(3))]
        theirs = copy.deepcopy(ours)
        options = {"lr": 3e-2, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}
        mine, reference = coda_cpp.AdamW(ours, **options), torch.optim.AdamW(theirs, **options)
        for step in range(8):
            if step == 4:
                mine.load_state_dict(copy.deepcopy(reference.state_dict()))
            for a, b in zip(ours[:2], theirs):  # the third has no gradient
                a.grad = torch.randn_like(a)
                b.grad = a.grad.clone()
            mine.step()
            reference.step()
        for a, b in zip(ours, theirs):
            torch.testing.assert_close(a, b, rtol=2e-6, atol=2e-7)

    def test_adamw_takes_gradients_however_they_lie(self):
        torch.manual_seed(1)
        layouts = {
            "transposed": lambda: torch.randn(6, 8).t(),
            "every second column": lambda: torch.randn(8, 12)[:, ::2],
            "columns of a wider one": lambda: torch.randn(8, 20)[:, 5:11],
            "rows that are one": lambda: torch.randn(6).expand(8, 6),
            "one number": lambda: torch.randn(()).expand(8, 6),
            "permuted": lambda: torch.randn(6, 2, 8)[:, 1].permute(1, 0),
        }
        for name, made in layouts.items():
            with self.subTest(name):
                ours, theirs = (nn.Parameter(torch.ones(8, 6)) for _ in range(2))
                mine, reference = coda_cpp.AdamW([ours]), torch.optim.AdamW([theirs])
                for _ in range(3):
                    ours.grad = made()
                    self.assertFalse(ours.grad.is_contiguous())
                    theirs.grad = ours.grad.clone(memory_format=torch.contiguous_format)
                    mine.step()
                    reference.step()
                torch.testing.assert_close(ours, theirs, rtol=2e-6, atol=2e-7)

    def test_adamw_passes_opcheck_and_refuses_what_it_cannot_do(self):
        def tensors():
            return [torch.rand(4, 3), torch.rand(5)]
        torch.library.opcheck(torch.ops.coda_cpp.adamw_.default, (
            tensors(), tensors(), tensors(), tensors(), 0.1, 0.9, 0.99, 1e-8, 0.0, 1))
        weight = nn.Parameter(torch.randn(4).bfloat16())
        weight.grad = torch.ones_like(weight)
        with self.assertRaisesRegex(coda_cpp.Error, "must be float32.*bfloat16"):
            coda_cpp.AdamW([weight]).step()
        weight = nn.Parameter(torch.randn(4))
        weight.grad = torch.ones(4)
        with self.assertRaisesRegex(coda_cpp.Error, "betas|beta"):
            coda_cpp.AdamW([weight], betas=(1.5, 0.9)).step()


class Net(nn.Module):
    """A residual MLP behind its norm and a head with its loss."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(40, 32)
        self.up = coda_cpp.LinearResidualRMS(32, 32)
        self.norm = nn.RMSNorm(32, eps=1e-6)
        self.mlp = coda_cpp.GatedMLP(32, 64)
        self.head = coda_cpp.LinearCrossEntropy(32, 40)

    def forward(self, ids, targets):
        x = self.embed(ids)
        y, rstd = self.up(x, x)
        return self.head(y + self.mlp(y, rstd, self.norm.weight), targets)[0]


class PlainNet(Net):
    def forward(self, ids, targets):
        x = self.embed(ids)
        y = functional.linear(x, self.up.weight) + x
        h = self.norm(y)
        mlp = self.mlp
        y = y + mlp.down_proj(functional.silu(mlp.gate_proj(h)) * mlp.up_proj(h))
        logits = functional.linear(y, self.head.weight)
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Training(unittest.TestCase):
    def test_a_net_learns_as_one_of_pytorchs_own(self):
        torch.manual_seed(0)
        ours, theirs = Net(), PlainNet()
        theirs.load_state_dict(ours.state_dict())
        mine = coda_cpp.AdamW(ours.parameters(), lr=1e-2)
        reference = torch.optim.AdamW(theirs.parameters(), lr=1e-2)
        ids = torch.arange(36).view(4, 9)  # each has one successor
        targets = ids.roll(-1, 1)
        for _ in range(40):
            losses = []
            for net, optimizer in ((ours, mine), (theirs, reference)):
                optimizer.zero_grad()
                loss = net(ids, targets)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            self.assertAlmostEqual(*losses, delta=2e-4 * losses[1] + 1e-5)
        self.assertLess(losses[0], 0.5)


class Guide(unittest.TestCase):
    def test_the_code_of_the_guides_runs(self):
        docs = pathlib.Path(__file__).parents[2] / "docs"
        guides = "".join((docs / name).read_text() for name in ("pytorch.md", "python.md"))
        blocks = re.findall(r"```python\n(.*?)```", guides, re.DOTALL)
        with contextlib.redirect_stdout(io.StringIO()) as said:
            exec("".join(blocks), {})
        self.assertIn("saved for the backward", said.getvalue())


if __name__ == "__main__":
    unittest.main()
