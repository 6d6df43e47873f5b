# SPDX-License-Identifier: Apache-2.0
"""Models that write in place, stop gradients, or call functions of their own in the midst of what
can be fused: the rest is fused, and outputs, gradients and what was written are eager's."""

import copy
import operator
import unittest
import unittest.mock

import torch
import torch._dynamo
from torch import nn
from torch.nn import functional

from coda_cpp.torch_backend import coda, higher_order, replace
from compiled import Recorder, Reversed, error, llama, ids

WIDTH = 32


class Around(nn.Module):
    """A layer, what is given, and a layer."""

    def __init__(self, between):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.third, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.scale = nn.Parameter(torch.rand(WIDTH) + 0.5)
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(WIDTH))
        self._between = between

    def forward(self, x):
        x = self.second(functional.gelu(self.first(self.norm(x))))
        x = self._between(self, x)
        return self.last(functional.silu(self.third(x)))


class Doubled(torch.autograd.Function):
    """Its gradient is none that could be derived."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        x, = ctx.saved_tensors
        return gradient * x.sign()


def relu_(model, x):
    return functional.relu(x, inplace=True)


def relu_whose_operand_is_read(model, x):
    functional.relu_(x)
    return x + 1


def through_a_view(model, x):
    x[..., :8].mul_(model.scale[:8])
    return x


def through_views_of_views(model, x):
    heads = x.view(*x.shape[:-1], 4, 8).transpose(1, 2)
    heads[:, 1:3].select(1, 0).add_(1).sub_(heads[:, 0])
    return x


def through_a_part(model, x):
    a, b = x.clone().chunk(2, -1)
    y = torch.zeros_like(x)
    y[..., :16] = a
    y[..., 16:] += b * 2
    return y


def a_view_is_read_after_its_tensor_is_written(model, x):
    before = x.transpose(0, 1)
    x *= 2
    return before.transpose(0, 1) + x


def a_fresh_mask(model, x):
    mask = torch.zeros(x.shape[-1], dtype=x.dtype)
    mask[:8] = 1
    return x * mask


def a_filled_mask(model, x):
    mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril_()
    weights = torch.zeros(x.shape[1], x.shape[1], dtype=x.dtype).masked_fill_(~mask, -1e4)
    return weights.softmax(-1) @ x


def other_writes(model, x):
    x = (x * 1).clamp_(min=-1).exp_() - 0.5
    x = x.clone().sub_(0.5, alpha=2)
    x[0, 1:3] = x[1, :2]
    x[:, 0].zero_()
    x[:, 1].fill_(0.25)
    x.index_add_(1, torch.tensor([1, 2]), x[:, 3:5].clone())
    return x.masked_fill_(x > 2, 2.0)


def powers(model, x):
    """Of which the overload that is not in place has another name; as VICReg's loss writes them."""
    y = (x * x + 1).pow_(2).pow_(torch.tensor(0.5))
    rows = y.flatten(1)[:, :-1]
    counts = torch.arange(x.shape[1]).floor_divide_(torch.tensor(2))
    return y + rows.view(len(x), -1, 1)[:, 1:].flatten().pow_(2).mean() + counts[:, None]


def a_copy_is_no_other_name(model, x):
    y = torch.empty_like(x)
    y.copy_(x)
    y.add_(1)
    return x * y


def a_count(model, x):
    model.count += 1
    return x


def a_running_mean(model, x):
    with torch.no_grad():
        model.mean.lerp_(x.mean((0, 1)), 0.1)
    return x - model.mean.to(x.dtype)


def a_mean_is_read_before_and_after(model, x):
    y = x + model.mean.to(x.dtype)
    model.mean.add_(1)
    z = y * (model.mean.to(x.dtype) + 1)
    model.mean.mul_(2)
    return z + model.mean.to(x.dtype)


def a_statistic(model, x):
    with torch.no_grad():
        scale = x.abs().amax()
    return x / (scale + 1)


def a_weight_is_clamped(model, x):
    with torch.no_grad():
        model.scale.clamp_(max=1.0)
    return x * model.scale


