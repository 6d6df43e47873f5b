# SPDX-License-Identifier: Apache-2.0
"""coda_cpp.verify: what is right is good in every type, each fault that is planted in a rule is
found, and nothing of the model changes."""

import contextlib
import copy
import random
import unittest
from unittest.mock import patch

import torch
import torch._dynamo
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import coda_cpp
from coda_cpp.torch_backend import replace, report, verify
from coda_cpp.torch_backend.rules import RULES
from compiled import Recorder, gpt2, ids, llama

_aten = torch.ops.aten
WIDTH, VOCABULARY = 32, 48


class Model(nn.Module):
    """A head with all options of the loss behind a norm and an MLP."""

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH, eps=1e-2)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, x, labels):
        x = x + self.down(functional.silu(self.up(self.norm(x))))
        return functional.cross_entropy(self.head(x).flatten(0, 1).float(), labels.flatten(),
                                        label_smoothing=0.1)


class Stateful(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm, self.drop = nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(8), nn.Dropout(0.5)
        self.register_buffer("calls", torch.zeros(()), persistent=False)

    def forward(self, x):
        with torch.no_grad():
            self.calls.add_(1)
        return self.drop(self.norm(functional.silu(self.up(x))))


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH)

    def _block(self, x):
        return functional.silu(self.up(x.float().tanh().to(x.dtype)).float()).sin()

    def forward(self, x):
        return checkpoint(self._block, x, use_reentrant=False)


class Experts(nn.Module):
    """Of each expert some rows; the last rows are no expert's."""

    def __init__(self):
        super().__init__()
        self.up, self.down = (nn.Parameter(torch.randn(3, WIDTH, WIDTH) / 4) for _ in range(2))
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        ends = torch.tensor([4, 4, 13], dtype=torch.int32)
        for weights in (self.up, self.down):
            x = functional.silu(torch._grouped_mm(x, weights, offs=ends))
        return functional.silu(self.head(x[:13]))


def _without_bias():
    rule = RULES[_aten.linear.default]

    def wrong(region, node):
        made = rule(region, node)
        if len(node.args) < 3:
            return made
        return made - region.operand(node.args[2], node).value * 0.96875  # the whole would fold
    return wrong


def _with_arguments(target, change):
    """The rule of an operation, told other arguments than the operation has."""
    rule = RULES[target]

    def wrong(region, node):
        given = node.args
        node.args = tuple(change(list(given)))
        try:
            return rule(region, node)
        finally:
            node.args = given
    return wrong


def _set(place, value):
    def change(arguments):
        arguments[place] = value
        return arguments
    return change


def _scaled(target, factor):
    rule = RULES[target]
    return lambda region, node: rule(region, node) * factor


_LOSS, _NORM = _aten.cross_entropy_loss.default, _aten.rms_norm.default
_FAULTS = {  # the loss takes: logits, targets, weight, reduction, ignore_index, smoothing
    "a dropped bias": (_aten.linear.default, _without_bias),
    "a wrong epsilon": (_NORM, lambda: _with_arguments(_NORM, _set(3, 1e-1))),
    "smoothing's factor": (_LOSS, lambda: _with_arguments(_LOSS, _set(5, 0.2))),
    "ignored rows in the mean's count": (_LOSS, lambda: _scaled(_LOSS, 11 / 16)),
}


