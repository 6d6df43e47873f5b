#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds portable wheels (manylinux_2_28) and the source distribution in BUILD/dist: one wheel for
# Python 3.12 and newer (abi3), and one each for 3.10 and 3.11, if these Pythons are found. The
# library is compiled once. Fails if auditwheel reports that a wheel needs more than manylinux_2_28
# provides, or if a wheel is larger than 12 MB.
# Usage: wheel.sh BUILD JOBS. PYTHONS: the interpreters. OPENMP: a libgomp.so.1 for old machines, by
# default PyTorch's.
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1"
build=$(cd "$1" && pwd) jobs=$2
cmake=${CMAKE:-cmake}
platform=manylinux_2_28_x86_64 largest=12000000
export CMAKE_BUILD_TYPE='' CMAKE_GENERATOR=Ninja PIP_DISABLE_PIP_VERSION_CHECK=1
die() { echo "wheel.sh: $*" >&2; exit 1; }
openmp=${OPENMP:-$(ls "$source"/.venv/lib/python3*/site-packages/torch/lib/libgomp.so.1)}

rm -rf "$build/dist" "$build/wheel-source" && mkdir -p "$build/dist" "$build/wheel-source"
# Copies only tracked files: ignored files, such as a developer's extension module, stay out.
(cd "$source" && git ls-files -z | xargs -0 cp --parents -t "$build/wheel-source")
for python in ${PYTHONS:-python3.10 python3.11 python3.12}; do
  "$python" -c '' 2>/dev/null || { echo "$python is not there: no wheel for it"; continue; }
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  tools=$build/wheel-$version
  [ -x "$tools/bin/auditwheel" ] || {
    "$python" -m venv "$tools"
    "$tools/bin/pip" install -q -r "$source/requirements-python.txt" auditwheel wheel
  }
  # Removes the module of another Python and its CMake variables; keeps the library's objects.
  rm -f "$build"/python/coda_cpp/_core.*
  "$cmake" -G Ninja -S "$source" -B "$build" -U 'Python_*' -U '_Python*' -U 'nanobind*' \
    -DCODA_PYTHON=ON -DCODA_WHEEL=ON \
    -DCODA_PYTHON_EXECUTABLE="$tools/bin/python" > "$build/wheel.log"
  "$cmake" --build "$build" -j "$jobs" --target _core_stub
  module=$(ls "$build"/python/coda_cpp/_core.*so)
  rm -rf "$build/wheel"
  "$tools/bin/pip" wheel -q --no-deps --no-build-isolation -w "$build/dist/raw" \
    --config-settings=build-dir="$build/wheel" \
    --config-settings=cmake.define.CODA_EXTENSION="$module" \
    --config-settings=cmake.define.CODA_WHEEL_OPENMP="$openmp" "$build/wheel-source"
  raw=$(ls "$build"/dist/raw/*.whl)
  "$tools/bin/auditwheel" show "$raw" | tee "$build/wheel-$version.txt"
  grep -qE 'manylinux_2_(1[0-9]|2[0-8]|[0-9])_x86_64' "$build/wheel-$version.txt" ||
    die "$raw is not for $platform"
  [ "$(stat -c %s "$raw")" -le $largest ] || die "$raw has more than $largest bytes"
  "$tools/bin/python" -m wheel tags --remove --platform-tag $platform "$raw"
  mv "$build"/dist/raw/*.whl "$build/dist"
done
rm -rf "$build/dist/raw"
ls "$build"/dist/*.whl > /dev/null || die "no Python was found"
cd "$build/wheel-source"
"$tools/bin/python" -c 'import sys; from scikit_build_core.build import build_sdist
build_sdist(sys.argv[1])' "$build/dist"
ls -l "$build/dist"