def written_behind_autograds_back(model, x):
    """The values change, the gradient does not: no value has both."""
    y = x * 2
    y.detach()[..., 0].add_(1)
    return y + 1


def written_without_gradients(model, x):
    y = x * 2
    with torch.no_grad():
        y.clamp_(min=0)
    return y + 1


def a_function(model, x):
    return Doubled.apply(x)


def a_function_whose_result_is_its_operand(model, x):
    y = Reversed.apply(x)
    return y + x


def a_function_without_gradients(model, x):
    with torch.no_grad():
        y = Doubled.apply(x)
    return x + y


def mapped(model, x):
    return torch.func.vmap(lambda row: row * row.sum(-1, keepdim=True))(x)


def a_jacobian(model, x):
    """Its section of vmap reads tensors of the one of grad in front of it."""
    return x + torch.func.jacrev(lambda y: (y * y).sum((0, 1)))(x).sum(0)


def a_condition(model, x):
    return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))


def data_is_read(model, x):
    return x * model.scale.data + model.scale


def data_of_a_buffer_is_written(model, x):
    model.mean.data.mul_(0.9).add_(x.data.mean((0, 1)), alpha=0.1)
    return x - model.mean.to(x.dtype)


FUSED = [data_is_read, data_of_a_buffer_is_written, relu_, relu_whose_operand_is_read,
         through_a_view, through_views_of_views, through_a_part,
         a_view_is_read_after_its_tensor_is_written, a_fresh_mask, a_filled_mask, other_writes,
         powers, a_copy_is_no_other_name, a_count, a_running_mean, a_mean_is_read_before_and_after,
         a_statistic, a_weight_is_clamped, a_function, a_function_without_gradients, mapped,
         a_jacobian, a_condition]
FUSED_BEHIND = [written_behind_autograds_back, written_without_gradients,
                a_function_whose_result_is_its_operand]


def normed(model, x):
    return model.batch_norm(x.flatten(0, 1)).view(x.shape)


