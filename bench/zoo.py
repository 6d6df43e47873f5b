#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs other people's models with torch.compile(model, backend="coda") on a CPU. The models have
their default configurations, but small sizes. For each model and type a row of the table gives the
fused linear layers, the reasons for the others, and the errors of loss and gradients against
float64, with the backend and in eager mode.

    python bench/zoo.py                  # all models
    python bench/zoo.py llama bert       # models with "llama" or "bert" in the name

Each model runs in its own process, so a model that crashes or hangs gives a row too. The rows are
appended to the file of --rows, and docs/results/models.md is rewritten from all rows in this file,
unless the page has rows that the file lacks.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import multiprocessing
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

from zoo_modules import MODULES, inputs

_TYPES = ("float32", "bfloat16")
_SECONDS = 300  # the most for one model in one type
_PAGE = Path(__file__).parents[1] / "docs" / "results" / "models.md"
# Small sizes, by the names of settings. A setting that a configuration does not have is skipped.
_SIZES = {
    "vocab_size": 128, "hidden_size": 64, "d_model": 64, "n_embd": 64, "dim": 64,
    "intermediate_size": 96, "ffn_dim": 96, "d_ff": 96, "n_inner": 96, "hidden_dim": 96,
    "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "ffn_hidden_size": 96, "shared_expert_size": 96,
    "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2, "num_layers": 2, "encoder_layers": 2,
    "decoder_layers": 2, "num_decoder_layers": 2, "num_encoder_layers": 2,
    "encoder_num_hidden_layers": 2, "decoder_num_hidden_layers": 2,
    "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "attention_heads": 4,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_num_attention_heads": 4,
    "decoder_num_attention_heads": 4, "num_encoder_attention_heads": 4,
    "num_decoder_attention_heads": 4, "encoder_num_key_value_heads": 4,
    "decoder_num_key_value_heads": 4, "num_key_value_heads": 2, "num_kv_heads": 2,
    "head_dim": 16, "d_kv": 16,
    "max_position_embeddings": 64, "n_positions": 64, "max_seq_len": 64,
    "num_local_experts": 4, "num_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 48, "embedding_size": 64, "shared_expert_intermediate_size": 48,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
    "image_size": 32, "patch_size": 8, "word_embed_proj_dim": 64, "max_source_positions": 32,
    "max_target_positions": 32, "num_mel_bins": 16, "max_length": 32, "window_size": 4,
    "num_conv_pos_embeddings": 16}
_DROPOUT = ("dropout", "drop_prob", "pdrop", "layerdrop", "drop_path", "drop_rate",
            "mask_time_prob")  # a float setting with one of these in its name is set to 0
_WAVES = {"conv_dim": (32, 32, 32), "conv_stride": (5, 2, 2), "conv_kernel": (10, 3, 3),
          "mask_time_length": 2, "num_conv_pos_embedding_groups": 4, "apply_spec_augment": False}
