#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a test file of the Python package in the environment that install_wheel.sh has made, without
# a compiler on the PATH, away from the sources.
# Usage: run_test.sh BUILD TEST
set -euo pipefail
cd "$1/python"
exec env -i "HOME=$HOME" PATH=/nonexistent OMP_WAIT_POLICY=passive OMP_NUM_THREADS=2 \
  venv/bin/python "$2" -q
