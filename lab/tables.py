#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the tables of README.md and of pages in docs/ and lab/, and the README's picture, from the
raw results in lab/results.

A page marks a table's place with `<!-- lab/tables.py: NAME -->` and `<!-- end of table -->`.
Without arguments the tables are written anew; `--check` only says which differ, and fails if one
does, so that no figure of a page can drift from its raw result.
"""

import functools
import json
import pathlib
import re
import statistics
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent / part) for part in ("", "library")]
import step_picture  # noqa: E402
import time_programs  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "lab" / "results"
PAGES = ("README.md", "docs/block-scales.md", "docs/performance.md", "docs/benchmarks.md",
         "docs/configurations.md", "programs/README.md", "docs/fp8.md", "docs/pytorch.md",
         "docs/memory.md", "lab/notebook/cpu.md", "lab/notebook/hopper.md")
PICTURE = "docs/results/step_parts.svg"  # written whole
SIZES = (2048, 4096, 8192)

# A program's row in the raw results, and how a page names it.
PROGRAMS = {
    "bare product, TN": "bare product, x·Wᵀ",
    "bare product, NN": "bare product, dz·W",
    "bare product, NT": "bare product, dzᵀ·x",
    "residual + norm, K = D": "residual + norm, K = D",
    "residual + norm, K = I": "residual + norm, K = I",
    "rstd + SwiGLU": "norm + SwiGLU",
    "rstd + RoPE": "norm + RoPE",
    "rstd + LSE + target, V = 32768": "loss from logits, V = 32768",
    "rstd + LSE + target, V = 128256": "loss from logits, V = 128256",
    "norm backward, K = D": "norm backward, K = D",
    "norm backward, K = 3D": "norm backward, K = 3D",
    "norm backward, K = 2I": "norm backward, K = 2I",
    "SwiGLU backward": "SwiGLU backward",
    "weight gradient into fp32": "weight gradient, added to fp32",
}
# The runs that a row's sustained figure is the mean of, and the one that its cool figure is of: the
# kernels of the last two rows changed after the first three runs.
RUNS = ("programs_table", "beside_quack", "programs_held")
COOL_RUN = "programs_held"
LATER_RUNS = {
    "rstd + SwiGLU": (("beside_quack_held",), "beside_quack_held"),
    "weight gradient into fp32": (("beside_quack_held", "weight_gradient"), "beside_quack_held"),
}


@functools.cache
def raw(run: str) -> list[dict]:
    path = RESULTS / "hopper_programs" / f"{run}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def of(run: str, row: str, size: int, key: str, candidates: str) -> list[float]:
    """The figures of one row of a run: of all candidates whose name starts like that."""
    return [r[key] for r in raw(run) if r["row"] == row and r["hidden"] == size
            and r["candidate"].startswith(candidates) and r.get(key)]


def over_cublas(run: str, row: str, size: int, key: str) -> float | None:
    """Ours over the fastest of cuBLAS's algorithms in the same run and regime."""
    ours, peers = of(run, row, size, key, "chosen"), of(run, row, size, key, "cuBLAS")
    return ours[0] / min(peers) if ours and peers else None


def mean(values) -> float | None:
    known = [v for v in values if v is not None]
    return statistics.mean(known) if known else None


def figure(value: float | None, cool: float | None = None) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" + ("" if cool is None else f" ({cool:.2f})")


def table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def block_over_products(phase: str, size: int, key: str) -> float:
    plan = of("block_held", phase, size, key, "plan")
    return plan[0] / of("block_held", phase, size, key, "products alone")[0]


def torch_over_block(phase: str, size: int, key: str) -> float:
    return (min(of("torch_block_held", phase, size, key, "torch.compile"))
            / of("block_held", phase, size, key, "plan")[0])


def memory_of_block(phase: str, size: int) -> float:
    return (min(of("torch_block_held", phase, size, "peak_bytes", "torch.compile"))
            / of("block_held", phase, size, "peak_bytes", "plan")[0])


