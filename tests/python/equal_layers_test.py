# SPDX-License-Identifier: Apache-2.0
"""Equal layers are compiled once by the inner compiler, and compute the same bits as layers that
are compiled one by one."""

import contextlib
import unittest
import unittest.mock
from collections import Counter

import torch
import torch._dynamo
from torch import nn
from torch._dynamo import lookup_backend, register_backend
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from coda_cpp.function import Function
from coda_cpp.torch_backend import equal_layers
from compiled import Recorder, outcome, system_compiler

WIDTH, LAYERS, HEADS = 16, 6, 2
_graphs = []


@register_backend(name="counted_by_test")
def _counted(module, inputs):
    """aot_eager, whose graphs are kept."""
    _graphs.append(module)
    return lookup_backend("aot_eager")(module, inputs)


class _Calls(TorchDispatchMode):
    """The operators that run, with the shapes of their results."""

    def __init__(self):
        super().__init__()
        self.made = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for result in made if isinstance(made, (tuple, list)) else [made]:
            if isinstance(result, torch.Tensor):
                self.made.append((function.name(), result.shape))
        return made


class Block(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.first, self.second = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.dropout = dropout

    def forward(self, x, scale):
        heads = [part.unflatten(-1, (HEADS, -1)).transpose(1, 2)
                 for part in self.qkv(self.first(x)).chunk(3, -1)]
        found = functional.scaled_dot_product_attention(
            *heads, is_causal=True, dropout_p=self.dropout)
        x = x + self.out(found.transpose(1, 2).flatten(2)) * scale
        return x + self.down(functional.silu(self.up(self.second(x))))


class Model(nn.Module):
    def __init__(self, checkpointed=False, **named):
        super().__init__()
        self.layers = nn.ModuleList(Block(**named) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, WIDTH)
        self.checkpointed = checkpointed

    def forward(self, x):
        scale = torch.arange(x.shape[1]).cos()[:, None]  # one value that all layers read
        for layer in self.layers:
            x = (checkpoint(layer, x, scale, use_reentrant=False) if self.checkpointed
                 else layer(x, scale))
        return self.head(x).square().mean()


class DecoderBlock(Block):
    """Attention to other sequences behind that to its own, as T5 has it for one: a region more for
    each."""

    def __init__(self, others):
        super().__init__()
        self.others = nn.ModuleList(nn.Sequential(
            nn.RMSNorm(WIDTH), nn.Linear(WIDTH, WIDTH * i)) for i in range(1, others + 1))
        self.back = nn.ModuleList(nn.Linear(WIDTH * i, WIDTH) for i in range(1, others + 1))

    def forward(self, x, scale):
        x = super().forward(x, scale)
        for query, back in zip(self.others, self.back):
            query = query(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            seen = scale.expand_as(query).to(query.dtype)
            found = functional.scaled_dot_product_attention(query, seen, seen)
            x = x + back(found.transpose(1, 2).flatten(2))
        return x


class Decoder(Model):
    def __init__(self, others=1):
        super().__init__()
        self.layers = nn.ModuleList(DecoderBlock(others) for _ in range(LAYERS))


class Averaging(Model):
    """Writes statistics into buffers in its forward."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x):
        return super().forward(self.norm(x.flatten(0, 1)).view_as(x))


class Aliasing(Model):
    """Returns an input, a view of it, the value of a layer, and a view of that."""

    def forward(self, x):
        y, scale = x, torch.ones(())
        seen = []
        for layer in self.layers:
            y = layer(y, scale)
            seen.append(y)
        return self.head(y).mean(), x, x[0], seen[1], seen[1].transpose(0, 1)


class EqualLayers(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        _graphs.clear()

    def _run(self, least, make, sizes, context, run):
        """What `run` returns for inputs of each of the sizes, and the graphs of the inner compiler,
        if so many parts must be equal to share one."""
        torch._dynamo.reset()
        _graphs.clear()
        torch.manual_seed(0)
        model, recorder = make(), Recorder(inner="counted_by_test", strict=True)
        called = torch.compile(model, backend=recorder)
        with unittest.mock.patch.object(equal_layers, "LEAST", least):
            made = []
            for size in sizes:
                x = torch.randn(2, size, WIDTH, requires_grad=True)
                with context():
                    made.append(run(called, model, x))
        return made, list(_graphs)

    def _same(self, make=Model, parts=3, sizes=(8,), context=contextlib.nullcontext, run=outcome,
              rtol=0):
        """The inner compiler gets `parts` graphs. The results have the bits of those of layers that
        are compiled one by one, or differ by `rtol`."""
        one_by_one, whole = self._run(1000, make, sizes, context, run)
        shared, graphs = self._run(4, make, sizes, context, run)
        torch.testing.assert_close(shared, one_by_one, rtol=rtol, atol=rtol)
        self.assertEqual(len(graphs), parts * len(whole))
        if parts > 1:
            most = max(len(graph.graph.nodes) for graph in graphs)
            self.assertLess(most, max(len(graph.graph.nodes) for graph in whole) / 2)
        return shared

    def test_first_layer_equal_layers_and_the_rest(self):
        self._same()

    def test_short_layers_on_a_gpu_are_called_together(self):
        """The fewer layers are compiled, the more calls there are: the sum is the least."""
        real, made = equal_layers._in_turn, []

        def in_turn(module, calls):
            made.append(Counter(call for call, _ in calls))
            return real(module, calls)

        for seconds, layers, calls in ((2e-3, 6, 5), (1e-4, 6, 2), (1e-4, 10, 3), (1e-4, 12, 5)):
            with unittest.mock.patch.object(equal_layers, "_in_turn", in_turn), \
                 unittest.mock.patch.object(Function, "is_for_gpu", True), \
                 unittest.mock.patch.object(
                     Function, "costs", lambda *_, s=seconds: ((0, 0, s), (0, 0, s))), \
                 unittest.mock.patch(f"{__name__}.LAYERS", layers):
                self._run(4, Model, (8,), contextlib.nullcontext, outcome)
            self.assertEqual(max(made[-1].values()), calls)

    def test_layers_of_several_regions_are_one_part_each(self):
        """Also called together, if they are short. With LoRA a layer of a LLaMA has nine."""
        for others in (1, 8):
            self._same(lambda others=others: Decoder(others))
        real, made = equal_layers._in_turn, []

        def in_turn(module, calls):
            made.append(max(Counter(call for call, _ in calls).values()))
            return real(module, calls)

        with unittest.mock.patch.object(equal_layers, "_in_turn", in_turn), \
             unittest.mock.patch.object(Function, "is_for_gpu", True), \
             unittest.mock.patch.object(Function, "costs", lambda *_: ((0, 0, 1e-5), (0, 0, 1e-5))):
            self._run(4, Decoder, (8,), contextlib.nullcontext, outcome)
        self.assertEqual(made, [2])

    def test_in_bf16_under_autocast(self):
        self._same(context=lambda: torch.autocast("cpu", torch.bfloat16))

    def test_gradients_of_fp32_weights_under_autocast_are_no_sums_with_zeros(self):
        """Regions pass the gradients to the fp32 weights, none to the weights that autocast
        rounded. So the backward neither makes zeros nor adds tensors of a weight's shape."""
        def run(called, model, x):
            loss = called(x)
            with _Calls() as calls:
                loss.backward()
            shapes = {weight.shape for weight in model.parameters() if weight.dim() == 2}
            return [name for name, shape in calls.made if shape in shapes]

        (names,), graphs = self._run(
            4, Model, (8,), lambda: torch.autocast("cpu", torch.bfloat16), run)
        self.assertEqual(len(graphs), 3)
        self.assertIn("aten::detach", names)
        self.assertEqual({"aten::zeros", "aten::zeros_like", "aten::new_zeros", "aten::fill_",
                          "aten::zero_", "aten::add.Tensor", "aten::add_.Tensor"} & {*names}, set())

    def test_without_gradients(self):
        self._same(context=torch.no_grad, run=lambda called, model, x: called(x))

    def test_frozen_layers(self):
        """Layers with and without gradients are two kinds."""
        def make():
            model = Model()
            model.layers[1].requires_grad_(False)
            return model

        self._same(make, parts=1)

    def test_checkpointed_layers(self):
        self._same(lambda: Model(checkpointed=True))

    def test_lengths_that_vary(self):
        self._same(sizes=(8, 6, 7))

    def test_random_numbers(self):
        """Equal layers draw their own numbers, in the order of the layers."""
        self._same(lambda: Model(dropout=0.5))

    def test_results_that_lie_in_one_memory(self):
        def run(called, model, x):
            loss, given, row, value, turned = called(x)
            self.assertIs(given, x)
            self.assertEqual(row.data_ptr(), x.data_ptr())
            self.assertEqual(turned.data_ptr(), value.data_ptr())
            wanted = list(model.parameters())
            return torch.autograd.grad(loss + row.sum() + turned.square().sum(), [x, *wanted])

        # Where three gradients meet in a result, they are summed in another order.
        self._same(Aliasing, parts=4, run=run, rtol=1e-5)

    def test_graph_that_writes_is_not_cut(self):
        def run(called, model, x):
            loss = called(x)
            return loss, [buffer.clone() for buffer in model.norm.buffers()]

        self._same(Averaging, parts=1, run=run)

    def test_nothing_is_cut_if_nothing_is_compiled(self):
        """PyTorch 2.11 fixes the length if a part with attention runs on fake tensors."""
        with unittest.mock.patch.object(equal_layers, "compiled") as compiled:
            torch.compile(Model(), backend=Recorder(inner="eager"))(torch.randn(2, 8, WIDTH))
        compiled.assert_not_called()

    def test_with_inductor_and_its_cache_of_compiled_graphs(self):
        torch.manual_seed(0)
        model, x = Model(), torch.randn(2, 8, WIDTH)
        graphs = torch._dynamo.utils.counters["aot_autograd"]
        before, passed_by = graphs["total"], graphs["autograd_cache_bypass"]
        with system_compiler():
            found = outcome(torch.compile(model, backend=Recorder(inner="inductor", strict=True)),
                            model, x)
        self.assertEqual(graphs["total"] - before, 3)
        self.assertEqual(graphs["autograd_cache_bypass"], passed_by)
        torch.testing.assert_close(found, outcome(model, model, x), rtol=2e-5, atol=1e-6)


if __name__ == "__main__":
    unittest.main()
