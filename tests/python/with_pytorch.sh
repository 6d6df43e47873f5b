#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the package's tests with other versions of PyTorch than the judges', each in an environment
# of its own, with the wheel that install_wheel.sh has packed and without a compiler on the PATH.
# An environment (5 GB, from the network) is kept for the next time.
# Usage: with_pytorch.sh SOURCE BUILD VERSION...; an environment is BUILD/python/torch-VERSION.
set -euo pipefail
source=$1 build=$2/python
shift 2
tests=$source/tests/python status=0
modules=()
for file in "$tests"/*_test.py; do modules+=("$(basename "$file" .py)"); done
for version in "$@"; do
  environment=$build/torch-$version
  if [ ! -f "$environment/is_whole" ]; then
    rm -rf "$environment"
    "$source/.venv/bin/python" -m venv "$environment"
    export PIP_CONSTRAINT=/dev/null  # a machine's may name other versions than are asked for
    "$environment/bin/pip" install -q --no-compile "torch==$version"
    # The other judges, but for what is PyTorch's to choose.
    grep -vE '^(torch|nvidia)' "$source/requirements.txt" > "$environment/requirements.txt"
    "$environment/bin/pip" install -q --no-compile -r "$environment/requirements.txt"
    touch "$environment/is_whole"
  fi
  "$environment/bin/pip" install -q --no-deps --no-index --force-reinstall "$build"/dist/*.whl
  echo "with PyTorch $version:"
  (cd "$build" && env -i "HOME=$HOME" PATH=/nonexistent "PYTHONPATH=$tests" \
    OMP_WAIT_POLICY=passive OMP_NUM_THREADS=2 "$environment/bin/python" -m unittest -q \
    "${modules[@]}") || status=1
done
exit $status
