# SPDX-License-Identifier: Apache-2.0
"""Calls that are like one before: they take the short way, and others are checked as ever."""

import concurrent.futures
import unittest
import unittest.mock

import torch

import coda_cpp
from coda_cpp import _calls, _core, ops, session

_K, _N = 16, 32


def _tensors(*rows, dtype=torch.float32):
    torch.manual_seed(sum(rows))
    return {"x": torch.randn(*rows, _K).to(dtype), "gate": torch.randn(_N, _K).to(dtype),
            "up": torch.randn(_N, _K).to(dtype)}


def _expected(tensors):
    x, gate, up = (t.double() for t in tensors.values())
    return torch.nn.functional.silu(x @ gate.T) * (x @ up.T)


class Calls(unittest.TestCase):
    def _is_right(self, tensors):
        torch.testing.assert_close(ops.swiglu_linear(**tensors).double(), _expected(tensors),
                                   rtol=2e-5, atol=2e-5)

    def _checks(self, call):
        """How often shapes were matched while it ran."""
        with unittest.mock.patch.object(
                coda_cpp.function.Function, "match", autospec=True,
                side_effect=coda_cpp.function.Function.match) as match:
            call()
        return match.call_count

    def test_only_a_call_like_none_before_is_checked(self):
        first, second = _tensors(3, 7), {n: t + 1 for n, t in _tensors(3, 7).items()}
        self._is_right(first)
        self.assertEqual(self._checks(lambda: self._is_right(second)), 0)
        self.assertEqual(self._checks(lambda: self._is_right(_tensors(3, 8))), 1)
        self.assertEqual(self._checks(lambda: self._is_right(_tensors(24))), 1)

    def test_after_a_right_call_a_wrong_one_is_still_noticed(self):
        right = _tensors(5)
        self._is_right(right)
        for what, wrong in {
                "a row that is longer": {"x": torch.randn(5, _K + 1)},
                "a matrix that is wider": {"up": torch.randn(_N + 1, _K)},
                "one dimension less": {"gate": torch.randn(_N)},
                "another type": {"up": right["up"].bfloat16()},
                "another device": {"gate": right["gate"].to("meta")}}.items():
            with self.subTest(what), self.assertRaises(coda_cpp.Error):
                ops.swiglu_linear(**{**right, **wrong})
        self._is_right(right)

    def test_another_type_and_other_strides_are_other_memory(self):
        right = _tensors(6)
        self._is_right(right)
        self._is_right({n: t.T.contiguous().T for n, t in right.items()})
        self._is_right({**right, "x": right["x"][:1].expand(6, _K)})
        low = {n: t.bfloat16() for n, t in right.items()}
        torch.testing.assert_close(
            ops.swiglu_linear(**low).double(), _expected(low), rtol=1e-2, atol=1e-2)

    def test_targets_are_looked_at_in_every_call(self):
        x, weight = torch.randn(2, _K), torch.randn(_N, _K)
        for _ in range(2):
            ops.linear_cross_entropy(x, weight, torch.tensor([0, _N - 1]))
        with self.assertRaisesRegex(coda_cpp.Error, f"'targets' has the value {_N}"):
            ops.linear_cross_entropy(x, weight, torch.tensor([0, _N]))

    def test_a_number_is_part_of_what_a_call_is_like(self):
        tensors = {"x": torch.randn(2, _K), "weight": torch.randn(_N, _K),
                   "residual": torch.zeros(2, _N)}
        for eps in (1e-6, 100.0, 1e-6):
            y, rstd = ops.linear_residual_rms(**tensors, eps=eps)
            torch.testing.assert_close(rstd, torch.rsqrt(y.pow(2).mean(-1) + eps))

    def test_a_backward_checks_what_it_takes(self):
        leaves = {n: t.requires_grad_() for n, t in _tensors(5).items()}
        y = ops.swiglu_linear(**leaves)
        backward, calls = torch.ops.coda_cpp.swiglu_linear_backward.default, []
        with unittest.mock.patch.object(
                coda_cpp._operators.Operator, "backward",
                staticmethod(lambda *given: calls.append(given) or backward(*given))):
            y.sum().backward()
        (tensors, key, needs), = calls
        for what, wrong in {"type": tensors[-1].bfloat16(), "shape": tensors[-1][1:],
                            "device": tensors[-1].to("meta")}.items():
            with self.subTest(what), self.assertRaises((coda_cpp.Error, NotImplementedError)):
                backward([*tensors[:-1], wrong], key, needs)
        for made, leaf in zip(backward(tensors, key, needs), leaves.values()):
            self.assertTrue(torch.equal(made, leaf.grad))

    def test_more_numbers_of_rows_than_sessions_are_kept(self):
        prepared = []

        def prepare(*given, make=_core.PlanRunner, **named):
            prepared.append(make(*given, **named))
            return prepared[-1]

        with unittest.mock.patch.object(_core, "PlanRunner", prepare):
            for _ in range(2):
                for rows in range(40, 41 + session.RUNNERS):
                    self._is_right(_tensors(rows))
            self.assertEqual(len(prepared), 2 * (session.RUNNERS + 1))
            self._is_right(_tensors(rows))
            self.assertEqual(len(prepared), 2 * (session.RUNNERS + 1))
        self.assertEqual({runner.own_bytes for runner in prepared}, {0})  # what waits holds nothing

    def test_threads_with_as_many_shapes(self):
        batches = [_tensors(rows) for rows in range(1, 13)]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for _ in pool.map(self._is_right, batches * 8):
                pass


class Memory(unittest.TestCase):
    def test_it_forgets_what_came_first(self):
        kept = _calls.Bounded(3)
        for i in range(5):
            kept.put(i, str(i))
        self.assertEqual([kept.get(i) for i in range(5)], [None, None, "2", "3", "4"])
        self.assertEqual(len(kept), 3)

    def test_threads_may_fill_it_at_once(self):
        kept = _calls.Bounded(10)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for _ in pool.map(lambda i: kept.put(i, i), range(2000)):
                pass
        self.assertEqual(len(kept), 10)


if __name__ == "__main__":
    unittest.main()
