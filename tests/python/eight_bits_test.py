# SPDX-License-Identifier: Apache-2.0
"""Products in 8 bits from PyTorch: against float64, with scales that each use keeps for itself, and
as an option of torch.compile(model, backend="coda")."""

import unittest
from unittest import mock

import torch
from torch import nn
from torch.nn import functional as F

import coda_cpp
from coda_cpp import _eight_bits, programs
from coda_cpp import builders as b
from coda_cpp.function import EIGHT_BITS
from coda_cpp.torch_backend import coda, inline

_ROWS = 48


def _mlp(products):
    graph = coda_cpp.Graph()
    x = graph.input("x", ("M", 64), "bf16")
    gate, up = (graph.parameter(name, (128, 64), "bf16") for name in ("gate", "up"))
    down = graph.parameter("down", (64, 128), "bf16")
    y = b.linear(b.swiglu(b.linear(x, gate), b.linear(x, up)), down)
    return coda_cpp.GraphFunction([x, gate, up, down], {"y": y}, storage="bf16", products=products)


def _plain(x, gate, up, down):
    return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)


def _tensors(rows=_ROWS, factor=1.0):
    torch.manual_seed(0)
    return [factor * torch.randn(rows, 64), torch.randn(128, 64) / 8, torch.randn(128, 64) / 8,
            torch.randn(64, 128) / 11]


def _leaves(tensors, dtype):
    return [tensor.to(torch.bfloat16).to(dtype).requires_grad_() for tensor in tensors]


def _with_gradients(function, tensors):
    y = function(*tensors)
    gradients = torch.autograd.grad(y.double().pow(2).mean(), tensors)
    return [y.detach(), *gradients]


def _errors(found, expected):
    return [((f.double() - e).norm() / e.norm()).item() for f, e in zip(found, expected)]


class EightBits(unittest.TestCase):
    def test_values_and_gradients_are_as_near_as_eight_bits_can_be_from_the_first_call_on(self):
        expected = _with_gradients(_plain, _leaves(_tensors(), torch.float64))
        for products in ("fp8", "fp8-kept"):
            function = _mlp(products)
            for call in range(3):
                found = _with_gradients(function, _leaves(_tensors(), torch.bfloat16))
                for error in _errors(found, expected):
                    with self.subTest(products=products, call=call):
                        self.assertGreater(error, 0.02)  # of 16 bits: 0.006
                        self.assertLess(error, 0.12)

    def test_rows_that_operands_of_eight_bits_cannot_have_are_in_sixteen(self):
        expected = _with_gradients(_plain, _leaves(_tensors(rows=50), torch.float64))
        found = _with_gradients(_mlp("fp8"), _leaves(_tensors(rows=50), torch.bfloat16))
        for error in _errors(found, expected):
            self.assertLess(error, 0.01)

    def test_without_gradients_products_are_in_sixteen(self):
        given = [tensor.bfloat16() for tensor in _tensors()]
        error, = _errors([_mlp("fp8")(*given)], [_plain(*(tensor.double() for tensor in given))])
        self.assertLess(error, 0.01)

    def test_a_backward_takes_the_scales_of_its_own_forward(self):
        """Another forward of values a thousand times as large comes between the two."""
        function = _mlp("fp8")
        expected = _with_gradients(_plain, _leaves(_tensors(), torch.float64))
        _with_gradients(function, _leaves(_tensors(), torch.bfloat16))
        own = _leaves(_tensors(), torch.bfloat16)
        y = function(*own)
        function(*_leaves(_tensors(factor=1000), torch.bfloat16))
        gradients = torch.autograd.grad(y.double().pow(2).mean(), own)
        for error in _errors(gradients, expected[1:]):
            self.assertLess(error, 0.12)

    def test_each_use_has_its_own_scales(self):
        function = _mlp("fp8")
        other = function.another_use()
        expected = _with_gradients(_plain, _leaves(_tensors(factor=1e-3), torch.float64))
        for _ in range(3):
            _with_gradients(function, _leaves(_tensors(factor=1000), torch.bfloat16))
        for error in _errors(_with_gradients(other, _leaves(_tensors(factor=1e-3), torch.bfloat16)),
                             expected):
            self.assertLess(error, 0.12)

    def test_a_loss_whose_gradients_are_made_in_the_forward_has_a_backward_without_products(self):
        """Logits of 16 rows at a time; the backward multiplies both gradients by the upstream
        gradient."""
        graph = coda_cpp.Graph()
        x, targets = graph.input("x", ("M", 64), "bf16"), graph.input("targets", ("M", 1), "i32")
        head = graph.parameter("head", (64, 64), "bf16")
        _, mean = b.cross_entropy(b.linear(x, head), targets)
        function = coda_cpp.GraphFunction([x, head, targets], {"loss": mean}, storage="bf16",
                                          products="fp8", loss_rows=16)
        ids = torch.arange(_ROWS) % 64
        x, head = _leaves([_tensors()[0], _tensors()[1][:64]], torch.float64)
        loss = F.cross_entropy(F.linear(x, head), ids)
        expected = [loss.detach(), *torch.autograd.grad(3 * loss, (x, head))]
        own = _leaves([x.detach(), head.detach()], torch.bfloat16)
        for _ in range(3):
            loss = function(*own, ids.int())
            found = [loss.detach(), *torch.autograd.grad(3 * loss, own)]
            for error in _errors(found, expected):
                self.assertLess(error, 0.12)
        phases = function.function.phases(3 | EIGHT_BITS)
        self.assertTrue(phases.first_scales)
        self.assertFalse(set(phases.backward_inputs) & set(_eight_bits.NAMES))

    def test_an_unknown_recipe_is_an_error_that_names_those_there_are(self):
        known = "'fp8', 'fp8-kept', not 'fp9'"
        with self.assertRaisesRegex(coda_cpp.Error, known):
            _mlp("fp9")(*_leaves(_tensors(), torch.bfloat16))