_STAGES = {"depths": (1, 1), "num_heads": (2, 4), "embed_dim": 32, "patch_size": 4}
# Other settings that make a model small.
_OTHERS: dict[str, dict] = {
    "GPTJForCausalLM": {"rotary_dim": 8}, "CodeGenForCausalLM": {"rotary_dim": 8},
    "DeepseekV3ForCausalLM": {
        "kv_lora_rank": 32, "q_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
        "v_head_dim": 16, "head_dim": 8, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1,
        "num_key_value_heads": 4},
    "DeepseekV2ForCausalLM": {
        "kv_lora_rank": 32, "q_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
        "v_head_dim": 16, "head_dim": 8, "first_k_dense_replace": 1, "num_key_value_heads": 4,
        "num_experts_per_tok": 2},
    **dict.fromkeys(("T5ForConditionalGeneration", "LongT5ForConditionalGeneration"),
                    {"decoder_start_token_id": 0}),
    "GPTNeoForCausalLM": {"attention_types": [[["global", "local"], 1]], "window_size": 8},
    "EsmForMaskedLM": {"vocab_size": 128, "pad_token_id": 0, "mask_token_id": 3},
    "NemotronForCausalLM": {"num_key_value_heads": 2},
    "HunYuanDenseV1ForCausalLM": {"head_dim": 16},
    "DbrxForCausalLM": {"attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 1e4},
                        "ffn_config": {"ffn_hidden_size": 96, "moe_num_experts": 4,
                                       "moe_top_k": 2}},
    "FalconForCausalLM": {"num_kv_heads": 4},
    "Mamba2ForCausalLM": {"num_heads": 8, "n_groups": 1, "state_size": 16, "chunk_size": 8},
    "RecurrentGemmaForCausalLM": {"num_hidden_layers": 3, "lru_width": 64, "num_key_value_heads": 1,
                                  "attention_window_size": 32},
    "SwinForImageClassification": _STAGES,
    "Swinv2ForImageClassification": _STAGES,
    "DonutSwinForImageClassification": _STAGES,
    "HieraForImageClassification": {
        "image_size": (64, 64), "depths": (1, 1), "num_heads": (2, 4), "embed_dim": 32,
        "num_query_pool": 1, "masked_unit_attention": (True, False), "patch_size": (7, 7)},
    "SegformerForImageClassification": {
        "depths": (1, 1, 1, 1), "hidden_sizes": (32, 32, 64, 64), "decoder_hidden_size": 64,
        "num_attention_heads": (1, 2, 2, 4)},
    "PvtForImageClassification": {
        "depths": (1, 1, 1, 1), "hidden_sizes": (32, 32, 64, 64),
        "num_attention_heads": (1, 2, 2, 4)},
    "FocalNetForImageClassification": {"depths": (1, 1), "embed_dim": 32, "hidden_sizes": (32, 64),
                                       "focal_levels": (2, 2), "focal_windows": (3, 3),
                                       "patch_size": 4},
    "PoolFormerForImageClassification": {"depths": (1, 1, 1, 1), "hidden_sizes": (16, 32, 32, 64)},
    "DistilBertForMaskedLM": {"hidden_dim": 96},
    "FunnelForMaskedLM": {"block_sizes": (1, 1), "d_inner": 96, "d_head": 16},
    "XLNetLMHeadModel": {"d_inner": 96, "d_head": 16},
    "LongformerForMaskedLM": {"attention_window": 8, "max_position_embeddings": 68},
    "BigBirdForMaskedLM": {"attention_type": "original_full"},
    "BigBirdPegasusForConditionalGeneration": {"block_size": 4, "num_random_blocks": 1},
    "PegasusXForConditionalGeneration": {"block_size": 8, "num_global_tokens": 4},
    "YosoForMaskedLM": {"use_expectation": True},
    "BambaForCausalLM": {"mamba_n_heads": 4, "mamba_d_head": "auto", "attn_layer_indices": [1]},
    "JambaForCausalLM": {
        "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2,
        "expert_layer_offset": 1, "use_mamba_kernels": False},
    "Zamba2ForCausalLM": {
        "n_mamba_heads": 4, "mamba_headdim": 32, "hybrid_layer_ids": [1],
        "layers_block_type": ["mamba", "hybrid"]},
    "Qwen3NextForCausalLM": {"layer_types": ["linear_attention", "full_attention"]},
    "Lfm2ForCausalLM": {"layer_types": ["conv", "full_attention"]},
    "SwitchTransformersForConditionalGeneration": {
        "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1,
        "decoder_start_token_id": 0},
    "ProphetNetForConditionalGeneration": {"disable_ngram_loss": True},
    "Speech2TextForConditionalGeneration": {
        "input_feat_per_channel": 16, "conv_channels": 32, "max_source_positions": 64},
    "ASTForAudioClassification": {"max_length": 64, "patch_size": 8, "frequency_stride": 8,
                                  "time_stride": 8},
    **dict.fromkeys(("Wav2Vec2ForCTC", "HubertForCTC", "WavLMForCTC", "UniSpeechForCTC",
                     "Data2VecAudioForCTC"), _WAVES),
    "Wav2Vec2BertForCTC": {
        "vocab_size": 32, "feature_projection_input_dim": 16, "apply_spec_augment": False,
        "conv_depthwise_kernel_size": 3},
    **dict.fromkeys(("CLIPModel", "SiglipModel"), {
        side: {name: _SIZES[name] for name in (
            "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", *more)}
        for side, more in (("text_config", ("vocab_size", "eos_token_id",
                                            "max_position_embeddings")),
                           ("vision_config", ("image_size", "patch_size")))}),
}
_CAUSAL = """Llama Mistral Qwen2 Qwen3 Gemma Gemma2 Gemma3 GPTNeoX GPTNeo GPTBigCode GPTJ Phi
 Phi3 Olmo Olmo2 Olmo3 Cohere Cohere2 StableLm Starcoder2 Falcon Bloom Mpt OPT Granite Glm Glm4
 SmolLM3 Nemotron Helium Ernie4_5 Arcee Apertus SeedOss HunYuanDenseV1 Exaone4 Mixtral Qwen2Moe
 Qwen3Moe GptOss Olmoe GraniteMoe DeepseekV2 DeepseekV3 Phimoe Dbrx Persimmon CodeGen XGLM BioGpt
 DiffLlama ModernBertDecoder Mamba Mamba2 FalconMamba RecurrentGemma Bamba Jamba Zamba2 NemotronH
 GraniteMoeShared Qwen3Next Lfm2 MiniMax Doge Glm4Moe FlexOlmo BitNet Ernie4_5_Moe JetMoe Rwkv
 VaultGemma Cwm Jais2 NanoChat""".split()