def programs() -> str:
    """Every program of a block over its bare product on cuBLAS, sustained and (cool)."""
    rows = []
    for row, name in PROGRAMS.items():
        runs, cool_run = LATER_RUNS.get(row, (RUNS, COOL_RUN))
        cells = [figure(mean(over_cublas(run, row, size, "sustained_ms") for run in runs),
                        over_cublas(cool_run, row, size, "cool_ms")) for size in SIZES]
        rows.append([name, *cells])
    for phase in ("block, forward", "block, forward + backward"):
        rows.append([phase, *(figure(block_over_products(phase, size, "sustained_ms"),
                                     block_over_products(phase, size, "cool_ms"))
                              for size in SIZES)])
    return table(["", *(f"D = {size}" for size in SIZES)], rows)


def quack_over_ours(size: int) -> float:
    """The mean over a block's programs of QuACK's fastest configuration over ours."""
    ratios = []
    for row in PROGRAMS:
        ours_run, quack_run = (("beside_quack_held", "quack_held") if row in LATER_RUNS
                               else ("beside_quack", "quack"))
        ours = of(ours_run, row, size, "sustained_ms", "chosen")
        theirs = of(quack_run, row, size, "sustained_ms", "QuACK")
        if ours and theirs:
            ratios.append(min(theirs) / ours[0])
    return statistics.mean(ratios)


def cpu_blocks(phase: str, dtype: str) -> list[str]:
    cells = []
    for size in (576, 1024, 2048):
        report = json.loads((RESULTS / "llama_block" / f"block_{size}.json").read_text())
        cells += [figure(r["torch_over_fused"]) for r in report["results"]
                  if r["phase"] == phase and r["dtype"] == dtype]
    return cells


def steps_of_pytorch() -> tuple[dict, dict]:
    """A step of a PyTorch module in bf16 with Inductor, and with backend "coda", in turns."""
    path = RESULTS / "train_step" / "pytorch_h200.jsonl"
    rows = [row for row in map(json.loads, path.read_text().splitlines())
            if row["products"] == "bf16" and (row["model"], row["batch"]) == ("1b", 16)]
    with_peer = {row["run"] for row in rows if "torch.compile" in row["who"]}
    last = [row for row in rows if row["run"] == max(with_peer)]
    return (next(row for row in last if "torch.compile" in row["who"]),
            next(row for row in last if "coda" in row["who"]))


def summary() -> str:
    """What a reader of the README wants to know: each peer's time over ours."""
    def gpu(ratio, phase, key="sustained_ms"):
        return [figure(ratio(phase, size, key)) for size in SIZES]

    both, forward = "block, forward + backward", "block, forward"
    def step_of_1b(peers_products):
        return next(figure(mean_ms(peers) / mean_ms(runs))
                    for name, runs, peers in turns(peers_products)
                    if "16 x" in name and runs[0]["attention"] == "repeatable")

    inductor, backend = steps_of_pytorch()
    rows = [
        ["H200, D = 2048, 4096, 8192", "bf16 block, forward: torch.compile 2.11",
         *gpu(torch_over_block, forward)],
        ["", "bf16 block, forward + backward: torch.compile 2.11", *gpu(torch_over_block, both)],
        ["", "the same, peak memory",
         *(figure(memory_of_block(both, size)) for size in SIZES)],
        ["", "mean of the block's programs: QuACK 0.6.5",
         *(figure(quack_over_ours(size)) for size in SIZES)],
        ["", "training step of LLaMA-3 1B, 16 x 2048 tokens: torch.compile 2.11",
         step_of_1b("bf16"), "", ""],
        ["", "the same step of a PyTorch module, backend \"coda\": torch.compile 2.11",
         figure(mean_ms([inductor]) / mean_ms([backend])), "", ""],
        ["", "the same step in 8 bits: torchao 0.18 tensorwise, torch.compile 2.11",
         step_of_1b("torchao"), "", ""],
        ["Two cores of Zen 4, D = 576, 1024, 2048",
         "fp32 block, forward + backward: the best of PyTorch 2.13",
         *cpu_blocks("fwdbwd", "f32")],
        ["", "bf16 block, forward + backward: the best of PyTorch 2.13",
         *cpu_blocks("fwdbwd", "bf16")],
    ]
    return table(["machine", "peer's over ours", "small", "middle", "large"], rows)


STEPS = {("1b", 16, 2048): "LLaMA-3 1B, 16 x 2048", ("1b", 4, 8192): "LLaMA-3 1B, 4 x 8192",
         ("8b", 8, 2048): "four blocks of 8B, 8 x 2048"}


