#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps of Hugging Face models as people use them: the widths of published checkpoints,
fewer layers, default settings (dropout too), autocast in bf16, fused AdamW; and fine-tuning with
padding, lengths that vary, checkpointing, LoRA.

    hugging_face_torch.py [CASE...] [--backends inductor coda] [--turns 5] [--seconds 1]
    hugging_face_torch.py --prepare 8      # fills the caches of kernels, 8 cases at a time

Each case has a process of its own, in which the backends compile the same model and take turns, so
that they share the board and the processor. The inputs are made before. Prints a line of JSON for
each case: for each backend the seconds to the first step (of little use if caches are full), the
losses of the first steps, the median milliseconds of a step by the host's clock, the milliseconds
in which the GPU works, tokens or images per second, and the peak memory of PyTorch's allocator;
`gain` is the first backend's time per token divided by the last one's. With lengths that vary,
these are times of lengths that have occurred before; `new_s` are the seconds of the steps in which
they first occur. Without a GPU: `--tiny`, small models whose times mean nothing.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import transformers

from step_parts import parts_of_step

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "vocab_size": 512}
TINY = {  # the same under the names that configurations have for them
    **SIZES, "d_model": 64, "n_embd": 64, "dim": 64, "d_ff": 128, "hidden_dim": 128, "d_kv": 16,
    "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "ffn_dim": 128, "num_key_value_heads": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "n_head": 4, "n_heads": 4,
    "num_heads": 4, "head_dim": 16, "word_embed_proj_dim": 64, "pad_token_id": 0,
    "decoder_start_token_id": 0}


def widths(layers, hidden, mlp, heads, kv_heads=None, **more):
    return {"num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": mlp,
            "num_attention_heads": heads, **({"num_key_value_heads": kv_heads} if kv_heads else {}),
            **more}


QWEN3 = widths(8, 1024, 3072, 16, 8, head_dim=128, vocab_size=151936, tie_word_embeddings=True)
LLAMA = widths(6, 2048, 8192, 32, 8, vocab_size=128256, tie_word_embeddings=True)
BERT = {"num_hidden_layers": 6}
# name: (class, configuration, kind of inputs, sequences, tokens of a sequence, options...). Images
# have a number of patches instead of tokens. Options: "varying" (lengths), "front" (padding in
# front of the text instead of behind it), "checkpoint", "lora".
CASES = {
    "qwen3 padded": ("Qwen3ForCausalLM", QWEN3, "padded", 4, 2048),
    "qwen3 eager padded": ("Qwen3ForCausalLM",
                           QWEN3 | {"num_hidden_layers": 4, "attn_implementation": "eager"},
                           "padded", 4, 2048),
    "qwen3 eager front": ("Qwen3ForCausalLM",
                          QWEN3 | {"num_hidden_layers": 4, "attn_implementation": "eager"},
                          "padded", 4, 2048, "front"),
    "qwen3 varying": ("Qwen3ForCausalLM", QWEN3 | {"num_hidden_layers": 4}, "padded", 4, 2048,
                      "varying"),
    "qwen3 checkpointed": ("Qwen3ForCausalLM", QWEN3, "text", 8, 2048, "checkpoint"),
    "qwen3 lora": ("Qwen3ForCausalLM", QWEN3, "text", 4, 2048, "lora"),
    "gemma2": ("Gemma2ForCausalLM", widths(8, 2304, 9216, 8, 4, head_dim=256, vocab_size=256000),
               "text", 2, 2048),
    "llama 4 x 2048": ("LlamaForCausalLM", LLAMA, "text", 4, 2048),
    "llama flex": ("LlamaForCausalLM", LLAMA | {"attn_implementation": "flex_attention"}, "text", 2,
                   4096),
    "llama 1 x 512": ("LlamaForCausalLM", LLAMA, "text", 1, 512),
    "mistral": ("MistralForCausalLM", widths(2, 4096, 14336, 32, 8), "text", 2, 2048),
    "mistral window": ("MistralForCausalLM", widths(2, 4096, 14336, 32, 8, sliding_window=1024),
                       "text", 2, 4096),
    "pythia-410m": ("GPTNeoXForCausalLM",
                    widths(8, 1024, 4096, 16, vocab_size=50304), "text", 4, 2048),
    "gpt2": ("GPT2LMHeadModel", {"n_layer": 6}, "text", 8, 1024),
    "opt-350m": ("OPTForCausalLM", {"num_hidden_layers": 8, "hidden_size": 1024, "ffn_dim": 4096,
                                    "num_attention_heads": 16, "word_embed_proj_dim": 512},
                 "text", 8, 1024),
    "bert mlm": ("BertForMaskedLM", BERT, "text", 32, 512),
    "bert classes": ("BertForSequenceClassification", {}, "classes", 32, 128),
    "roberta classes": ("RobertaForSequenceClassification", {}, "classes", 32, 128),
    "distilbert classes": ("DistilBertForSequenceClassification", {}, "classes", 64, 128),
    "modernbert mlm": ("ModernBertForMaskedLM", BERT, "text", 16, 512),
    "modernbert padded": ("ModernBertForMaskedLM", BERT, "padded", 8, 1024),
    "deberta classes": ("DebertaV2ForSequenceClassification",
                        widths(6, 768, 3072, 12, vocab_size=128100), "classes", 32, 128),
    "t5-base": ("T5ForConditionalGeneration",
                {"d_model": 768, "d_ff": 3072, "num_heads": 12, "num_layers": 6,
                 "decoder_start_token_id": 0}, "text", 16, 512),
    "bart-base": ("BartForConditionalGeneration",
                  {"d_model": 768, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072,
                   "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 12,
                   "decoder_attention_heads": 12}, "text", 16, 512),
    "whisper-small": ("WhisperForConditionalGeneration",
                      {"d_model": 768, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072,
                       "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 12,
                       "decoder_attention_heads": 12}, "speech", 8, 128),
    "vit-b": ("ViTForImageClassification", BERT, "images", 64, 197),
    "dinov2-b": ("Dinov2ForImageClassification", BERT, "images", 32, 257),
    "siglip-b": ("SiglipVisionModel", widths(6, 768, 3072, 12), "pixels", 64, 196),
    "clip-b32": ("CLIPModel", {}, "pairs", 64, 77),
}


