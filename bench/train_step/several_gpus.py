#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Optimizer steps of the 1B model on one GPU and on several GPUs of one machine: ours, with
gradients exchanged during the backward or all after it, and PyTorch's (DDP and FSDP2 under
torch.compile, with Inductor and with backend coda), all in one run on the same boards.

    several_gpus.py BUILD [--gpus 2] [--out FILE] [--who coda torch backend]

BUILD has bench/train_step/train_step; this Python has PyTorch. Prints a table, and the output of
each run as a line of JSON, also to FILE. Takes four minutes on two H100s. A failed run is reported,
and the others continue. The exit status is 1 if a run failed, or if the two ways of exchange give
different losses.
"""

import argparse
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

_PEER = pathlib.Path(__file__).resolve().parents[1] / "peers" / "train_step_torch.py"
_BATCH = 16  # sequences per GPU
_SEQUENCE = 2048


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def run(words: list[str], processes: int, seconds: float) -> dict:
    """Runs the command in several processes, as torchrun does. Returns the JSON of rank 0."""
    env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
           "WORLD_SIZE": str(processes), "NCCL_NVLS_ENABLE": "0",
           "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    if processes == 1:
        env["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    with tempfile.TemporaryDirectory() as folder:
        started = []
        for rank in range(processes):
            with open(f"{folder}/out{rank}", "w") as out, open(f"{folder}/err{rank}", "w") as err:
                started.append(subprocess.Popen(
                    words, env=env | {"RANK": str(rank), "LOCAL_RANK": str(rank)}, stdout=out,
                    stderr=err))
        try:
            for process in started:
                if process.wait(seconds) != 0:  # the other processes would wait for it
                    break
        except subprocess.TimeoutExpired:
            pass
        for process in started:
            process.kill()
            process.wait()
        lines = pathlib.Path(f"{folder}/out0").read_text().splitlines()
        for line in lines:
            if line.startswith("{"):
                return json.loads(line)
        said = [pathlib.Path(f"{folder}/err{rank}").read_text().strip()[-600:]
                for rank in range(processes)]
        return {"failed": " | ".join(filter(None, said)) or "it has said nothing in time"}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--who", choices=("coda", "torch", "backend"), nargs="+",
                        default=["coda", "torch"])
    parser.add_argument("--seconds", type=float, default=110, help="that a run may take")
    parser.add_argument("--layers", type=int, default=0, help="of ours; 0: the model's 16")
    arguments = parser.parse_args()

    gpus = arguments.gpus
    ours = [str(arguments.build / "bench/train_step/train_step"), "--layers", str(arguments.layers),
            "--losses"]
    peer = [sys.executable, str(_PEER)]
    backend = [*peer, "--backend", "coda"]
    # Name, command and number of processes; ratios are relative to the last run on one GPU.
    runs = {
        "coda": [("coda", ours, 1), ("coda", ours, gpus),
                 ("coda, exchange behind", [*ours, "--exchange-mib", "1e9"], gpus)],
        "torch": [("torch.compile", peer, 1),
                  ("torch.compile, DDP", [*peer, "--parallel", "ddp"], gpus),
                  ("torch.compile, FSDP2", [*peer, "--parallel", "fsdp2"], gpus)],
        "backend": [("backend coda", backend, 1),
                    ("backend coda, DDP", [*backend, "--parallel", "ddp"], gpus),
                    ("backend coda, FSDP2", [*backend, "--parallel", "fsdp2"], gpus)]}
    results = []
    losses = []  # of our runs on several GPUs
    alone = None
    for name, words, processes in (one for who in arguments.who for one in runs[who]):
        sizes = ["--batch", str(_BATCH * processes), "--sequence", str(_SEQUENCE)]
        row = {"run": name, "gpus": processes, **run(words + sizes, processes, arguments.seconds)}
        speed = row.get("tokens_per_second")
        said = row.pop("losses", None)
        if processes > 1 and said:
            losses.append(said)
        if processes == 1:
            alone = speed
        elif speed and alone:
            row["times_one"] = round(speed / alone, 3)
        results.append(row)
        print(json.dumps(row), flush=True)
        if arguments.out:
            arguments.out.write_text("".join(json.dumps(one) + "\n" for one in results))

    print(f"\n{'':24}{'GPUs':>5}{'ms a step':>11}{'tokens/s':>10}{'times one':>11}{'GiB':>7}")
    for row in results:
        memory = row.get("taken_gib", row.get("peak_gib", ""))
        print(f"{row['run']:24}{row['gpus']:>5}{row.get('ms', 'failed'):>11}"
              f"{row.get('tokens_per_second', ''):>10}{row.get('times_one', ''):>11}{memory:>7}")
    is_same = all(said == losses[0] for said in losses)
    if len(losses) > 1:
        print(f"{len(losses[0])} losses of ours are {'the same' if is_same else 'NOT the same'} "
              "with both exchanges")
    return 1 if not is_same or any("failed" in row for row in results) else 0


if __name__ == "__main__":
    sys.exit(main())
