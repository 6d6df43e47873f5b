# SPDX-License-Identifier: Apache-2.0
"""Every operator with input that is unusual or wrong, and torch.library.opcheck for backwards and
for regions of compiled models (that of forwards: ops_test)."""

import unittest
import unittest.mock

import torch
import torch._dynamo
from torch.nn import functional

import coda_cpp
from coda_cpp import _operators, builders, ops, session, tiles
import ops_test
from compiled import Recorder, ids, llama


def _results(function, case, arguments):
    made = function(**arguments, **case.options)
    return made if isinstance(made, tuple) else (made,)


def _outcome(function, case, arguments):
    """Results and the gradients of the sum of all, by name."""
    made = _results(function, case, arguments)
    wanted = {n: t for n, t in arguments.items() if t.requires_grad}
    loss = sum(t.sum() for t in made if t.requires_grad)
    found = dict(zip(wanted, torch.autograd.grad(loss, list(wanted.values()))))
    return {f"result {i}": t.detach() for i, t in enumerate(made)} | found


def _every_second(tensor):
    """The same values, which are not dense in memory."""
    if not tensor.dim():
        return tensor
    wide = torch.zeros(*tensor.shape[:-1], 2 * tensor.shape[-1], dtype=tensor.dtype)
    wide[..., ::2] = tensor.detach()
    return wide[..., ::2].requires_grad_(tensor.requires_grad)


