#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Packs the wheel around the extension module of this build, and installs it in a fresh virtual
# environment, which sees the judges (PyTorch, NumPy) of .venv and nothing else of it.
# Usage: install_wheel.sh SOURCE BUILD EXTENSION; the environment is BUILD/python/venv.
set -euo pipefail
source=$1 build=$2/python extension=$3
judges=$source/.venv/bin/python
rm -rf "$build/dist" "$build/venv" "$build/wheel"
export CMAKE_BUILD_TYPE='' CMAKE_GENERATOR=Ninja
"$judges" -m pip wheel -q --no-deps --no-build-isolation --disable-pip-version-check \
  -w "$build/dist" --config-settings=build-dir="$build/wheel" \
  --config-settings=cmake.define.CODA_EXTENSION="$extension" "$source"
"$judges" -m venv --without-pip "$build/venv"
"$judges" -m pip --python "$build/venv/bin/python" install -q --no-deps --no-index \
  --disable-pip-version-check "$build"/dist/*.whl
packages() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
packages "$judges" > "$(packages "$build/venv/bin/python")/judges.pth"
