# SPDX-License-Identifier: Apache-2.0
"""Graphs of Dynamo's in aten: each kind of call is traced once, and the graph is make_fx's."""

import unittest
from unittest import mock

import torch
import torch._dynamo
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from coda_cpp.torch_backend import trace


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.RMSNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        first, second = q.double().chunk(2, -1)
        turned = torch.cat((-second, first), -1).type_as(x) * q
        with torch.no_grad():
            scale = k * k
        with torch.autocast("cpu", enabled=False):
            scale = scale.float() @ torch.ones(16, 16)
        return x + self.out(functional.silu(turned) * scale.tanh() + v.sin() * v)


def layers(count):
    torch.manual_seed(0)
    return nn.Sequential(*(Layer() for _ in range(count)))


def dynamos_graph(model, *arguments, **options):
    """The graph, and its inputs."""
    found = []

    def backend(module, inputs):
        found.append((module, inputs))
        return module.forward

    torch._dynamo.reset()
    torch.compile(model, backend=backend, fullgraph=True, **options)(*arguments)
    return found[0]


def stand_ins_of(module):
    return [node.meta["example_value"] for node in module.graph.find_nodes(op="placeholder")]


def traced(module, run=trace.trace, *arguments):
    """The graph, and how many traces it took."""
    stand_ins = stand_ins_of(module)
    mode = next(value.fake_mode for value in stand_ins if isinstance(value, torch.Tensor))
    with mode, mock.patch.object(trace, "make_fx", wraps=make_fx) as traces:
        return run(module, stand_ins, *arguments), traces.call_count


def whole(module, stand_ins):
    return make_fx(module, pre_dispatch=True)(*stand_ins)


def text(graph):
    """Each operation, its operands by place and what it makes."""
    place = {node: i for i, node in enumerate(graph.nodes)}

    def made(value):
        return value if not isinstance(value, torch.Tensor) else (
            value.dtype, value.shape, value.stride(), value.device)

    return [(node.op, str(node.target) * (node.op == "call_function"),
             fx_args(node, place), torch.utils._pytree.tree_map(made, node.meta.get("val")))
            for node in graph.nodes]


def fx_args(node, place):
    return repr(torch.fx.map_arg((node.args, node.kwargs), lambda used: f"%{place[used]}"))


def memories(graph):
    """Which tensors lie in the same memory, by the place of the first."""
    first = {}
    return [first.setdefault(node.meta[trace.MEMORY], place)
            for place, node in enumerate(graph.nodes) if node.meta.get(trace.MEMORY) is not None]


