# SPDX-License-Identifier: Apache-2.0
"""torch.compile(model, backend="coda") in the ways that models are trained and used: the outcome is
that of the model as it is."""

import copy
import functools
import os
import tempfile
import threading
import unittest
import unittest.mock

import torch
import torch._dynamo
from torch import nn
from torch._dynamo.utils import counters
from torch.nn import functional
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.checkpoint import checkpoint

import coda_cpp
from coda_cpp import _calls
from coda_cpp.torch_backend import coda, inline
from compiled import Recorder, error, gpt2, ids, llama, outcome, system_compiler


class LowRank(nn.Module):
    """A frozen layer and what is trained beside it (LoRA: Hu et al., arXiv 2106.09685)."""

    def __init__(self, layer, rank=4):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, layer.out_features, bias=False)

    def forward(self, x):
        return self.layer(x) + self.up(self.down(x))


class Mlp(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(functional.silu(self.up(self.norm(x))))


class Mixed(nn.Module):
    """Modules of coda_cpp's between PyTorch's."""

    def __init__(self, width=64):
        super().__init__()
        self.first, self.last = nn.Linear(width, width), nn.Linear(width, width)
        self.out = coda_cpp.LinearResidualRMS(width, width)
        self.norm = nn.RMSNorm(width)
        self.mlp = coda_cpp.GatedMLP(width, 2 * width)

    def forward(self, x):
        x = x + functional.silu(self.first(x))
        y, rstd = self.out(x, x)
        y = y + self.mlp(y, rstd, self.norm.weight)
        return functional.silu(self.last(y)).float().square().mean()


class Counted:
    """How often regions are run forward."""

    def __enter__(self):
        self.calls, self._run = 0, _calls.Forward.run

        def run(call, tensors):
            self.calls += 1
            return self._run(call, tensors)

        _calls.Forward.run = run
        return self

    def __exit__(self, *_):
        _calls.Forward.run = self._run


class CompiledUses(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        torch.manual_seed(0)

    def _same(self, called, model, *arguments, allowed=2e-5, **named):
        loss, gradients = outcome(called, model, *arguments, **named)
        expected, wanted = outcome(model, model, *arguments, **named)
        torch.testing.assert_close(loss, expected)
        self.assertLess(error(gradients, wanted), allowed)

    def test_gradients_accumulate(self):
        model = llama(num_hidden_layers=1, tie_word_embeddings=True)
        called = torch.compile(model, backend=Recorder(strict=True), fullgraph=True)
        batches = [ids() for _ in range(3)]
        found = []
        for run in (called, model):
            model.zero_grad()
            for batch in batches:
                (run(input_ids=batch, labels=batch).loss / 3).backward()
            found.append([p.grad.clone() for p in model.parameters()])
        self.assertLess(error(*found), 2e-5)

    def test_modules_of_ours_in_a_model_under_autocast(self):
        model, x = Mixed(), torch.randn(2, 40, 64)
        plain = copy.deepcopy(model).bfloat16()
        called = torch.compile(model, backend=Recorder(), fullgraph=True)
        expected, wanted = outcome(model, model, x)
        _, rounded = outcome(plain, plain, x.bfloat16())
        with torch.autocast("cpu", torch.bfloat16):
            ways = [outcome(way, model, x) for way in (called, model)]
        for loss, gradients in ways:
            torch.testing.assert_close(loss, expected, rtol=1e-2, atol=0)
            self.assertLess(error(gradients, wanted), error(rounded, wanted))
            for (name, _), gradient in zip(model.named_parameters(), gradients):
                if name in ("out.weight", "mlp.gate_proj.weight", "mlp.up_proj.weight"):
                    self.assertFalse(torch.equal(gradient, gradient.bfloat16().float()), name)

    def test_autocast_does_not_reach_what_a_model_keeps_in_fp32(self):
        class Net(Mlp):
            def forward(self, x):
                y = super().forward(x).flatten(0, 1)
                with torch.autocast("cpu", enabled=False):
                    return y, y.float().T @ y.float()

        model, x = Net(), torch.randn(2, 40, 32)
        for inner in ("aot_eager", "eager"):
            with self.subTest(inner):
                torch._dynamo.reset()
                recorder = Recorder(inner=inner)
                called = torch.compile(model, backend=recorder, fullgraph=True)
                with torch.autocast("cpu", torch.bfloat16):
                    (y, found), expected = called(x), model(x)[0]
                self.assertEqual(len(recorder.reports[0].fused), 1)
                self.assertEqual((y.dtype, found.dtype), (expected.dtype, torch.float32))
                torch.testing.assert_close(y, expected, rtol=2e-2, atol=1e-2)
                torch.testing.assert_close(found, y.float().T @ y.float())

    def test_hugging_faces_checkpointing(self):
        model = llama().train()
        batch = ids()
        model.activation_checkpointing_enable()
        recorder = Recorder(strict=True)
        called = torch.compile(model, backend=recorder, fullgraph=True)
        with Counted() as counted:
            outcome(called, model, input_ids=batch, labels=batch)
        # Two regions in each of two blocks and one behind them; those in blocks are recomputed.
        self.assertEqual(len(recorder.reports[0].fused), 5)
        self.assertEqual(counted.calls, 5 + 4)
        self.assertEqual(recorder.reports[0].causal, 2)
        self._same(called, model, input_ids=batch, labels=batch)

    def test_checkpointing_of_ones_own(self):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.blocks = nn.ModuleList(Mlp() for _ in range(2))

            def forward(self, x):
                for block in self.blocks:
                    x = checkpoint(block, x, use_reentrant=False)
                return x.square().mean()

        model = Net()
        called = torch.compile(model, backend=Recorder(strict=True), fullgraph=True)
        for shape in ((2, 7, 32), (3, 9, 32), (5, 4, 32)):  # sizes become symbols
            self._same(called, model, torch.randn(shape))

    def test_nothing_is_computed_for_what_is_frozen(self):
        model = llama(num_hidden_layers=1)
        model.requires_grad_(False)
        for layer in model.model.layers:
            layer.self_attn.q_proj = LowRank(layer.self_attn.q_proj)
            layer.mlp.down_proj = LowRank(layer.mlp.down_proj)
        recorder = Recorder(strict=True)
        called = torch.compile(model, backend=recorder, fullgraph=True)
        batch = ids()
        self._same(called, model, input_ids=batch, labels=batch)
        # Besides the weights only what regions take from attention, whose rows are no number.
        made = [(info.rows[0], info.cols[0]) for entry in recorder.reports[0].fused
                for info in entry.plan.tensors
                if info.name.startswith("grad_to_") and not info.rows[1]]
        self.assertEqual(sorted(made), sorted(
            tuple(p.shape) for p in model.parameters() if p.requires_grad))

    def test_equal_layers_share_a_function(self):
        recorder = Recorder(strict=True)
        model, batch = llama(num_hidden_layers=3), ids()
        called = torch.compile(model, backend=recorder, fullgraph=True)
        self._same(called, model, input_ids=batch, labels=batch)
        functions = [entry.region.function for entry in recorder.reports[0].fused]
        self.assertEqual(len(functions), 4)
        self.assertEqual(len(set(functions)), 3)
        costs = [id(entry.costs) for entry in recorder.reports[0].fused]
        self.assertEqual(len(set(costs)), 3)  # each is found once

    def test_logits_are_stored_only_for_who_wants_them(self):
        model, batch = llama(num_hidden_layers=1), ids()
        expected, wanted = outcome(model, model, input_ids=batch, labels=batch)
        logits = model(input_ids=batch).logits
        for is_wanted in (True, False):
            torch._dynamo.reset()
            if not is_wanted:
                self.assertIs(coda_cpp.without_logits(model), model)
            recorder = Recorder(strict=True)
            called = torch.compile(model, backend=recorder, fullgraph=True)
            made = called(input_ids=batch, labels=batch)
            torch.testing.assert_close(made.loss, expected)
            self.assertLess(
                error(torch.autograd.grad(made.loss, list(model.parameters())), wanted), 2e-5)
            if is_wanted:
                torch.testing.assert_close(made.logits, logits, rtol=1e-4, atol=1e-4)
            else:
                self.assertIsNone(made.logits)
            stored = [info for info in recorder.reports[0].fused[-1].plan.tensors
                      if info.cols[0] == logits.shape[-1] and info.rows[1]]
            self.assertEqual(len([info for info in stored if info.role == "output"]), is_wanted)
        # Without labels they are the result.
        torch.testing.assert_close(model(input_ids=batch).logits, logits)

    def test_inference_and_training_in_turns(self):
        model = gpt2(n_layer=1)
        called = torch.compile(model, backend=Recorder(strict=True), fullgraph=True)
        batch = ids()
        self._same(called, model, input_ids=batch, labels=batch)
        for context in (torch.no_grad, torch.inference_mode):
            with context():
                torch.testing.assert_close(
                    called(input_ids=batch).logits, model(input_ids=batch).logits,
                    rtol=1e-4, atol=1e-4)
        self._same(called, model, input_ids=batch, labels=batch)

    def test_models_and_threads(self):
        models = [nn.Sequential(Mlp(), Mlp()) for _ in range(2)]
        called = [torch.compile(model, backend=Recorder(strict=True)) for model in models]
        x = torch.randn(4, 16, 32)
        expected = [outcome(lambda x, m=m: m(x).square().mean(), m, x) for m in models]
        for model, run in zip(models, called):
            run(x)
        wrong = []

        def train(model, run, wanted):
            for _ in range(5):
                loss, gradients = outcome(lambda x: run(x).square().mean(), model, x)
                if error([loss, *gradients], [wanted[0], *wanted[1]]) > 2e-5:
                    wrong.append(loss)

        threads = [threading.Thread(target=train, args=arguments)
                   for arguments in zip(models, called, expected) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_gradients_of_any_strides(self):
        model = Mlp()
        called = torch.compile(model, backend=Recorder(strict=True), fullgraph=True)
        x = torch.randn(6, 8, 32)
        wide = torch.randn(8, 32, 12)
        for upstream in (wide[:, :, ::2].permute(2, 0, 1), torch.ones(()).expand(6, 8, 32),
                         torch.randn(32, 8, 6).permute(2, 1, 0)):
            found, wanted = (torch.autograd.grad(run(x), list(model.parameters()), upstream)
                             for run in (called, model))
            self.assertLess(error(found, wanted), 2e-5)

    def test_state_dict_and_optimizer_are_the_models(self):
        model = llama(num_hidden_layers=1)
        reference = copy.deepcopy(model)
        called = torch.compile(model, backend=Recorder(strict=True), fullgraph=True)
        batches = [ids() for _ in range(4)]
        curves = []
        for trained, run in ((model, called), (reference, reference)):
            optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-3)
            losses = []
            for batch in batches:
                loss = run(input_ids=batch, labels=batch).loss
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.item())
            curves.append(losses)
        torch.testing.assert_close(*map(torch.tensor, curves), rtol=1e-4, atol=1e-4)
        self.assertEqual(list(model.state_dict()), list(reference.state_dict()))

    def test_what_is_around_flex_attention_is_fused(self):
        # The functions of its mask are called in its graph, and none of them writes. No other
        # attention has such a mask, so it stays.
        def is_seen(_, __, query, key):
            return (key <= query) & ((key > query - 9) | (key < 3))

        class Attention(nn.Module):
            def __init__(self):
                super().__init__()
                self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

            def forward(self, x):
                q, k, v = (y.unflatten(-1, (2, 16)).transpose(1, 2)
                           for y in self.qkv(torch.relu(x)).chunk(3, -1))
                return x + self.out(attention(q, k, v).transpose(1, 2).flatten(2))

        blocks = create_block_mask(is_seen, None, None, 128, 128, device="cpu")
        places = torch.arange(128)
        seen = is_seen(None, None, places[:, None], places)
        model, x, recorder = Attention(), torch.randn(2, 128, 32), Recorder(strict=True)
        with torch.no_grad():  # on a CPU it has no backward
            attention = functools.partial(flex_attention, block_mask=blocks)
            found = torch.compile(model, backend=recorder)(x)
            attention = functools.partial(functional.scaled_dot_product_attention, attn_mask=seen)
            torch.testing.assert_close(found, model(x))
        self.assertEqual([layer.is_fused for layer in recorder.reports[0].layers], [True] * 2)

    def test_small_regions_are_left_unless_asked_for(self):
        model, x = Mlp(), torch.randn(2, 4, 32)
        text = coda_cpp.explain(model, x)
        self.assertIn("fusion would gain nothing", text)
        self.assertNotIn("fusion would gain nothing",
                         coda_cpp.explain(model, x, options={"cost_model": False}))
        with self.assertRaisesRegex(coda_cpp.Error, "no option costmodel"):
            coda_cpp.explain(model, x, options={"costmodel": False})

    def test_inductors_processes_start_at_torch_compile_if_the_gpu_is_in_use(self):
        for in_use, inner, starts in ((True, "inductor", 1), (True, "aot_eager", 0),
                                      (False, "inductor", 0)):
            with unittest.mock.patch("torch.cuda.is_initialized", return_value=in_use), \
                    unittest.mock.patch("torch._inductor.async_compile.maybe_warm_pool") as start:
                torch.compile(Mlp(), backend="coda", options={"inner": inner})
            self.assertEqual(start.call_count, starts)

    def test_inductor_compiles_the_rest_and_its_cache_knows_regions(self):
        x = torch.randn(2, 4, 32)
        with tempfile.TemporaryDirectory() as folder, system_compiler(), \
                unittest.mock.patch.dict(os.environ, {"TORCHINDUCTOR_CACHE_DIR": folder}):
            for is_checkpointed in (False, True):
                found = []
                for eps in (1e-6, 1e-6, 0.5):  # a new model, the same computation, another one
                    torch._dynamo.reset()
                    counters["aot_autograd"].clear()
                    model = Mlp()
                    model.norm.eps = eps
                    outer = model_of_exp(model, is_checkpointed)
                    called = torch.compile(
                        outer, backend="coda", fullgraph=True, options={"cost_model": False})
                    self._same(called, outer, x)
                    found.append(counters["aot_autograd"]["autograd_cache_hit"])
                self.assertEqual(found, [0, 1, 0])

    def test_what_is_left_for_want_of_gain_is_part_of_the_graph_again(self):
        class Two(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = Mlp(), Mlp()

            def forward(self, x):
                return self.last(self.first(x).cumsum(1)).square().mean()

        are_whole = []

        def put(module):
            are_whole.append(inline.inline(module))
            return are_whole[-1]

        recorder = Recorder(cost_model=True)
        gains = property(lambda entry: entry.name != "fused_0")
        patch = unittest.mock.patch.object
        with patch(coda.RegionReport, "gains", gains), patch(coda, "inline", put):
            called = torch.compile(Two(), backend=recorder, fullgraph=True)
            self._same(called, called._orig_mod, torch.randn(2, 4, 32))
        report = recorder.reports[0]
        self.assertEqual((len(report.fused), len(report.without_gain)), (1, 1))
        self.assertEqual(are_whole, [True])  # so PyTorch's cache of compiled graphs takes it

    def test_what_is_computed_names_a_function(self):
        def spec(eps=1e-6, **options):
            graph = coda_cpp.Graph()
            x, w = graph.input("x", ("M", 8)), graph.parameter("w", (16, 8))
            y = coda_cpp.builders.linear(x, w) * coda_cpp.builders.rms_reciprocal(x, eps)
            return coda_cpp.GraphFunction([x, w], {"y": y}, **options).spec

        self.assertEqual(spec(), spec())
        others = {spec(), spec(1e-5), spec(loss_rows=8), spec(for_gpu=True), spec(rounded=[1]),
                  spec(nominal={"M": 8}), spec(storage="bf16"), spec(products="fp8"),
                  spec(products="fp8")}
        self.assertEqual(len(others), 9)


def model_of_exp(model, is_checkpointed):
    """So that something besides the region is there to compile."""
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, x):
            x = x.exp()
            y = checkpoint(model, x, use_reentrant=False) if is_checkpointed else model(x)
            return y.square().mean()
    return Outer()


if __name__ == "__main__":
    unittest.main()
