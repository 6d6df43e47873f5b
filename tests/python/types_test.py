# SPDX-License-Identifier: Apache-2.0
"""Models of several types: what is in one is fused, a conversion is the edge of a region, and
nothing is less exact than eager."""

import copy
import unittest

import torch
import torch._dynamo
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from coda_cpp.torch_backend import autocast, trace
from compiled import Recorder, error, ids, llama, outcome

WIDTH = 64


class Block(nn.Module):
    """Of which the result, or what goes on, is in fp32."""

    def __init__(self, is_last=True):
        super().__init__()
        self.norm, self.up = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
        self.down, self.is_last = nn.Linear(2 * WIDTH, WIDTH), is_last

    def forward(self, x):
        x = x + self.down(functional.gelu(self.up(self.norm(x))))
        x = x.float() * 0.5
        return x if self.is_last else x.tanh().to(self.up.weight.dtype)


class Adapted(nn.Module):
    """A frozen layer in bf16 and what is trained beside it in fp32, as PEFT has them."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.base = nn.Linear(WIDTH, WIDTH).bfloat16().requires_grad_(False)
        self.down = nn.Linear(WIDTH, 4, bias=False, dtype=dtype)
        self.up = nn.Linear(4, WIDTH, bias=False, dtype=dtype)

    def forward(self, x):
        y = self.base(x) + 2 * self.up(self.down(x.to(self.down.weight.dtype)))
        return functional.silu(y.to(x.dtype))


class Autocast(nn.Module):
    """As Trainer and accelerate call a model in bf16."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, batch):
        with torch.autocast("cpu", torch.bfloat16):
            return self.model(input_ids=batch, labels=batch).loss


