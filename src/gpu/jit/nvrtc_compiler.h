// SPDX-License-Identifier: Apache-2.0
// Compiles kernel text to a cubin with NVRTC, which is opened at run time; no GPU is
// needed. What the assembler reports is part of the result: a spill, local memory or serialised
// wgmma is a defect of the kernel, because each costs more than any choice of tiles.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/targets/targets.h"

namespace coda::gpu {

struct CompilerVersion {
  int major = 0;
  int minor = 0;

  std::string text() const { return std::to_string(major) + "." + std::to_string(minor); }
  friend auto operator<=>(const CompilerVersion&, const CompilerVersion&) = default;
};

// The oldest whose cubins the tests accept.
inline constexpr CompilerVersion kOldestNvrtc{12, 4};

struct CompiledKernel {
  std::vector<char> cubin;  // PTX for a target that asks for PTX; empty: compilation failed
  std::string log;
  int registers = 0;   // a thread
  std::string defect;  // empty: none

  // How bad the defect is, 0 if there is none: a thread's bytes in local memory. Serialised wgmma
  // counts for more than any.
  int64_t spilled_bytes() const;
};

class NvrtcCompiler {
 public:
  // What kernels may include: name -> text.
  using Headers = std::map<std::string, std::string>;

  // Uses the embedded device code. Throws Error if there is no NVRTC, or if it is too old.
  explicit NvrtcCompiler(const Target& target = chosen_target());
  explicit NvrtcCompiler(Headers headers, const Target& target = chosen_target());

  CompilerVersion version() const { return version_; }
  const std::string& location() const;
  std::string file() const;  // the library that the loader opened
  const Headers& headers() const { return headers_; }
  const Target& target() const { return *target_; }
  static std::vector<std::string> options(const Target& target);
  // With those that a version has beside them. From a cache of its own, NVRTC 13 gives a cubin
  // without the assembler's report: registers that spill would go unnoticed where it has compiled
  // the same kernel, under other names, before.
  static std::vector<std::string> options_of(CompilerVersion version, const Target& target);

  // May be called by several threads at once.
  CompiledKernel compile(const std::string& source) const;

  // The same order as `sources`, on as many threads as the machine has cores.
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