class Traces(unittest.TestCase):
    def test_equal_layers_are_traced_once_and_the_graph_is_the_same(self):
        counts = set()
        for number in (4, 8):
            module, _ = dynamos_graph(layers(number), torch.randn(2, 5, 16))
            made, count = traced(module)
            counts.add(count)
            self.assertEqual(text(made.graph), text(traced(module, whole)[0].graph))
        self.assertEqual(len(counts), 1)

    def test_it_computes_what_the_model_does(self):
        model, x = layers(6), torch.randn(2, 5, 16)
        for is_on in (False, True):
            with torch.autocast("cpu", torch.bfloat16, enabled=is_on):
                module, inputs = dynamos_graph(model, x)
                made, count = traced(module)
                self.assertGreater(count, 1)
                torch.testing.assert_close(made(*inputs)[0], model(x))

    def test_switches_are_in_force_and_are_left_as_they_were(self):
        with torch.autocast("cpu", torch.bfloat16):
            module, _ = dynamos_graph(layers(6), torch.randn(2, 5, 16))
            made, _ = traced(module)
            self.assertTrue(torch.is_autocast_enabled("cpu"))
        products = [node for node in made.graph.nodes
                    if node.target is torch.ops.aten.matmul.default]
        self.assertEqual(len(products), 6)  # autocast is off there
        for node in products:
            self.assertEqual(node.meta["val"].dtype, torch.float32)
            self.assertFalse(node.meta["val"].requires_grad)

        def fails(*given, **named):
            if not torch.is_autocast_enabled("cpu") or not torch.is_grad_enabled():
                raise RuntimeError("within a section")
            return make_fx(*given, **named)

        with torch.autocast("cpu", torch.bfloat16):
            stand_ins = stand_ins_of(module)
            with mock.patch.object(trace, "make_fx", fails), stand_ins[0].fake_mode:
                self.assertRaises(RuntimeError, trace.trace, module, stand_ins)
            self.assertTrue(torch.is_autocast_enabled("cpu"))
            self.assertTrue(torch.is_grad_enabled())
        self.assertFalse(torch.is_autocast_enabled("cpu"))

    def test_one_tensor_for_two_operands_is_another_kind(self):
        def twice(x, y):
            for _ in range(4):
                same = x.float()  # which is x
                x = (x * same) * y
            return x

        x, y = torch.randn(2, 3, 4)
        module, inputs = dynamos_graph(twice, x, y)
        made, count = traced(module)
        self.assertGreater(count, 1)
        torch.testing.assert_close(made(*inputs)[0], twice(x, y))

    def test_calls_that_differ_in_any_fact_are_other_kinds(self):
        """The same function of operands of other strides, offsets or types, or in one memory."""
        def function(x, y):
            made = []
            for _ in range(8):  # so often that kinds are worth while
                for one in (x, x.mT, x[:, 1:], x[:, :2], x.bfloat16(), y):
                    made.append(torch.empty_like(one).copy_(one).sin())
                for one, other in ((x, y), (x, x), (x, x.view(3, 3)), (y, x)):
                    made.append(torch.add(one, other).mT)
            return made

        module, _ = dynamos_graph(function, torch.randn(3, 3), torch.randn(3, 3))
        made, count = traced(module)
        self.assertGreater(count, 1)
        self.assertEqual(text(made.graph), text(traced(module, whole)[0].graph))
        with mock.patch.object(trace, "_is_plain", lambda node: False):
            self.assertEqual(memories(made.graph), memories(traced(module)[0].graph))

    def test_calls_whose_operands_share_memory_are_another_kind(self):
        """Of a call with views of its operands as results."""
        def function(x, y):
            made = []
            for _ in range(8):
                for other in (x.view(3, 3), y):
                    made += [part.mT for part in torch.broadcast_tensors(x, other)]
            return made

        module, _ = dynamos_graph(function, torch.randn(3, 3), torch.randn(3, 3))
        made, count = traced(module)
        self.assertGreater(count, 1)
        of_x, also_of_x, again_of_x, of_y = (
            node.meta[trace.MEMORY] for node in made.graph.output_node().args[0][:4])
        self.assertEqual((of_x, of_x), (also_of_x, again_of_x))
        self.assertNotEqual(of_x, of_y)

    def test_graphs_that_are_like_each_other_share_their_kinds(self):
        module, _ = dynamos_graph(layers(1), torch.randn(2, 5, 16))
        kinds = {}
        made, count = traced(module, trace.trace, kinds)
        again, none = traced(module, trace.trace, kinds)
        self.assertEqual(count, len(kinds))
        self.assertEqual(none, 0)
        self.assertEqual(text(made.graph), text(again.graph))
        self.assertEqual(text(made.graph), text(traced(module, whole)[0].graph))

    def test_numbers_that_calls_make_tensors(self):
        """Equal calls read the same tensor, others another one; nothing is written into it."""
        def function(x):
            for _ in range(6):
                x = torch.where(x > 0, x, torch.tensor(0.5)) * torch.tensor(2.0).sqrt_()
            return x

        module, inputs = dynamos_graph(function, torch.randn(3))
        made, count = traced(module)
        self.assertGreater(count, 1)
        self.assertEqual(text(made.graph), text(traced(module, whole)[0].graph))
        for _ in range(2):
            torch.testing.assert_close(made(*inputs)[0], function(*inputs), rtol=0, atol=0)

    def test_what_is_not_plain_is_traced_whole(self):
        def writes(x):
            for _ in range(6):
                x = x.sin().cos()
            return x.add_(1)

        made, _ = traced(dynamos_graph(writes, torch.randn(3))[0])
        self.assertIn(torch.ops.aten.add_.Tensor, [node.target for node in made.graph.nodes])
        for model, options in ((layers(6), {"dynamic": True}),  # sizes are symbols
                               (layers(1), {})):  # few calls are like one before
            module, _ = dynamos_graph(model, torch.randn(2, 5, 16), **options)
            self.assertEqual(traced(module)[1], 1)


if __name__ == "__main__":
    unittest.main()
