# SPDX-License-Identifier: Apache-2.0
"""Where something outside the regions depends on strides, they are eager's: of results, of operands
of as_strided(), of operators that are not PyTorch's own, and of operands of random operations. The
reference is eager mode, in value, gradients and strides."""

import copy
import unittest

import torch
from torch import nn
from torch.nn import functional

from compiled import Recorder

_BATCH, _TOKENS, _WIDTH, _HEADS = 3, 8, 32, 4


@torch.library.custom_op("coda_test::read_by_stride", mutates_args=())
def read_by_stride(x: torch.Tensor, stride: int) -> torch.Tensor:
    """Row i begins at element i * stride of the memory of x, as a Triton kernel would read it."""
    return x.as_strided((x.shape[0], x.shape[-1]), (stride, 1)).clone()


@read_by_stride.register_fake
def _(x, stride):
    return x.new_empty(x.shape[0], x.shape[-1])


read_by_stride.register_autograd(
    lambda ctx, grad: (grad[:, None].expand(ctx.shape) * 0, None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "shape", inputs[0].shape))


class Turned(nn.Module):
    """A linear layer on [tokens, batch, width] behind a norm on [batch, tokens, width]: the region
    keeps the latter order of rows. `use` reads the result."""

    def __init__(self, use, in_place=False):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(_WIDTH), nn.Linear(_WIDTH, _WIDTH)
        self.use, self.in_place = use, in_place

    def forward(self, x):
        y = self.linear(self.norm(x).transpose(0, 1))
        if self.in_place:
            y /= 3
        return self.use(y)


def _chunks(y):
    """Longformer's: heads to the front, then chunks of 4 tokens that overlap by 2."""
    heads = y.view(*y.shape[:2], _HEADS, -1).transpose(0, 1).transpose(1, 2)
    heads = heads.reshape(-1, *heads.shape[2:])
    stride = heads.stride()
    return heads.as_strided((heads.shape[0], heads.shape[1] // 2 - 1, 4, heads.shape[2]),
                            (stride[0], 2 * stride[1], stride[1], stride[2]))


USES = {
    "chunks": _chunks,
    "chunks behind an operation": lambda y: _chunks(y * 2),
    "an offset of 0": lambda y: y.as_strided((5, 7), (7, 1), 0),
    "scattered": lambda y: torch.as_strided_scatter(y, torch.ones(5, 7), (5, 7), (7, 1)),
    "an operator of somebody": lambda y: read_by_stride(y, y.stride(0)),
    "rand_like": lambda y: y * torch.rand_like(y),
    "randn_like of a result": lambda y: y + torch.randn_like(torch.sin(y)),
    "bernoulli": lambda y: y * torch.bernoulli(torch.sigmoid(y.detach())),
    "empty_like": lambda y: y + torch.empty_like(y).exponential_(),
    "dropout": lambda y: functional.dropout(torch.sin(y), 0.5, True),
    "Gumbel": lambda y: functional.gumbel_softmax(y, dim=-1),
    "a view behind the graph": lambda y: torch.sin(y),
    "views behind the graph": lambda y: (torch.sin(y), y.transpose(0, 1), y[1:]),
}
# These read memory behind their operand's last element, or before its first.
PARTS = {
    "behind": lambda y: y[:4].as_strided((8, 2), (96, 1)),
    "before": lambda y: y[1:].as_strided((2, 5), (5, 1), 0),
    "of a slice": lambda y: y[:, :, 3:].as_strided((2, 5), (32, 1)),
}


def _outcome(called, model, x):
    torch.manual_seed(1)
    x = x.clone().requires_grad_()
    found = called(x)
    found = found if isinstance(found, tuple) else (found,)
    sum(one.square().mean() for one in found).backward()
    return found, [x.grad, *(p.grad for p in model.parameters())]


class Strides(unittest.TestCase):
    def check(self, use, in_place, layers):
        torch.manual_seed(0)
        model, recorder = Turned(use, in_place), Recorder()
        expected = copy.deepcopy(model)
        compiled = torch.compile(model, backend=recorder)
        for tokens in (_TOKENS, _TOKENS + 2):  # the second compilation is of any number
            for module in (model, expected):
                module.zero_grad(set_to_none=True)
            x = torch.randn(_BATCH, tokens, _WIDTH)
            results, gradients = _outcome(compiled, model, x)
            wanted, wanted_gradients = _outcome(expected, expected, x)
            for found, like in zip(results, wanted, strict=True):
                self.assertEqual(found.stride(), like.stride())
            torch.testing.assert_close(results, wanted)
            torch.testing.assert_close(gradients, wanted_gradients)
        self.assertEqual([layer.is_fused for layer in recorder.reports[0].layers], [layers])

    def test_what_depends_on_strides_finds_eagers(self):
        for name, use in USES.items():
            for in_place in (False, True)[:1 + ("chunks" in name)]:
                torch._dynamo.reset()
                with self.subTest(name, in_place=in_place):
                    self.check(use, in_place, True)

    def test_dimensions_of_one_element(self):
        """DistributedDataParallel compares all strides of gradients, also these."""
        class Positions(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(_WIDTH, _WIDTH)
                self.table = nn.Parameter(torch.randn(1, _TOKENS, _WIDTH))

            def forward(self, x):
                return functional.gelu(self.linear(x + self.table))

        model = Positions()
        compiled = torch.compile(model, backend=Recorder(strict=True), dynamic=False)
        for batch in (_BATCH, 1):
            made = []
            for run in (compiled, model):
                model.zero_grad()
                results, gradients = _outcome(run, model, torch.randn(batch, _TOKENS, _WIDTH))
                made.append([tensor.stride() for tensor in (*results, *gradients)])
            self.assertEqual(*made)

    def test_dropout_of_attention_that_is_batch_first(self):
        """The attention's last layer has [tokens, batch] rows, and its result is a transpose."""
        for is_first in (False, True):
            torch._dynamo.reset()
            model, recorder = nn.TransformerEncoderLayer(
                _WIDTH, _HEADS, 2 * _WIDTH, 0.5, batch_first=True, norm_first=is_first), Recorder()
            x, found = torch.randn(_BATCH, _TOKENS, _WIDTH), []
            for run in (torch.compile(model, backend=recorder), model):
                results, _ = _outcome(run, model, x)
                found.append(results[0].detach())
            torch.testing.assert_close(*found)
            self.assertGreater(sum(layer.is_fused for layer in recorder.reports[0].layers), 2)

    def test_as_strided_of_a_part_is_left(self):
        for name, use in PARTS.items():
            torch._dynamo.reset()
            with self.subTest(name):
                self.check(use, False, False)
