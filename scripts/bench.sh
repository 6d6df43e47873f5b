#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs all benchmarks of a build folder, one after another: the parts (Google Benchmark), then the
# block compared with PyTorch. JSON goes to out/bench.
# Usage: bench.sh BUILD [FILTER]; only benchmarks with FILTER in their name. The block is "block".
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
filter=${2:-}
mkdir -p out/bench

for program in "$build"/lab/*/*_benchmark; do
  name=$(basename "$program")
  case $name in *"$filter"*) ;; *) continue ;; esac
  [ -x "$program" ] || continue
  echo "== $name"
  "$program" --benchmark_out="out/bench/$name.json" --benchmark_out_format=json
done
case block in
  *"$filter"*)
    if [ -x "$build/bench/block" ]; then
      echo "== block"
      "$build/bench/block" --peer ".venv/bin/python bench/peers/block_torch.py" \
        --json out/bench/block.json
    fi
    ;;
esac