def model_of(case, is_tiny):
    name, sizes, _, _, _, *uses = CASES[case]
    made = getattr(transformers, name)
    config = made.config_class()
    if is_tiny:
        layers = {key: 1 for key in vars(config) if key.endswith("layers") or key == "n_layer"}
        sizes = sizes | {key: value for key, value in TINY.items() if hasattr(config, key)} | layers
    sizes = sizes | ({"problem_type": "single_label_classification"} if "classes" in name.lower()
                     or name.endswith("Classification") else {})
    with torch.device(DEVICE):
        model = made(made.config_class(**sizes))
    if "checkpoint" in uses:
        model.gradient_checkpointing_enable(
            gradient_checkpointing_kwargs={"use_reentrant": False})
    if "lora" in uses:
        import peft
        model = peft.get_peft_model(model.to(torch.bfloat16), peft.LoraConfig(
            r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    return model.train()


def inputs_of(case, model, step, is_tiny):
    """The arguments of a step's call, and how many tokens or images they are."""
    _, _, kind, rows, tokens, *uses = CASES[case]
    random = torch.Generator().manual_seed(step)
    if is_tiny:
        rows, tokens = 2, min(tokens, 64)
    if "varying" in uses:
        tokens = int(torch.randint(tokens // 4, tokens + 1, (1,), generator=random)) // 8 * 8
    config, given = model.config, {}
    if kind in ("images", "pixels"):
        given["pixel_values"] = torch.randn(
            rows, 3, config.image_size, config.image_size, generator=random)
        if kind == "images":
            given["labels"] = torch.randint(0, config.num_labels, (rows,), generator=random)
        return {key: value.to(DEVICE) for key, value in given.items()}, rows
    vocabulary = (config.text_config if kind == "pairs" else config).vocab_size
    ids = torch.randint(3, vocabulary - 1, (rows, tokens), generator=random)
    if kind == "pairs":
        size = config.vision_config.image_size
        given = {"input_ids": ids, "return_loss": torch.tensor(True),
                 "pixel_values": torch.randn(rows, 3, size, size, generator=random)}
    elif kind == "speech":
        given = {"input_features": torch.randn(rows, config.num_mel_bins,
                                               2 * config.max_source_positions, generator=random),
                 "labels": ids}
    elif kind == "classes":
        given = {"input_ids": ids, "attention_mask": torch.ones_like(ids),
                 "labels": torch.randint(0, config.num_labels, (rows,), generator=random)}
    else:
        given = {"input_ids": ids, "labels": ids.clone()}
    if kind == "padded":
        lengths = torch.randint(tokens // 3, tokens + 1, (rows, 1), generator=random)
        lengths[0] = tokens
        place = torch.arange(tokens) - (tokens - lengths if "front" in uses else 0)
        mask = (place >= 0) & (place < lengths)
        given["labels"][~mask | (place < lengths // 4)] = -100
        given["attention_mask"] = mask.long()
    given = {key: value.to(DEVICE) for key, value in given.items()}
    return given | ({"return_loss": True} if kind == "pairs" else {}), ids.numel()


class Run:
    """The steps of a backend. All runs share the model's weights and the inputs."""

    def __init__(self, case, backend, model, inputs, mode):
        self.model, self.inputs = model, inputs
        self.called = model if backend == "eager" else torch.compile(
            model, backend=backend, mode=mode)
        self.has_autocast = "lora" not in CASES[case]
        self.ms, self.rate, self.peak = [], [], 0
        self.optimizer = None

    def step(self, number=0):
        given, count = self.inputs[number % len(self.inputs)]
        with torch.autocast(DEVICE, torch.bfloat16, enabled=self.has_autocast):
            result = self.called(**given)
            loss = (result.loss if getattr(result, "loss", None) is not None
                    else result.last_hidden_state.float().square().mean())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach(), count

    def begin(self, state):
        """The initial weights, so that runs can be compared, and a new optimizer."""
        with torch.no_grad():
            for name, tensor in self.model.state_dict().items():
                tensor.copy_(state[name])
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=DEVICE == "cuda")
        if DEVICE == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def turn(self, steps):
        """`steps` steps by the host's clock; the processor starts them as fast as it can."""
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        start, count = time.perf_counter(), 0
        for number in range(steps):
            count += self.step(number)[1]
        if DEVICE == "cuda":
            torch.cuda.synchronize()
            self.peak = max(self.peak, torch.cuda.max_memory_allocated())
        seconds = time.perf_counter() - start
        self.ms.append(1e3 * seconds / steps)
        self.rate.append(count / seconds)


def measured(case, arguments):
    if "coda" in arguments.backends:
        from coda_cpp import _precompile  # (and makes the backend known if it is not installed)
    # Dynamo counts a function's compilations for all backends together, and calls the function
    # eagerly beyond a limit of 8. Layers that are graphs of their own (OPT, Whisper) share one.
    torch._dynamo.config.recompile_limit = 8 * len(arguments.backends)
    torch.manual_seed(0)
    model = model_of(case, arguments.tiny)
    state = {name: tensor.to("cpu", copy=True) for name, tensor in model.state_dict().items()}
    count = 14 if "varying" in CASES[case] else 3
    inputs = [inputs_of(case, model, number, arguments.tiny) for number in range(count)]
    runs = {name: Run(case, name, model, inputs, arguments.mode) for name in arguments.backends}
    found = {name: {} for name in runs}
    for name, run in runs.items():
        run.begin(state)
        losses, seconds = [], []
        for number in range(count):
            torch.manual_seed(number)
            start = time.perf_counter()
            losses.append(round(run.step(number)[0].item(), 4))
            seconds.append(round(time.perf_counter() - start, 2))
        found[name] = {"first_s": seconds[0], "new_s": seconds[1:], "losses": losses[:3]}
    if not arguments.turns:
        return {"case": case, **found}
    if "coda" in runs:
        _precompile.wait()  # for the kernels of lengths, which are compiled in the background
    steps = {}
    for _ in range(arguments.turns):
        for name, run in runs.items():
            run.begin(state)
            run.turn(count)  # memory and clocks settle
            if name not in steps:
                steps[name] = max(1, int(1e3 * arguments.seconds / run.ms[-1] / count)) * count
            del run.ms[-1], run.rate[-1]
            run.turn(steps[name])
    for name, run in runs.items():
        if DEVICE == "cuda":
            run.begin(state)
            number = itertools.count()
            run.step()
            parts = parts_of_step(lambda run=run: run.step(next(number)), count)[0]
            found[name]["gpu_ms"] = round(sum(parts.values()) - parts["nothing"], 2)
        found[name] |= {"ms": round(statistics.median(run.ms), 2),
                        "per_s": round(statistics.median(run.rate)),
                        "gib": round(run.peak / 2**30, 2)}
    first, last = found[arguments.backends[0]], found[arguments.backends[-1]]
    return {"case": case, **found, "gain": round(last["per_s"] / first["per_s"], 3)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="default: all")
    parser.add_argument("--backends", nargs="+", default=["inductor", "coda"])
    parser.add_argument("--mode", help="of torch.compile, as \"reduce-overhead\"")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1, help="of each turn")
    parser.add_argument("--prepare", type=int, metavar="N", help="only compile, N cases at a time")
    parser.add_argument("--limit", type=float, default=300, help="seconds of a case")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if unknown := set(arguments.cases) - set(CASES):
        parser.error(f"there is no case {', '.join(sorted(unknown))}; cases: {', '.join(CASES)}")
    if arguments.here:
        print(json.dumps(measured(arguments.cases[0], arguments)), flush=True)
        return

    def run(case):
        words = [sys.executable, __file__, case, "--here", "--seconds", str(arguments.seconds),
                 "--turns", "0" if arguments.prepare else str(arguments.turns),
                 *(["--mode", arguments.mode] if arguments.mode else []),
                 "--backends", *arguments.backends, *(["--tiny"] if arguments.tiny else [])]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=arguments.limit,
                                  check=False)
        except subprocess.TimeoutExpired:
            return json.dumps({"case": case, "failed": f"no result in {arguments.limit:g} s"})
        if done.returncode:
            return json.dumps({"case": case, "failed": done.stderr.strip().splitlines()[-3:]})
        return done.stdout.strip().splitlines()[-1]

    gpu = torch.cuda.get_device_name() if DEVICE == "cuda" else "no GPU"
    print(json.dumps({"device": gpu, "torch": torch.__version__, "cores": os.cpu_count(),
                      "transformers": transformers.__version__}), flush=True)
    with ThreadPoolExecutor(arguments.prepare or 1) as pool:
        for line in pool.map(run, arguments.cases or CASES):
            print(line, flush=True)


if __name__ == "__main__":
    main()
