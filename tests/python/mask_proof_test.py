# SPDX-License-Identifier: Apache-2.0
"""What is proven of masks, held against their values: programs made by chance, and ordinary masks.
"""

import collections
import contextlib
import functools
import random
import unittest

import torch
import torch._dynamo
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from compiled import Recorder
from coda_cpp.torch_backend import mask_proof
from coda_cpp.torch_backend.mask_proof import (
    Affine, Element, Order, Prover, Truth, Unproven, Where)
from coda_cpp.torch_backend.normal import Normal

_INTEGERS = (torch.int64, torch.int64, torch.int64, torch.int32, torch.int16, torch.int8,
             torch.uint8)


def _values(found, shape, of_node):
    """What is said of a tensor, as the tensor. of_node: the values of nodes."""
    def of(one):
        made = torch.full(shape, one.constant, dtype=torch.int64)
        for dim, factor in enumerate(one.over(shape).factors):
            coordinate = torch.arange(shape[dim]).view([-1 if i == dim else 1
                                                        for i in range(len(shape))])
            made = made + factor * coordinate
        return made

    def element(one):
        read = of_node(one.base)[tuple(map(of, one.place))].to(torch.int64)
        return (read + one.constant).expand(shape)

    if not isinstance(found, Where):
        return of(found) if isinstance(found, Affine) else element(found)
    made = torch.ones(shape, dtype=torch.bool)
    for one in found:
        made &= (element(one.one) <= element(one.other) if isinstance(one, Order)
                 else element(one.one) > 0 if isinstance(one, Truth) else of(one) >= 0)
    return made


def _of(prover, node):
    """What is known of a tensor besides that it is itself."""
    found = prover.of(node)
    itself = [found] if isinstance(found, Element) else [
        one.one for one in found if isinstance(one, Truth)] if isinstance(found, Where) else []
    if any(one.base is node for one in itself):
        raise Unproven
    return found


def packed_mask(mask, window):
    """The mask [..., tokens, tokens] of documents that begin where `mask` does not show the token
    in front."""
    tokens = mask.shape[-1]
    begins = torch.zeros(*mask.shape[:-1], dtype=torch.int64)
    begins[..., 1:] = ~mask.diagonal(-1, -2, -1)
    documents = begins.cumsum(-1)
    seen = (documents[..., None] == documents[..., None, :]).tril()
    return seen if window is None else seen.triu(-window)


def padded_mask(mask, padded):
    """The mask [batch, 1, tokens, tokens] that shows the keys that `mask` shows to their own
    tokens, to other queries too."""
    tokens = mask.shape[-1]
    distance = torch.arange(tokens)[:, None] - torch.arange(tokens)
    shown = mask.diagonal(0, -2, -1)[:, :, None].expand(-1, -1, tokens, -1)
    shown = shown & (distance <= padded.before) if padded.before is not None else shown
    return shown & (-distance <= padded.behind) if padded.behind is not None else shown


def _of_padding(draw, call):
    """A mask [batch, 1, tokens, tokens] of comparisons of places and of unknown booleans, for each
    key, query or score."""
    batch, n = draw.choice((1, 2)), draw.choice((2, 3, 5))
    i, j = (call("view", call("arange", n), [1, 1, *shape]) for shape in ((n, 1), (1, n)))
    seen = call("lt", call("rand", [batch, n]), 0.6)
    scores = call("lt", call("rand", [1, 1, n, n]), 0.6)
    keys = call("view", seen, [batch, 1, 1, n])
    indexed = call("index", seen, [
        call("view", call("arange", batch), [batch, 1, 1, 1]), j])
    causal, window = call("le", j, i), call("gt", j, call("sub", i, draw.randint(1, 4)))
    both = call(draw.choice(("le", "lt")), call("abs", call("sub", i, j)), draw.randint(0, 3))
    pieces = (keys, keys, indexed, causal, causal, window, both, both, call("ge", j, 1),
              call("view", seen, [batch, 1, n, 1]), scores, call("bitwise_not", keys))
    made = draw.choice(pieces)
    for _ in range(draw.randint(0, 3)):
        name = draw.choice(("bitwise_and", "bitwise_and", "bitwise_and", "bitwise_or"))
        made = call(name, made, draw.choice(pieces))
    return call("expand", made, [batch, 1, n, n])


