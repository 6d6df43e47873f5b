#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What torch.compile(model, backend="coda") makes of other people's models, as their default
configurations have them but for their sizes: linear layers that are fused, what is left and why,
and loss and gradients beside eager's own error in float64. It runs on a CPU.

    python bench/zoo.py                  # all, into docs/results/models.md
    python bench/zoo.py llama bert       # those with one of these in the name, on the terminal
    python bench/zoo.py --part 3/20      # every twentieth, as tests take them in turns

Each model is a process, so that one that crashes or hangs is a line of the table.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from pathlib import Path

_SECONDS = 300  # for a model of a type
_PAGE = Path(__file__).parents[1] / "docs" / "results" / "models.md"
# Sizes that configurations name in many ways; what a configuration lacks is not given.
_SIZES = {
    "vocab_size": 128, "hidden_size": 64, "d_model": 64, "n_embd": 64, "dim": 64, "embed_dim": 64,
    "intermediate_size": 96, "ffn_dim": 96, "d_ff": 96, "n_inner": 96, "hidden_dim": 96,
    "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "ffn_hidden_size": 96,
    "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2, "num_layers": 2, "encoder_layers": 2,
    "decoder_layers": 2, "num_decoder_layers": 2,
    "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 16, "d_kv": 16,
    "max_position_embeddings": 64, "n_positions": 64, "num_local_experts": 4, "num_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 48, "embedding_size": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "image_size": 32, "patch_size": 8,
    "word_embed_proj_dim": 64, "max_source_positions": 32, "max_target_positions": 32,
    "num_mel_bins": 16, "decoder_start_token_id": 1, "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0, "hidden_sizes": None}
_DROPOUT = ("dropout", "drop_prob", "pdrop", "layerdrop", "drop_path")  # in a setting's name
_CAUSAL = """Llama Mistral Qwen2 Qwen3 Gemma Gemma2 Gemma3 GPT2 GPTNeoX GPTJ Phi
 Phi3 Olmo Olmo2 Cohere Cohere2 StableLm Starcoder2 Falcon Bloom Mpt OPT Granite Glm Glm4 SmolLM3
 Nemotron Helium Ernie4_5 Arcee HunYuanDenseV1 Exaone4 Mixtral Qwen2Moe Qwen3Moe GptOss Olmoe
 GraniteMoe DeepseekV3 Phimoe Dbrx Persimmon CodeGen XGLM BioGpt Mamba Mamba2 RecurrentGemma
""".split()
_MASKED = """Bert Roberta Albert Electra DistilBert Deberta DebertaV2 MPNet XLMRoberta ModernBert
 ConvBert Camembert Ernie RoFormer MobileBert SqueezeBert Nystromformer FNet Esm""".split()
_PAIRS = "T5 MT5 Bart MBart Pegasus Marian BlenderbotSmall LongT5 M2M100 PLBart Mvp".split()
_IMAGES = "ViT DeiT Dinov2 Beit ViTMSN IJepa".split()
_SPEECH = "Whisper".split()
_KINDS = {"causal": _CAUSAL, "masked": _MASKED, "pair": _PAIRS, "image": _IMAGES, "speech": _SPEECH}


def models() -> dict[str, str]:
    """Name -> kind."""
    return {name: kind for kind, names in _KINDS.items() for name in names}


def _configured(config_class):
    """The default configuration in small."""
    config = config_class()
    for name, size in _SIZES.items():
        if size is not None and isinstance(getattr(config, name, None), int):
            setattr(config, name, size)
    for name in list(vars(config)):
        if any(part in name for part in _DROPOUT) and isinstance(getattr(config, name), float):
            setattr(config, name, 0.0)
    changed = {name: getattr(config, name) for name in vars(config)
               if not name.startswith("_") and name != "layer_types"}
    if getattr(config, "layer_types", None) is not None:
        changed["layer_types"] = config.layer_types[:2]
    return config_class(**{name: value for name, value in changed.items() if value is not None})


def _made(name: str, kind: str):
    import torch
    import transformers

    head = {"causal": "ForCausalLM", "masked": "ForMaskedLM", "pair": "ForConditionalGeneration",
            "image": "ForImageClassification", "speech": "ForConditionalGeneration"}[kind]
    name = name.partition(":")[0]
    known = {member.lower(): member for member in dir(transformers)}
    if kind == "pair" and f"{name}{head}".lower() not in known:
        head = "MTModel"
    if f"{name}{head}".lower() not in known and kind == "causal":
        head = "LMHeadModel"
    model_class = getattr(transformers, known[f"{name}{head}".lower()])
    torch.manual_seed(0)
    model = model_class(_configured(model_class.config_class)).train()
    ids = torch.randint(3, 128, (2, 24))
    if kind == "image":
        model.num_labels = 2
        given = {"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.tensor([0, 1])}
    elif kind == "speech":
        given = {"input_features": torch.randn(2, 16, 64), "labels": ids}
    else:
        given = {"input_ids": ids, "labels": ids}
    return model, given


def _one(name: str, dtype_name: str) -> dict:
    import copy

    import torch

    from coda_cpp.torch_backend import coda

    model, given = _made(name, models()[name])
    dtype = getattr(torch, dtype_name)

    def outcome(called, module, to):
        cast = {key: value.to(to) if value.is_floating_point() else value
                for key, value in given.items()}
        torch.manual_seed(1)
        loss = called(**cast).loss
        loss.backward()
        return loss.detach().double(), [
            p.grad.double() for p in module.parameters() if p.grad is not None]

    def error(found, wanted):
        parts = zip([found[0], *found[1]], [wanted[0], *wanted[1]], strict=True)
        squares = [((a - b).norm() / b.norm()).square() for a, b in parts if b.norm() > 1e-9]
        return float(sum(squares) / len(squares)) ** 0.5

    model = model.to(dtype)
    exact, eager, ours = (copy.deepcopy(model) for _ in range(3))
    exact = exact.to(torch.float64)
    if hasattr(exact, "set_experts_implementation"):  # grouped products take no float64
        exact.set_experts_implementation("eager")
    wanted = outcome(exact, exact, torch.float64)
    reports = []

    def backend(module, inputs):
        reports.append(coda.Report())
        return coda.coda(module, inputs, report=reports[-1],
                         options={"inner": "aot_eager", "cost_model": False})

    found = outcome(torch.compile(ours, backend=backend), ours, dtype)
    whole = coda.Report.of(reports)
    left: dict[str, int] = {}
    for layer in whole.layers:
        if not layer.is_fused:
            left[layer.reason] = left.get(layer.reason, 0) + 1
    return {"model": name, "dtype": dtype_name, "graphs": len(reports),
            "layers": len(whole.layers), "fused": sum(l.is_fused for l in whole.layers),
            "left": left, "eager": error(outcome(eager, eager, dtype), wanted),
            "ours": error(found, wanted)}


def _in_child(send, name: str, dtype: str) -> None:
    try:
        send.send(_one(name, dtype))
    except Exception as why:  # noqa: BLE001 (it is a line of the table)
        lines = str(why).strip().splitlines() or ["it said nothing"]
        send.send({"failed": f"{type(why).__name__}: {lines[0]}"})


def _run(name: str, dtype: str) -> dict:
    """In a process of its own, which has what this one imported."""
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


def _is_wrong(row: dict) -> bool:
    return row["ours"] > max(1.5 * row["eager"], 1e-5 if row["dtype"] == "float32" else 1e-3)


def _line(row: dict) -> str:
    name = f"| {row['model'].partition(':')[0]} | {row['dtype']} |"
    if "failed" in row:
        return f"{name} - | - | | {row['failed'].replace('|', '/')} |"
    left = "; ".join(f"{count}: {why}" for why, count in row["left"].items())[:200]
    wrong = " **wrong**" if _is_wrong(row) else ""
    return (f"{name} {row['fused']} of {row['layers']} | {row['graphs']} | "
            f"{row['ours']:.1e}, {row['eager']:.1e}{wrong} | {left.replace('|', '/')} |")


def _page(rows: list[dict]) -> str:
    import torch
    import transformers

    whole = [row for row in rows if "failed" not in row]
    layers, fused = (sum(row[key] for row in whole) for key in ("layers", "fused"))
    wrong = [row["model"] for row in whole if _is_wrong(row)]
    lines = [
        "# What is fused of other people's models", "",
        "Written by `make zoo`: transformers' classes with their default settings, small sizes, no "
        "dropout, a training step on a CPU", "with `\"cost_model\": False`. Errors are of loss and "
        "gradients against float64: ours, then eager's own.", "",
        f"PyTorch {torch.__version__.partition('+')[0]}, transformers {transformers.__version__}. "
        f"{len(whole)} of {len(rows)} rows ran; {fused} of {layers} linear layers are fused "
        f"({100 * fused / max(layers, 1):.1f} %); wrong: {', '.join(wrong) or 'none'}.", "",
        "| model | type | linear layers fused | graphs | error: ours, eager | left to PyTorch |",
        "| --- | --- | --- | --- | --- | --- |", *map(_line, rows)]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--part", help="K/N: the models whose place is K modulo N")
    parser.add_argument("--types", default="float32,bfloat16")
    given = parser.parse_args()
    import coda_cpp.torch_backend  # noqa: F401 (for all processes, which are forks)
    names = [name for name in models()
             if not given.names or any(part.lower() in name.lower() for part in given.names)]
    if given.part:
        part, of = map(int, given.part.split("/"))
        names = [name for i, name in enumerate(names) if i % of == part % of]
    rows = []
    for name in names:
        for dtype in given.types.split(","):
            rows.append(_run(name, dtype))
            print(_line(rows[-1]), flush=True)
    if not given.names and not given.part:
        _PAGE.write_text(_page(rows))
    return int(any("failed" in row or _is_wrong(row) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