def mean_ms(runs: list[dict]) -> float:
    return statistics.mean(r["ms"] for r in runs)


def turns(peers_products: str) -> list[tuple]:
    """Runs in turns with a peer on one board, of each shape: its name, our runs with one choice of
    products, recompute and attention, and the peer's."""
    path = RESULTS / "train_step" / "turns_h200.jsonl"
    read = list(map(json.loads, path.read_text().splitlines()))
    found = []
    for shape, name in STEPS.items():
        of_shape = [r for r in read if (r["model"], r["batch"], r["sequence"]) == shape]
        for run in sorted({r["run"] for r in of_shape}):
            of_run = [r for r in of_shape if r["run"] == run]
            peers = [r for r in of_run if r["who"] != "coda" and peers_products in r["products"]]
            ours: dict[tuple, list[dict]] = {}
            for r in of_run:
                if r["who"] == "coda" and (r["products"] == "bf16") == (peers_products == "bf16"):
                    ours.setdefault((r["products"], r["recompute"], r["attention"],
                                     r.get("tuned")), []).append(r)
            found += [(name, runs, peers) for runs in ours.values() if peers]
    return found


def turns_cells(name: str, runs: list[dict], peers: list[dict]) -> list[str]:
    """A row's cells: what ran, times, speed and memory, the peer's, and its time over ours."""
    first = runs[0]
    attention = "" if first["attention"] == "fast" else ", repeatable"
    attention += ", tuned" if first.get("tuned") else ""
    clips = ", clips" if "clip" in peers[0] else ""
    return [name, f"`{first['recompute']}`{attention}", " ".join(f"{r['ms']:.1f}" for r in runs),
            f"{statistics.mean(r['tokens_per_second'] for r in runs) / 1e3:.1f}k",
            f"{first['taken_gib']:.1f}", " ".join(f"{r['ms']:.1f}" for r in peers) + clips,
            f"{peers[0]['peak_gib']:.1f}", f"{mean_ms(peers) / mean_ms(runs):.3f}"]


def steps() -> str:
    """Whole optimizer steps in bf16, each run of a shape in turns with its peer's."""
    return table(["", "recomputed", "ms a step", "tokens/s", "GiB", "torch.compile, ms",
                  "GiB", "over ours"], [turns_cells(*one) for one in turns("bf16")])


def steps_h100() -> str:
    """The same on an H100, in turns with the peer as it is and where it clips as ours does."""
    path = RESULTS / "train_step" / "rows_h100.jsonl"
    runs = list(map(json.loads, path.read_text().splitlines()))
    rows = []
    for shape, name in STEPS.items():
        of_shape = [r for r in runs if (r["model"], r["batch"], r["sequence"]) == shape]
        ours = [r["ms"] for r in of_shape if r.get("recompute") == "none"]
        plain, clips = ([r["ms"] for r in of_shape if r["who"] != "coda" and ("clip" in r) == clip]
                        for clip in (False, True))
        middle = statistics.median(ours)
        rows.append([name, " ".join(f"{ms:.1f}" for ms in ours),
                     *(f"{peer[0]:.1f}, {peer[0] / middle:.3f}" for peer in (plain, clips))])
    return table(["", "ours, ms", "torch.compile, ms, over ours", "the same, `--clip 1`"], rows)


def step_parts() -> str:
    """What forward and backward of such a step consist of."""
    parts = {"products with their epilogues": 0.0, "attention": 0.0, "the rest": 0.0}
    launches = dict.fromkeys(parts, 0)
    for line in (RESULTS / "train_step" / "steps_of_plan.txt").read_text().splitlines():
        match = re.match(r"\s*([\d.]+) ms.*?(\d+) x (?:for|back)ward\.([a-z_]+)", line)
        if not match:
            continue
        part = {"attention": "attention", "attention_backward": "attention", "tile": "the rest",
                "finalize": "the rest", "embedding": "the rest", "embedding_backward": "the rest"
                }.get(match[3], "products with their epilogues")
        parts[part] += float(match[1])
        launches[part] += int(match[2])
    return table(["", *parts],
                 [["ms", *(f"{ms:.1f}" for ms in parts.values())],
                  ["steps of the plan", *(str(count) for count in launches.values())]])


