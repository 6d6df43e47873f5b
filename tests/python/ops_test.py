# SPDX-License-Identifier: Apache-2.0
"""The ready operators against PyTorch in float64, beside PyTorch op by op in the same type; what
PyTorch asks of an operator (opcheck); and what users do to them."""

import math
import unittest
import unittest.mock

import torch
import torch._dynamo.testing
from torch.nn import functional

import coda_cpp
from coda_cpp import _operators, ops

_K, _N, _HEAD, _POSITIONS = 96, 128, 32, 64


def _tensor(*shape, scale=1.0):
    return torch.randn(*shape) * scale


def _rms(x, eps=1e-6):
    """The reciprocal root mean square of each row, in fp32 as frameworks take it."""
    x = x if x.dtype == torch.float64 else x.float()
    return torch.rsqrt(x.pow(2).mean(-1) + eps)


def _normed(x, rstd, weight, offset=0.0):
    if rstd is not None:
        x = (x * rstd[..., None]).to(x.dtype)
    return x if weight is None else x * (weight + offset).to(x.dtype)


def _rotated(z, cos, sin, positions):
    """Hugging Face's formula, of heads of _HEAD columns."""
    z = z.unflatten(-1, (-1, _HEAD))
    c = torch.cat([cos, cos], -1)[positions][..., None, :].to(z.dtype)
    s = torch.cat([sin, sin], -1)[positions][..., None, :].to(z.dtype)
    a, b = z.chunk(2, -1)
    return (z * c + torch.cat([-b, a], -1) * s).flatten(-2)


def _rope(x, weight, cos, sin, positions, rstd=None, norm_weight=None, head_norm_weight=None):
    z = _normed(x, rstd, norm_weight) @ weight.T
    if head_norm_weight is not None:
        heads = z.unflatten(-1, (-1, _HEAD))
        z = _normed(heads, _rms(heads), head_norm_weight).flatten(-2)
    return _rotated(z, cos, sin, positions)


def _loss(x, weight, targets, rstd=None, norm_weight=None, soft_cap=0.0, z_loss=0.0,
          reduction="none", **options):
    logits = _normed(x, rstd, norm_weight) @ weight.T
    if soft_cap:
        logits = soft_cap * torch.tanh(logits / soft_cap)
    wide = logits if logits.dtype == torch.float64 else logits.float()
    rows = functional.cross_entropy(wide.flatten(0, -2), targets.flatten().long(),
                                    reduction="none", **options).view(targets.shape)
    if z_loss:
        counted = targets != options.get("ignore_index", -100)
        rows = rows + z_loss * torch.logsumexp(wide, -1).pow(2) * counted
    count = (targets != options.get("ignore_index", -100)).sum()
    return {"none": rows, "sum": rows.sum(), "mean": rows.sum() / count}[reduction]


def _log_prob(x, weight, ids, rstd=None, norm_weight=None, soft_cap=0.0, temperature=1.0,
              loss_rows=0):
    logits = _normed(x, rstd, norm_weight) @ weight.T
    if soft_cap:
        logits = soft_cap * torch.tanh(logits / soft_cap)
    wide = logits if logits.dtype == torch.float64 else logits.float()
    log = functional.log_softmax(wide / temperature, -1)
    return log.gather(-1, ids.long().unsqueeze(-1)).squeeze(-1), -(log.exp() * log).sum(-1)


