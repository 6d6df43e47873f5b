#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The comparisons of lab/notebook/hopper.md on this machine's GPU: our benchmark, and directly after
# it each peer that the Python environment has (torch.compile with PyTorch, QuACK with quack), all
# on one board; then a table of both. Results and logs go to out/bench_gpu.
# Usage: bench_gpu.sh BUILD [WHAT...]. WHAT: programs, block, small, squares, steps; default: all.
# Environment: PYTHON [python3], HIDDEN [2048 4096 8192], TIMING, arguments for all sides
# [--seconds 0.4 --repetitions 4].
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:?the build folder is missing: bench_gpu.sh BUILD [WHAT...]}
ours=$build/bench/gpu_programs/gpu_programs
shift
[ $# -gt 0 ] || set -- programs block small squares steps
python=${PYTHON:-python3}
read -ra hidden <<< "${HIDDEN:-2048 4096 8192}"
read -ra timing <<< "${TIMING:---seconds 0.4 --repetitions 4}"
programs=(--rows bare residual rstd "norm backward" "SwiGLU backward" weight)
block=(--rows block)
out=out/bench_gpu
mkdir -p $out

has() { "$python" -c "import $1" 2> /dev/null; }
peers=()
for peer in torch quack; do
  if has $peer; then peers+=($peer); else echo "bench_gpu: $python has no $peer; without it"; fi
done

# run NAME COMMAND...: writes results and a log; prints the end of the log if the command fails.
run() {
  local name=$1 status=0
  shift
  echo "== $name"
  "$@" --json "$out/$name.jsonl" "${timing[@]}" > "$out/$name.log" 2>&1 || status=$?
  [ $status -eq 0 ] || { tail -n 3 "$out/$name.log" >&2; return $status; }
}

# peer NAME PEER COMMAND...: the same for a peer, and a table with our results of this name.
peer() {
  local name=$1 peer=$2
  shift 2
  [[ " ${peers[*]} " == *" $peer "* ]] || return 0
  run "$name.$peer" "$python" "$@"
  "$python" bench/peers/block_torch_gpu.py --compare "$out/$name.jsonl" "$out/$name.$peer.jsonl"
}
torch() { peer "$1" torch bench/peers/block_torch_gpu.py --no-check "${@:2}"; }
quack() { peer "$1" quack bench/peers/quack_gpu.py "${@:2}"; }

for what in "$@"; do
  case $what in
    programs)
      for d in "${hidden[@]}"; do
        run "programs_$d" "$ours" --hidden "$d" "${programs[@]}"
        torch "programs_$d" --what programs --hidden "$d"
        quack "programs_$d" --hidden "$d"
      done ;;
    block)
      for d in "${hidden[@]}"; do
        run "block_$d" "$ours" --hidden "$d" "${block[@]}"
        torch "block_$d" --what block --hidden "$d"
      done ;;
    small)
      run small "$ours" --tokens 1024,3000,4096 --hidden 2048
      torch small --what programs block --tokens 1024 3000 4096 --hidden 2048 ;;
    squares)
      for d in "${hidden[@]}"; do
        run "squares_$d" "$ours" --square --hidden "$d"
        torch "squares_$d" --what programs --square --hidden "$d"
        quack "squares_$d" --square --hidden "$d"
      done ;;
    steps)
      for shape in "1b 16 2048" "1b 4 8192" "8b 8 2048"; do
        read -r model batch sequence <<< "$shape"
        flags=(--model "$model" --batch "$batch" --sequence "$sequence")
        for _ in 1 2; do
          "$build/bench/train_step/train_step" "${flags[@]}" | tee -a $out/steps.jsonl
          [[ " ${peers[*]} " == *" torch "* ]] || continue
          "$python" bench/peers/train_step_torch.py "${flags[@]}" | tee -a $out/steps.jsonl
        done
      done ;;
    *) echo "bench_gpu: '$what' is none of programs, block, small, squares, steps" >&2; exit 1 ;;
  esac
done
