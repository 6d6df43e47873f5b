#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs tests, by their unittest names, in forks of a process that has imported PyTorch and
transformers, because these imports take longer than most tests. Each fork imports the tested
modules itself, so they may change between forks.

Reads lines "SECONDS NAME..." and writes a line for each: the exit status of the tests, or -9 if
they took longer. The first argument is the file for the tests' output.
"""

import contextlib
import os
import signal
import sys
import time
import unittest

import torch._dynamo
import torch._dynamo.backends.common
import torch.fx.experimental.proxy_tensor  # noqa: F401 (what tests import too)
from transformers import (  # noqa: F401
    Gemma2ForCausalLM, GPT2LMHeadModel, LlamaForCausalLM, MistralForCausalLM, Qwen3ForCausalLM)


def run(names: list[str], output: str) -> None:
    """Runs in the fork and ends the process."""
    os.setpgid(0, 0)
    with open(output, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    unittest.main(module=None, argv=["unittest", "-q", "-f", *names])


def status_of(child: int, seconds: float) -> int:
    end = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return -9
        time.sleep(0.05)


def main() -> None:
    for line in sys.stdin:
        seconds, *names = line.split()
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            run(names, sys.argv[1])
        print(status_of(child, float(seconds)), flush=True)


if __name__ == "__main__":
    main()
