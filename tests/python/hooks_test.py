# SPDX-License-Identifier: Apache-2.0
"""Hooks on the gradients of a model's activations, custom functions that return views, and hooks on
saved tensors around a compiled model: they get what they get in eager mode."""

import copy
import unittest

import torch
import torch._dynamo
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from compiled import Recorder, Reversed, error

WIDTH = 32


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(functional.gelu(self.up(self.norm(x))))


def limited(gradient):
    """Not linear, so it differs for a part of the gradient."""
    return gradient / (1 + gradient.norm())


def read_before(blocks, x):
    h = blocks[0](x)
    z = torch.tanh(blocks[1](h))
    h.register_hook(limited)
    return blocks[2](h) + z, h


def two_hooks(blocks, x):
    h = blocks[0](x)
    h.register_hook(limited)
    h.register_hook(lambda gradient: gradient * 2 + 0.1)
    return (blocks[1](h),)


def of_each_layer(blocks, x):
    """Equal layers are compiled once, and pass each tensor and a view of it to the next one."""
    seen = []
    for block in blocks:
        x = block(x)
        x.register_hook(limited)
        seen.append(x)
    return tuple(seen)


def of_one_row(blocks, x):
    """The first dimension has one element, so the tensor and its first row have the same values."""
    h = blocks[0](x[:1])
    h.register_hook(limited)
    return (blocks[1](h.cumsum(1)),)


def with_a_view(blocks, x):
    h = blocks[0](x)
    h.register_hook(limited)
    return h, h.view(-1)


def of_a_part(blocks, x):
    gate, up = blocks[0].up(torch.relu(x)).chunk(2, -1)
    gate.register_hook(limited)
    return (blocks[1](functional.silu(gate) * up) + gate,)


def in_checkpointing(blocks, x):
    def layer(block, x):
        h = block(x)
        h.register_hook(limited)
        return h + torch.tanh(block(h))

    for block in blocks[:2]:
        x = checkpoint(layer, block, x, use_reentrant=False)
    return (x,)


def that_writes_the_gradient(blocks, x):
    h = blocks[0](x)
    h.register_hook(lambda gradient: gradient.clone().mul_(3))
    return (blocks[1](h),)


def that_reads_a_later_value(blocks, x):
    h = blocks[0](x)
    z = blocks[1](h).detach()
    h.register_hook(lambda gradient: gradient * z)
    return (blocks[2](h),)


def of_a_written_tensor(blocks, x):
    h = blocks[0](x).clone()
    h.register_hook(limited)
    h.mul_(3)
    return (blocks[1](h),)


def functions_of_each_layer(blocks, x):
    seen = []
    for block in blocks:
        x = Reversed.apply(block(x))
        seen.append(x)
    return tuple(seen)


def a_functions_operand_and_result(blocks, x):
    h = blocks[0](x)
    z = Reversed.apply(h)
    return h, z, blocks[1](z)


FUSED = [read_before, of_each_layer, of_one_row, with_a_view, of_a_part, in_checkpointing,
         that_writes_the_gradient, functions_of_each_layer, a_functions_operand_and_result]
NOT_FUSED = {}
if not torch.__version__.startswith("2.11."):  # where these hooks are wrong with every backend
    FUSED.append(two_hooks)
    NOT_FUSED |= {that_reads_a_later_value: "reads a value that is computed after the tensor",
                  of_a_written_tensor: "is written in place"}


class Model(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.blocks, self._function = nn.ModuleList(Mlp() for _ in range(5)), function

    def forward(self, x):
        return self._function(self.blocks, x)


class Hooks(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        torch.manual_seed(0)

    def _as_eager(self, function):
        model, made, recorder = Model(function), [], Recorder()
        start = torch.randn(2, 6, WIDTH)
        for way in (model, copy.deepcopy(model)):
            x = start.clone().requires_grad_()
            results = (torch.compile(way, backend=recorder) if way is model else way)(x)
            sum((n + 1) * y.square().sum() for n, y in enumerate(results)).backward()
            made.append([*(y.detach() for y in results), x.grad,
                         *(p.grad for p in way.parameters() if p.grad is not None)])
        self.assertEqual(len(made[0]), len(made[1]))
        self.assertLess(error(*made), 5e-5)
        return [layer for report in recorder.reports for layer in report.layers]

    def test_they_get_the_whole_gradient(self):
        for function in FUSED:
            with self.subTest(function.__name__):
                torch._dynamo.reset()
                layers = self._as_eager(function)
                self.assertTrue(layers)
                self.assertTrue(all(layer.is_fused for layer in layers))

    def test_where_one_cannot_move_to_its_tensor_the_graph_is_left(self):
        for function, why in NOT_FUSED.items():
            with self.subTest(function.__name__):
                torch._dynamo.reset()
                for layer in self._as_eager(function):
                    self.assertIn(why, layer.reason)


class SavedTensors(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        torch.manual_seed(0)

    def test_checkpointing_around_a_compiled_block(self):
        """The forward compiles the block, and the recomputation does not."""
        blocks, x = nn.ModuleList(Mlp() for _ in range(2)), torch.randn(2, 6, WIDTH)
        wanted = torch.autograd.grad(
            blocks[1](blocks[0](x)).square().sum(), list(blocks.parameters()))
        y, recorder = x, Recorder()
        for block in blocks:
            y = checkpoint(torch.compile(block, backend=recorder), y, use_reentrant=False)
        found = torch.autograd.grad(y.square().sum(), list(blocks.parameters()))
        self.assertLess(error(found, wanted), 2e-5)
        self.assertTrue(all(r.layers[0].is_fused for r in recorder.reports))

    def test_hooks_get_tensors_of_the_step_alone(self):
        for depth in (1, 5):  # five equal layers are compiled once
            torch._dynamo.reset()
            called = torch.compile(nn.Sequential(*(Mlp() for _ in range(depth))),
                                   backend=Recorder())
            counts = []

            def pack(tensor, counts=counts):
                self.assertNotIsInstance(tensor, FakeTensor)
                counts[-1] += 1
                return tensor

            with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                for _ in range(2):
                    counts.append(0)
                    called(torch.randn(2, 6, WIDTH))
            self.assertEqual(counts[0], counts[1])
            self.assertGreater(counts[0], 0)


if __name__ == "__main__":
    unittest.main()