def _angles():
    angle = torch.arange(_POSITIONS)[:, None] * 10000.0 ** -(torch.arange(_HEAD // 2) / 16)
    return {"cos": angle.cos(), "sin": angle.sin()}


def _norm_arguments(rows):
    return {"rstd": torch.rand(rows) + 0.5, "norm_weight": _tensor(_K, scale=0.1) + 1}


def _targets(rows, vocabulary=_N):
    targets = torch.randint(0, vocabulary, (rows,))
    targets[::5] = -100
    return targets


def _gated(activation):
    def reference(x, gate, up, rstd=None, norm_weight=None):
        h = _normed(x, rstd, norm_weight)
        return activation(h @ gate.T) * (h @ up.T)
    return reference


def _residual_rms(x, weight, residual):
    y = x @ weight.T + residual
    return y, _rms(y)


def _rms_linear(x, weight, rstd, norm_weight, bias, offset):
    return _normed(x, rstd, norm_weight, offset) @ weight.T + bias.to(x.dtype)


class Case:
    """An operator, PyTorch's own way to the same, and arguments by name for so many rows."""

    def __init__(self, name, function, reference, arguments, **options):
        self.name, self.function, self.reference = name, function, reference
        self.arguments, self.options = arguments, options

    def make(self, rows, dtype):
        """Products' operands in the type, statistics and norms' weights and tables in fp32."""
        fp32 = {"rstd", "cos", "sin", "norm_weight", "head_norm_weight", "bias"}
        made = {n: t if n in fp32 or not t.is_floating_point() else t.to(dtype)
                for n, t in self.arguments(rows).items()}
        for name, tensor in made.items():
            tensor.requires_grad_(tensor.is_floating_point() and name not in ("cos", "sin"))
        return made


def _results(made):
    return [t for t in (made if isinstance(made, (tuple, list)) else (made,)) if t.requires_grad]


def _linear_arguments(rows):
    return {"x": _tensor(rows, _K), "weight": _tensor(_N, _K, scale=0.1)}


def _rope_arguments(rows):
    return {**_linear_arguments(rows), **_angles(),
            "positions": torch.randint(0, _POSITIONS, (rows,))}


def _gated_arguments(rows):
    return {"x": _tensor(rows, _K), "gate": _tensor(_N, _K, scale=0.1),
            "up": _tensor(_N, _K, scale=0.1)}


def _of_head(function):
    def called(**arguments):
        return function(head_dim=_HEAD, **arguments)
    return called


CASES = [
    Case("linear_residual_rms", ops.linear_residual_rms, _residual_rms,
         lambda m: {**_linear_arguments(m), "residual": _tensor(m, _N)}),
    Case("rms_linear", ops.rms_linear, _rms_linear,
         lambda m: {**_linear_arguments(m), **_norm_arguments(m), "bias": _tensor(_N)}, offset=1.0),
    Case("swiglu_linear", ops.swiglu_linear, _gated(functional.silu), _gated_arguments),
    Case("swiglu_linear, normed", ops.swiglu_linear, _gated(functional.silu),
         lambda m: {**_gated_arguments(m), **_norm_arguments(m)}),
    Case("geglu_linear", ops.geglu_linear, _gated(functional.gelu),
         lambda m: {**_gated_arguments(m), **_norm_arguments(m)}),
    Case("linear_rope", _of_head(ops.linear_rope), _rope, _rope_arguments),
    Case("linear_rope, QK-norm", _of_head(ops.linear_rope), _rope,
         lambda m: {**_rope_arguments(m), **_norm_arguments(m),
                    "head_norm_weight": _tensor(_HEAD, scale=0.1) + 1}),
    Case("linear_cross_entropy", ops.linear_cross_entropy, _loss,
         lambda m: {**_linear_arguments(m), "targets": _targets(m)}, reduction="none"),
    Case("linear_cross_entropy, all options", ops.linear_cross_entropy, _loss,
         lambda m: {**_linear_arguments(m), "targets": _targets(m), **_norm_arguments(m)},
         reduction="mean", label_smoothing=0.1, z_loss=1e-3, soft_cap=5.0),
    Case("linear_log_prob", ops.linear_log_prob, _log_prob,
         lambda m: {**_linear_arguments(m), "ids": _targets(m).clamp(min=0)}),
    Case("linear_log_prob, all options", ops.linear_log_prob, _log_prob,
         lambda m: {**_linear_arguments(m), "ids": _targets(m).clamp(min=0), **_norm_arguments(m)},
         soft_cap=5.0, temperature=0.7, loss_rows=64),
]


# Where each row has an upstream gradient of its own, it scales x for this product, which is rounded
# once more (docs/pytorch.md): 1.09 of op by op's error.
_LIMITS = {("linear_cross_entropy", "gradient of weight"): 1.25,
           # Nothing but the logits' gradient is rounded on the way to them, here as there.
           ("linear_log_prob", "gradient of x"): 1.001,
           ("linear_log_prob", "gradient of weight"): 1.001}


def _by_name(name):
    return next(case for case in CASES if case.name == name)


def _outcome(function, case, arguments, upstream):
    """Results and gradients by name."""
    made = _results(function(**arguments, **case.options))
    wanted = {n: t for n, t in arguments.items() if t.requires_grad}
    given = [u.to(t.dtype) for u, t in zip(upstream, made)]
    gradients = torch.autograd.grad(made, list(wanted.values()), given)
    found = {f"result {i}": t.detach() for i, t in enumerate(made)}
    return found | {f"gradient of {n}": g for n, g in zip(wanted, gradients)}


def _double(arguments):
    return {n: t.detach().double().requires_grad_(t.requires_grad) if t.is_floating_point() else t
            for n, t in arguments.items()}


class AgainstFloat64(unittest.TestCase):
    def _errors(self, case, dtype, rows, seeds):
        """Of each result, the squared relative errors: ours, and op by op."""
        ours, eager, sizes = {}, {}, {}
        for seed in range(seeds):
            torch.manual_seed(seed)
            arguments = case.make(rows, dtype)
            doubles = _double(arguments)
            shapes = [t.shape for t in _results(case.reference(**doubles, **case.options))]
            # A statistic's gradient is a sum over a row: all results weigh alike.
            most = max(shape.numel() for shape in shapes)
            upstream = [torch.randn(shape).to(dtype) * (most / shape.numel()) for shape in shapes]
            expected = _outcome(case.reference, case, doubles, upstream)
            for errors, function in ((ours, case.function), (eager, case.reference)):
                for name, value in _outcome(function, case, arguments, upstream).items():
                    norm = expected[name].norm()
                    error = ((value.double() - expected[name]).norm() / norm).item() ** 2
                    errors[name] = errors.get(name, 0.0) + error / seeds
                    sizes[name] = value.numel()
        return {name: (math.sqrt(ours[name]), math.sqrt(eager[name]), sizes[name]) for name in ours}

    def test_fp32_is_exact_to_rounding(self):
        for case in CASES:
            for name, (error, eager, _) in self._errors(case, torch.float32, 75, 1).items():
                with self.subTest(case.name, what=name):  # a gradient may cancel in mathematics
                    self.assertLess(error, max(2e-6, eager))

    def test_bf16_is_no_worse_than_op_by_op(self):
        for case in CASES:
            for name, (error, eager, size) in self._errors(case, torch.bfloat16, 200, 8).items():
                with self.subTest(case.name, what=name):
                    limit = _LIMITS.get((case.name, name), 1.0 if size >= 1024 else 1.25)
                    self.assertLessEqual(error, eager * limit)


class AsPyTorchAsks(unittest.TestCase):
    def test_opcheck(self):
        for case in CASES:
            forward = getattr(torch.ops.coda_cpp, case.name.split(",")[0]).default
            calls = []

            def record(tensors, *others, forward=forward, calls=calls):
                calls.append(([t.detach().requires_grad_(t.requires_grad) for t in tensors],
                              *others))
                return forward(tensors, *others)

            with self.subTest(case.name):
                with unittest.mock.patch.object(
                        _operators.Operator, "forward", staticmethod(record)):
                    case.function(**case.make(6, torch.float32), **case.options)
                torch.library.opcheck(forward, calls[0])

    def test_compiled_with_any_number_of_tokens_without_compiling_again(self):
        case = _by_name("swiglu_linear, normed")
        torch._dynamo.reset()
        counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")

        def step(**arguments):
            return case.function(**arguments).square().sum()

        compiled = torch.compile(step, backend=counter, fullgraph=True, dynamic=True)
        for rows in (5, 9, 70):
            arguments = case.make(rows, torch.float32)
            wanted = [t for t in arguments.values()]
            for got, expected in zip(torch.autograd.grad(compiled(**arguments), wanted),
                                     torch.autograd.grad(step(**arguments), wanted)):
                torch.testing.assert_close(got, expected, rtol=0, atol=0)
            if rows == 5:
                compiled_once = counter.frame_count
        self.assertEqual(counter.frame_count, compiled_once)

    def test_a_new_number_of_tokens_compiles_no_plan(self):
        case = _by_name("linear_residual_rms")
        case.function(**case.make(5, torch.float32))
        before = _operators.Operator.function.cache_info().misses
        for rows in range(6, 30):
            case.function(**case.make(rows, torch.float32))
        self.assertEqual(_operators.Operator.function.cache_info().misses, before)

    def test_autocast_gives_its_type_and_gradients_of_the_arguments(self):
        for name in ("swiglu_linear, normed", "linear_residual_rms", "linear_rope"):
            case = _by_name(name)
            torch.manual_seed(0)
            arguments = case.make(8, torch.float32)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                made = _results(case.function(**arguments))
            with self.subTest(name):
                self.assertEqual(made[0].dtype, torch.bfloat16)
                gradient, = torch.autograd.grad(made[0].float().sum(), arguments["x"])
                self.assertEqual(gradient.dtype, torch.float32)
                cast = ("x", "weight", "residual", "gate", "up")
                low = {n: t.detach().bfloat16().requires_grad_() if n in cast else t
                       for n, t in arguments.items()}
                torch.testing.assert_close(made[0], _results_of(case, low), rtol=0, atol=0)

    def test_gradients_of_weights_that_autocast_rounds_stay_in_fp32(self):
        for case in CASES:
            torch.manual_seed(0)
            arguments = case.make(200, torch.float32)
            with torch.no_grad():  # so that only arithmetic errs
                for name in {"x", "weight", "residual", "gate", "up"} & set(arguments):
                    arguments[name].copy_(arguments[name].bfloat16())
            doubles = _double(arguments)
            upstream = [torch.randn(t.shape).bfloat16()
                        for t in _results(case.reference(**doubles, **case.options))]
            expected = _outcome(case.reference, case, doubles, upstream)
            with torch.autocast("cpu", torch.bfloat16):
                ours = _outcome(case.function, case, arguments, upstream)
                eager = _outcome(case.reference, case, arguments, upstream)
            for name in {"weight", "gate", "up"} & set(arguments):
                what = f"gradient of {name}"
                error, of_eager = ((made[what].double() - expected[what]).norm().item()
                                   for made in (ours, eager))
                with self.subTest(case.name, what=what):
                    self.assertFalse(torch.equal(ours[what], ours[what].bfloat16().float()))
                    self.assertTrue(torch.equal(eager[what], eager[what].bfloat16().float()))
                    self.assertLess(error, of_eager)

    def test_frozen_weights_under_autocast_get_no_gradient(self):
        x = torch.randn(4, _K, requires_grad=True)
        gate, up = torch.randn(_N, _K), torch.randn(_N, _K, requires_grad=True)
        with torch.autocast("cpu", torch.bfloat16):
            ops.swiglu_linear(x, gate, up).float().sum().backward()
        self.assertIsNone(gate.grad)
        self.assertEqual(up.grad.dtype, torch.float32)

    def test_compiled_under_autocast_gives_the_same_bits(self):
        for case in CASES:
            arguments = case.make(40, torch.float32)

            def step(case=case, **arguments):
                return _results_of(case, arguments).float().square().sum()

            wanted = [t for t in arguments.values() if t.requires_grad]
            for backend in ("aot_eager", "coda"):
                torch._dynamo.reset()
                options = {"options": {"inner": "aot_eager"}} if backend == "coda" else {}
                compiled = torch.compile(step, backend=backend, fullgraph=True, **options)
                with torch.autocast("cpu", torch.bfloat16):
                    found = torch.autograd.grad(compiled(**arguments), wanted)
                    expected = torch.autograd.grad(step(**arguments), wanted)
                with self.subTest(case.name, backend=backend):
                    for got, gradient in zip(found, expected):
                        self.assertTrue(torch.equal(got, gradient))

    def test_checkpointing_gives_the_same_bits(self):
        case = _by_name("swiglu_linear")
        arguments = case.make(8, torch.float32)
        wanted = list(arguments.values())
        plain = torch.autograd.grad(case.function(**arguments).sum(), wanted)
        again = torch.utils.checkpoint.checkpoint(
            lambda: case.function(**arguments).sum(), use_reentrant=False)
        for a, b in zip(plain, torch.autograd.grad(again, wanted)):
            self.assertTrue(torch.equal(a, b))

    def test_nothing_is_made_for_what_is_frozen(self):
        x = torch.randn(4, _K, requires_grad=True)
        gate, up = torch.randn(_N, _K), torch.randn(_N, _K, requires_grad=True)
        y = ops.swiglu_linear(x, gate, up)
        y.sum().backward()
        self.assertIsNone(gate.grad)
        self.assertIsNotNone(up.grad)
        with torch.no_grad():
            self.assertFalse(ops.swiglu_linear(x, gate, up).requires_grad)
            self.assertTrue(torch.equal(ops.swiglu_linear(x, gate, up), y))


def _results_of(case, arguments):
    made = case.function(**arguments, **case.options)
    return made[0] if isinstance(made, tuple) else made


class Shapes(unittest.TestCase):
    def test_leading_dimensions_are_rows(self):
        x, w = torch.randn(2, 3, _K), torch.randn(_N, _K)
        r = torch.randn(2, 3, _N)
        y, rstd = ops.linear_residual_rms(x, w, r)
        self.assertEqual((tuple(y.shape), tuple(rstd.shape)), ((2, 3, _N), (2, 3)))
        flat, _ = ops.linear_residual_rms(x.view(6, _K), w, r.view(6, _N))
        self.assertTrue(torch.equal(flat.view(2, 3, _N), y))
        one, _ = ops.linear_residual_rms(x[0, :1], w, r[0, :1])
        self.assertEqual(tuple(one.shape), (1, _N))

    def test_any_strides(self):
        case = _by_name("swiglu_linear")
        x, gate, up = torch.randn(_K, 7), torch.randn(_K, _N), torch.randn(_N, 2 * _K)[:, ::2]
        x.requires_grad_()
        strided = ops.swiglu_linear(x.T, gate.T, up)
        plain = ops.swiglu_linear(x.T.contiguous(), gate.T.contiguous(), up.contiguous())
        self.assertTrue(torch.equal(strided, plain))
        upstream = torch.randn(_N, 7)
        expected, = torch.autograd.grad(plain, x, upstream.T.contiguous())
        gradient, = torch.autograd.grad(strided, x, upstream.T)
        self.assertTrue(torch.equal(gradient, expected))
        summed, = torch.autograd.grad(case.function(x.T, gate.T, up).sum(), x)  # stride 0
        self.assertTrue(summed.isfinite().all())

    def test_no_rows(self):
        for case in CASES:
            arguments = case.make(0, torch.float32)
            made = _results(case.function(**arguments, **case.options))
            expected = _results(case.reference(**arguments, **case.options))
            with self.subTest(case.name):
                for a, b in zip(made, expected):
                    torch.testing.assert_close(a, b, equal_nan=True, check_dtype=False)
                wanted = [t for t in arguments.values() if t.requires_grad]
                for tensor, gradient in zip(wanted, torch.autograd.grad(
                        made, wanted, [torch.ones_like(t) for t in made])):
                    self.assertEqual(gradient.shape, tensor.shape)
                    self.assertTrue((gradient == 0).all())

    def test_rows_in_blocks_give_what_whole_logits_do(self):
        torch.manual_seed(0)
        x = torch.randn(300, _K, requires_grad=True)
        w = (torch.randn(_N, _K) * 0.1).requires_grad_()
        targets = _targets(300)
        results = []
        for rows in (0, 64, 128):
            loss, count = ops.linear_cross_entropy(x, w, targets, loss_rows=rows)
            first = torch.autograd.grad(3 * loss, (x, w), retain_graph=True)
            again = torch.autograd.grad(3 * loss, (x, w))  # what the forward began is not spoilt
            self.assertTrue(all(torch.equal(a, b) for a, b in zip(first, again)))
            self.assertEqual(count.item(), 240)
            results.append((loss, *first))
        for other in results[1:]:
            self.assertTrue(torch.equal(other[0], results[0][0]))
            for a, b in zip(other[1:], results[0][1:]):
                torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)

    def test_logits_are_recomputed_where_each_row_has_an_upstream_gradient(self):
        torch.manual_seed(0)
        x = torch.randn(300, _K, requires_grad=True)
        w = (torch.randn(_N, _K) * 0.1).requires_grad_()
        targets, upstream = _targets(300), torch.randn(2, 300)
        for op, given, options in (
                (ops.linear_cross_entropy, targets, {"reduction": "none"}),
                (ops.linear_log_prob, targets.clamp(min=0), {}),
                (ops.linear_log_prob, targets.clamp(min=0), {"entropy": False})):
            results = []
            for rows in (0, 64, 128):
                made = [t for t in op(x, w, given, loss_rows=rows, **options)
                        if t is not None and t.requires_grad]
                given_back = list(upstream[:len(made)])
                saved = made[0].grad_fn.saved_tensors
                first = torch.autograd.grad(made, (x, w), given_back, retain_graph=True)
                again = torch.autograd.grad(made, (x, w), given_back)
                self.assertTrue(all(torch.equal(a, b) for a, b in zip(first, again)))
                self.assertEqual(any(t.shape == (300, _N) for t in saved), rows == 0)
                results.append((*made, *first))
            for other in results[1:]:
                for a, b in zip(other, results[0]):
                    torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-6)

    def test_no_row_that_counts(self):
        x, w = torch.randn(3, _K, requires_grad=True), torch.randn(_N, _K)
        targets = torch.full((3,), -100)
        loss, count = ops.linear_cross_entropy(x, w, targets)
        self.assertTrue(loss.isnan() and count.item() == 0)
        loss, _ = ops.linear_cross_entropy(x, w, targets, reduction="sum")
        gradient, = torch.autograd.grad(loss, x)
        self.assertTrue(loss.item() == 0 and (gradient == 0).all())


