# SPDX-License-Identifier: Apache-2.0
"""What a region reads of PyTorch's tensors, in each form, from tensors of any strides."""

import itertools
import unittest

import torch

from coda_cpp.torch_backend.values import Source


def tensors():
    """[2, 3, 8], as it is and with its memory in other orders."""
    x = torch.randn(2, 3, 8)
    return [x, x.transpose(0, 1).contiguous().transpose(0, 1), x.mT.contiguous().mT,
            torch.randn(2, 3, 16)[..., ::2]]


class Sources(unittest.TestCase):
    def test_matrices(self):
        for x in tensors():
            for order in itertools.permutations(range(3)):
                columns = x.shape[order[-1]]
                made = Source("matrix", order, columns).read(x, 6)
                self.assertTrue(torch.equal(made, x.permute(order).reshape(-1, columns)))
            heads = Source("matrix", (0, 1, 2), 24).read(x, 2)
            self.assertTrue(torch.equal(heads, x.reshape(2, 24)))
            self.assertTrue(torch.equal(Source("matrix", (0, 1), 0).read(x[..., :1], 6),
                                        x[..., 0].reshape(-1)))

    def test_types(self):
        for x in tensors():
            made = Source("matrix", (0, 1, 2), 8, dtype=torch.bfloat16).read(x, 6)
            self.assertTrue(torch.equal(made, x.reshape(6, 8).bfloat16()))

    def test_halves_of_tables(self):
        for x in tensors():
            whole = x.reshape(6, 8)
            for half, expected in ((None, whole), (0, whole[:, :4]), (1, whole[:, 4:])):
                made = Source("table", (0, 1, 2), 8, half).read(x, 12)
                self.assertTrue(torch.equal(made, expected))

    def test_rows_of_tables(self):
        """Of a table of 3 rows: that of a position, and that of a group of rows."""
        table, rows = torch.randn(3, 8), 12
        for form, expected in (("positions", [0, 1, 2] * 4),
                               ("groups", [0] * 4 + [1] * 4 + [2] * 4)):
            made = Source(form, (0, 1), 8).read(table, rows)
            self.assertEqual((made.tolist(), made.dtype), (expected, torch.int32))

    def test_weights(self):
        w = torch.randn(4, 8)
        self.assertIs(Source("as it is").read(w, 3), w)
        self.assertTrue(torch.equal(Source("turned").read(w, 3), w.t()))

    def test_indices(self):
        """Those beyond 32 bits stay beyond whatever is indexed."""
        index = torch.tensor([0, 5, -100, 2**31, 2**32 + 1, -2**33])
        made = Source("index").read(index, 6)
        self.assertEqual(made.tolist(), [0, 5, -100, 2**31 - 1, 2**31 - 1, -2**31])
        for ignored, right, wrong in (
                (None, [0, 4], [5]), (None, [0], [-1]), (-100, [-100, 4], [-99]), (7, [7, 0], [5]),
                (-100, [0], [2**32])):
            source = Source("index", within=(5, ignored))
            self.assertEqual(source.read(torch.tensor(right), 2).tolist(), right)
            with self.assertRaisesRegex(RuntimeError, r"a target lies outside of \[0, 5\)"):
                source.read(torch.tensor(right + wrong), 3)


if __name__ == "__main__":
    unittest.main()
