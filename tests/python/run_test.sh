#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs Python on tests of the package in the environment that install_wheel.sh has made, without a
# compiler on the PATH, away from the sources, with THREADS threads (2).
# Usage: run_test.sh BUILD ARGUMENTS OF PYTHON...
set -euo pipefail
tests=$(cd "$(dirname "$0")" && pwd)
cd "$1/python"
shift
# Inductor would compile a program to see whether the compiler knows the CPU's vectors: seconds.
exec env -i "HOME=$HOME" PATH=/nonexistent "PYTHONPATH=$tests" OMP_WAIT_POLICY=passive \
  TORCHINDUCTOR_VEC_ISA_OK=1 \
  "OMP_NUM_THREADS=${THREADS:-2}" "CODA_NO_SKIPS=${CODA_NO_SKIPS:-}" venv/bin/python "$@"