class BadInput(unittest.TestCase):
    def _refused(self, message, function, *arguments, **options):
        with self.assertRaisesRegex(coda_cpp.Error, message):
            function(*arguments, **options)

    def test_shapes_types_and_devices(self):
        x, w = torch.randn(4, _K), torch.randn(_N, _K)
        call = ops.linear_residual_rms
        self._refused(r"linear_residual_rms: argument 'weight' must be \[N, K\] where K = 96, as "
                      r"'x' has it, but it is \[128, 95\]", call, x, w[:, :95],
                      torch.randn(4, _N))
        self._refused(r"'residual' must be \[M, 128\] where M = 4.*\[5, 128\]", call, x, w,
                      torch.randn(5, _N))
        self._refused(r"'weight' must have 2 dimensions", call, x, w[0], torch.randn(4, _N))
        self._refused(r"'x' must be float32 or bfloat16 or float16.*float64", call, x.double(), w,
                      torch.randn(4, _N))
        self._refused(r"'weight' is torch.float32, but 'x' is torch.bfloat16", call, x.bfloat16(),
                      w, torch.randn(4, _N))
        self._refused(r"'rstd' must be float32, but it is torch.bfloat16", ops.rms_linear,
                      x.bfloat16(), w.bfloat16(), torch.ones(4).bfloat16())
        meta = torch.randn(_N, _K, device="meta")
        with self.assertRaises(Exception):
            call(x, meta, torch.randn(4, _N))
        self._refused(r"weight.*multiple of head_dim = 34", ops.linear_rope, x, w, x, x,
                      torch.zeros(4).int(), 34)
        self._refused(r"head_dim must be even", ops.linear_rope, x, w, x, x,
                      torch.zeros(4).int(), 33)

    def test_indices_out_of_range(self):
        x, w = torch.randn(2, _K), torch.randn(_N, _K)
        for wrong in (_N, -1, 2**40, -2**40):
            self._refused(r"'targets' has the value -?\d+; each must lie in \[0, 128\) or be "
                          r"ignore_index = -100", ops.linear_cross_entropy, x, w,
                          torch.tensor([0, wrong]))
        angles = _angles()
        self._refused(r"'positions' has the value 64", ops.linear_rope, x, w, **angles,
                      positions=torch.tensor([0, 64]), head_dim=_HEAD)
        self._refused(r"'targets' must be int64 or int32", ops.linear_cross_entropy, x, w,
                      torch.tensor([0.0, 1.0]))
        self._refused(r"reduction 'avg'", ops.linear_cross_entropy, x, w, torch.tensor([0, 1]),
                      reduction="avg")

    def test_a_tensor_that_changed_before_the_backward_is_noticed(self):
        for spoilt in ("x", "gate"):
            x, gate, up = (torch.randn(_N, _N, requires_grad=True) for _ in range(3))
            y = ops.swiglu_linear(x, gate, up)
            with torch.no_grad():
                {"x": x, "gate": gate}[spoilt].add_(1)
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                y.sum().backward()

    def test_nan_and_inf_go_where_they_go_in_pytorch(self):
        x, gate, up = torch.randn(4, _K), torch.randn(_N, _K), torch.randn(_N, _K)
        x[1, 3], x[2, 5] = float("nan"), float("inf")
        got, expected = ops.swiglu_linear(x, gate, up), _gated(functional.silu)(x, gate, up)
        self.assertTrue(torch.equal(got.isfinite(), expected.isfinite()))
        self.assertTrue(got[[0, 3]].isfinite().all())


if __name__ == "__main__":
    unittest.main()
