#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds hopper_table with nothing but a C++20 compiler, for a GPU machine that has no more.
# Usage, from the repository's root: bench/hopper_table/build.sh OUTPUT
set -e
objects=$(mktemp -d)
# What it uses of the library; the device code is read from the source tree instead of embedded.
cat > "$objects/no_device_texts.cc" <<'TEXT'
#include "hopper/device_texts.h"
std::span<const coda::hopper::DeviceText> coda::hopper::device_texts() { return {}; }
TEXT
for source in bench/hopper_table/*.cc src/hopper/dynamic_library.cc src/hopper/nvrtc_compiler.cc \
  src/hopper/parallel_for.cc "$objects/no_device_texts.cc"; do
  name=$(basename "$source" .cc)
  case $source in
    */compile_sweep.cc) continue ;;
    src/*) name=library_$name ;;
  esac
  ${CXX:-g++} -std=c++20 -O2 -I. -Iinclude -Isrc -c "$source" -o "$objects/$name.o" &
done
wait
${CXX:-g++} "$objects"/*.o -o "$1" -ldl -lpthread
rm -r "$objects"