_MASKED = """Bert Roberta Albert Electra DistilBert Deberta DebertaV2 MPNet XLMRoberta ModernBert
 ConvBert Camembert Ernie RoFormer MobileBert SqueezeBert Nystromformer FNet Esm MegatronBert
 RobertaPreLayerNorm BigBird Longformer Luke IBert RemBert NomicBert XLMRobertaXL Data2VecText Mra
 Yoso LayoutLM Funnel EuroBert""".split()
_PAIRS = """T5 MT5 UMT5 Bart MBart Pegasus BlenderbotSmall Blenderbot LongT5 M2M100 PLBart Mvp
 SwitchTransformers ProphetNet FSMT LED BigBirdPegasus PegasusX NllbMoe""".split()
_IMAGES = """ViT DeiT Dinov2 Dinov2WithRegisters Beit Data2VecVision ViTMSN IJepa Swin Swinv2 Hiera
 Segformer Pvt FocalNet PoolFormer""".split()
_KINDS = {
    "text": [*(f"{name}ForCausalLM" for name in _CAUSAL), "GPT2LMHeadModel", "OpenAIGPTLMHeadModel",
             "XLNetLMHeadModel", "XLMWithLMHeadModel", "FlaubertWithLMHeadModel",
             *(f"{name}ForMaskedLM" for name in _MASKED),
             *(f"{name}ForConditionalGeneration" for name in _PAIRS), "MarianMTModel"],
    "image": [f"{name}ForImageClassification" for name in _IMAGES],
    "pairs of both": ["CLIPModel", "SiglipModel"],
    "spectrum": ["WhisperForConditionalGeneration", "Speech2TextForConditionalGeneration"],
    "wave": ["Wav2Vec2ForCTC", "HubertForCTC", "WavLMForCTC",
             "UniSpeechForCTC", "Data2VecAudioForCTC"],
    "frames": ["Wav2Vec2BertForCTC"],
    "class of a spectrum": ["ASTForAudioClassification"],
    "module": list(MODULES),
}


def models() -> dict[str, str]:
    """Name of a model -> kind of its inputs. Includes the models of timm and of diffusers if the
    package is installed."""
    found = {name: kind for kind, names in _KINDS.items() for name in names}
    for package, names in (("timm", _TIMM), ("diffusers", _DIFFUSERS)):
        if importlib.util.find_spec(package):
            found |= {f"{package}: {name}": package for name in names}
    return found


_VIT = {"depth": 2, "embed_dim": 64, "num_heads": 4, "img_size": 32}
_TIMM = {
    "vit_tiny_patch16_224": _VIT, "deit3_small_patch16_224": _VIT, "beit_base_patch16_224": _VIT,
    "vit_base_patch16_siglip_224": _VIT, "eva02_tiny_patch14_224": {**_VIT, "img_size": 28},
    "cait_xxs24_224": _VIT, "xcit_nano_12_p16_224": _VIT,
    "convnext_atto": {"depths": (1, 1, 1, 1), "dims": (16, 32, 32, 64)},
    "MlpMixer": {"num_blocks": 2, "embed_dim": 64, "img_size": 32, "patch_size": 8}}


def _timm(name: str):
    import timm
    import torch

    make = getattr(timm.models, name) if name[0].isupper() else functools.partial(
        timm.create_model, name)
    size = _TIMM[name].get("img_size", 32)
    return (make(num_classes=8, **_TIMM[name]).train(), {"x": torch.randn(2, 3, size, size)},
            lambda made: made.square().mean() + made.mean())