def fp8_steps() -> str:
    """Steps with products in 8 bits beside torchao's of the same run."""
    rows = []
    for name, runs, peers in turns("torchao"):
        model, *cells = turns_cells(name, runs, peers)
        rows.append([model, f"`{runs[0]['products']}`", *cells])
    return table(["", "products", "recomputed", "ms a step", "tokens/s", "GiB",
                  "torchao, ms", "GiB", "over ours"], rows)


def pytorch_steps() -> str:
    """Steps of a PyTorch module: Inductor's beside those of backend "coda". Of one kind and GPU the
    last run that had a peer, if any had; on an H100 of the last run alone."""
    found = []
    for gpu in ("H200", "H100"):
        path = RESULTS / "train_step" / f"pytorch_{gpu.lower()}.jsonl"
        read = [json.loads(line) for line in path.read_text().splitlines()]
        first = max(row["run"] for row in read) if gpu == "H100" else 0
        found += [row | {"run": f"{gpu}, {row['run']}"} for row in read if row["run"] >= first]
    peers = {(row["run"], row["model"]): row for row in found if "torch.compile" in row["who"]}

    def of_both(pair: list[dict], key: str, form: str = ".1f") -> str:
        return ", ".join(f"{row[key]:{form}}" for row in pair if key in row)

    def kind(row: dict) -> tuple:
        return (row["run"][:4], row["model"], row["batch"], row["products"], row.get("objective"))

    def has_peer(row: dict) -> bool:
        return (row["run"], row["model"]) in peers

    best: dict[tuple, dict] = {}
    for row in found:
        if "backend coda" not in row["who"]:
            continue
        before = best.get(kind(row))
        if before is None or has_peer(row) or not (has_peer(before) or before["run"] == row["run"]):
            best[kind(row)] = row
    rows = []
    for ours in best.values():
        run, model, products = ours["run"], ours["model"], ours["products"]
        peer = peers.get((run, model)) if products == "bf16" else None
        pair = [row for row in (peer, ours) if row is not None]
        layers = f" of {ours['layers']} layers" if "layers" in ours else ""
        what = f", {ours['objective']}" if "objective" in ours else ""
        rows.append([run, f"{model}{layers}, {ours['batch']} x {ours['sequence']}",
                     products + what,
                     of_both(pair, "ms"), f"{ours['tokens_per_second'] / 1e3:.1f}k",
                     f"{peer['ms'] / ours['ms']:.3f}" if peer else "",
                     of_both(pair, "peak_gib"), of_both(pair, "total_gib"),
                     of_both(pair, "first_step_s", ".0f")])
    return table(["run", "model", "products", "ms a step: Inductor, ours", "tokens/s",
                  "Inductor's over ours", "peak GiB of PyTorch's", "of all",
                  "s to the first step"], rows)


FINETUNING = {
    "qwen3_padded": "Qwen3, 4 x 2048, padded, labels of -100",
    "qwen3_varying": "Qwen3, lengths that vary",
    "qwen3_checkpoint": "Qwen3, 8 x 2048, activation checkpointing",
    "qwen3_lora": "Qwen3, 4 x 2048, LoRA adapters of PEFT",
    "gemma2_fixed": "Gemma 2, 2 x 2048"}


def finetuning() -> str:
    """Fine-tuning of Hugging Face's models with Inductor and with coda-cpp. Of each case, the runs
    on the last board that ran both."""
    path = RESULTS / "train_step" / "finetune_h200.jsonl"
    pairs: dict[str, dict[int, dict[str, dict]]] = {}
    for run in map(json.loads, path.read_text().splitlines()):
        if "median_ms" in run:
            pairs.setdefault(run["case"], {}).setdefault(run["board"], {})[run["backend"]] = run
    rows = []
    for case, name in FINETUNING.items():
        runs = [of for _, of in sorted(pairs[case].items()) if {"inductor", "coda"} <= set(of)][-1]
        theirs, ours = runs["inductor"], runs["coda"]
        if "tokens_per_second" in ours:
            steps = [f"{run['tokens_per_second']:,} tokens/s" for run in (theirs, ours)]
            faster = ours["tokens_per_second"] / theirs["tokens_per_second"]
        else:
            steps = [f"{run['median_ms']:.1f} ms" for run in (theirs, ours)]
            faster = theirs["median_ms"] / ours["median_ms"]
        memory = [f"{run['peak_gib']:.1f} GiB" for run in (theirs, ours)]
        rows.append([name, str(ours["layers"]), *steps, figure(faster), *memory,
                     figure(ours["peak_gib"] / theirs["peak_gib"])])
    return table(["model, sequences x tokens", "layers", "step, Inductor", "step, coda-cpp",
                  "speed-up", "peak memory, Inductor", "peak memory, coda-cpp",
                  "memory ratio, coda-cpp to Inductor"], rows)


