#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes small random checkpoints with transformers, and what PyTorch computes from them.

Usage: hf_reference.py FOLDER [CASE...]; without names, all cases; --list names them. For each case:

    FOLDER/CASE/checkpoint/            as save_pretrained writes it (fp32)
    FOLDER/CASE/reference.safetensors
        tokens   i32 [B, T]            input token ids
        targets  i32 [B, T]            the target of each position; -100: ignored
        logits   f32 [B, T, V]
        losses   f32 [B, T]            cross-entropy of each position, 0 where ignored
        loss     f32 [1]               mean over the positions that count
        grad.P   f32, P's shape        gradient of loss with respect to each parameter, by its name
                                       in the checkpoint (a tied head's is its embedding's)

All in fp32 with eager attention. The same bytes each time: seeds are fixed by the case's name, and
PyTorch runs on one thread.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import zlib

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.core_model_loading import revert_weight_conversion
from transformers.utils import logging

IGNORED = -100


@dataclasses.dataclass(frozen=True)
class Case:
    """A model and a batch. Sizes are small, and odd where the architecture lets them be."""

    family: str  # transformers' model_type
    config: dict
    batch: int = 2
    tokens: int = 19
    shard: str | None = None  # largest shard of the checkpoint, as save_pretrained takes it
    renamed: dict = dataclasses.field(default_factory=dict)  # parameters, in the checkpoint
    old_config: bool = False  # config.json as transformers 4 writes it: rope_theta, rope_scaling


_LLAMA = dict(
    vocab_size=113, hidden_size=48, intermediate_size=88, num_hidden_layers=2,
    num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=256,
    rms_norm_eps=1e-5, tie_word_embeddings=False,
    rope_parameters=dict(rope_type="default", rope_theta=10000.0))
# With heads of 8 the four wavelengths are 6.3 (kept: below 32 / 4), 19.9 (blended), 62.8 and 198.7
# (divided: above 32 / 1).
_LLAMA3_ROPE = dict(
    rope_type="llama3", rope_theta=100.0, factor=8.0, low_freq_factor=1.0,
    high_freq_factor=4.0, original_max_position_embeddings=32)
_GPT2 = dict(
    vocab_size=113, n_positions=64, n_embd=48, n_layer=2, n_head=4, layer_norm_epsilon=1e-5,
    bos_token_id=0, eos_token_id=0)

# As LLaMA's, with what each has of its own.
_QWEN3 = _LLAMA | dict(head_dim=10, attention_bias=True)
# Without biases of attention: a key's, where nothing turns, has no gradient but rounding errors.
_SMOLLM3 = _LLAMA | dict(
    num_hidden_layers=3, no_rope_layer_interval=2, mlp_bias=True, pad_token_id=None)
# Weights of the experts that are chosen add up to less than 1.
_OLMOE = _LLAMA | dict(num_experts=4, num_experts_per_tok=2, pad_token_id=None, eos_token_id=None)
_GEMMA2 = _LLAMA | dict(num_attention_heads=4, head_dim=14, query_pre_attn_scalar=23,
                        attn_logit_softcapping=2.0, final_logit_softcapping=3.0, sliding_window=5,
                        tie_word_embeddings=True, pad_token_id=None)
# One layer of each kind turns as the other does not.
_GEMMA3 = _GEMMA2 | dict(
    attn_logit_softcapping=None, layer_types=["sliding_attention", "full_attention"],
    rope_parameters=dict(
        full_attention=dict(rope_type="linear", rope_theta=1000.0, factor=4.0),
        sliding_attention=dict(rope_type="default", rope_theta=100.0)))
_YARN = dict(rope_type="yarn", rope_theta=100.0, factor=4.0, beta_fast=4.0, beta_slow=1.0,
             original_max_position_embeddings=32)

_PHI3_LONG = _LLAMA | dict(
    pad_token_id=None, eos_token_id=None, original_max_position_embeddings=32, rope_parameters=dict(
        rope_type="longrope", rope_theta=100.0, short_factor=[1.0, 1.1, 1.3, 1.6],
        long_factor=[1.0, 1.9, 4.0, 7.5]))

