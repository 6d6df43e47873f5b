// SPDX-License-Identifier: Apache-2.0
// Compiles kernel text to a cubin with NVRTC, which is opened at run time; needs no GPU. The result
// includes the assembler's report: spills, local memory and serialised wgmma are defects, because
// each costs more than any choice of tiles.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/targets/targets.h"

namespace coda::gpu {

// The oldest version whose cubins the tests accept.
inline constexpr CompilerVersion kOldestNvrtc{12, 4};

struct CompiledKernel {
  std::vector<char> cubin;  // or PTX, for a target that asks for PTX; empty: compilation failed
  std::string log;
  int registers = 0;   // per thread
  std::string defect;  // of the generated code; empty: none

  // Severity of the defect: bytes of local memory per thread, 0 without a defect. Serialised wgmma
  // counts as more than any number of bytes.
  int64_t spilled_bytes() const;
};

class NvrtcCompiler {
 public:
  // The files that kernels may include: name -> text.
  using Headers = std::map<std::string, std::string>;

  // Uses the embedded device code. Throws Error if there is no NVRTC, or if it is too old.
  explicit NvrtcCompiler(const Target& target = chosen_target());
  explicit NvrtcCompiler(Headers headers, const Target& target = chosen_target());

  CompilerVersion version() const { return version_; }
  const std::string& location() const;
  std::string file() const;  // the library that the loader opened
  const Headers& headers() const { return headers_; }
  const Target& target() const { return *target_; }
  // NVRTC's name for what it makes: the target's architecture, or its PTX if the compiler is older.
  static std::string_view architecture_of(CompilerVersion version, const Target& target);
  static std::vector<std::string> options(std::string_view architecture);
  // The options, including those that a compiler version needs. NVRTC 13 has its own cache, which
  // returns a cubin without the assembler's report; it is turned off, because spills would go
  // unnoticed in a kernel that it has compiled before under other names.
  static std::vector<std::string> options_of(CompilerVersion version, const Target& target);

  // Thread-safe.
  CompiledKernel compile(const std::string& source) const;

  // Compiles in parallel on all cores; results are in the order of `sources`.
  std::vector<CompiledKernel> compile_all(const std::vector<std::string>& sources) const;

 private:
  Headers headers_;
  const Target* target_;
  CompilerVersion version_;
};

// The device code that is embedded in the library. A file in device/<target>/ptx replaces the file
// of the same name in device/ptx.
NvrtcCompiler::Headers embedded_headers(const Target& target = chosen_target());

}  // namespace coda::gpu