MODELS_IN_STEPS = {  # of bench/peers/hugging_face_torch.py
    "qwen3 lora": "Qwen3, LoRA", "qwen3 padded": "Qwen3, padded batches",
    "qwen3 eager padded": "Qwen3, eager attention, padding behind",
    "qwen3 eager front": "Qwen3, eager attention, padding in front",
    "qwen3 varying": "Qwen3, lengths that vary", "gemma2": "Gemma 2", "gpt2": "GPT-2",
    "llama flex": "LLaMA, FlexAttention", "llama 1 x 512": "LLaMA, 1 x 512 tokens",
    "bert mlm": "BERT, masked language model", "bert classes": "BERT, classification",
    "t5-base": "T5-base", "bart-base": "BART-base", "whisper-small": "Whisper-small",
    "clip-b32": "CLIP-B/32", "vit-b": "ViT-B", "siglip-b": "SigLIP-B", "dinov2-b": "DINOv2-B",
    "opt-350m": "OPT-350M", "modernbert padded": "ModernBERT, padded",
    "mistral window": "Mistral, window of 1024"}


def hugging_face() -> str:
    """Steps of Hugging Face's models with default settings, the last run of each. Runs whose times
    include other work than the step are in the raw results only. PyTorch's count of allocated
    memory does not contain that of CUDA graphs."""
    path = RESULTS / "train_step" / "hugging_face_h200.jsonl"
    rows = {}
    for run in map(json.loads, path.read_text().splitlines()):
        if "not_counted" in run:
            continue
        both = run["inductor"], run["coda"]
        name = MODELS_IN_STEPS.get(run["case"], run["case"])
        name += ", CUDA graphs" if "mode" in run else ""
        rows[name, run["transformers"]] = [
            name, run["transformers"], *(f"{side['ms']:.1f} ms" for side in both),
            figure(run["gain"]), figure(both[0]["gpu_ms"] / both[1]["gpu_ms"]),
            "" if "mode" in run else figure(both[1]["gib"] / both[0]["gib"])]
    return table(["model", "transformers", "step, Inductor", "step, coda-cpp", "speed-up",
                  "of the GPU's work", "memory ratio, coda-cpp to Inductor"], rows.values())


def picture_of_steps() -> str:
    """What a PyTorch module's step consists of with Inductor, and with backend "coda"."""
    path = RESULTS / "train_step" / "pytorch_h200.jsonl"
    names = {"1b": "LLaMA-3 1B", "hf-1b": "Hugging Face's LLaMA-3 1B"}
    groups = {}
    for row in map(json.loads, path.read_text().splitlines()):
        if "parts_ms" in row and row["model"] in names:
            who = "Inductor" if "torch.compile" in row["who"] else 'backend="coda"'
            name = f"{names[row['model']]}, {row['batch']} x {row['sequence']} tokens"
            groups.setdefault(name, {})[who] = row["parts_ms"]
    return step_picture.picture(groups)


def block_errors() -> str:
    """What one scale a tensor and scales of blocks lose: lab/fp8/decide.py on the CPU."""
    lines = (RESULTS / "fp8_blocks" / "errors_cpu.jsonl").read_text().splitlines()
    found = {(row["data"], row["k"], row["scales"]): f"{row['median']:.2g}, {row['worst']:.2g}"
             for row in map(json.loads, lines)}
    names = {"even": "normal deviates", "tokens": "rows whose sizes differ by up to 10^6",
             "channels": "four channels 10^6 times as large: what the others lose"}
    rows = [[name, str(k), found[data, k, "tensor"], found[data, k, "block"]]
            for data, name in names.items() for k in (2048, 8192)]
    return table(["data", "K", "one scale a tensor", "a scale a block"], rows)