_NEOX = dict(
    vocab_size=113, hidden_size=48, intermediate_size=88, num_hidden_layers=2,
    num_attention_heads=4, max_position_embeddings=64,
    rope_parameters=dict(rope_type="default", rope_theta=100.0, partial_rotary_factor=0.4))
_NEOX_NAMES = {"lm_head.weight": "embed_out.weight"}

CASES = {
    "llama_untied": Case("llama", _LLAMA),
    "llama_tied": Case("llama", _LLAMA | dict(tie_word_embeddings=True)),
    "llama_rope3": Case("llama", _LLAMA | dict(rope_parameters=_LLAMA3_ROPE), tokens=61),
    "llama_rope3_old_config": Case(
        "llama", _LLAMA | dict(rope_parameters=_LLAMA3_ROPE, tie_word_embeddings=True),
        tokens=61, old_config=True),
    # Heads whose sizes do not multiply to the hidden size; a head for each key-value head.
    "llama_wide_heads": Case(
        "llama", _LLAMA | dict(num_attention_heads=3, num_key_value_heads=3, head_dim=32)),
    "llama_sharded": Case("llama", _LLAMA, shard="40KB"),
    "llama_one_token": Case("llama", _LLAMA, batch=3, tokens=1),
    "llama_biases": Case("llama", _LLAMA | dict(attention_bias=True, mlp_bias=True)),
    "llama_rope_linear": Case("llama", _LLAMA | dict(
        rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=3.0))),
    "llama_rope_yarn": Case("llama", _LLAMA | dict(head_dim=16, rope_parameters=_YARN), tokens=61),
    # Longer than max_position_embeddings: the base grows.
    "llama_rope_dynamic": Case("llama", _LLAMA | dict(
        max_position_embeddings=32,
        rope_parameters=dict(rope_type="dynamic", rope_theta=100.0, factor=2.0)), tokens=61),
    "qwen2": Case("qwen2", _LLAMA | dict(
        use_sliding_window=True, sliding_window=5, max_window_layers=1)),
    "qwen3": Case("qwen3", _QWEN3),
    "mistral": Case("mistral", _LLAMA | dict(sliding_window=7)),
    "olmo2": Case("olmo2", _LLAMA | dict(pad_token_id=None)),
    "mixtral": Case("mixtral", _LLAMA | dict(
        num_local_experts=5, num_experts_per_tok=2, sliding_window=7)),
    "olmoe": Case("olmoe", _OLMOE),
    # The first layer has an MLP, which is wider than an expert.
    "qwen3_moe": Case("qwen3_moe", _QWEN3 | dict(
        num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20, norm_topk_prob=True,
        mlp_only_layers=[0], use_sliding_window=True, sliding_window=5)),
    "phi3": Case("phi3", _LLAMA | dict(sliding_window=11, pad_token_id=None)),
    # The first context is 32 tokens long.
    "phi3_longrope": Case("phi3", _PHI3_LONG, tokens=61),
    "phi3_longrope_short": Case("phi3", _PHI3_LONG),
    # Six of the eight channels of a head turn, as of Phi-4-mini three of four.
    "phi3_part_of_heads": Case("phi3", _LLAMA | dict(pad_token_id=None, rope_parameters=dict(
        rope_type="default", rope_theta=100.0, partial_rotary_factor=0.75))),
    "phi3_longrope_part_of_heads": Case("phi3", _PHI3_LONG | dict(rope_parameters=dict(
        _PHI3_LONG["rope_parameters"], partial_rotary_factor=0.5, short_factor=[1.0, 1.3],
        long_factor=[1.9, 7.5])), tokens=61),
    # The row of padding has a gradient from the head only.
    "llama_padding": Case("llama", _LLAMA | dict(pad_token_id=5)),
    "gemma2_padding": Case("gemma2", _GEMMA2 | dict(pad_token_id=-3)),
    "smollm3": Case("smollm3", _SMOLLM3),
    "gemma2": Case("gemma2", _GEMMA2),
    "gemma3": Case("gemma3_text", _GEMMA3),
    # Four of the twelve channels of a head turn.
    "gpt_neox": Case("gpt_neox", _NEOX, renamed=_NEOX_NAMES),
    "gpt_neox_one_after_the_other": Case("gpt_neox", _NEOX | dict(
        use_parallel_residual=False, attention_bias=False, hidden_act="gelu_new",
        tie_word_embeddings=True), renamed=_NEOX_NAMES),
    "gpt2": Case("gpt2", _GPT2),
    "gpt2_untied": Case("gpt2", _GPT2 | dict(tie_word_embeddings=False)),
    "gpt2_exact_gelu": Case("gpt2", _GPT2 | dict(activation_function="gelu")),
    "gpt2_long": Case("gpt2", _GPT2 | dict(n_inner=72, vocab_size=257), batch=1, tokens=64),
}


