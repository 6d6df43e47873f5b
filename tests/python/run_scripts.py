# SPDX-License-Identifier: Apache-2.0
"""Runs scripts one after another in one process, so that PyTorch is imported once.
Usage: run_scripts.py SCRIPT..."""

import runpy
import sys

for script in sys.argv[1:]:
    print(f"# {script}", flush=True)
    runpy.run_path(script, run_name="__main__")
