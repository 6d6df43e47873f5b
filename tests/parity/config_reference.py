#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Determines the effect of each key of a config.json on the model in transformers.

Usage: config_reference.py FILE. Writes a list of cases: for each supported architecture and each
key of its config, one case for each other value of the key. A case has the fields
    "model_type", "key"
    "config"   a small config with all keys
    "default"  the value that transformers uses if the key is missing
    "changed"  the config with the other value of the key
    "matters"  whether the other value changes the initial weights, or the loss or the gradients of
               a training step
A value that transformers refuses gives no case.
"""

import copy
import json
import sys
import warnings

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, logging

SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 40,
         "max_position_embeddings": 64, "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2,
         "query_pre_attn_scalar": 16, "moe_intermediate_size": 24, "num_local_experts": 4,
         "num_experts": 4, "num_experts_per_tok": 2, "attention_dropout": 0.0,
         "sliding_window": 4, "use_sliding_window": True, "max_window_layers": 1}
SMALL_GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 40, "n_positions": 64,
              "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "bos_token_id": 1,
              "eos_token_id": 2}
MODEL_TYPES = ["llama", "gpt2", "qwen2", "qwen3", "qwen3_moe", "mistral", "mixtral", "olmo2",
               "olmoe", "phi3", "smollm3", "gemma2", "gemma3_text", "gpt_neox"]
# Keys that are not tested: they name the model or the file format, or do not concern training.
SKIPPED = {"architectures", "model_type", "transformers_version", "dtype", "_name_or_path",
           "output_hidden_states", "output_attentions", "chunk_size_feed_forward", "problem_type",
           "use_cache", "bos_token_id", "eos_token_id"}
# Keys that only some architectures have, with the value that the configs of the others get.
FOREIGN = {"sliding_window": 4, "partial_rotary_factor": 0.5, "attn_logit_softcapping": 2.0,
           "layer_types": ["sliding_attention", "full_attention"], "is_causal": False}


def step_of(model_type: str, values: dict):
    """The initial weights, and the loss and gradients of one training step."""
    config = CONFIG_MAPPING[model_type].from_dict(copy.deepcopy(values))
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).train()
    weights = {name: value.detach().clone() for name, value in model.named_parameters()}
    ids = torch.arange(20)[None] * 7 % 37
    torch.manual_seed(1)
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    return {"loss": loss.detach(), **weights,
            **{f"d {name}": value.grad for name, value in model.named_parameters()}}


def differs(a: dict, b: dict) -> bool:
    if a.keys() != b.keys():
        return True
    for name, value in a.items():
        other = b[name]
        if (value is None) != (other is None):
            return True
        if value is None:
            continue
        if value.shape != other.shape or not torch.allclose(value, other, 1e-4):
            return True
    return False


def other_values(key: str, value) -> list:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1 if "token_id" in key else 2 * value or 4]
    if isinstance(value, float):
        return [value * 1.5 + 0.125]
    if isinstance(value, str):
        return ["relu"]
    if value is None:
        return [4, 0.5, True]
    if key == "layer_types":
        swapped = {"full_attention": "sliding_attention", "sliding_attention": "full_attention"}
        return [[swapped[value[0]], *value[1:]]]
    if key == "no_rope_layers":
        return [[1 - value[0], *value[1:]]]
    if key == "mlp_only_layers":
        return [[1]]
    if isinstance(value, dict) and "rope_theta" in value:
        return [{**value, "rope_theta": 77.0}, {**value, "rope_type": "linear", "factor": 3.0},
                {**value, "partial_rotary_factor": 0.5}]
    if isinstance(value, dict) and "full_attention" in value:  # a rope_theta for each type of layer
        return [{**value, layer: {**value[layer], "rope_theta": 77.0}} for layer in value]
    return []


def cases() -> list:
    found = []
    for model_type in MODEL_TYPES:
        kind = CONFIG_MAPPING[model_type]
        small = SMALL_GPT2 if model_type == "gpt2" else SMALL
        known = kind().to_dict()
        config = kind(**{key: value for key, value in small.items() if key in known}).to_dict()
        config["architectures"] = [AutoModelForCausalLM._model_mapping[kind].__name__]
        usual = step_of(model_type, config)
        values = {key: other_values(key, value) for key, value in config.items()}
        values |= {key: [value] for key, value in FOREIGN.items() if key not in config}
        for key in sorted(values.keys() - SKIPPED):
            without = {name: value for name, value in config.items() if name != key}
            try:
                without = kind.from_dict(copy.deepcopy(without)).to_dict()
            except Exception:  # transformers requires the key
                without = {}
            for other in values[key]:
                changed = {**config, key: other}
                try:
                    matters = differs(usual, step_of(model_type, changed))
                except Exception:  # transformers refuses the value
                    continue
                found.append({"model_type": model_type, "key": key, "config": config,
                              "default": without.get(key), "changed": changed,
                              "matters": matters})
    return found


def main() -> None:
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(cases(), file)


if __name__ == "__main__":
    main()