def make_model(case: Case, seed: int) -> torch.nn.Module:
    config = AutoConfig.for_model(case.family, **case.config)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    # Weights far enough from the usual start that norms, softmax and activations are not linear.
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=random)
            if parameter.dim() >= 2:
                parameter.copy_(noise * 0.15)
            elif name.endswith(".bias"):
                parameter.copy_(noise * 0.1)
            else:  # a norm's weight
                parameter.copy_(1 + noise * 0.2)
    return model


def make_batch(case: Case, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(seed + 1)
    size = (case.batch, case.tokens)
    vocabulary = case.config["vocab_size"]
    tokens = torch.randint(0, vocabulary, size, generator=random)
    targets = torch.randint(0, vocabulary, size, generator=random)
    if (padding := case.config.get("pad_token_id")) is not None:
        tokens[:, ::3] = padding % vocabulary
    targets[torch.rand(size, generator=random) < 0.25] = IGNORED
    targets[0, 0] = int(tokens[0, 0])  # at least one counts
    return tokens, targets


def rewrite_config(checkpoint: pathlib.Path) -> None:
    """config.json as transformers 4 has it."""
    path = checkpoint / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    config["transformers_version"] = "4.46.0"
    config["torch_dtype"] = config.pop("dtype", "float32")
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def make_case(folder: pathlib.Path, name: str) -> None:
    case = CASES[name]
    seed = zlib.crc32(name.encode())
    model = make_model(case, seed)
    tokens, targets = make_batch(case, seed)

    checkpoint = folder / name / "checkpoint"
    shards = {} if case.shard is None else {"max_shard_size": case.shard}
    model.save_pretrained(checkpoint, **shards)
    if case.old_config:
        rewrite_config(checkpoint)

    logits = model(input_ids=tokens, use_cache=False).logits
    losses = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="none")
    loss = losses.sum() / (targets != IGNORED).sum()
    loss.backward()

    result = {
        "tokens": tokens.int(), "targets": targets.int(), "logits": logits.detach(),
        "losses": losses.detach().view(targets.shape), "loss": loss.detach().view(1)}
    # A model holds experts side by side; its checkpoints have each by itself.
    gradients = revert_weight_conversion(
        model, {key: parameter.grad for key, parameter in model.named_parameters()})
    for key, gradient in gradients.items():
        result["grad." + case.renamed.get(key, key)] = gradient
    save_file({key: value.contiguous() for key, value in result.items()},
              folder / name / "reference.safetensors")
    count = sum(parameter.numel() for parameter in model.parameters())
    print(f"{name}: loss {loss.item():.6f}, {count} parameters")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, nargs="?")
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--list", action="store_true", help="name the cases")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(CASES))
        return
    unknown = [name for name in arguments.cases if name not in CASES]
    if arguments.folder is None or unknown:
        parser.error(f"no case '{unknown[0]}'; see --list" if unknown else "name a folder")
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    for name in arguments.cases or CASES:
        make_case(arguments.folder, name)


if __name__ == "__main__":
    main()