class EveryOperator(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def _each_argument(self, rows=8):
        for case in ops_test.CASES:
            arguments = case.make(rows, torch.float32)
            for name in arguments:
                yield case, arguments, name

    def test_any_strides(self):
        for case in ops_test.CASES:
            arguments = case.make(8, torch.float32)
            strided = {n: _every_second(t) for n, t in arguments.items()}
            found, expected = (_outcome(case.function, case, a) for a in (strided, arguments))
            for name in expected:
                with self.subTest(case.name, what=name):
                    self.assertTrue(torch.equal(found[name], expected[name]))

    def test_nan_and_inf_go_where_they_go_in_pytorch(self):
        for case, arguments, name in self._each_argument():
            if not arguments[name].is_floating_point():
                continue
            for value in (float("nan"), float("inf"), float("-inf")):
                # rstd is a factor behind the product. Before it, as PyTorch has it, infinities of
                # both signs are added up to NaN; behind it they are no NaN, and a soft cap of them
                # is finite. (An infinite rstd is that of a row of zeros, which is NaN in both.)
                if name == "rstd" and value == value and case.options.get("soft_cap"):
                    continue
                spoilt = {n: t.detach().clone().requires_grad_(t.requires_grad)
                          for n, t in arguments.items()}
                if "targets" in spoilt:
                    spoilt["targets"].fill_(3)  # the reference multiplies ignored rows by 0
                with torch.no_grad():
                    spoilt[name].view(-1)[3] = value
                found, expected = (_outcome(f, case, spoilt)
                                   for f in (case.function, case.reference))
                for what, tensor in expected.items():
                    with self.subTest(case.name, argument=name, value=value, what=what):
                        self.assertTrue(torch.equal(found[what].isfinite(), tensor.isfinite()))

    def test_statistics_of_what_is_not_finite_are_pytorchs(self):
        x, weight = torch.randn(6, 16), torch.eye(16)
        for row, value in enumerate((float("inf"), float("-inf"), float("nan"), 1e20, 0.0)):
            residual = torch.zeros(6, 16)
            residual[row, 3] = value
            x[row] = 0
            with self.subTest(value):
                y, rstd = ops.linear_residual_rms(x, weight, residual)
                self.assertTrue(torch.equal(rstd.isnan(), y.isnan().any(-1)))
                torch.testing.assert_close(rstd, torch.rsqrt(y.square().mean(-1) + 1e-6),
                                           equal_nan=True)
                found = ops.rms_linear(y, weight, rstd)
                expected = functional.linear(functional.rms_norm(y, (16,), eps=1e-6), weight)
                torch.testing.assert_close(found, expected, equal_nan=True)

    def test_a_change_before_the_backward_is_noticed_or_changes_nothing(self):
        noticed = set()
        for case, arguments, name in self._each_argument():
            expected = _outcome(case.function, case, arguments)
            made = _results(case.function, case, arguments)
            wanted = {n: t for n, t in arguments.items() if t.requires_grad}
            with torch.no_grad():
                before = arguments[name].clone()
                arguments[name].zero_()
            with self.subTest(case.name, argument=name):
                try:
                    found = torch.autograd.grad(
                        sum(t.sum() for t in made if t.requires_grad), list(wanted.values()))
                except RuntimeError as error:
                    self.assertIn("modified by an inplace operation", str(error))
                    noticed.add(name)
                else:
                    for what, gradient in zip(wanted, found):
                        self.assertTrue(torch.equal(gradient, expected[what]), what)
            with torch.no_grad():
                arguments[name].copy_(before)
        self.assertLessEqual({"x", "weight", "gate", "up"}, noticed)

    def test_devices_types_and_sizes_of_zero_name_operator_and_argument(self):
        for case, arguments, name in self._each_argument():
            tensor, operator = arguments[name].detach(), case.name.split(",")[0]
            wrong = {"on another device": tensor.to("meta"),
                     "of another type": tensor.to(torch.complex64)}
            if name in ("x", "weight", "gate", "up"):
                wrong["without columns"] = tensor[:, :0]
            for what, bad in wrong.items():
                with self.subTest(case.name, argument=name, what=what):
                    with self.assertRaisesRegex(coda_cpp.Error, f"{operator}: .*'{name}'"):
                        case.function(**{**arguments, name: bad}, **case.options)

    def test_a_size_that_does_not_fit_names_operator_and_argument(self):
        for case, arguments, name in self._each_argument():
            tensor, operator = arguments[name].detach(), case.name.split(",")[0]
            with self.subTest(case.name, argument=name):
                # What is compared with x is named, where x is what is wrong.
                named = name if name != "x" else r"\w+"
                with self.assertRaisesRegex(coda_cpp.Error, f"{operator}: argument '{named}' must"):
                    wider = torch.cat([tensor, tensor[..., :1]], -1)
                    case.function(**{**arguments, name: wider}, **case.options)

    def test_attributes_that_are_none_name_operator_and_attribute(self):
        x, w, targets = torch.randn(4, 8), torch.randn(6, 8), torch.zeros(4, dtype=torch.int64)

        def loss(**options):
            ops.linear_cross_entropy(x, w, targets, **options)

        for attribute in ("label_smoothing", "z_loss", "soft_cap", "loss_rows"):
            for value in (float("nan"), float("inf"), "many", None, -7):
                with self.subTest(attribute, value=value), self.assertRaisesRegex(
                        coda_cpp.Error, f"linear_cross_entropy: .*{attribute}.* must .*{value}"):
                    loss(**{attribute: value})
        for value in (2.5, 2**70):
            with self.assertRaisesRegex(coda_cpp.Error, "loss_rows must be a whole number"):
                loss(loss_rows=value)
        for value in (float("nan"), "small", None):
            with self.assertRaisesRegex(coda_cpp.Error, "residual_rms: eps must be a finite"):
                ops.linear_residual_rms(x, w, torch.zeros(4, 6), eps=value)

    def test_what_is_no_dense_tensor_names_operator_and_argument(self):
        for case, arguments, name in self._each_argument(2):
            operator = case.name.split(",")[0]
            memory = bytearray(4 * arguments[name].numel() + 1)
            odd = torch.frombuffer(memory, dtype=torch.float32, offset=1).view_as(arguments[name])
            wrong = [arguments[name].tolist(), arguments[name].detach().to_sparse()]
            wrong += [odd] if arguments[name].is_floating_point() else []
            for bad in wrong:
                with self.subTest(case.name, argument=name, what=type(bad)):
                    with self.assertRaisesRegex(coda_cpp.Error, f"{operator}: .*'{name}'"):
                        case.function(**{**arguments, name: bad}, **case.options)

    def test_there_is_no_forward_mode_and_no_second_derivative(self):
        case = ops_test.CASES[0]
        arguments = case.make(3, torch.float32)
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(arguments["x"], arguments["x"])
            with self.assertRaisesRegex(NotImplementedError, "jvp"):
                case.function(**{**arguments, "x": dual})
        y, _ = case.function(**arguments)
        first, = torch.autograd.grad(y.square().sum(), arguments["x"], create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "differentiate twice"):
            first.sum().backward()

    def test_checking_is_a_mode_that_can_be_left(self):
        coda_cpp.checking(True)
        try:
            self.assertTrue(_operators.is_checking())
            with self.assertRaisesRegex(coda_cpp.Error, "'targets' has the value 6"):
                ops.linear_cross_entropy(torch.randn(2, 4), torch.randn(5, 4), torch.tensor([0, 6]))
        finally:
            coda_cpp.checking(False)
        self.assertFalse(_operators.is_checking())


class Functions(unittest.TestCase):
    """Functions of one's own: of a graph, and of tiles."""

    def setUp(self):
        torch.manual_seed(0)
        graph = coda_cpp.Graph()
        x, w = graph.input("x", ("M", 8), "f32"), graph.parameter("w", (6, 8), "f32")
        layer = coda_cpp.GraphFunction(
            [x, w], {"y": builders.silu(builders.linear(x, w))}, name="layer")

        @coda_cpp.program
        def tile(x: "[M, K]", w: "[N, K]"):
            return tiles.silu(tiles.gemm(x, w))

        self.functions = {"layer": layer, "tile": tile}
        self.x, self.w = (torch.randn(n, 8, requires_grad=True) for n in (4, 6))

    def test_what_does_not_fit_names_function_and_argument(self):
        for name, function in self.functions.items():
            for argument, message, (x, w) in (
                    ("w", "shape", (self.x, self.w[:, 1:])),
                    ("x", "must be", (self.x.double(), self.w)),
                    ("w", "meta", (self.x, self.w.to("meta"))),
                    ("x", "must be a tensor", ([[1.0]], self.w)),
                    ("w", "to_dense", (self.x, self.w.detach().to_sparse()))):
                with self.subTest(name, argument=argument, message=message):
                    with self.assertRaisesRegex(
                            coda_cpp.Error, f"{name}: .*'{argument}'.*{message}"):
                        function(x, w)

    def test_strides_and_no_rows(self):
        for name, function in self.functions.items():
            with self.subTest(name):
                leaves = [self.x, self.w]
                expected = function(*leaves)
                strided = function(*(_every_second(t) for t in leaves))
                self.assertTrue(torch.equal(strided, expected))
                upstream = torch.randn(6, 4).T
                for a, b in zip(torch.autograd.grad(expected, leaves, upstream, True),
                                torch.autograd.grad(expected, leaves, upstream.contiguous())):
                    self.assertTrue(torch.equal(a, b))
                nothing = torch.zeros(2, 0, 8, requires_grad=True)
                made = function(nothing, self.w)
                self.assertEqual(made.shape, (2, 0, 6))
                gradients = torch.autograd.grad(made.sum(), [nothing, self.w])
                self.assertEqual(gradients[0].shape, nothing.shape)
                self.assertFalse(gradients[1].any())

    def test_a_change_before_the_backward_is_noticed(self):
        for name, function in self.functions.items():
            with self.subTest(name), self.assertRaisesRegex(RuntimeError, "inplace operation"):
                y = function(self.x, self.w)
                with torch.no_grad():
                    self.w.add_(1)
                y.sum().backward()


class Large(unittest.TestCase):
    def test_more_logits_than_32_bits_count(self):
        rows, vocabulary = 2**16 + 8, 2**15 + 64
        self.assertGreater(rows * vocabulary, 2**31)
        torch.manual_seed(0)
        x, weight = torch.randn(rows, 2), torch.randn(vocabulary, 2)
        targets = torch.randint(0, vocabulary, (rows,))
        found, count = ops.linear_cross_entropy(x, weight, targets, reduction="none")
        some = torch.tensor([0, 1, 2**15, rows - 9, rows - 8, rows - 1])
        expected = functional.cross_entropy(
            x[some].double() @ weight.double().T, targets[some], reduction="none")
        torch.testing.assert_close(found[some].double(), expected, rtol=1e-6, atol=1e-6)
        self.assertEqual(count.item(), rows)
        self.assertTrue(found.isfinite().all())


class Opcheck(unittest.TestCase):
    """Schemas, fake results, and what AOTAutograd makes of a call."""

    def test_backwards(self):
        for case in ops_test.CASES:
            torch.manual_seed(0)
            backward = getattr(torch.ops.coda_cpp, case.name.split(",")[0] + "_backward").default
            calls = []

            def record(tensors, key, needs, backward=backward, calls=calls):
                calls.append(([tensor.detach().clone() for tensor in tensors], key, needs))
                return backward(tensors, key, needs)

            with self.subTest(case.name):
                with unittest.mock.patch.object(
                        _operators.Operator, "backward", staticmethod(record)):
                    _outcome(case.function, case, case.make(6, torch.float32))
                torch.library.opcheck(backward, calls[0], test_utils=(
                    "test_schema", "test_faketensor", "test_aot_dispatch_static"))

    def test_regions_of_a_compiled_model(self):
        torch._dynamo.reset()
        torch.manual_seed(0)
        recorder = Recorder(strict=True)
        batch = ids()
        torch.compile(llama(), backend=recorder, fullgraph=True)(input_ids=batch, labels=batch)
        fused = recorder.reports[0].fused
        self.assertEqual(len(fused), 3)
        for region in (fused[1].region, fused[2].region):  # between attentions; with the loss
            function = region.function.function
            sizes = {**function.nominal_sizes(), "M": 6}
            tensors = [self._tensor(given, sizes, region.needs >> i & 1)
                       for i, given in enumerate(function.inputs)]
            torch.library.opcheck(torch.ops.coda_cpp.graph.default, (
                tensors, region.function.spec, [], region.needs))

    def _tensor(self, given, sizes, needs):
        shape = [session.size_of(terms, sizes) for terms in given.terms]
        if given.dtype == "i32":
            return torch.zeros(shape, dtype=torch.int32)
        return (0.1 * torch.randn(shape)).requires_grad_(bool(needs))


if __name__ == "__main__":
    unittest.main()