class Verify(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        torch.manual_seed(0)

    def _ways(self):
        """Models and inputs in each type."""
        labels = torch.randint(0, VOCABULARY, (4, 16))
        for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16),
                            ("autocast", torch.float32)):
            inputs = torch.randn(4, 16, WIDTH).to(dtype), labels
            context = (torch.autocast("cpu", torch.bfloat16) if name == "autocast"
                       else contextlib.nullcontext())
            with self.subTest(name), context:
                yield Model().to(dtype), inputs

    def test_what_is_right_is_good(self):
        for model, inputs in self._ways():
            found = coda_cpp.verify(model, *inputs)
            self.assertTrue(found, found)
            self.assertTrue(found.is_good)
            first, *others = str(found).split("\n")
            self.assertRegex(first, "^3 of 3 linear layers fused")
            self.assertLessEqual(len(others), 10)
            self.assertRegex(others[-1], "^verdict: good: all 7 tensors")

    def test_hugging_faces_models(self):
        for model in (llama(), gpt2().eval()):
            found = coda_cpp.verify(model, input_ids=(batch := ids()), labels=batch)
            self.assertTrue(found, found)
            self.assertIn("loss", str(found).split("\n")[2])

    def test_float64_reaches_recomputed_operations_and_grouped_products(self):
        for model, most in ((Checkpointed(), 1e-6), (Experts().bfloat16(), 2e-2)):
            with self.subTest(model=type(model).__name__):
                x = torch.randn(16, WIDTH, dtype=next(model.parameters()).dtype)
                found = coda_cpp.verify(model, x)
                self.assertTrue(found, found)
                self.assertLess(max(row.eager for row in found.rows), most)

    def test_planted_faults_are_bad(self):
        for fault, (target, make) in _FAULTS.items():
            for model, (x, labels) in self._ways():
                labels[:, :5] = -100
                with self.subTest(fault), patch.dict(RULES, {target: make()}), \
                        patch.dict(replace._functions, clear=True):
                    found = coda_cpp.verify(model, x, labels)
                    self.assertFalse(found, found)
                    self.assertRegex(str(found), "BAD\n(.|\n)*verdict: BAD: ")

    def test_nothing_changes(self):
        model = Stateful().train()
        optimizer = torch.optim.AdamW(model.parameters())
        x = torch.randn(4, 8, WIDTH, requires_grad=True)
        model(x).square().sum().backward()
        optimizer.step()
        model.compile(backend=Recorder())
        before = copy.deepcopy((model.state_dict(), model.calls, optimizer.state_dict(), x,
                                [p.grad for p in model.parameters()], x.grad))
        compiled = model._compiled_call_impl
        states = torch.get_rng_state(), random.getstate()
        found = coda_cpp.verify(model, x)
        after = (model.state_dict(), model.calls, optimizer.state_dict(), x,
                 [p.grad for p in model.parameters()], x.grad)
        torch.testing.assert_close(after, before, rtol=0, atol=0)
        self.assertTrue(torch.equal(torch.get_rng_state(), states[0]))
        self.assertEqual(random.getstate(), states[1])
        self.assertTrue(model.training)
        self.assertIs(model._compiled_call_impl, compiled)
        self.assertTrue(found, found)
        self.assertIn("gradient of input 0", [row.name for row in found.rows])

    def test_the_verdict_is_that_of_the_errors(self):
        """Of a result and a gradient, with errors of eager's and of ours by number."""
        exact = {"loss": torch.ones(100, dtype=torch.float64),
                 "gradient of w": 3 * torch.ones(100, dtype=torch.float64),
                 "gradient of b": 1e-3 * torch.ones(100, dtype=torch.float64)}

        def judged(eager, ours, name="gradient of w", precision=0.0):
            def off(by):
                return {n: t * (1 + by * (n == name)) for n, t in exact.items()}

            made = off(ours or 0.0)
            if ours is None:
                del made[name]
            return verify._judged(exact, off(eager), made, precision, report.Report())

        for name in exact:
            for eager in (1e-5, 1e-3):
                self.assertTrue(judged(eager, 2.9 * eager, name), name)
                self.assertFalse(judged(eager, 3.1 * eager, name), name)
            self.assertTrue(judged(0.0, 1.9e-6, name))  # as fp32 sums in another order
            self.assertFalse(judged(0.0, 2.1e-6, name))
            self.assertTrue(judged(0.0, 0.4 * 2 ** -8, name, precision=2 ** -8))
            self.assertFalse(judged(0.0, float("nan"), name))
            self.assertFalse(judged(0.0, None, name))  # it is missing
        # Of a small gradient as much counts as can be seen beside the largest, 3.
        self.assertTrue(judged(0.0, 0.02, "gradient of b", precision=2 ** -8))
        self.assertFalse(judged(0.0, 0.1, "gradient of b", precision=2 ** -8))
        unknown = judged(0.3, 0.3, "loss")
        self.assertFalse(unknown)
        self.assertIn("verdict: unknown", str(unknown))

    def test_every_value_of_a_result_counts(self):
        """Gradients are those of a sum with random weights: of a plain sum those of x and -x, and
        of what a norm makes, would be the same and 0."""
        class Product(nn.Module):
            def __init__(self):
                super().__init__()
                self.w = nn.Parameter(torch.randn(WIDTH, WIDTH))

            def forward(self, x):
                return functional.linear(x, self.w)

        model, x = Product(), torch.randn(3, 4, WIDTH)
        made = verify._outcome(model, {"w": model.w}, (x,), {})["gradient of w"]
        self.assertGreater(float(made.std(0).norm()), 0.1)  # each column has its own

    def test_inference_and_what_is_no_model(self):
        model, x = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU()), torch.randn(4, WIDTH)
        with torch.no_grad():
            found = coda_cpp.verify(torch.compile(model), x)
        self.assertEqual([row.name for row in found.rows], ["output"])
        self.assertTrue(found)
        with self.assertRaisesRegex(coda_cpp.Error, "it takes a module, and this is a function"):
            coda_cpp.verify(lambda x: x, x)
        with self.assertRaisesRegex(coda_cpp.Error, "no floating-point tensor"):
            coda_cpp.verify(nn.Flatten(), torch.ones(2, 3, dtype=torch.int64))


if __name__ == "__main__":
    unittest.main()
