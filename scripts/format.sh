#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Formats all C++ sources with the pinned clang-format; with --check only lists files that are not
# formatted.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=(-i)
[ "${1:-}" != --check ] || mode=(--dry-run -Werror)
mapfile -d '' files < <(
  for folder in include src tests tools bench lab examples device python; do
    [ ! -d $folder ] || find $folder \( -name '*.h' -o -name '*.cc' -o -name '*.cuh' \) -print0
  done | sort -z)
[ ${#files[@]} -gt 0 ] || exit 0
if .venv/bin/clang-format "${mode[@]}" "${files[@]}"; then
  echo "format: ${#files[@]} files, all well"
else
  echo 'format: run `make format`'
  exit 1
fi
