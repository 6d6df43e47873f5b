# SPDX-License-Identifier: Apache-2.0
"""Functions over tiles and functions of graphs: their text, their values and gradients beside
PyTorch's, and what is refused."""

import unittest

import torch
from torch.nn import functional

import coda_cpp
from coda_cpp import builders as b
from coda_cpp import tiles


@coda_cpp.program
def scaled_gate(x: "[M, K]", w: "[2*I, K]", r: "[M]", c: "[2*I]", residual: "[M, I]"):
    z = tiles.gemm(x, w) * tiles.per_row(r) + tiles.per_column(c)
    gate, up = tiles.split_pairs(z, "concatenated")
    y = tiles.silu(gate) * up + tiles.tile(residual)
    return y, tiles.row_sum(y * y)


def _scaled_gate(x, w, r, c, residual):
    gate, up = ((x @ w.T) * r[..., None] + c).chunk(2, -1)
    y = functional.silu(gate) * up + residual
    return y, y.pow(2).sum(-1)


@coda_cpp.program
def clipped(x: "[M, N]", limit: "scalar"):
    return tiles.maximum(tiles.minimum(tiles.tile(x), tiles.scalar(limit)), -1.0)


@coda_cpp.program
def masked(x: "[M, K]", w: "[N, K]", keep: "[M, N]:u8"):
    z = tiles.where(tiles.tile(keep), tiles.gemm(x, w), -100)
    return (z, tiles.row_log_sum_exp(z), tiles.row_mean(z), tiles.row_squared_deviations(z),
            tiles.row_max(z), tiles.row_abs_max(z), tiles.column_reduction(z, "max"))


def _masked(x, w, keep):
    z = torch.where(keep, x @ w.T, -100)
    deviations = (z - z.mean(-1, keepdim=True)).pow(2).sum(-1)
    return (z, z.logsumexp(-1), z.mean(-1), deviations, z.amax(-1), z.abs().amax(-1),
            z.amax(tuple(range(z.dim() - 1))))


@coda_cpp.program
def dropped(x: "[M, N]", seed: "scalar", row: "[M]:i32"):
    tiles.constants(seed)
    u = tiles.random(tiles.scalar(seed), tiles.per_row(row), tiles.column_index())
    return tiles.where(u < 0.25, 0, tiles.tile(x) / 0.75)


def _arguments(*lead, dtype=torch.float32):
    tensors = [torch.randn(*lead, 48), torch.randn(64, 48) * 0.2, torch.rand(lead) + 0.5,
               torch.randn(64), torch.randn(*lead, 32)]
    return [t.to(dtype if t.dim() > 1 or i == 4 else torch.float32).requires_grad_()
            for i, t in enumerate(tensors)]


