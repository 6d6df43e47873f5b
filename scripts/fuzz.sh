#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fuzzes targets (tests/fuzz) for SECONDS, JOBS processes at once, and prints a line for each.
# Uses libFuzzer if a Clang that has it is installed, else tests/fuzz/fuzz.cc. The exit status is 1
# if an input failed; libFuzzer leaves the input in BUILD/TARGET/failures.
# libFuzzer begins with the seeds and corpus/TARGET.bin. What it finds stays in BUILD/TARGET/corpus;
# with KEEP=1 the smallest inputs that reach all that was reached, of at most 64 KiB for a target,
# are written to corpus/TARGET.bin.
# Usage: fuzz.sh BUILD JOBS SECONDS TARGET... [-- CMAKE ARGUMENTS]
set -euo pipefail
build=$PWD/$1 jobs=$2 seconds=$3
shift 3
targets=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do targets+=("$1"); shift; done
shift || true
source=$PWD

# The newest Clang with libFuzzer, OpenMP and <source_location>.
for clang in $(compgen -c clang++ | sort -rVu) none; do
  [ "$clang" = none ] || ! "$clang" -std=c++20 -fopenmp -fsanitize=fuzzer,address -x c++ - \
    -o /dev/null 2>/dev/null <<'CPP' || break
#include <source_location>
extern "C" int LLVMFuzzerTestOneInput(const char*, std::size_t) {
  return std::source_location::current().line() == 0;
}
CPP
done
[ "$clang" = none ] || set -- "$@" "-DCMAKE_CXX_COMPILER=$clang" "-DCMAKE_C_COMPILER=${clang/++/}"
mkdir -p "$build"
cmake=${CMAKE:-cmake}
"$cmake" -G Ninja -S . -B "$build" "$@" -DCODA_FUZZ=ON > "$build/configure.log" 2>&1 ||
  { cat "$build/configure.log"; exit 1; }
"$cmake" --build "$build" -j "$jobs" --target fuzz
fuzz=$build/tests/fuzz/fuzz

by_gcc() {
  mkdir -p "$build/$1" && cd "$build/$1" && "$fuzz" "$1" "$seconds"
}

by_libfuzzer() {
  local each=$((jobs / ${#targets[@]}))
  mkdir -p "$build/$1/corpus" "$build/$1/failures"
  cd "$build/$1"
  "$fuzz" --target="$1" --write-seeds=corpus 2> seeds.log || { cat seeds.log; return 1; }
  "$fuzz" --target="$1" -fork=$((each > 0 ? each : 1)) -max_total_time="$seconds" -timeout=20 \
    -ignore_crashes=1 -ignore_timeouts=1 -ignore_ooms=1 -artifact_prefix=failures/ corpus \
    > log 2>&1 || { tail -20 log; return 1; }
  local failures
  failures=$(find failures -type f | wc -l)
  echo "fuzz: $1:$(sed -n 's/^#\([0-9]*\): \(cov: .*\) exec.*/ \1 inputs, \2/p' log | tail -1)," \
    "$failures inputs fail"
  if [ "${KEEP:-0}" = 1 ]; then
    rm -rf small && mkdir small
    "$fuzz" --target="$1" -merge=1 small corpus > merge.log 2>&1
    python3 - small "$source/tests/fuzz/corpus/$1.bin" <<'PY'
import pathlib
import sys

folder, kept = map(pathlib.Path, sys.argv[1:])
kept.parent.mkdir(exist_ok=True)
entries = sorted((b"%d\n%s" % (len(b), b) for b in (f.read_bytes() for f in folder.iterdir())),
                 key=lambda entry: (len(entry), entry))
size = 0
with open(kept, "wb") as file:
    for entry in entries:
        size += len(entry)
        if size <= 64 * 1024:
            file.write(entry)
PY
  fi
  [ "$failures" -eq 0 ]
}

way=by_libfuzzer
[ "$clang" != none ] || way=by_gcc
status=0
waiting=()
for target in "${targets[@]}"; do
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do sleep 0.2; done
  ($way "$target") & waiting+=($!)
done
for process in "${waiting[@]}"; do wait "$process" || status=1; done
exit $status
