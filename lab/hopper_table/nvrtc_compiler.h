// SPDX-License-Identifier: Apache-2.0
// The library's compiler, given the device code as it lies in a source tree instead of what was
// embedded when the library was built: an experiment edits device/*.cuh and rebuilds nothing.
#pragma once

#include <string>
#include <vector>

#include "gpu/jit/nvrtc_compiler.h"

namespace coda::hopper_table {

using gpu::CompiledKernel;
using gpu::NvrtcCompiler;

// Every device/*.cuh under `root`. Throws coda::Error if there is none.
NvrtcCompiler::Headers read_headers(const std::string& root);

}  // namespace coda::hopper_table