class FunctionsOverTiles(unittest.TestCase):
    def _same(self, got, expected, arguments, tolerance):
        upstream = [torch.randn_like(t) for t in expected]
        gradients = torch.autograd.grad(got, arguments, [u.to(t.dtype) for u, t in
                                                         zip(upstream, got)])
        wanted = torch.autograd.grad(expected, arguments, upstream)
        for a, e in zip([*got, *gradients], [*expected, *wanted]):
            self.assertEqual(a.shape, e.shape)
            error = (a.detach().double() - e.detach()).norm() / e.detach().norm()
            self.assertLess(error.item(), tolerance)

    def test_values_and_gradients_are_pytorchs(self):
        torch.manual_seed(0)
        for lead in ((70,), (2, 3), (1,)):
            with self.subTest(lead=lead):
                arguments = _arguments(*lead)
                self._same(scaled_gate(*arguments), _scaled_gate(*arguments), arguments, 2e-6)

    def test_masks_of_a_byte_have_no_gradient_and_all_reductions_have_theirs(self):
        torch.manual_seed(0)
        x, w = torch.randn(7, 48, requires_grad=True), torch.randn(70, 48, requires_grad=True)
        keep = torch.rand(7, 70) < 0.7
        for mask in (keep, keep.to(torch.uint8)):
            self._same(masked(x, w, mask), _masked(x, w, keep), [x, w], 1e-5)
        with self.assertRaisesRegex(coda_cpp.Error, "'keep' must be u8, but it is torch.float32"):
            masked(x, w, keep.float())

    def test_a_dropouts_backward_makes_its_mask_again(self):
        x, rows = torch.randn(40, 300, requires_grad=True), torch.arange(40, dtype=torch.int32)
        seed = torch.tensor(3.0)
        y = dropped(x, seed, rows)
        kept = y != 0
        self.assertLess(abs(kept.float().mean().item() - 0.75), 0.02)
        torch.testing.assert_close(y, torch.where(kept, x / 0.75, 0))
        gradient, = torch.autograd.grad(y.sum(), x)
        torch.testing.assert_close(gradient, kept / 0.75)
        with self.assertRaisesRegex(coda_cpp.Error, '"seed", which is a table.*no gradient'):
            dropped(x, seed.clone().requires_grad_(), rows)
        self.assertTrue(torch.equal(y[10:20], dropped(x[10:20], seed, rows[10:20])))
        self.assertFalse(torch.equal(y, dropped(x, seed + 1, rows)))

    def test_of_other_types_it_is_another_program(self):
        torch.manual_seed(0)
        arguments = _arguments(40, dtype=torch.bfloat16)
        arguments[2] = arguments[2].detach().float().requires_grad_()
        y, squares = scaled_gate(*arguments)
        self.assertEqual((y.dtype, squares.dtype), (torch.bfloat16, torch.float32))
        doubles = [t.detach().double().requires_grad_() for t in arguments]
        expected = _scaled_gate(*doubles)
        for a, e in zip((y, squares), expected):
            self.assertLess(((a - e).norm() / e.norm()).item(), 1e-2)

    def test_its_text_is_a_program_of_one_epilogue(self):
        text = scaled_gate.text()
        self.assertIn("gemm(x[M, K], w[2*I, K])", text)
        self.assertIn("row_partial(out1_partial, sum(", text)
        self.assertIn("program scaled_gate_final", text)
        self.assertIn("saved for the backward", scaled_gate.explain({"M": 100}))

    def test_a_program_without_a_product(self):
        x = torch.randn(5, 7, requires_grad=True)
        y = clipped(x, torch.tensor(0.5))
        torch.testing.assert_close(y, x.clamp(-1, 0.5))
        gradient, = torch.autograd.grad(y.sum(), x)
        self.assertTrue(torch.equal(gradient, ((x > -1) & (x < 0.5)).float()))

    def test_opcheck_and_compile(self):
        arguments = _arguments(6)
        torch.library.opcheck(torch.ops.coda_cpp.program.default,
                              ([t.detach().requires_grad_() for t in arguments],
                               scaled_gate._spec, [], 31))
        compiled = torch.compile(lambda *a: scaled_gate(*a)[0].sum(), backend="aot_eager",
                                 fullgraph=True)
        gradient, = torch.autograd.grad(compiled(*arguments), arguments[:1])
        expected, = torch.autograd.grad(scaled_gate(*arguments)[0].sum(), arguments[:1])
        self.assertTrue(torch.equal(gradient, expected))

    def test_what_does_not_fit_is_refused(self):
        arguments = [t.detach() for t in _arguments(6)]
        with self.assertRaisesRegex(coda_cpp.Error, r"scaled_gate: argument 'c' must be "
                                    r"\[1, 2\*I\] where .*I = 32.*\[65\]"):
            scaled_gate(*arguments[:3], torch.randn(65), arguments[4])
        with self.assertRaisesRegex(coda_cpp.Error, "takes 5 tensors, but 2"):
            scaled_gate(*arguments[:2])
        with self.assertRaisesRegex(coda_cpp.Error, "'x' must be f32, bf16 or f16.*float64"):
            scaled_gate(arguments[0].double(), *arguments[1:])

        def without_shape(x):
            return tiles.tile(x)

        def of_a_tensor(x: "[M, N]"):
            return tiles.silu(x)

        def branching(x: "[M, N]"):
            v = tiles.tile(x)
            return v if v else v * 2

        def wrong(x: "[M, N]", w: "[N, K]"):
            return tiles.gemm(x, w) + tiles.tile(x)

        for function, message in (
                (without_shape, "'x' needs a shape as its annotation"),
                (of_a_tensor, "'x' is a tensor; load it by tile"),
                (branching, "no truth value.*tiles.select"),
                (wrong, "text:4:")):
            with self.subTest(message), self.assertRaisesRegex(coda_cpp.Error, message):
                coda_cpp.program(function)


class FunctionsOfGraphs(unittest.TestCase):
    def test_values_and_gradients_are_pytorchs(self):
        graph = coda_cpp.Graph()
        x, w = graph.input("x", ("M", 16)), graph.parameter("w", (24, 16))
        n = graph.parameter("n", (1, 16))
        mlp = coda_cpp.GraphFunction(
            [x, w, n], {"y": b.gelu_tanh(b.linear(b.rms_norm(x, n, 1e-6), w)),
                        "squares": b.row_sum(x * x)}, name="mlp")
        tensors = [torch.randn(*shape, requires_grad=True)
                   for shape in ((2, 5, 16), (24, 16), (16,))]
        y, squares = mlp(*tensors)
        h = functional.rms_norm(tensors[0], (16,), tensors[2], 1e-6)
        expected = functional.gelu(h @ tensors[1].T, approximate="tanh")
        torch.testing.assert_close(y, expected)
        torch.testing.assert_close(squares, tensors[0].pow(2).sum(-1))
        for a, e in zip(torch.autograd.grad(y.square().sum() + squares.sum(), tensors),
                        torch.autograd.grad(expected.square().sum() + tensors[0].square().sum(),
                                            tensors)):
            torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-5)
        self.assertIn("gemm(", mlp.explain())
        with self.assertRaisesRegex(coda_cpp.Error, "mlp: takes 3 tensors, but 1"):
            mlp(tensors[0])
        with self.assertRaisesRegex(coda_cpp.Error, "is no input of a graph"):
            coda_cpp.GraphFunction([x * 2], {"y": x})


if __name__ == "__main__":
    unittest.main()