_DIFFUSERS = ("DiTTransformer2DModel", "PixArtTransformer2DModel", "SD3Transformer2DModel",
              "FluxTransformer2DModel", "UNet2DConditionModel")


def _diffusers(name: str):
    import diffusers
    import torch

    text, image, steps = torch.randn(2, 6, 32), torch.randn(2, 4, 8, 8), torch.tensor([3, 7])
    heads = {"num_attention_heads": 2, "attention_head_dim": 16, "num_layers": 2}
    size, given = {
        "DiTTransformer2DModel": (
            {**heads, "in_channels": 4, "out_channels": 8, "sample_size": 8, "norm_num_groups": 4},
            {"hidden_states": image, "timestep": steps, "class_labels": steps}),
        "PixArtTransformer2DModel": (
            {**heads, "in_channels": 4, "out_channels": 8, "sample_size": 8,
             "cross_attention_dim": 32, "caption_channels": 32, "use_additional_conditions": False},
            {"hidden_states": image, "timestep": steps, "encoder_hidden_states": text,
             "added_cond_kwargs": {"resolution": None, "aspect_ratio": None}}),
        "SD3Transformer2DModel": (
            {**heads, "sample_size": 8, "in_channels": 4, "out_channels": 4,
             "joint_attention_dim": 32, "caption_projection_dim": 32, "pooled_projection_dim": 32,
             "pos_embed_max_size": 16},
            {"hidden_states": image, "encoder_hidden_states": text,
             "pooled_projections": torch.randn(2, 32), "timestep": steps}),
        "FluxTransformer2DModel": (
            {"num_attention_heads": 2, "attention_head_dim": 16, "num_layers": 1,
             "num_single_layers": 1, "in_channels": 4, "joint_attention_dim": 32,
             "pooled_projection_dim": 32, "axes_dims_rope": (4, 4, 8), "guidance_embeds": False},
            {"hidden_states": image.flatten(2).mT, "encoder_hidden_states": text,
             "pooled_projections": torch.randn(2, 32), "timestep": steps / 1000,
             "img_ids": torch.randint(0, 8, (64, 3)), "txt_ids": torch.zeros(6, 3)}),
        "UNet2DConditionModel": (
            {"sample_size": 8, "block_out_channels": (32, 64), "layers_per_block": 1,
             "cross_attention_dim": 32, "attention_head_dim": 8, "norm_num_groups": 8,
             "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
             "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D")},
            {"sample": image, "timestep": steps, "encoder_hidden_states": text}),
    }[name]
    model = getattr(diffusers, name)(**size).train()
    return model, {**given, "return_dict": False}, lambda made: made[0].square().mean()


def _configured(name: str, config_class):
    """The default configuration with small sizes and without dropout."""
    default = config_class()
    known = {*vars(default), *config_class.attribute_map}
    changed = {key: size for key, size in _SIZES.items()
               if key in known and isinstance(getattr(default, key, None), int)}
    changed |= {key: 0.0 for key in vars(default)
                if any(part in key for part in _DROPOUT)
                and isinstance(getattr(default, key), float)}
    return config_class(**{**changed, **_OTHERS.get(name, {})})


def _made(name: str, kind: str, seed: int):
    """The model, its arguments, and the function that computes the loss from its result."""
    import torch

    torch.manual_seed(seed)
    ids, image = torch.randint(3, 128, (2, 24)), torch.randn(2, 3, 32, 32)
    if kind == "module":
        return MODULES[name](), dict(zip(("ids", "targets") if name != "DiT" else (
            "x", "noise", "steps"), inputs(name), strict=True)), lambda made: made
    if kind in ("timm", "diffusers"):
        return (_timm if kind == "timm" else _diffusers)(name.partition(": ")[2])
    import transformers

    model_class = getattr(transformers, name)
    model = model_class(_configured(name, model_class.config_class)).train()
    classes = torch.tensor([0, 1])
    if kind == "image" and name.startswith("Hiera"):
        image = torch.randn(2, 3, 64, 64)
    given = {
        "text": {"input_ids": ids, "labels": ids},
        "image": {"pixel_values": image, "labels": classes},
        "pairs of both": {"input_ids": ids, "pixel_values": image, "return_loss": True},
        "spectrum": {"labels": ids, "input_features": torch.randn(
            *((2, 16, 64) if name.startswith("Whisper") else (2, 64, 16)))},
        "wave": {"input_values": torch.randn(2, 1600), "labels": ids[:, :8]},
        "frames": {"input_features": torch.randn(2, 24, 16), "labels": ids[:, :8] % 30 + 1},
        "class of a spectrum": {"input_values": torch.randn(2, 64, 16), "labels": classes},
    }[kind]
    return model, given, lambda made: made.loss