def block_times() -> str:
    """Products of 8-bit operands by what their scales are of: lab/fp8/decide.py on a GPU."""
    lines = (RESULTS / "fp8_blocks" / "times_h200.jsonl").read_text().splitlines()
    found = {(row["n"], row["k"], row["way"]): row["candidates"] for row in map(json.loads, lines)}

    def ms(candidates: list[dict], regime: str, name: str) -> float:
        return min(c[f"{regime}_ms"] for c in candidates if c["candidate"].startswith(name))

    def over(n: int, k: int, way: str, base: str) -> str:
        if (n, k, way) not in found:
            return ""
        ratios = [ms(found[n, k, way], regime, "chosen") /
                  (ms(found[n, k, way], regime, "cuBLAS") if base == "cuBLAS" else
                   ms(found[n, k, base], regime, "chosen")) for regime in ("sustained", "cool")]
        return figure(*ratios)

    rows = [[f"{n} x {k}", f"{ms(found[n, k, 'a'], 'sustained', 'chosen'):.3f}",
             over(n, k, "a", "cuBLAS"), over(n, k, "b", "cuBLAS"), over(n, k, "c", "cuBLAS"),
             over(n, k, "b", "a"), over(n, k, "c", "a")]
            for n, k in sorted({key[:2] for key in found}, key=lambda key: key[0] * key[1])]
    return table(["N x K", "(a), ms", "(a) over cuBLAS", "(b) over cuBLAS", "(c) over cuBLAS",
                  "(b) over (a)", "(c) over (a)"], rows)


def losses_of(folder: str, names: dict[str, str]) -> str:
    """What a recipe costs: training losses of the last 100 of 1,000 steps and held-out losses, of
    the seeds that were run, and their means over those of bf16 with the same seeds."""
    def found(recipe: str, kind: int) -> dict[str, float]:
        losses = {}
        for path in sorted((RESULTS / folder).glob(f"{recipe}_[0-9].json")):
            run = json.loads(path.read_text())
            last = statistics.mean(loss for step, loss in run["train_losses"] if step > 900)
            losses[path.stem[-1]] = (last, run["held_out_all"])[kind]
        return losses

    rows = []
    for recipe, name in names.items():
        row = [name]
        for kind in (0, 1):
            bf16, losses = found("bf16", kind), found(recipe, kind)
            change = 100 * (statistics.mean(losses.values())
                            / statistics.mean(bf16[seed] for seed in losses) - 1)
            row += [" ".join(f"{loss:.4f}" for loss in losses.values()),
                    "" if recipe == "bf16" else f"{change:+.1f} %"]
        rows.append(row)
    seeds = ", ".join(sorted(found("bf16", 0)))
    return table(["products in 8 bits", f"training, seeds {seeds}", "to bf16", "held-out",
                  "to bf16"], rows)


def fp8_losses() -> str:
    """With scales that are powers of two."""
    return losses_of("fp8_losses_of_powers", {
        "bf16": "bf16", "fp8": "`fp8`", "fp8-kept": "`fp8-kept`"})


def fp8_losses_before() -> str:
    """With scales that are any numbers: which product of the head costs what."""
    return losses_of("fp8_losses", {
        "bf16": "bf16", "bf16_fast_attention": "bf16, sums of attention in another order",
        "fp8": "`fp8`", "fp8-body": "`fp8-body`", "fp8-all": "`fp8-all`",
        "head_gradients": "`fp8-all`, but the logits",
        "head_data_gradient_bf16": "`fp8-all`, but the head's data gradient",
        "head_gradients_bf16": "`fp8-all`, but the head's gradients"})


def bf16_state_losses() -> str:
    """Losses with weights and moments in bf16, by how they are rounded."""
    runs = [json.loads(line) for line in
            (RESULTS / "bf16_state" / "losses.jsonl").read_text().splitlines()]

    def losses(**wanted) -> str:
        found = [r for r in runs if wanted.items() <= r.items()]
        return f"{found[0]['training']:.3f}, {found[0]['held_out']:.3f}" if found else ""

    rows = []
    for stored, beta2, seed in (("weights and moments", 0.98, 1), ("weights and moments", 0.98, 2),
                                ("moments", 0.999, 1)):
        its = {"beta2": beta2, "seed": seed}
        rows.append([stored, str(beta2), str(seed), losses(bf16="", **its),
                     *(losses(bf16=stored, rounding=way, **its)
                       for way in ("stochastic", "nearest"))])
    return table(["in bf16", "`--beta2`", "seed", "all in fp32", "rounded stochastically",
                  "rounded to nearest"], rows)