class _Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(64, 64)
        self.norm = nn.RMSNorm(64)
        self.gate, self.up = (nn.Linear(64, 128, bias=False) for _ in range(2))
        self.down = nn.Linear(128, 64, bias=False)
        self.head = nn.Linear(64, 64, bias=False)

    def forward(self, ids, targets):
        x = self.embedding(ids)
        for _ in range(2):  # one set of weights, two regions with scales of their own
            h = self.norm(x)
            x = x + self.down(F.silu(self.gate(h)) * self.up(h))
        return F.cross_entropy(self.head(x).flatten(0, 1).float(), targets.flatten())


class Compiled(unittest.TestCase):
    def _losses(self, options):
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = _Model()
        compiled = torch.compile(model, backend="coda", dynamic=False, options=options)
        optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
        ids = torch.randint(0, 64, (4, 33))
        losses = []
        for _ in range(12):
            with torch.autocast("cpu", torch.bfloat16):
                loss = compiled(ids[:, :-1], ids[:, 1:])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses

    def test_a_model_learns_as_in_bf16(self):
        options = {"inner": "aot_eager", "cost_model": False}
        expected = self._losses(options)
        found = self._losses({**options, "products": "fp8"})
        self.assertLess(expected[-1], 0.8 * expected[0])
        self.assertNotEqual(found, expected)
        for ours, theirs in zip(found, expected):
            self.assertLess(abs(ours - theirs), 0.02 * theirs)

    def test_equal_layers_are_calls_of_their_own_uses_in_a_graph_that_is_whole(self):
        class Layers(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))

            def forward(self, x):
                for layer in self.layers:
                    x = F.silu(layer(x)).cumsum(1) / 8  # which ends a region
                return x.float().square().mean()

        def put(module):
            found.append(inline.inline(module))
            found.append([node.args[1] for node in module.graph.nodes
                          if node.target is programs.GRAPH.forward])
            return found[0]

        found = []
        torch.manual_seed(0)
        torch._dynamo.reset()
        model, x = Layers().bfloat16(), torch.randn(2, 16, 64, dtype=torch.bfloat16)
        options = {"inner": "aot_eager", "cost_model": False, "products": "fp8"}
        with mock.patch.object(coda, "inline", put):
            compiled = torch.compile(model, backend="coda", dynamic=False, options=options)
            expected, loss = model(x), compiled(x)
            loss.backward()
        is_whole, calls = found
        self.assertTrue(is_whole)  # so PyTorch's cache of compiled graphs takes it
        kinds = {call.rpartition("#")[0] for call in calls}
        self.assertGreater(len(calls), len(kinds))
        self.assertEqual(len(set(calls)), len(calls))
        used = [programs._GraphOperator.made[call] for call in calls]
        self.assertTrue(all(function._scales for function in used))
        self.assertEqual(len({id(function._scales) for function in used}), len(calls))
        self.assertLess(abs(loss.item() - expected.item()), 0.05 * expected.item())


if __name__ == "__main__":
    unittest.main()