class Types(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        torch.manual_seed(0)

    def _check(self, model, x, fused):
        recorder = Recorder()
        compiled = torch.compile(model, backend=recorder, fullgraph=True)
        exact = copy.deepcopy(model).double()
        found, eager, truth = (
            (loss, *gradients) for loss, gradients in (
                outcome(lambda x, run=run: run(x).double().square().mean(), way, given)
                for run, way, given in ((compiled, model, x), (model, model, x),
                                        (exact, exact, x.double()))))
        self.assertLess(error(found, truth), 1.2 * error(eager, truth) + 1e-5)
        layers = recorder.reports[0].layers
        self.assertEqual((sum(layer.is_fused for layer in layers), len(layers)), fused,
                         [layer.reason for layer in layers])
        return recorder.reports[0]

    def test_an_fp32_result_ends_a_region(self):
        report = self._check(Block().bfloat16(), torch.randn(2, 8, WIDTH).bfloat16(), (2, 2))
        self.assertEqual(len(report.fused), 1)

    def test_fp32_within_a_region(self):
        model = nn.Sequential(Block(False), Block(False), Block()).bfloat16()
        report = self._check(model, torch.randn(2, 8, WIDTH).bfloat16(), (6, 6))
        self.assertEqual(len(report.fused), 1)

    def test_fp32_adapters_of_a_bf16_model(self):
        model = nn.Sequential(*(Adapted() for _ in range(3)))
        self._check(model, torch.randn(32, WIDTH).bfloat16(), (9, 9))

    def test_adapters_of_the_models_type(self):
        model = nn.Sequential(*(Adapted(torch.bfloat16) for _ in range(3)))
        self._check(model, torch.randn(32, WIDTH).bfloat16(), (9, 9))

    def test_autocast_in_the_forward_with_checkpointing(self):
        model = llama().train()
        batch = ids()
        expected, wanted = outcome(Autocast(model), model, batch)
        truth = outcome(model, model, input_ids=batch, labels=batch)[1]
        for is_checkpointed in (False, True):
            with self.subTest(is_checkpointed=is_checkpointed):
                torch._dynamo.reset()
                if is_checkpointed:
                    model.gradient_checkpointing_enable({"use_reentrant": False})
                recorder = Recorder(strict=True)
                loss, gradients = outcome(
                    torch.compile(Autocast(model), backend=recorder), model, batch)
                torch.testing.assert_close(loss, expected, rtol=1e-2, atol=0)
                self.assertLess(error(gradients, truth), 1.1 * error(wanted, truth))
                report = recorder.reports[0]
                self.assertTrue(all(layer.is_fused for layer in report.layers))
                self.assertEqual({entry.region.storage for entry in report.fused},
                                 {torch.bfloat16})

    def test_a_backward_within_autocast_has_the_same_bits_as_one_behind_it(self):
        class Scores(nn.Module):
            def __init__(self):
                super().__init__()
                self.block = Block()

            def forward(self, x):
                y = self.block(x)
                with torch.autocast("cpu", enabled=False):
                    return torch.bmm(y.float(), y.float().mT).square().mean()

        model, x = Scores(), torch.randn(2, 8, WIDTH)
        compiled = torch.compile(model, backend=Recorder(strict=True))
        with torch.autocast("cpu", torch.bfloat16):
            _, within = outcome(compiled, model, x)
            behind = compiled(x)
        torch.testing.assert_close(within, torch.autograd.grad(behind, [*model.parameters()]),
                                   rtol=0, atol=0)

    def test_who_reads_a_result_in_fp32_gets_it_under_autocast(self):
        """A region stores what its products have, bf16, and PyTorch's operations expect fp32."""
        def function(x, w, scale):
            y = functional.silu(functional.linear(x, w)) * scale
            z = functional.silu(functional.linear(torch.special.i0(y), w)) + y
            return torch.special.i1(z), y

        given = torch.randn(16, WIDTH), torch.randn(WIDTH, WIDTH) / 8, torch.rand(WIDTH)
        recorder = Recorder()
        with torch.autocast("cpu", torch.bfloat16):
            found = torch.compile(function, backend=recorder)(*given)
            expected = function(*given)
        self.assertEqual(len(recorder.reports[0].fused), 2)
        for a, e in zip(found, expected):
            self.assertEqual((a.dtype, e.dtype), (torch.float32, torch.float32))
            torch.testing.assert_close(a, e, rtol=3e-2, atol=3e-2)

    def test_a_function_is_called_under_its_autocast(self):
        class Product(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, w):
                ctx.save_for_backward(x, w)
                return functional.linear(x, w)

            @staticmethod
            def backward(ctx, gradient):
                x, w = ctx.saved_tensors
                return gradient.to(w.dtype) @ w, gradient.to(x.dtype).T @ x

        def function(x, w):
            with torch.autocast("cpu", torch.bfloat16):
                x = functional.silu(functional.linear(x, w))
                y = Product.apply(x.float(), w)
                return functional.gelu(functional.linear(y, w)), y

        x, w = torch.randn(16, WIDTH), (torch.randn(WIDTH, WIDTH) / 8).requires_grad_()
        recorder = Recorder()
        found = torch.compile(function, backend=recorder)(x, w)
        for one, expected in zip(found, function(x, w), strict=True):
            self.assertEqual(one.dtype, expected.dtype)
            torch.testing.assert_close(one, expected, rtol=2e-2, atol=2e-1)
        self.assertEqual(len(recorder.reports[0].fused), 2)

    def test_conversions_by_sections_and_writes(self):
        """A section of another device's autocast changes no conversion, and a tensor is converted
        anew behind a write."""
        graph, given = torch.fx.Graph(), (torch.randn(4, WIDTH), torch.randn(WIDTH, WIDTH))
        x, w = map(graph.placeholder, "xw")
        x.meta["val"], w.meta["val"] = given
        entered = [graph.call_function(trace.ENTER_AUTOCAST, (device, dtype, True, True))
                   for device, dtype in (("cpu", torch.bfloat16), ("cuda", torch.float16))]
        first = graph.call_function(torch.ops.aten.linear.default, (x, w))
        graph.call_function(torch.ops.aten.mul_.Tensor, (x, 2))
        second = graph.call_function(torch.ops.aten.linear.default, (x, w))
        for node in reversed(entered):
            graph.call_function(trace.EXIT_AUTOCAST, (node,))
        graph.output((first, second))
        first.meta["val"] = second.meta["val"] = torch.empty(4, WIDTH, dtype=torch.bfloat16)
        autocast.write_out(graph, given, lambda node: node is x)
        with torch.autocast("cpu", torch.bfloat16):
            once = functional.linear(*given)
        found = torch.fx.GraphModule({}, graph)(*given)
        torch.testing.assert_close(found, (once, 2 * once), rtol=0, atol=0)

    def test_cells_of_recurrent_networks_have_the_types_that_autocast_gives(self):
        """On CPUs autocast converts the operands of a cell's products, not those of the cell."""
        class Celled(nn.Module):
            def __init__(self, kind):
                super().__init__()
                self.norm, self.up, self.down = (
                    nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))
                self.cell, self.is_pair = kind(WIDTH, WIDTH), kind is nn.LSTMCell

            def forward(self, x):
                y, state = self.up(self.norm(x)).tanh().flatten(0, 1), x.flatten(0, 1)
                made = self.cell(y, (state, state) if self.is_pair else state)
                made = made[0] * made[1] if self.is_pair else made
                return x + self.down(made.view_as(x))

        for kind in (nn.GRUCell, nn.LSTMCell, nn.RNNCell,
                     lambda *sizes: nn.RNNCell(*sizes, nonlinearity="relu")):
            for has_sections in (False, True):  # autocast in the model, or around the call
                model, errors = Celled(kind), []
                exact, recorder = copy.deepcopy(model).double(), Recorder()

                def called(run, way, x, upstream, around=not has_sections):
                    with torch.autocast("cpu", torch.bfloat16, enabled=around and way is not exact):
                        made = run(x)
                    return made, torch.autograd.grad(made, [*way.parameters()], upstream.to(made))

                def within(x, model=model):
                    with torch.autocast("cpu", torch.bfloat16):
                        return model(x)

                torch._dynamo.reset()
                run = within if has_sections else model
                compiled = torch.compile(run, backend=recorder)
                for _ in range(5):  # some inputs amplify all roundings
                    x, upstream = torch.randn(2, 2, 8, WIDTH)
                    (found, gradients), (eager, of_eager), (truth, of_truth) = (
                        called(compiled, model, x, upstream), called(run, model, x, upstream),
                        called(exact, exact, x.double(), upstream))
                    self.assertEqual(found.dtype, eager.dtype)
                    self.assertLess((found - truth).norm() / truth.norm(), 4e-3)
                    errors.append([error(gradients, of_truth), error(of_eager, of_truth)])
                ours, eagers = torch.tensor(errors).median(0).values
                self.assertLess(ours, 1.2 * eagers)
                self.assertEqual([layer.reason for layer in recorder.reports[0].layers], [""] * 4)

    def test_data_in_fp32_is_not_rounded_under_autocast(self):
        """Only the residual stream is: values that need a gradient."""
        class Fitted(nn.Module):
            def __init__(self, begin, end=lambda y, x: y):
                super().__init__()
                self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
                self.begin, self.end = begin, end

            def forward(self, x):
                y = self.down(functional.gelu(self.up(self.begin(x))))
                return self.end(y.float(), x).square().mean()

        for name, model in {
                "standardised": Fitted(lambda x: (x - 1000) / 2),
                "normed": Fitted(lambda x: functional.layer_norm(x, (WIDTH,))),
                "a target": Fitted(lambda x: x - 1000, lambda y, x: y + 1000 - x)}.items():
            with self.subTest(name):
                torch._dynamo.reset()
                x = 1000 + torch.randn(16, WIDTH)
                exact, recorder = copy.deepcopy(model).double(), Recorder()
                outcomes = []
                for run, way, given in ((torch.compile(model, backend=recorder), model, x),
                                        (model, model, x), (exact, exact, x.double())):
                    with torch.autocast("cpu", torch.bfloat16, enabled=way is model):
                        loss, gradients = outcome(run, way, given)
                    outcomes.append((loss, *gradients))
                found, eager, truth = outcomes
                self.assertLess(error(found, truth), 1.5 * error(eager, truth) + 1e-2)
                self.assertEqual(len(recorder.reports[0].fused), 1)

    def test_written_out_results_have_the_types_that_autocast_gives(self):
        """Also of operations composed of others, which differ between CPUs and GPUs."""
        def of(device):
            def made(*sizes, dtype=torch.float32):
                return torch.empty(*sizes, dtype=dtype, device=device)

            low = torch.bfloat16
            classes = torch.zeros(4, dtype=torch.int64, device=device)
            logits, row = made(4, 10, dtype=low), made(4, 8, dtype=low)
            image, wave = made(2, 8, 9, 9), made(2, 8, 9, dtype=low)
            return {
                functional.cross_entropy: (logits, classes), functional.nll_loss: (logits, classes),
                lambda x, y: functional.cross_entropy(x, y, label_smoothing=0.1): (logits, classes),
                lambda x, w: functional.conv2d(x, w, padding="valid"): (image, made(4, 8, 2, 2)),
                lambda x, w: functional.conv1d(x, w, padding="same"): (wave, made(4, 8, 3)),
                lambda x, w: torch.einsum("ab,cb->ac", x, w): (row, made(4, 8)),
                lambda x, w: torch.einsum("abc,dc->abd", x, w): (made(2, 3, 8), made(4, 8)),
                lambda x, w: torch.tensordot(x, w, 1): (made(2, 8), made(8, 4)),
                lambda x, y: torch.linalg.multi_dot([x, y, x]): (made(8, 8), made(8, 8)),
                functional.pairwise_distance: (row, row), functional.cosine_similarity: (row, row),
                torch.kron: (row, made(2, 2)), torch.inner: (made(4, 8), made(4, 8)),
                lambda x, w: functional.layer_norm(x, (8,), w): (row, made(8)),
                lambda x, w: functional.rms_norm(x, (8,), w): (row, made(8)),
                lambda x, w: functional.batch_norm(x, None, None, w, None, True): (row, made(8)),
                lambda x, w: functional.instance_norm(x, None, None, w): (wave, made(8)),
                functional.scaled_dot_product_attention: (made(1, 2, 4, 8),) * 3,
                functional.triplet_margin_loss: (row, row, row),
            }

        for device in ("cpu", "cuda"):
            with FakeTensorMode():
                for function, given in of(device).items():
                    with self.subTest(device=device, function=function):
                        torch.set_autocast_enabled(device, True)
                        torch.set_autocast_dtype(device, torch.bfloat16)
                        try:
                            expected = function(*given)
                            traced = make_fx(lambda *tensors, function=function:
                                             function(*tensors), pre_dispatch=True)(*given)
                            autocast.write_out(traced.graph, given)
                        finally:
                            torch.set_autocast_enabled(device, False)
                        traced.recompile()
                        self.assertEqual(traced(*given).dtype, expected.dtype)


if __name__ == "__main__":
    unittest.main()
