#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds hopper_table with nothing but a C++20 compiler, for a GPU machine that has no more.
# Usage, from the repository's root: bench/hopper_table/build.sh OUTPUT
set -e
objects=$(mktemp -d)
for source in bench/hopper_table/*.cc; do
  name=$(basename "$source" .cc)
  [ "$name" = compile_sweep ] && continue
  ${CXX:-g++} -std=c++20 -O2 -I. -c "$source" -o "$objects/$name.o" &
done
wait
${CXX:-g++} "$objects"/*.o -o "$1" -ldl -lpthread
rm -r "$objects"
