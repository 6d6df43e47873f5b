# SPDX-License-Identifier: Apache-2.0
"""What the tests of torch.compile(model, backend="coda") have in common."""

import gc
import os
import shutil
import unittest
import unittest.mock

import torch
import torch._dynamo
from transformers import (
    Gemma2Config, Gemma2ForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM,
    MistralConfig, MistralForCausalLM, Qwen3Config, Qwen3ForCausalLM)

from coda_cpp.torch_backend import coda

# Dynamo makes much garbage, and a collection looks at all objects that live: seldom, and modules
# are no garbage.
gc.freeze()
gc.set_threshold(50_000, 20, 50)
# After each compilation Dynamo measures for a log how long its guards take, in 25 ms.
torch._dynamo.guards.profile_guard_manager = lambda *arguments: 0.0

VOCABULARY = 128
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": VOCABULARY,
         "use_cache": False, "head_dim": 16}


def system_compiler():
    """A context with the system's g++ on the PATH, which Inductor needs on a CPU. Skips the test if
    there is no g++."""
    path = "/usr/local/bin:/usr/bin:/bin"
    if shutil.which("g++", path=path) is None:
        raise unittest.SkipTest("Inductor needs g++")
    return unittest.mock.patch.dict(os.environ, {"PATH": path})


def llama(**changes):
    return LlamaForCausalLM(LlamaConfig(**{**SIZES, **changes}))


def qwen3(**changes):
    return Qwen3ForCausalLM(Qwen3Config(**{**SIZES, **changes}))


def mistral(**changes):
    return MistralForCausalLM(MistralConfig(**{**SIZES, **changes}))


def gemma2():
    return Gemma2ForCausalLM(Gemma2Config(**SIZES))


def gpt2(n_layer=2):
    model = GPT2LMHeadModel(GPT2Config(
        vocab_size=VOCABULARY, n_embd=64, n_layer=n_layer, n_head=4, use_cache=False, resid_pdrop=0,
        embd_pdrop=0, attn_pdrop=0, bos_token_id=0, eos_token_id=0))
    model.loss_type = "ForCausalLM"  # else Hugging Face logs, which ends Dynamo's graph
    return model


def ids(batch=2, tokens=32):
    return torch.randint(0, VOCABULARY, (batch, tokens))


def padded(tokens, batch=2):
    """Token ids, labels and the mask of a batch whose texts have different lengths."""
    ids = torch.randint(0, VOCABULARY, (batch, tokens))
    mask = torch.ones_like(ids)
    mask[1, tokens // 2:] = 0
    return {"input_ids": ids, "labels": ids.where(mask == 1, -100), "attention_mask": mask}


class Reversed(torch.autograd.Function):
    """A gradient-reversal layer, whose result is a view."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -0.5 * gradient


class Recorder:
    """The backend, whose reports are kept. Models here are too small for fusion to gain. An error
    that leaves operations to PyTorch does not show in the results, so it fails the test, unless
    `may_fall_back`. What the importer refuses by design (NotUnderstood) is for tests of reports."""

    def __init__(self, may_fall_back=False, **options):
        self.reports, self._may_fall_back = [], may_fall_back
        self.options = {"inner": "aot_eager", "cost_model": False, **options}

    def _reason(self, why, reason=coda.reason):
        if not self._may_fall_back and not isinstance(why, coda.NotUnderstood):
            if isinstance(why, AssertionError):
                raise why  # this one, which the backend has caught
            raise AssertionError(f"left to PyTorch: {reason(why)}") from why
        return reason(why)

    def _warn(self, text, warn=coda.warn_once):
        if not self._may_fall_back and text.startswith("left to PyTorch: all"):
            raise AssertionError(text)
        warn(text)

    def __call__(self, module, inputs):
        self.reports.append(coda.Report())
        with unittest.mock.patch.multiple(coda, reason=self._reason, warn_once=self._warn):
            return coda.coda(module, inputs, options=self.options, report=self.reports[-1])


def outcome(called, model, *arguments, **named):
    """The loss and the gradients of what is trained."""
    made = called(*arguments, **named)
    loss = made if isinstance(made, torch.Tensor) else made.loss
    wanted = [p for p in model.parameters() if p.requires_grad]
    return loss.detach(), torch.autograd.grad(loss, wanted)


def error(found, expected):
    """Over all of them: the root of the sum of the squares of their relative errors."""
    squares = sum(((a.double() - e.double()) / e.double().norm()).square().sum()
                  for a, e in zip(found, expected))
    return float(squares) ** 0.5