def planning() -> str:
    """Seconds that the compiler takes, by a model's layers."""
    report = json.loads((RESULTS / "plan" / "compile.json").read_text())
    seconds = {tuple(run["name"].removeprefix("compile_").split("/")): run["cpu_time"] / 1e3
               for run in report["benchmarks"]}
    depths = [layers for model, layers in seconds if model == "llama" and layers.isdigit()]
    rows = [[name, *(figure(seconds[model, layers]) for layers in depths)]
            for model, name in (("llama", "LLaMA, 576 wide"), ("gpt2", "GPT-2, 768 wide"))]
    return table(["layers", *depths], rows)


def loss_blocks() -> str:
    """What logits take in blocks of rows and whole, as `coda explain --json` has it."""
    lines = (RESULTS / "plan" / "loss_blocks.jsonl").read_text().splitlines()
    rows = [[str(r["tokens"]), r["dtype"], str(r["rows"]),
             f"{r['row_block_bytes'] / 1e6:.0f}" if r["rows"] else "",
             f"{r['saved_bytes'] / 1e6:.0f}", f"{r['moved_bytes'] / 1e9:.2f}"]
            for r in map(json.loads, lines)]
    return table(["tokens", "type", "N", "a block, MB", "saved for the backward, MB",
                  "read and written in a step, GB"], rows)


def library() -> str:
    """Each program of programs/ beside its product, its operations and a copy of its bytes."""
    path = RESULTS / "hopper_programs" / "library_of_programs.jsonl"
    return time_programs.table([json.loads(line) for line in path.read_text().splitlines()], [])


def tuned() -> str:
    """What the choice of a configuration is worth, by the shipped table."""
    lines = (ROOT / "src" / "gpu" / "sm90" / "tuned_rows.txt").read_text().splitlines()
    times = [[float(us) for us in line.rsplit("|", 1)[1].split()[1::2]]
             for line in lines if not line.startswith("#")]
    ratios = [max(us) / min(us) for us in times]
    return table(["kernels", "configurations of a kernel, median",
                  "slowest over fastest, median", "slowest over fastest, largest"],
                 [[str(len(times)), f"{statistics.median(map(len, times)):.0f}",
                   figure(statistics.median(ratios)), figure(max(ratios))]])


TABLES = {"bf16_state_losses": bf16_state_losses,
          "block_errors": block_errors, "block_times": block_times,
          "fp8_losses": fp8_losses, "fp8_losses_before": fp8_losses_before,
          "finetuning": finetuning, "fp8_steps": fp8_steps,
          "hugging_face": hugging_face, "library": library,
          "loss_blocks": loss_blocks, "planning": planning, "programs": programs,
          "pytorch_steps": pytorch_steps, "step_parts": step_parts, "steps": steps,
          "steps_h100": steps_h100,
          "summary": summary, "tuned": tuned}
_PLACE = re.compile(r"(<!-- lab/tables\.py: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def renewed(text: str) -> str:
    """The page with every marked table made anew."""
    def fill(match):
        if match[2] not in TABLES:
            sys.exit(f"tables: no table '{match[2]}'; there are {', '.join(TABLES)}")
        return f"{match[1]}{TABLES[match[2]]()}\n{match[3]}"

    return _PLACE.sub(fill, text)


def main() -> int:
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    stale = []
    for name in (*PAGES, PICTURE):
        page = ROOT / name
        text = page.read_text() if page.exists() else ""
        new = picture_of_steps() if name == PICTURE else renewed(text)
        if new == text:
            continue
        stale.append(name)
        if not sys.argv[1:]:
            page.write_text(new)
    if sys.argv[1:] and stale:
        print(f"tables: {', '.join(stale)}: not as the raw results are; run lab/tables.py")
        return 1
    print(f"tables: {len(PAGES)} pages, " + ("all well" if not stale else f"{len(stale)} renewed"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