def _without_us(run: Callable[[], object], why: Exception) -> None:
    """Raises an error that says so if the model fails in the same way with PyTorch's aot_eager."""
    import torch

    torch._dynamo.reset()
    try:
        run()
    except Exception as without:  # noqa: BLE001
        if str(without) == str(why):
            line = (str(why).strip().splitlines() or ["it said nothing"])[0]
            raise RuntimeError(f"with PyTorch's aot_eager, too: {line}") from why


def row_of(name: str, dtype: str) -> dict:
    """The row of one model in one type. If it is wrong, the row with the median of five seeds: a
    rounding changes the expert of a token that is near a tie, in eager mode as well."""
    row = one(name, dtype)
    if not is_wrong(row):
        return row
    rows = [row, *(one(name, dtype, seed) for seed in range(1, 5))]
    return sorted(rows, key=lambda row: row["ours"] / row["eager"])[2]


def one(name: str, dtype_name: str, seed: int = 0) -> dict:
    """The linear layers of one model in one type, how many of them are fused, and the errors
    against float64. `seed`: of weights and inputs."""
    import copy

    import torch

    from coda_cpp.torch_backend import coda

    torch._dynamo.reset()
    model, given, loss_of = _made(name, models()[name], seed)
    dtype = getattr(torch, dtype_name)

    def outcome(called, module, to):
        cast = {key: value.to(to) if isinstance(value, torch.Tensor)
                and value.is_floating_point() else value for key, value in given.items()}
        torch.manual_seed(1)
        loss = loss_of(called(**cast))
        loss.backward()
        return loss.detach().double(), [
            p.grad.double() for p in module.parameters() if p.grad is not None]

    def error(found, wanted):
        parts = zip([found[0], *found[1]], [wanted[0], *wanted[1]], strict=True)
        squares = [((a - b).norm() / b.norm()).square() for a, b in parts if b.norm() > 1e-9]
        return float(sum(squares) / len(squares)) ** 0.5

    model = model.to(dtype)
    eager, ours = copy.deepcopy(model), copy.deepcopy(model)

    def truth():
        """Loss and gradients in float64, or in fp32 if the model cannot run in float64."""
        for to in (torch.float64, torch.float32):
            exact = copy.deepcopy(model).to(to)
            if hasattr(exact, "set_experts_implementation"):  # grouped GEMMs lack float64
                exact.set_experts_implementation("eager")
            try:
                return outcome(exact, exact, to)
            except RuntimeError as why:
                if to == torch.float32:
                    raise
                print(f"{name}: {why}", file=sys.stderr)

    wanted = truth()
    reports = []

    def backend(module, inputs):
        reports.append(coda.Report())
        return coda.coda(module, inputs, report=reports[-1],
                         options={"inner": "aot_eager", "cost_model": False})

    try:
        found = outcome(torch.compile(ours, backend=backend), ours, dtype)
    except Exception as why:  # noqa: BLE001 (whose failure is it?)
        _without_us(lambda: outcome(torch.compile(eager, backend="aot_eager"), eager, dtype), why)
        raise
    whole = coda.Report.of(reports)
    left: dict[str, int] = {}
    for layer in whole.layers:
        if not layer.is_fused:
            left[layer.reason] = left.get(layer.reason, 0) + 1
    grouped = sum(count for why, count in left.items() if why.startswith("_grouped_mm"))
    return {"model": name, "dtype": dtype_name, "graphs": len(reports),
            "layers": len(whole.layers) - grouped, "fused": sum(l.is_fused for l in whole.layers),
            "left": left, "eager": error(outcome(eager, eager, dtype), wanted),
            "ours": error(found, wanted)}


def _in_child(send, name: str, dtype: str) -> None:
    try:
        send.send(row_of(name, dtype))
    except Exception as why:  # noqa: BLE001 (a failure is a row of the table)
        lines = str(why).strip().splitlines() or ["it said nothing"]
        send.send({"failed": f"{type(why).__name__}: {lines[0]}"})


