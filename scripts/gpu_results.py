#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/results/on_gpu.md, the last run of the GPU tests: device, date, commit, and counts
for each target of kernels (CODA_GPU_TARGET).

Reads the reports of ctest (JUnit) or of the test program itself (--gtest_output=xml:, one for each
shard), and summaries of compute-sanitizer if given. A target of whose tests none ran is left out;
if that is so for all, because there was no GPU, nothing is written.
Usage: gpu_results.py [TARGET=]REPORT.xml... [--out FILE] [--commit TEXT] [--date DATE]
[--sanitizer LOG...]
"""

import argparse
import collections
import datetime
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Descriptions of suites, in the order of the document. Other suites follow, sorted by name.
ABOUT = {
    "Device": "the GPU of the run",
    "WrittenPrograms": "benchmark and example programs of aligned, ragged and tiny sizes",
    "PlanPrograms": "each program of the LLaMA and GPT-2 plans, run separately",
    "RandomPrograms": "random programs and shapes",
    "LargeTensors": "tensors with more than 2^31 elements",
    "PlansOnGpu": "blocks and models, forward and backward, against the error contract",
    "TinyPlans": "small plans, also used with compute-sanitizer",
    "SessionOnGpu": "bitwise equal results: repeated runs, CUDA graphs, while other kernels run",
    "SameBits": "the same bits for every tile and number of multiprocessors",
    "DependentLaunch": "programmatic dependent launch gives the same bits",
    "HeadSums": "sums over each head in a GEMM's epilogue, as QK-norm needs",
    "SplitPrograms": "programs that are too large for one kernel",
    "TrainingOnGpu": "training: the losses of the CPU, the same bits in each run",
    "AttentionOnGpu": "attention against float64: cuDNN, repeatable and fast, and the plain kernel",
    "EightBits": "GEMMs with 8-bit operands: results, the same bits for every tile",
    "EightBitTrainingOnGpu": "training with 8-bit GEMMs: the same bits in each run",
    "Bytes": "tensors with 8-bit elements",
    "BadInput": "invalid calls: each is reported and leaves the backend usable",
    "SmClock": "the clock that benchmarks read on the GPU",
    "OnGpu": "attention in parts, and with soft-caps",
    "OwnAttentionOnGpu": "the library's own attention kernels: definition, same bits in each run",
    "LargestValuesOnGpu": "the gradient of a maximum that several elements share",
    "SparseExpertsOnGpu": "mixtures of experts: a step's loss and gradients are the CPU's",
    "TextGeneratorOnGpu": "text generation: the text that the CPU backend generates",
}


def suite_of(case):
    """The suite: PlanPrograms for gpu.Models/PlanPrograms.AgreeWithFloat64/llama."""
    name = case.get("name", "")
    if not name.startswith("gpu."):
        name = case.get("classname", "") + "." + name
    name = name.removeprefix("gpu.")
    before, dot, rest = name.partition(".")
    return before.rpartition("/")[2]


def outcome_of(case):
    if case.find("failure") is not None or case.get("status") == "fail":
        return "failed"
    if case.get("result") == "skipped" or case.find("skipped") is not None:
        return "skipped"
    return "passed" if case.get("status") == "run" else "skipped"


def device_of(root):
    """The device that the test Device.IsNamed reports, as a property or in its output."""
    for prop in root.iter("property"):
        if prop.get("name") == "device":
            return prop.get("value")
    for output in root.iter("system-out"):
        found = re.search(r"^device: (.+)$", output.text or "", re.MULTILINE)
        if found:
            return found[1]
    return "unknown"


def commit_of():
    def git(*words):
        return subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    commit = git("rev-parse", "--short", "HEAD") or "unknown"
    changed = [line for line in git("status", "--porcelain", "-uno").splitlines()
               if not line.endswith("docs/results/on_gpu.md")]
    return commit + (" with changes" if changed else "")


def sanitizer_lines(logs):
    lines = []
    for log in logs:
        found = re.findall(r"^=+ (?:ERROR|RACECHECK) SUMMARY: (.+)$",
                           pathlib.Path(log).read_text(errors="replace"), re.MULTILINE)
        lines.append(f"| {pathlib.Path(log).stem} | {found[-1] if found else 'no summary'} |")
    return lines


def counts_of(root):
    """By suite, how many tests had each outcome."""
    counts = {}
    for case in root.iter("testcase"):
        if case.get("status") == "notrun" and case.find("skipped") is None:
            continue  # of another shard
        counts.setdefault(suite_of(case), collections.Counter())[outcome_of(case)] += 1
    return counts


def summary(outcomes, always=("passed",)):
    """"2 passed, 1 skipped": `always` and what is not 0."""
    return ", ".join(f"{outcomes[key]} {key}" for key in ("passed", "failed", "skipped")
                     if outcomes[key] or key in always)


def document(roots, commit, date, logs):
    """`roots`: by target, the reports."""
    counts = {target: counts_of(root) for target, root in roots.items()}
    totals = {target: sum(suites.values(), collections.Counter())
              for target, suites in counts.items()}
    targets = [t for t in roots if totals[t]["passed"] + totals[t]["failed"]]
    if not targets:
        return None
    devices = sorted({device_of(roots[target]) for target in targets})
    names = {name for target in targets for name in counts[target]}
    order = [name for name in ABOUT if name in names] + sorted(names - ABOUT.keys())
    lines = ["# The last run of the GPU tests", "",
             "Written by `scripts/gpu_results.py`, which `make test-gpu` runs. Each target of",
             "kernels ([gpu.md](../gpu.md)) has a column.", "",
             "| | |", "|---|---|",
             f"| device | {'; '.join(devices)} |", f"| date | {date} |", f"| commit | {commit} |"]
    lines += [f"| {target} | {summary(totals[target], ('passed', 'failed'))} |"
              for target in targets]
    lines += ["", f"| tests | {' | '.join(targets)} | of |", "|---" * (len(targets) + 2) + "|"]
    for name in order:
        cells = [summary(counts[t][name], ()) if name in counts[t] else "" for t in targets]
        lines.append(f"| {name} | {' | '.join(cells)} | {ABOUT.get(name, '')} |")
    if logs:
        lines += ["", "| compute-sanitizer | |", "|---|---|", *sanitizer_lines(logs)]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("reports", nargs="+")
    parser.add_argument("--out", default=str(ROOT / "docs/results/on_gpu.md"))
    parser.add_argument("--commit", default="")
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    parser.add_argument("--sanitizer", nargs="*", default=[])
    arguments = parser.parse_args()
    roots = {}
    for report in arguments.reports:
        target, equals, path = report.rpartition("=")
        if not equals:
            target = "sm90"
        try:
            roots.setdefault(target, ElementTree.Element("reports")).append(
                ElementTree.parse(path).getroot())
        except (OSError, ElementTree.ParseError) as error:
            sys.exit(f"gpu_results: {path}: {error}")
    text = document(roots, arguments.commit or commit_of(), arguments.date, arguments.sanitizer)
    if text is not None:
        pathlib.Path(arguments.out).write_text(text)


if __name__ == "__main__":
    main()
