# SPDX-License-Identifier: Apache-2.0
"""Python writes what the text writes: every word of the language has its function in tiles, and the
programs that these functions write are those of the text, which is converted without loss."""

import inspect
import operator
import pathlib
import unittest

import coda_cpp
from coda_cpp import _core, tiles

_WORDS = _core.language()
# Operations that Python writes as operators, or has as a name of its own.
_OPERATORS = {"add": operator.add, "sub": operator.sub, "mul": operator.mul,
              "div": operator.truediv, "less": operator.lt, "less_equal": operator.le,
              "neg": operator.neg}
_NAMES = {"max": "maximum", "min": "minimum", "abs": "absolute"}


@tiles.write_program
def products(x: "[M, K]:bf16", w: "[2*N, K]:bf16", dy: "[K, M]:bf16", v: "[K, N]:bf16",
             a: "[M, L]:bf16", b: "[N, L]:bf16", h: "[M, N]", r: "[M]", c: "[N]", s: "scalar",
             target: "[M]:i32", keep: "[M, N]:u8"):
    tiles.constants(keep, s)
    gate, up = tiles.split_pairs(tiles.gemm(x, w), "concatenated")
    z = tiles.where(tiles.tile(keep),
                    gate * tiles.per_row(r) + tiles.per_column(c) - up / tiles.scalar(s), 0)
    l = tiles.as_stored(z, "bf16")
    tiles.store("l:bf16", l)
    tiles.store("l_target", tiles.select_column(l, tiles.per_row(target)))
    tiles.row_partial("sums", "log_sum_exp", l)
    tiles.row_partial("squares", "sum", l * l)
    tiles.row_partial("moments", "mean_m2", l)
    tiles.row_partial("entropies", "entropy", l)
    tiles.column_partial("largest", "max", z)
    tiles.column_partial("magnitudes", "abs_max", z)
    tiles.store_transposed("z_turned:e4m3", z)
    tiles.abs_max_into("z_largest", z)
    tiles.store("merged:e5m2", tiles.merge_pairs(up, gate, "concatenated"))
    tiles.store(h, tiles.tile(h) + tiles.gemm_sum((dy, v, "tn"), (a, b)) * tiles.column_index())


@tiles.write_program
def heads(x: "[M, 64*H]:f16", g: "[64]:f64", table: "[S, 64]", ids: "[M]:i32"):
    z = tiles.tile(x)
    r = tiles.rsqrt(tiles.reduce_group(z * z, 64) / 64.0)
    y = z * tiles.repeat_group(r, 64) * tiles.per_column(g, repeat="H")
    tiles.store("y:f16", y * tiles.tile(table, rows=ids, repeat="H"))


@tiles.write_program
def finalizer(sums: "[M, N]", dg: "[M, N]", l_target: "[M]"):
    lse = tiles.combine_rows("log_sum_exp", sums, "log_sum_exp")
    loss = lse - tiles.per_row(l_target)
    tiles.store("loss", loss)
    tiles.store("total", tiles.reduce_vector(loss))
    tiles.store("mean", tiles.reduce_vector(loss) / tiles.size("M"))
    tiles.store("turned", tiles.transpose_vector(loss))
    tiles.store("g_gradient", tiles.combine_columns("sum", dg))


@tiles.write_program
def blocks(x: "[M, 128*B]:e4m3", x_scales: "[M, B]", w: "[128*N, 128*B]:e5m2",
           w_scales: "[N, B]"):
    y = tiles.gemm(tiles.scaled(x, x_scales), tiles.scaled(w, w_scales))
    s = tiles.abs_max_group(y, 128) / 448
    tiles.store("y_scales", s)
    tiles.store("y:e4m3", y / tiles.repeat_group(s, 128))


_TEXTS = pathlib.Path(__file__).parents[1] / "program" / "faces"  # faces_test.cc reads them too
_WRITTEN = tuple((written, (_TEXTS / f"{written.name}.coda").read_text())
                 for written in (products, heads, finalizer, blocks))


class Language(unittest.TestCase):
    def test_a_program_in_python_is_the_one_of_its_text(self):
        for written, text in _WRITTEN:
            with self.subTest(written.name):
                self.assertEqual(written.text(), coda_cpp.Program.parse(text).text())
                self.assertEqual(written, coda_cpp.Program.parse(text))
                self.assertEqual(coda_cpp.Program.parse(written.text()), written)

    def test_every_word_is_there_and_in_one_of_these_programs(self):
        text = "".join(text for _, text in _WRITTEN)
        for kind in ("functions", "effects", "reductions", "types"):
            self.assertGreater(len(_WORDS[kind]), 4)
            for word in _WORDS[kind]:
                with self.subTest(kind, word=word):
                    if kind in ("functions", "effects"):
                        self.assertTrue(callable(getattr(tiles, word, None)))
                    if word not in ("f32",):  # which is not written
                        self.assertRegex(text, rf"\b{word}\b")

    def test_every_operation_has_a_name_or_an_operator(self):
        for word in _WORDS["operations"]:
            with self.subTest(word):
                function = _OPERATORS.get(word) or getattr(tiles, _NAMES.get(word, word))
                count = len(inspect.signature(function).parameters)

                def written(apply):
                    def one(*tensors):
                        tiles.store("out", apply(*map(tiles.tile, tensors)))

                    one.__annotations__ = dict.fromkeys("xyz"[:count], "[M, N]")
                    one.__signature__ = inspect.Signature(
                        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY)
                         for name in one.__annotations__])
                    return tiles.write_program(one)

                by_name = written(lambda *values: tiles.elementwise(word, *values))
                self.assertEqual(written(function), by_name)
                self.assertEqual(by_name.text().count("tile("), count)

    def test_what_is_no_program_is_refused(self):
        def returns(x: "[M, N]"):
            return tiles.tile(x)

        def without_tiles(x: "[M, N]"):
            tiles.store("out", tiles.silu(x))

        def stored_constant(x: "[M, N]"):
            tiles.constants(x)
            tiles.store(x, tiles.tile(x) * 2)

        for function, message in ((returns, "returns nothing"), (without_tiles, "is a tensor"),
                                  (stored_constant, "'x' is a constant, and is stored here")):
            with self.subTest(message), self.assertRaisesRegex(coda_cpp.Error, message):
                tiles.write_program(function)
        with self.assertRaisesRegex(coda_cpp.Error, "in a function that becomes a program"):
            tiles.column_index(4)


if __name__ == "__main__":
    unittest.main()