def _causal(tensor):
    """Whether the mask is the causal one, by its values."""
    if tensor.dtype == torch.bool:
        return torch.equal(tensor, torch.ones_like(tensor).tril())
    return torch.equal(tensor == 0, torch.ones(tensor.shape).tril().bool()) and torch.equal(
        tensor <= -1e9, ~torch.ones(tensor.shape).tril().bool())


class Chance:
    """A program of operations on tensors, drawn one after another. `call` runs one and returns its
    result, or raises what PyTorch raises."""

    def __init__(self, seed, call, size):
        self.draw, self._call, self._size = random.Random(seed), call, size
        self.integers, self.masks, self.floats = [], [], []

    def _number(self):
        return self.draw.choice((-300, -129, -3, -2, -1, -1, 0, 0, 1, 1, 2, 3, 127, 200))

    def _dim(self, x):
        return self.draw.randint(-x.dim(), x.dim() - 1)

    def _arange(self):
        step = self.draw.choice((1, 1, 1, 1, 2, -1))
        start = self.draw.choice((0, 0, 0, 1, -1, -2, 100))
        count = self.draw.choice((self._size, self._size, self._size, 1))
        dtype = self.draw.choice(_INTEGERS)
        if step == 1 and start == 0:
            return self._call("arange", count, dtype=dtype)
        return self._call("arange", start, start + step * count, step, dtype=dtype)

    def _moved(self, x):
        kind = self.draw.choice(("unsqueeze", "unsqueeze", "transpose", "slice", "select",
                                 "expand", "clone", "reshape", "squeeze"))
        if kind == "unsqueeze":
            return self._call(kind, x, self.draw.randint(-x.dim() - 1, x.dim()))
        if kind == "transpose":
            return self._call(kind, x, self._dim(x), self._dim(x))
        if kind == "slice":
            return self._call(kind, x, self._dim(x), self.draw.choice((None, 0, 1, -2, 3, -300)),
                              self.draw.choice((None, 2, -1, 100)), self.draw.choice((1, 1, 2)))
        if kind == "select":
            return self._call(kind, x, self._dim(x), self.draw.choice((0, 1, -1)))
        if kind == "expand":
            shape = [self._size if size == 1 else size for size in x.shape]
            return self._call(kind, x, [1] * self.draw.randint(0, 1) + shape)
        if kind == "reshape":
            return self._call(kind, x, [1, *x.shape])
        return self._call(kind, x)

    def _integer(self):
        kind = self.draw.choice(("arange", "moved", "moved", "add", "sub", "mul", "neg", "to",
                                 "cumsum", "diff", "index", "index", "cumsum of ones", "unknown",
                                 "documents"))
        if kind == "arange" or not self.integers:
            return self._arange()
        x, y = self.draw.choice(self.integers), self.draw.choice([*self.integers, self._number()])
        if kind == "moved":
            return self._moved(x)
        if kind in ("add", "sub", "mul"):
            return self._call(kind, x, y)
        if kind == "neg":
            return self._call(kind, x)
        if kind == "to":
            return self._call(kind, x, self.draw.choice(_INTEGERS))
        if kind == "unknown":
            return self._call("remainder", x, self.draw.choice((2, 3, 5)))
        if kind == "documents":
            return self._call("cumsum", self._call("ne", x, self._number()), self._dim(x))
        if kind == "cumsum of ones":
            made = self._call("full", [self._size], self.draw.choice((1, 2, True)))
            return self._call("cumsum", made, 0)
        if kind == "cumsum":
            return self._call(kind, x, self._dim(x))
        if kind == "diff":
            dim = self._dim(x)
            before = self._call("slice", x, dim, 0, 1)
            return self._call(kind, x, 1, dim, self._call("sub", before, self.draw.choice((1, 2))))
        whole = [one for one in self.integers if one.dim() == 1]
        x = self.draw.choice([*(whole or [x]), x])
        indices = [one for one in self.integers if one.dtype != torch.uint8]  # those are masks
        return self._call("index", x, [self.draw.choice(indices) for _ in range(x.dim())])

    def _mask(self):
        kind = self.draw.choice(("compare", "compare", "compare", "compare", "ones", "both",
                                 "either", "not", "moved", "tril", "where", "masked_fill",
                                 "documents"))
        if kind in ("compare", "ones") or not self.masks:
            if kind == "ones" or not self.integers:
                return self._call("full", [self._size] * self.draw.randint(1, 2),
                                  self.draw.random() < 0.7)
            name = self.draw.choice(("ge", "gt", "le", "lt", "eq", "ne"))
            return self._call(name, self.draw.choice(self.integers),
                              self.draw.choice([*self.integers, *self.integers, self._number()]))
        if kind == "documents":
            return self._of_documents()
        x, y, z = (self.draw.choice(self.masks) for _ in range(3))
        if kind in ("both", "either"):
            return self._call({"both": "bitwise_and", "either": "bitwise_or"}[kind], x, y)
        if kind == "not":
            return self._call("bitwise_not", x)
        if kind == "moved":
            return self._moved(x)
        if kind == "tril" and x.dim() > 1:
            return self._call(self.draw.choice(("tril", "triu")), x,
                              self.draw.choice((0, 0, 1, -1, 2)))
        if kind == "where":
            return self._call("where", x, y, z)
        return self._call("masked_fill", x, y, self.draw.random() < 0.5)

    def _of_documents(self):
        """A causal mask, in most cases, of tokens whose numbers are equal, or in order."""
        arange = self._call("arange", self._size, dtype=torch.int64)
        steps = self._call("diff", self._call("remainder", arange, self.draw.choice((2, 3))), 1, 0,
                           self._call("slice", arange, 0, 0, 1))
        made = None
        for numbers, names in (
                (arange, ("ge", "ge", "ge", "gt")),
                (self.draw.choice([
                    self._call("cumsum", self._call("ne", steps, self.draw.choice((1, 1, 0))), 0),
                    *(one for one in self.integers if one.dim() == 1)]), ("eq", "eq", "ge"))):
            mask = self._call(self.draw.choice(names), self._call("unsqueeze", numbers, 1),
                              self._call("unsqueeze", numbers, 0))
            made = mask if made is None else self._call("bitwise_and", made, mask)
        return made

    def _float(self):
        kind = self.draw.choice(("full", "where", "masked_fill", "tril", "moved"))
        if kind == "full" or not self.floats:
            return self._call("full", [self._size] * 2, self.draw.choice((0.0, -torch.inf)))
        x = self.draw.choice(self.floats)
        if kind == "where" and self.masks:
            return self._call(kind, self.draw.choice(self.masks), x, self.draw.choice(self.floats))
        if kind == "masked_fill" and self.masks:
            return self._call(kind, x, self.draw.choice(self.masks),
                              self.draw.choice((0.0, -torch.inf, -2.0**100, -1e8)))
        if kind == "tril":
            return self._call(self.draw.choice(("tril", "triu")), x,
                              self.draw.choice((0, 0, 1, -1)))
        return self._moved(x)

    def run(self, count):
        for _ in range(count):
            kind = self.draw.choice(("integer", "integer", "integer", "mask", "mask", "float"))
            try:
                made = getattr(self, f"_{kind}")()
            except (RuntimeError, IndexError, TypeError, ValueError):
                continue  # PyTorch refuses the operands
            if made.dim() <= 4:
                {"integer": self.integers, "mask": self.masks, "float": self.floats}[kind].append(
                    made)
        return self.masks + self.floats