def _run(name: str, dtype: str) -> dict:
    """Runs row_of() in a forked process, which inherits the imported modules."""
    receive, send = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(
        target=_in_child, args=(send, name, dtype))
    child.start()
    send.close()
    try:
        row = receive.recv() if receive.poll(_SECONDS) else {"failed": f"no end in {_SECONDS} s"}
    except EOFError:
        child.join()
        row = {"failed": f"the process ended with {child.exitcode}"}
    child.kill()
    child.join()
    return {"model": name, "dtype": dtype, **row}


def is_wrong(row: dict) -> bool:
    """Whether the error of loss and gradients is more than 1.5 times the error in eager mode (and
    above a floor for each type)."""
    return row["ours"] > max(1.5 * row["eager"], 1e-5 if row["dtype"] == "float32" else 1e-3)


_INTRODUCTION = """\
# How much of other people's models is fused

`make zoo` writes this page. Each row is one training step on a CPU of a model that is compiled
with `torch.compile(model, backend="coda", options={{"cost_model": False}})`. Models have their
default settings except for small sizes and no dropout. A name without a prefix is a class of
transformers, or a module of bench/zoo_modules.py.

- *linear layers fused*: how many of the model's linear layers run in our programs.
- *graphs*: how many graphs Dynamo makes of the model.
- *error*: the relative errors against float64 of the loss and of each parameter's gradient, as
  their root mean square. A row is **wrong** if our error is more than 1.5 times eager's for
  three of five seeds.
- *left to PyTorch*: the number of linear layers that are not fused, and the reason. Grouped GEMMs
  of experts (`_grouped_mm`) stay PyTorch's and do not count as linear layers. Phimoe chooses its
  experts at random, so that its error is large in every type. *Graph input* and *graph output*
  are values that enter or leave a graph of Dynamo. A layer between two of them is alone in its
  graph, so there is nothing to fuse it with.

{total}

| model | type | linear layers fused | graphs | error | eager's error | left to PyTorch |
| --- | --- | --- | --- | --- | --- | --- |
"""


def _line(row: dict) -> str:
    name = f"| {row['model']} | {row['dtype']} |"
    if "failed" in row:
        return f"{name} | | | | {row['failed'].replace('|', '/')} |"
    left = textwrap.shorten("; ".join(
        f"{count}: {why}" for why, count in row["left"].items()), 200, placeholder=" ...")
    wrong = " **wrong**" if is_wrong(row) else ""
    return (f"{name} {row['fused']} of {row['layers']} | {row['graphs']} | "
            f"{row['ours']:.1e}{wrong} | {row['eager']:.1e} | {left.replace('|', '/')} |")


def _page(rows: list[dict]) -> str:
    import torch
    import transformers

    whole = [row for row in rows if "failed" not in row]
    layers, fused = (sum(row[key] for row in whole) for key in ("layers", "fused"))
    wrong = [row["model"] for row in whole if is_wrong(row)]
    total = (
        f"PyTorch {torch.__version__.partition('+')[0]}, transformers {transformers.__version__}. "
        f"{len(whole)} of {len(rows)} rows ran. {fused} of {layers} linear layers are fused "
        f"({100 * fused / max(layers, 1):.1f} %). Wrong rows: {', '.join(wrong) or 'none'}.")
    return _INTRODUCTION.format(total=total) + "".join(_line(row) + "\n" for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--types", default=",".join(_TYPES))
    parser.add_argument("--rows", type=Path, default=Path("build/zoo.jsonl"))
    given = parser.parse_args()
    import coda_cpp.torch_backend  # noqa: F401 (once, before the fork of each process)

    known = models()
    names = [name for name in known
             if not given.names or any(part.lower() in name.lower() for part in given.names)]
    made = []
    for name in names:
        for dtype in given.types.split(","):
            made.append(_run(name, dtype))
            print(_line(made[-1]), flush=True)
            with given.rows.open("a") as rows:
                print(json.dumps(made[-1]), file=rows)
    kept = {(row["model"], row["dtype"]): row
            for row in map(json.loads, given.rows.read_text().splitlines())}
    on_page = set(re.findall(r"^\| (.+?) \| (float32|bfloat16) \|", _PAGE.read_text(), re.M))
    if missing := on_page - kept.keys():
        print(f"{_PAGE.name} is unchanged: {given.rows} lacks {len(missing)} of its rows")
    else:
        _PAGE.write_text(_page([kept[key] for name in known for dtype in _TYPES
                                if (key := (name, dtype)) in kept]))
    return int(any("failed" in row or is_wrong(row) for row in made))


if __name__ == "__main__":
    sys.exit(main())
