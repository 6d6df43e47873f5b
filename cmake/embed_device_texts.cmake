# SPDX-License-Identifier: Apache-2.0
# Writes OUTPUT, a C++ source that holds all .cuh files under device/ as text, so that the library
# compiles kernels without a file at run time. Run as: cmake -DROOT=... -DOUTPUT=... -P.
file(GLOB_RECURSE names RELATIVE ${ROOT} ${ROOT}/device/*.cuh)
list(SORT names)
set(entries "")
foreach(name IN LISTS names)
  file(READ ${ROOT}/${name} text)
  string(APPEND entries "    {\"${name}\", R\"device_text(${text})device_text\"},\n")
endforeach()
file(WRITE ${OUTPUT} "// Made by cmake/embed_device_texts.cmake.
#include \"hopper/jit/device_texts.h\"

namespace coda::hopper {
namespace {

constexpr DeviceText kTexts[] = {
${entries}};

}  // namespace

std::span<const DeviceText> device_texts() { return kTexts; }

}  // namespace coda::hopper
")