_OVERLOADS = {"slice": ("Tensor",), "index": ("Tensor",), "transpose": ("int",),
              "select": ("int",), "to": ("dtype",), "where": ("self",),
              "arange": ("default", "start_step"), "add": ("Tensor", "Scalar"),
              "sub": ("Tensor", "Scalar"), "mul": ("Tensor", "Scalar"),
              "masked_fill": ("Scalar",), "remainder": ("Scalar",),
              **dict.fromkeys(("ge", "gt", "le", "lt", "eq", "ne"), ("Tensor", "Scalar")),
              "bitwise_and": ("Tensor",), "bitwise_or": ("Tensor",)}


def _target(name, args):
    overloads = _OVERLOADS.get(name, ("default",))
    is_second = len(overloads) > 1 and (
        len(args) == 3 if name == "arange" else not isinstance(args[1], torch.Tensor))
    return getattr(getattr(torch.ops.aten, name), overloads[is_second])


class Recorded:
    """Operations run on real tensors and written down as a graph."""

    def __init__(self):
        self.graph, self.nodes = fx.Graph(), {}

    def __call__(self, name, *args, **named):
        target = _target(name, args)
        made = target(*args, **named)
        if id(made) in self.nodes:
            return made
        node = self.graph.call_function(target, *torch.utils._pytree.tree_map(
            lambda x: self.nodes[id(x)] if isinstance(x, torch.Tensor) else x, (args, named)))
        node.meta["val"], self.nodes[id(made)] = made, node
        return made


