# SPDX-License-Identifier: Apache-2.0
"""torch.compile(model, backend="coda"): what is fused of unmodified models, that losses and
gradients stay right, and that what is not understood stays PyTorch's."""

import copy
import unittest

import torch
import torch._dynamo
from torch import nn
from torch.nn import functional
from torch.testing._internal.two_tensor import TwoTensor

import coda_cpp
from compiled import Recorder, error, gpt2, ids, llama, outcome

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(32)
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x):
        return (x + self.down(functional.gelu(self.up(self.norm(x))))).square().mean()


class Turned(nn.Module):
    """Weights that are given as [in, out]."""

    def __init__(self):
        super().__init__()
        self.up, self.down = (nn.Parameter(torch.randn(*shape) / 6)
                              for shape in ((32, 48), (48, 8)))

    def forward(self, x):
        return functional.silu(x @ self.up) @ self.down


class CompiledModels(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        torch.manual_seed(0)

    def test_llama_as_it_is(self):
        model = llama()
        names = list(model.state_dict())
        ids = torch.randint(0, 128, (2, 16))
        recorder = Recorder(strict=True)
        compiled = torch.compile(model, backend=recorder, fullgraph=True)
        loss, gradients = outcome(compiled, model, input_ids=ids, labels=ids)
        expected, wanted = outcome(model, model, input_ids=ids, labels=ids)
        torch.testing.assert_close(loss, expected)
        self.assertLess(error(gradients, wanted), 1e-5)
        # Before the first attention, between the two, and behind the last with head and loss.
        regions = recorder.reports[0].regions
        self.assertEqual(len(regions), 3)
        self.assertIn("cross_entropy_loss", regions[2])
        left = "\n".join(recorder.reports[0].left)
        self.assertIn("2 x scaled_dot_product_attention", left)
        self.assertNotIn("linear", left)
        self.assertEqual(list(model.state_dict()), names)

    def test_what_one_product_makes_for_attention_is_stored_whole(self):
        model, tokens = gpt2(), ids()
        recorder = Recorder(strict=True)
        outcome_of = [outcome(run, model, input_ids=tokens, labels=tokens) for run in
                      (torch.compile(model, backend=recorder, fullgraph=True), model)]
        torch.testing.assert_close(outcome_of[0][0], outcome_of[1][0])
        self.assertLess(error(outcome_of[0][1], outcome_of[1][1]), 1e-5)
        for entry in recorder.reports[0].fused:  # no program adds the bias to each of three parts
            self.assertNotIn(".columns", "".join(entry.plan.programs))

    def test_speed_keeps_more_for_the_backward(self):
        model, tokens, kept = llama(), ids(), {}
        for objective in ("memory", "speed"):
            torch._dynamo.reset()
            recorder = Recorder(strict=True, objective=objective)
            compiled = torch.compile(model, backend=recorder, fullgraph=True)
            loss, gradients = outcome(compiled, model, input_ids=tokens, labels=tokens)
            expected, wanted = outcome(model, model, input_ids=tokens, labels=tokens)
            torch.testing.assert_close(loss, expected)
            self.assertLess(error(gradients, wanted), 1e-5)
            kept[objective] = sum(entry.plan.saved_bytes(
                entry.region.function.function.nominal_sizes())
                for entry in recorder.reports[0].fused)
        self.assertGreater(kept["speed"], kept["memory"])

    def test_autocast_is_as_near_as_bf16(self):
        torch.manual_seed(1)
        model = llama()
        recorder = Recorder(strict=True)
        compiled = torch.compile(model, backend=recorder, fullgraph=True)
        ours, eager = 0.0, 0.0
        for seed in range(4):
            torch.manual_seed(seed)
            ids = torch.randint(0, 128, (2, 32))
            with torch.autocast("cpu", torch.bfloat16):
                low = outcome(compiled, model, input_ids=ids, labels=ids)[1]
            exact = copy.deepcopy(model).double()
            expected = outcome(exact, exact, input_ids=ids, labels=ids)[1]
            plain = copy.deepcopy(model).bfloat16()
            rounded = outcome(plain, plain, input_ids=ids, labels=ids)[1]
            ours += error(low, expected) ** 2
            eager += error(rounded, expected) ** 2
        self.assertEqual(len(recorder.reports[0].regions), 3)
        self.assertTrue(all(gradient.dtype == torch.float32 for gradient in low))
        self.assertLessEqual(ours, eager)

    def test_gradients_of_weights_that_autocast_rounds_stay_in_fp32(self):
        block, x = Block(), torch.randn(3, 40, 32)
        frozen = copy.deepcopy(block)
        frozen.up.weight.requires_grad_(False)
        twice = nn.Linear(32, 32)
        for model in (block, frozen, nn.Sequential(twice, nn.SiLU(), twice), Turned()):
            torch._dynamo.reset()
            compiled = torch.compile(model, backend=Recorder(strict=True), fullgraph=True)
            with torch.autocast("cpu", torch.bfloat16):
                low = outcome(lambda x: compiled(x).float().square().mean(), model, x)[1]
            exact = copy.deepcopy(model).double()
            expected = outcome(lambda x: exact(x).square().mean(), exact, x.double())[1]
            self.assertLess(error(low, expected), 2e-2)
            for gradient in low:
                self.assertEqual(gradient.dtype, torch.float32)
                self.assertFalse(torch.equal(gradient, gradient.bfloat16().float()))

    def test_any_number_of_tokens(self):
        model = Block()
        recorder = Recorder(strict=True)
        compiled = torch.compile(model, backend=recorder, fullgraph=True, dynamic=True)
        for shape in ((2, 5, 32), (3, 7, 32), (4, 90, 32)):
            x = torch.randn(shape)
            loss, gradients = outcome(compiled, model, x)
            expected, wanted = outcome(model, model, x)
            torch.testing.assert_close(loss, expected)
            self.assertLess(error(gradients, wanted), 1e-5)
            if x.shape[0] == 2:
                graphs = len(recorder.reports)
        self.assertEqual(len(recorder.reports), graphs)

    def test_a_language_model_of_any_sizes(self):
        model = llama(num_hidden_layers=1)
        recorder = Recorder(strict=True)
        compiled = torch.compile(model, backend=recorder, fullgraph=True, dynamic=True)
        for shape in ((2, 32), (3, 17), (4, 50)):
            batch = torch.randint(0, 128, shape)
            loss, gradients = outcome(compiled, model, input_ids=batch, labels=batch)
            expected, wanted = outcome(model, model, input_ids=batch, labels=batch)
            torch.testing.assert_close(loss, expected)
            self.assertLess(error(gradients, wanted), 1e-5)
            if shape[0] == 2:
                graphs = len(recorder.reports)
        self.assertEqual(len(recorder.reports), graphs)
        self.assertEqual((len(recorder.reports[-1].fused), recorder.reports[-1].causal), (2, 1))
        self.assertNotIn("2 x expand", recorder.reports[-1].left)  # of keys and values

    def test_frozen_weights_and_inference(self):
        model = Block()
        model.up.requires_grad_(False)
        recorder = Recorder(strict=True)
        compiled = torch.compile(model, backend=recorder, fullgraph=True)
        x = torch.randn(2, 8, 32)
        loss, gradients = outcome(compiled, model, x)
        expected, wanted = outcome(model, model, x)
        self.assertEqual(len(gradients), 3)
        self.assertLess(error(gradients, wanted), 1e-5)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), expected)
        training, inference = (report.fused[0].region for report in recorder.reports)
        self.assertNotEqual(training.needs, 0)
        self.assertEqual(inference.needs, 0)
        torch.testing.assert_close(loss, expected)

    def test_results_need_a_gradient_where_eagers_do(self):
        def function(x, frozen, trained):
            y = functional.silu(functional.linear(x, frozen))
            z = functional.silu(functional.linear(y, trained))
            return y, z, (z > 0) * y

        x, frozen = torch.randn(5, 32), torch.randn(32, 32)
        trained = torch.randn(32, 32, requires_grad=True)
        recorder = Recorder(strict=True)
        found = torch.compile(function, backend=recorder)(x, frozen, trained)
        self.assertEqual(len(recorder.reports[0].fused), 1)
        self.assertEqual([t.requires_grad for t in found], [False, True, False])

    def test_results_have_eagers_strides(self):
        """Here the region keeps the order of rows from before the transpose."""
        class Turned(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm, self.up = nn.LayerNorm(16), nn.Linear(16, 32)

            def forward(self, x):
                return self.up(self.norm(x).transpose(0, 1))

        model, recorder = Turned(), Recorder(strict=True)
        compiled = torch.compile(model, backend=recorder)
        for tokens in (3, 4, 5):
            x = torch.randn(2, tokens, 16)
            found, expected = compiled(x), model(x)
            self.assertEqual(found.stride(), expected.stride())
            torch.testing.assert_close(found, expected)
        self.assertEqual(len(recorder.reports), 2)

    def test_what_is_not_understood_stays_pytorchs(self):
        def in_place(x, w):
            y = functional.linear(x, w)
            y[0] = 1
            return functional.silu(y).sum()

        def stops_gradients(x, w):
            y = functional.linear(x, w)
            with torch.no_grad():
                scale = functional.silu(y)
            return (functional.silu(y) * scale).sum()

        def of_several_types(x, w):
            y = functional.silu(functional.linear(x, w))
            return functional.linear(y.bfloat16(), w[:, :12].bfloat16()).float().sum()

        for function in (in_place, stops_gradients, of_several_types):
            with self.subTest(function.__name__):
                torch._dynamo.reset()
                recorder = Recorder()
                x, w = torch.randn(4, 24, requires_grad=True), torch.randn(12, 24)
                compiled = torch.compile(function, backend=recorder)
                made, expected = compiled(x, w), function(x, w)
                torch.testing.assert_close(made, expected, rtol=1e-2, atol=1e-2)
                for a, e in zip(torch.autograd.grad(made, x), torch.autograd.grad(expected, x)):
                    torch.testing.assert_close(a, e, rtol=2e-2, atol=2e-2)
        torch._dynamo.reset()
        strict = torch.compile(in_place, backend=Recorder(strict=True))
        with self.assertRaisesRegex(Exception, "linear layers are left to PyTorch.*select_scatter"):
            strict(torch.randn(4, 24), torch.randn(12, 24))

    def test_graphs_of_nested_tensors_are_left(self):
        model, recorder = nn.Sequential(nn.Linear(32, 8), nn.SiLU()), Recorder()
        x = torch.nested.nested_tensor(
            [torch.randn(3, 32), torch.randn(5, 32)], layout=torch.jagged)
        found, expected = (
            run(x).values() for run in (torch.compile(model, backend=recorder), model))
        torch.testing.assert_close(found, expected)
        self.assertEqual([layer.reason for layer in recorder.reports[0].layers],
                         ["an input of the graph is a nested tensor"])

    def test_operands_of_another_class_are_left(self):
        """As all of a DTensor model are."""
        model, recorder = nn.Sequential(nn.Linear(32, 8), nn.SiLU()), Recorder()
        for name, parameter in list(model[0].named_parameters()):
            setattr(model[0], name, nn.Parameter(TwoTensor(parameter.data, parameter.data * 2)))
        x = TwoTensor(torch.randn(4, 32), torch.randn(4, 32))
        found, expected = (run(x) for run in (torch.compile(model, backend=recorder), model))
        torch.testing.assert_close((found.a, found.b), (expected.a, expected.b))
        self.assertEqual([layer.reason for layer in recorder.reports[0].layers],
                         ["in a region of linear, silu: its operands are of TwoTensor"])

    def test_numbers_of_rows_that_depend_on_values(self):
        class Experts(nn.Module):
            def __init__(self):
                super().__init__()
                self.router = nn.Linear(32, 3)
                self.experts = nn.ModuleList(
                    nn.Sequential(nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 32))
                    for _ in range(3))

            def forward(self, x):
                weight, chosen = self.router(x).softmax(-1).topk(1)
                y = torch.zeros_like(x)
                for i, expert in enumerate(self.experts):
                    rows, _ = torch.where(chosen == i)
                    y = y.index_add(0, rows, expert(x[rows]) * weight[rows])
                return y.square().mean()

        model, recorder = Experts(), Recorder()
        with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
            called = torch.compile(model, backend=recorder, fullgraph=True)
            for rows in (1, 20):  # of one row two experts get none
                x = torch.randn(rows, 32)
                (loss, found), (expected, wanted) = (
                    outcome(run, model, x) for run in (called, model))
                torch.testing.assert_close(loss, expected)
                for a, e in zip(found, wanted, strict=True):
                    torch.testing.assert_close(a, e)
        self.assertEqual(sum(layer.is_fused for layer in recorder.reports[-1].layers), 6)

    def test_options_that_are_none_are_refused_with_those_there_are(self):
        for options, message in (
                ({"fast": True}, "no option fast; there are 'inner'"),
                ({"objective": "size"}, "'objective' is 'size'; it may be 'memory', 'speed'"),
                ({"strict": "yes"}, "'strict' is 'yes'; it may be False, True"),
                ({"cost_model": 2}, "'cost_model' is 2; it may be False, True"),
                ({"products": "int4"}, "'products' is 'int4'; it may be '', 'fp8'"),
                ({"mode": "fast"}, "'mode' is 'fast'; it may be 'default', "),
                ({"mode": "max-autotune", "inner": "eager"}, "only the inner backend 'inductor'")):
            with self.assertRaisesRegex(coda_cpp.Error, message):
                torch.compile(nn.Linear(3, 3), backend="coda", options=options)
        with self.assertRaisesRegex(coda_cpp.Error, "'mode' is 'fast'"):
            torch.compile(nn.Linear(3, 3), backend="coda", mode="fast")

    def test_targets_out_of_range(self):
        model = llama(num_hidden_layers=1)
        batch = torch.randint(0, 128, (2, 16))
        compiled = torch.compile(model, backend=Recorder(strict=True), fullgraph=True)
        ignored = batch.clone()
        ignored[0, 3] = -100
        for labels in (batch, ignored):
            torch.testing.assert_close(compiled(input_ids=batch, labels=labels).loss,
                                       model(input_ids=batch, labels=labels).loss)
        for wrong in (128, -1, 2**33):
            labels = batch.clone()
            labels[1, 5] = wrong
            with self.assertRaisesRegex(Exception, "a target lies outside of"):
                compiled(input_ids=batch, labels=labels)

    def test_channels_of_images_of_one_pixel_are_columns(self):
        """[batch, channels, 1, 1] may be rows of one column, until a linear layer reads it."""
        class Net(nn.Module):
            def __init__(self, behind):
                super().__init__()
                self.mix, self.out = nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8, 4)
                self.behind = behind

            def forward(self, x):
                return self.out(self.behind(self.mix(x))).relu()

        x = torch.randn(3, 8, 1, 1)
        for behind in (lambda y: y.flatten(2).mT.relu(), lambda y: y.relu().flatten(2).mT,
                       lambda y: y.relu().permute(0, 2, 3, 1), lambda y: y.relu().flatten(1)):
            torch._dynamo.reset()
            recorder, model = Recorder(strict=True), Net(behind)
            torch.testing.assert_close(torch.compile(model, backend=recorder)(x), model(x))
            self.assertEqual([layer.is_fused for layer in recorder.reports[0].layers], [True])

    def test_no_rows(self):
        model = Block()
        compiled = torch.compile(model, backend=Recorder(), fullgraph=True)
        loss, gradients = outcome(compiled, model, torch.randn(2, 0, 32))
        self.assertTrue(bool(loss.isnan()))  # the mean of nothing
        for gradient, expected in zip(gradients, outcome(model, model, torch.randn(2, 0, 32))[1]):
            torch.testing.assert_close(gradient, expected, equal_nan=True)

    def test_what_is_not_finite_is_so_where_eager_has_it(self):
        model = Block()
        compiled = torch.compile(model, backend=Recorder(strict=True), fullgraph=True)

        def results(called, x):
            given = x.clone().requires_grad_()
            loss = called(given)
            return [loss, *torch.autograd.grad(loss, [given, *model.parameters()])]

        # A row whose squares are beyond fp32's range is not: its rstd is 0, by which the backward
        # divides (docs/pytorch.md).
        for value in (float("inf"), float("-inf"), float("nan"), 1e18):
            x = torch.randn(5, 32)
            x[2, 3] = value
            for found, expected in zip(results(compiled, x), results(model, x)):
                with self.subTest(value, shape=expected.shape):
                    self.assertTrue(torch.equal(found.isfinite(), expected.isfinite()))

    def test_a_change_before_the_backward_is_noticed(self):
        model = Block()
        compiled = torch.compile(model, backend=Recorder(strict=True), fullgraph=True)
        for changed in (model.up.weight, model.norm.weight):
            loss = compiled(torch.randn(3, 32))
            with torch.no_grad():
                changed.add_(1)
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                loss.backward()

    def test_by_name_and_explained(self):
        model, x = Block(), torch.randn(3, 32)
        compiled = torch.compile(model, backend="coda", options={"inner": "aot_eager"})
        torch.testing.assert_close(compiled(x), model(x))
        text = coda_cpp.explain(model, x, with_plans=True, options={"cost_model": False})
        self.assertIn("rms_norm, linear, gelu, linear, add", text)
        self.assertIn("gemm(", text)
        self.assertIn("left to PyTorch", text)


if __name__ == "__main__":
    unittest.main()