class Written(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        torch.manual_seed(0)

    def _check(self, model, dtype=torch.float32, given=None, fused=4):
        model = model.to(dtype)
        x = torch.randn(3, 6, WIDTH, dtype=dtype) if given is None else given
        ways, recorder = [], Recorder()
        exact = copy.deepcopy(model).double()
        for way in (model, copy.deepcopy(model), exact):
            torch.manual_seed(1)
            run = torch.compile(way, backend=recorder) if way is model else way
            inputs = x.double() if way is exact else x
            inputs = inputs.clone().requires_grad_()
            for _ in range(2):  # what was written is read
                way.zero_grad()
                inputs.grad = None
                y = run(inputs)
                upstream = torch.linspace(-1, 1, y.numel()).view(y.shape)
                (y.double() * upstream).sum().backward()
            ways.append([y.detach(), inputs.grad,
                         *(p.grad for p in way.parameters() if p.grad is not None),
                         *(b.double() for b in way.buffers() if b.double().norm() > 0)])
        found, eager, truth = ways
        self.assertEqual(len(found), len(eager))
        self.assertLess(error(found, truth), 1.5 * error(eager, truth) + 2e-5)
        layers = [layer for report in recorder.reports[:1] for layer in report.layers]
        self.assertEqual(sum(layer.is_fused for layer in layers), fused,
                         [layer.reason for layer in layers])

    def test_the_rest_is_fused_and_all_is_right(self):
        for between in FUSED:
            for dtype in (torch.float32, torch.bfloat16):
                if between is other_writes and dtype == torch.bfloat16:
                    continue  # comparisons of rounded numbers
                with self.subTest(between.__name__, dtype=dtype):
                    torch._dynamo.reset()
                    self._check(Around(between), dtype)

    def test_what_cannot_be_a_value_stays_and_ends_a_region(self):
        for between in FUSED_BEHIND:
            with self.subTest(between.__name__):
                torch._dynamo.reset()
                self._check(Around(between))

    def test_data_of_a_weight_is_written(self):
        def between(model, x):
            y = x * model.scale.data
            model.scale.data.mul_(0.5)
            return y + model.scale

        recorder, model = Recorder(), Around(between)
        x, made = torch.randn(3, 6, WIDTH), []
        for way in (copy.deepcopy(model), model):
            run = torch.compile(way, backend=recorder) if way is model else way
            y = run(x)
            y.square().sum().backward()
            made.append([y.detach(), way.scale.detach(), *(p.grad for p in way.parameters())])
        torch.testing.assert_close(*made)
        self.assertEqual({layer.reason for layer in recorder.reports[0].layers}, {
            "a tensor that needs a gradient is written through Tensor.data"})

    def test_an_optimizers_step(self):
        """Its graph contains parameters and the optimizer's state, which no compilation writes."""
        makers = {"SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
                  "AdamW": lambda p: torch.optim.AdamW(p, lr=0.1)}
        gradients = [[torch.randn(5), torch.randn(3, 4)] for _ in range(3)]
        for name, make in makers.items():
            with self.subTest(name):
                torch._dynamo.reset()
                start, made = [torch.randn(5), torch.randn(3, 4)], []
                for is_compiled in (True, False):
                    trained = [nn.Parameter(p.clone()) for p in start]
                    optimizer = make(trained)
                    step = torch.compile(
                        optimizer.step, backend=Recorder()) if is_compiled else optimizer.step
                    for step_gradients in gradients:
                        for p, gradient in zip(trained, step_gradients):
                            p.grad = gradient.clone()
                        step()
                    made.append([p.detach() for p in trained] + [
                        state for of in optimizer.state.values() for state in of.values()])
                torch.testing.assert_close(*made)

    def test_gradients_that_are_asked_for_within_none(self):
        def function(x, w):
            y = functional.silu(functional.linear(x, w))
            with torch.enable_grad():
                z = functional.silu(functional.linear(x, w))
            return y, z, y * z

        x, w = torch.randn(4, WIDTH), torch.randn(WIDTH, WIDTH, requires_grad=True)
        with torch.no_grad():
            found, expected = torch.compile(function, backend=Recorder())(x, w), function(x, w)
        self.assertEqual([t.requires_grad for t in expected], [False, True, False])
        self.assertEqual([t.requires_grad for t in found], [False, True, False])
        gradients = [torch.autograd.grad(made[1].sum(), w)[0] for made in (found, expected)]
        torch.testing.assert_close(*gradients)

    def test_a_buffer_is_read_as_it_is_under_autocast(self):
        """Also behind a write, and in a section of another device's autocast."""
        def function(x, w, scale):
            scale.copy_(x.detach().float().mean(0))
            with torch.autocast("cpu", torch.bfloat16):
                y = functional.silu(functional.linear(x, w)) + functional.linear(scale, w)
                scale.as_strided((WIDTH,), (1,)).mul_(3)
                with torch.autocast("cuda", torch.float16):
                    z = functional.linear(scale, w)
                return functional.silu(functional.linear(y + z, w)), z

        x, w = torch.randn(6, WIDTH), torch.randn(WIDTH, WIDTH) / 6
        recorder, made = Recorder(), []
        for run in (torch.compile(function, backend=recorder), function):
            given = [x.clone().requires_grad_(), w.clone().requires_grad_(), torch.zeros(WIDTH)]
            y, z = run(*given)
            gradients = torch.autograd.grad(y.float().square().sum(), given[:2])
            made.append([y.detach(), z.detach(), given[2], *gradients])
        for found, expected in zip(*made):
            self.assertEqual(found.dtype, expected.dtype)
            self.assertLess(float((found - expected).norm() / expected.norm()), 2e-2)
        self.assertEqual({fused.region.storage for fused in recorder.reports[0].fused},
                         {torch.bfloat16})

    def test_statistics_of_batches(self):
        model = Around(lambda model, x: normed(model, normed(model, x) + x))
        model.batch_norm = nn.BatchNorm1d(WIDTH)
        self._check(model)
        torch._dynamo.reset()
        self._check(model.eval())

    def test_what_is_given_is_written(self):
        def writes(x, w):
            y = functional.silu(functional.linear(x, w))
            view = x.view(-1, WIDTH)
            x[0].add_(1)
            z = functional.gelu(functional.linear(x, w))
            x.mul_(2)
            return y + z, view, x

        w = torch.randn(WIDTH, WIDTH) / 6
        x = torch.randn(3, 6, WIDTH)
        recorder = Recorder()
        given = [x.clone(), x.clone()]
        found = torch.compile(writes, backend=recorder)(given[0], w)
        expected = writes(given[1], w)
        for a, b in zip((*found, given[0]), (*expected, given[1])):
            torch.testing.assert_close(a, b)
        self.assertEqual(len(recorder.reports[0].fused), 1)
        for made in found[1:]:
            self.assertEqual(made.untyped_storage().data_ptr(),
                             given[0].untyped_storage().data_ptr())

    def test_results_share_memory_as_eagers_do(self):
        for name, view in (("columns", lambda y: y[..., 3:9]),
                           ("half", lambda y: y.chunk(2, -1)[1]),
                           ("rows", lambda y: y.transpose(0, 1)), ("all", torch.detach)):
            def shares(x, w, view=view):
                y = functional.silu(functional.linear(x, w))
                part = view(y)
                return y, part, functional.silu(part) + 1, x.view(-1)

            with self.subTest(name):
                torch._dynamo.reset()
                x, w = torch.randn(3, 6, WIDTH), torch.randn(WIDTH, WIDTH)
                recorder = Recorder()
                y, part, _, given = torch.compile(shares, backend=recorder)(x, w)
                self.assertEqual(len(recorder.reports[0].fused), 1)
                y.zero_()
                self.assertEqual(float(part.abs().sum()), 0)
                x.zero_()
                self.assertEqual(float(given.abs().sum()), 0)

    def test_a_written_input_has_its_gradient(self):
        def writes(x, w):
            h = x * 1  # no leaf
            part = h[:, :3]
            part.mul_(functional.silu(functional.linear(part, w)))
            return functional.linear(h, w).square().mean()

        w = torch.randn(WIDTH, WIDTH, requires_grad=True)
        x = torch.randn(3, 6, WIDTH, requires_grad=True)
        recorder = Recorder()
        found = torch.autograd.grad(torch.compile(writes, backend=recorder)(x, w), (x, w))
        expected = torch.autograd.grad(writes(x, w), (x, w))
        self.assertLess(error(found, expected), 1e-5)
        self.assertTrue(all(layer.is_fused for layer in recorder.reports[0].layers))

    def test_lengths_that_vary(self):
        model = Around(through_a_view)
        called = torch.compile(model, backend=Recorder(strict=True), dynamic=True)
        for rows in (5, 7, 9):
            x = torch.randn(2, rows, WIDTH)
            torch.testing.assert_close(called(x), model(x), rtol=1e-4, atol=1e-5)

    def test_hugging_faces_cache(self):
        model = llama(use_cache=True).train()
        batch = ids()
        recorder = Recorder(strict=True)
        called = torch.compile(model, backend=recorder)
        outcomes = []
        for run in (called, model):
            model.zero_grad()
            made = run(input_ids=batch, labels=batch)
            made.loss.backward()
            outcomes.append([made.loss.detach(), made.past_key_values.layers[1].keys.detach(),
                             *(p.grad.clone() for p in model.parameters())])
        self.assertLess(error(*outcomes), 2e-5)
        self.assertTrue(all(layer.is_fused for layer in recorder.reports[0].layers))


class Calls(unittest.TestCase):
    """Which calls of Dynamo's graphs may write into what they are given."""

    def test_by_their_names_and_arguments(self):
        x = torch.ones(3)
        writes = [(torch.Tensor.add_, (x, 1), {}), ("mul_", (x, 2), {}),
                  (operator.iadd, (x, 1), {}),
                  (operator.setitem, (x, 0, 1), {}),
                  (torch.add, (x, x), {"out": x}), (functional.relu, (x,), {"inplace": True}),
                  (functional.dropout, (x, 0.5, True, True), {}), (functional.relu_, (x,), {}),
                  (functional.batch_norm, (x, x, x), {}), (torch.ops.aten.add_.Tensor, (x, x), {})]
        reads = [(torch.add, (x, x), {}), ("add", (x, x), {}), (operator.add, (x, x), {}),
                 (functional.relu, (x,), {"inplace": False}),
                 (functional.dropout, (x, 0.5, True, False), {}), ("__add__", (x, x), {}),
                 (operator.getitem, (x, 0), {}), (torch.ops.aten.add.Tensor, (x, x), {}),
                 (torch.isnan, (x,), {}), (torch.inner, (x, x), {}),
                 (torch.ops.aten.index, (x, [x]), {})]
        for calls, expected in ((writes, True), (reads, False)):
            for target, arguments, named in calls:
                graph = torch.fx.Graph()
                given, told = torch.utils._pytree.tree_map(
                    lambda a: graph.placeholder("x") if a is x else a, (arguments, named))
                node = graph.create_node("call_method" if isinstance(target, str)
                                         else "call_function", target, given, told)
                with self.subTest(str(target), named=list(named)):
                    self.assertEqual(higher_order.node_may_write(node), expected)

    def test_of_pythons_operators_those_that_change_a_tensor(self):
        tried = []
        for name, function in vars(operator).items():
            x, y, graph = torch.tensor([6, 5]), torch.tensor([3, 1]), torch.fx.Graph()
            if name.startswith("_") or not callable(function):
                continue
            try:
                function(x, y)
            except Exception:  # noqa: BLE001 (another number of operands, or not for tensors)
                continue
            node = graph.call_function(function, (graph.placeholder("x"), graph.placeholder("y")))
            with self.subTest(name):
                self.assertEqual(higher_order.node_may_write(node), x.tolist() != [6, 5])
            tried.append(name)
        self.assertLessEqual({"add", "iadd", "and_", "iand", "or_", "ior", "lt"}, set(tried))

    def test_results_in_an_operands_memory(self):
        graph, given = torch.fx.Graph(), (torch.ones(3), torch.ones(3))
        operands = [graph.placeholder(name) for name in "xy"]
        for node, value in zip(operands, given):
            node.meta["example_value"] = value
        call = graph.call_function(higher_order.CHECKPOINT, tuple(operands))
        call.meta["example_value"] = (given[0] * 2, given[0].view(3, 1), given[1][1:])
        self.assertEqual([higher_order.aliases(call, i) for i in range(3)], [None, 0, 1])


class Failures(unittest.TestCase):
    """Whatever of ours fails while a model is compiled, the model runs as without us."""

    def setUp(self):
        torch._dynamo.reset()
        torch.manual_seed(0)
        self.model, self.x = Around(relu_), torch.randn(2, 5, WIDTH)

    def _runs(self, where, name, fused):
        def fails(*_, **__):
            raise RuntimeError("of ours")

        recorder = Recorder(may_fall_back=True)
        with unittest.mock.patch.object(where, name, fails), self.assertLogs("coda_cpp") as log:
            found = torch.compile(self.model, backend=recorder)(self.x)
        torch.testing.assert_close(found, self.model(self.x))
        self.assertIn("of ours", "".join(log.output))
        self.assertEqual(len(recorder.reports[0].fused), fused)

    def test_in_the_normal_form(self):
        self._runs(coda, "Normal", 0)

    def test_with_strict_they_are_raised(self):
        for name in ("Normal", "_compiled"):
            torch._dynamo.reset()
            with unittest.mock.patch.object(coda, name, side_effect=RuntimeError("of ours")):
                with self.assertRaisesRegex(Exception, "of ours"):
                    torch.compile(self.model, backend=Recorder(strict=True))(self.x)

    def test_in_a_regions_plan(self):
        self._runs(coda, "as_region", 0)

    def test_when_a_region_is_run_with_stand_ins(self):
        self._runs(replace.Region, "forward", 0)

    def test_in_the_inner_compiler(self):
        self._runs(coda, "_compiled", 1)


if __name__ == "__main__":
    unittest.main()