def _called(name, *args, **named):
    return _target(name, args)(*args, **named)


class Values(fx.Interpreter):
    """What a graph's nodes are in a run."""

    def run(self, *args):
        self.of = {}
        return super().run(*args)

    def run_node(self, node):
        made = super().run_node(node)
        if isinstance(made, torch.Tensor):
            self.of[node] = made
        return made


def _sized(size, number):
    """A traced size where the symbol is the number."""
    if isinstance(size, int):
        return size
    expression = size.node.expr
    return int(expression.subs({symbol: number for symbol in expression.free_symbols}))


def _with_a_view_written_to():
    mask = torch.ones(16, 16, dtype=torch.bool).tril()
    mask[:, 3:5].fill_(True)
    return mask


def _with_strides_written_to():
    mask = torch.ones(16, 16, dtype=torch.bool).tril()
    mask.as_strided((4,), (1,)).fill_(True)
    return mask


class Masks(unittest.TestCase):
    def _holds(self, node, found, value, of_node=lambda node: node.meta["val"]):
        """That a tensor is what is said of it."""
        said = _values(found, tuple(value.shape), of_node)
        if value.dtype.is_floating_point:
            self.assertTrue(bool(((value == 0) | (value <= -1e9)).all()), node)
            value = value == 0
        self.assertTrue(torch.equal(said, value.to(said.dtype)), node)

    def test_what_is_said_of_any_tensor_is_so(self):
        counts = collections.Counter()
        for seed in range(800):
            recorded = Recorded()
            Chance(seed, recorded, (2, 3, 5, 7)[seed % 4]).run(40)
            prover = Prover()
            for node in recorded.graph.nodes:
                value, name = node.meta["val"], node.target._schema.name
                is_causal = mask_proof.is_causal(prover, node)
                number = mask_proof.hidden_number(prover, node)
                if number is not None:
                    counts[f"{number} hides"] += 1
                    self.assertTrue(bool(((value == 0) | (value == number)).all()))
                if mask_proof.is_full(prover, node):
                    counts["full"] += 1
                    shown = value if value.dtype == torch.bool else value == 0
                    self.assertTrue(bool(shown.all()))
                packed = mask_proof.packed(prover, node)
                if packed is not None:
                    counts["packed"] += 1
                    mask = value if value.dtype == torch.bool else value == 0
                    self.assertTrue(torch.equal(mask, packed_mask(mask, packed.window)))
                try:
                    found = _of(prover, node)
                except Unproven:
                    counts[f"unproven {name}"] += 1
                    self.assertFalse(is_causal)
                    continue
                self._holds(node, found, value)
                counts["causal"] += is_causal
                counts["negative index"] += name == "aten::index" and any(
                    bool((index.meta["val"] < 0).any()) for index in node.args[1])
                self.assertTrue(not is_causal or _causal(value))
                counts[f"proven {name}"] += 1
        # The programs reach what they are for: each operation, proven and not.
        for name in ("index", "diff", "cumsum", "add", "mul", "le", "where", "tril"):
            self.assertGreater(counts[f"proven aten::{name}"], 50, name)
            self.assertGreater(counts[f"unproven aten::{name}"], 20, name)
        self.assertGreater(counts["causal"], 60)
        self.assertGreater(counts["full"], 60)
        self.assertGreater(counts["packed"], 10)
        for number in (-torch.inf, -2.0**100):
            self.assertGreater(counts[f"{number} hides"], 20)
        self.assertGreater(counts["negative index"], 20)

    def test_masks_of_padding(self):
        counts = collections.Counter()
        for seed in range(1000):
            torch.manual_seed(seed)
            recorded = Recorded()
            mask = _of_padding(random.Random(seed), recorded)
            prover = Prover()
            for node in recorded.graph.nodes:
                with contextlib.suppress(Unproven):
                    self._holds(node, _of(prover, node), node.meta["val"])
            node = recorded.nodes[id(mask)]
            self.assertFalse(mask_proof.is_full(prover, node) and not bool(mask.all()))
            padded = mask_proof.padded(prover, node)
            counts[padded and (padded.behind, padded.before is not None)] += 1
            if padded is not None:
                self.assertTrue(torch.equal(mask, padded_mask(mask, padded)), seed)
        for kind in (None, (0, False), (0, True), (1, True), (None, False)):
            self.assertGreater(counts[kind], 10, kind)

    def test_and_for_all_sizes_that_a_symbol_may_be(self):
        proven = 0
        for seed in range(30):
            def program(x):
                return Chance(seed, _called, x.shape[0]).run(30)

            traced = make_fx(program, tracing_mode="symbolic", pre_dispatch=True)(torch.empty(7))
            prover = Prover()
            for size in (2, 4, 5, 7, 8, 11):
                values = Values(traced)
                try:
                    values.run(torch.empty(size))
                except (RuntimeError, IndexError):
                    continue  # the trace is of other sizes
                for node, value in values.of.items():
                    if "val" not in node.meta:
                        continue
                    traced_shape = [_sized(n, size) for n in node.meta["val"].shape]
                    if traced_shape != list(value.shape):
                        break  # as well
                    try:
                        found = _of(prover, node)
                    except Unproven:
                        continue
                    self._holds(node, found, value, values.of.__getitem__)
                    proven += any(not isinstance(n, int) for n in node.meta["val"].shape)
        self.assertGreater(proven, 600)

    def test_a_symbol_may_be_any_size(self):
        """No number that a tensor's size can be is beyond all of a symbol's."""
        for number in (10, 5000, 2**30, 2**39):
            def program(x):
                rows, columns = torch.arange(x.shape[0])[:, None], torch.arange(x.shape[0])
                return (columns <= rows) & (columns > rows - number), columns <= rows

            traced = make_fx(program, tracing_mode="symbolic", pre_dispatch=True)(torch.empty(7))
            prover = Prover()
            windowed, causal = traced.graph.output_node().args[0]
            self.assertFalse(mask_proof.is_causal(prover, windowed), number)
            self.assertTrue(mask_proof.is_causal(prover, causal))

    def test_which_masks_are_known(self):
        n = 16
        i, j = (lambda: torch.arange(n)[:, None]), (lambda: torch.arange(n)[None])
        ones = functools.partial(torch.ones, n, n, dtype=torch.bool)
        masks = {
            "compared": (lambda: j() <= i(), True),
            "turned": (lambda: i() >= j(), True),
            "less": (lambda: j() < i() + 1, True),
            "twice": (lambda: 2 * j() <= 2 * i() + 1, True),
            "triangle": (lambda: ones().tril(), True),
            "not the upper triangle": (lambda: ~ones().triu(1), True),
            "filled": (lambda: ones().masked_fill(j() > i(), False), True),
            "added": (lambda: torch.full((n, n), -torch.inf).triu(1), True),
            "added where": (lambda: torch.where(j() <= i(), 0.0, -torch.inf), True),
            "added, filled": (
                lambda: torch.zeros(n, n).masked_fill(~ones().tril(), -torch.inf), True),
            "narrow": (lambda: torch.arange(n, dtype=torch.int8)[:, None] >= j(), True),
            "window of all": (lambda: (j() <= i()) & (j() > i() - 16), True),
            "implied": (lambda: (j() <= i()) & (j() < i() + 3), True),
            "indexed": (lambda: torch.arange(n)[i()] >= torch.arange(n)[j()], True),
            "counted from the end": (lambda: torch.arange(n)[i() - n] >= j(), True),
            "sliced from before its begin": (lambda: torch.arange(n)[-300:, None] >= j(), True),
            "written to by strides": (_with_strides_written_to, False),
            "wrapped index": (
                lambda: torch.arange(n)[i() - 1] >= torch.arange(n)[j() - 1], False),
            "strictly": (lambda: j() < i(), False),
            "anti": (lambda: j() >= i(), False),
            "window": (lambda: (j() <= i()) & (j() > i() - 15), False),
            "all of them": (lambda: j() <= j(), False),
            "shifted": (lambda: j() <= i() + 1, False),
            "wrapped bytes": (lambda: (i() * 17).to(torch.int8) >= (j() * 17).to(torch.int8),
                              False),
            "wrapped below 0": (
                lambda: (i().to(torch.uint8) - 1) >= (j().to(torch.uint8) - 1), False),
            "wide triangle": (lambda: ones().tril(1), False),
            "penalty": (lambda: torch.full((n, n), -3.0).triu(1), False),
            "one row for all": (lambda: (torch.arange(1)[:, None] >= j()).expand(n, n), False),
            "written to": (lambda: ones().tril().logical_or_(j() == 3), False),
            "a view written to": (_with_a_view_written_to, False)}

        def attend(mask):
            def function(q):
                return functional.scaled_dot_product_attention(
                    q, q, q, mask().expand(1, 1, n, n))
            return function

        q = torch.randn(1, 2, n, 16)
        for name, (mask, expected) in masks.items():
            with self.subTest(name):
                self.assertEqual(_causal(mask()), expected)
                torch._dynamo.reset()
                recorder = Recorder()
                made = torch.compile(attend(mask), backend=recorder)(q)
                torch.testing.assert_close(made, attend(mask)(q), equal_nan=True)
                self.assertEqual(recorder.reports[0].causal, int(expected))

    def test_masks_that_hide_nothing(self):
        """As Hugging Face's encoders make them of no attention_mask, and broadcast ones. Scores of
        a learned bias, and masks that hide something, stay."""
        tokens, keys = 16, 24
        bias = torch.zeros(tokens, keys, requires_grad=True)
        masks = {
            "encoder": (lambda: (torch.arange(tokens) + 0)[None, None, :, None].ge(0).expand(
                2, -1, tokens, keys), 1),
            "a key's": (lambda: torch.ones(2, 1, 1, keys, dtype=torch.bool), 1),
            "added": (lambda: torch.zeros(tokens, keys), 1),
            "inverted": (lambda: 1.0 - torch.ones(1, 1, 1, keys), 0),
            "a number": (lambda: torch.ones(1, 1, dtype=torch.bool), 1),
            "all but one": (lambda: torch.arange(keys)[None, :] >= 1, 0),
            "learned": (lambda: bias, 0)}

        def attend(mask):
            def function(q, k):
                return functional.scaled_dot_product_attention(q, k, k, mask())
            return function

        q, k = torch.randn(2, 2, tokens, 16), torch.randn(2, 2, keys, 16)
        for name, (mask, expected) in masks.items():
            with self.subTest(name):
                torch._dynamo.reset()
                recorder = Recorder()
                made = torch.compile(attend(mask), backend=recorder)(q, k)
                torch.testing.assert_close(made, attend(mask)(q, k))
                self.assertEqual(recorder.reports[0].full, expected)

    def test_a_mask_gets_its_keys_beside_each_other(self):
        """For PyTorch's fast paths: a learned bias that has its heads there, as T5's, and a mask
        that is repeated along keys. Each is copied once, and repeated along the batch behind it."""
        tokens, attention = 24, torch.ops.aten.scaled_dot_product_attention.default
        biases = torch.randn(tokens, tokens, 2, requires_grad=True)
        shown = torch.rand(3, 1, tokens, 1) < 0.9
        masks = {
            "bias": (lambda: biases.permute(2, 0, 1)[None].expand(3, -1, -1, -1), 0),
            "rows": (lambda: shown.expand(3, 1, tokens, tokens), tokens**2)}

        def attend(q, mask):
            for _ in range(2):
                q = q + functional.scaled_dot_product_attention(q, q, q, mask).nan_to_num()
            return q.sum()

        q = torch.randn(3, 2, tokens, 16)
        for name, (mask, batch_stride) in masks.items():
            with self.subTest(name):
                torch._dynamo.reset()
                graphs = []

                def recorded(graph, inputs, graphs=graphs):
                    graphs.append(Normal(graph, inputs).module.graph)
                    return graph

                torch.compile(lambda q, mask=mask: attend(q, mask()), backend=recorded)(q)
                calls = graphs[0].find_nodes(op="call_function", target=attention)
                self.assertIs(calls[0].args[3], calls[1].args[3])
                stride = calls[0].args[3].meta["val"].stride()
                self.assertEqual((stride[0], stride[-1]), (batch_stride, 1))
                torch._dynamo.reset()
                made = torch.compile(lambda q, mask=mask: attend(q, mask()), backend=Recorder())(q)
                expected = attend(q, mask())
                torch.testing.assert_close(made, expected)
                if expected.requires_grad:
                    torch.testing.assert_close(torch.autograd.grad(made, biases),
                                               torch.autograd.grad(expected, biases))

    def test_a_mask_of_another_shape_than_the_scores_is_none(self):
        """The proof of [T, T] says nothing of what it is broadcast to."""
        def attend(q, k, mask):
            return functional.scaled_dot_product_attention(q, k, k, mask)

        q, one = torch.randn(1, 2, 8, 16), torch.randn(1, 2, 1, 16)
        for queries, keys, mask in (
                (q, q, lambda: torch.ones(1, 1, dtype=torch.bool).tril()),
                (q, one, lambda: torch.ones(8, 1, dtype=torch.bool).tril()),
                (one, q, lambda: torch.ones(1, 8, dtype=torch.bool).tril())):
            torch._dynamo.reset()
            recorder = Recorder()
            made = torch.compile(lambda q, k: attend(q, k, mask()), backend=recorder)(queries, keys)
            torch.testing.assert_close(made, attend(queries, keys, mask()))
            self.assertEqual(recorder.reports[0].causal, 0)


if __name__ == "__main__":
    unittest.main()
