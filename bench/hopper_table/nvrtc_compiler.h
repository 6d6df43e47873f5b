// SPDX-License-Identifier: Apache-2.0
// Compiles kernel text to an sm_90a cubin with NVRTC, which is opened at run time. What the
// assembler reports is part of the result: a spill, local memory or serialised wgmma is a failure,
// because each costs more than any choice the table compares.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace coda::hopper_table {

struct CompiledKernel {
  std::vector<char> cubin;
  std::string log;
  int registers = 0;
  std::string defect;  // empty: none
};

class NvrtcCompiler {
 public:
  // `root` holds the folder device/.
  explicit NvrtcCompiler(const std::string& root);

  // What a kernel may include, for example "device/tma.cuh".
  std::vector<std::string> header_names() const;

  CompiledKernel compile(const std::string& source) const;

  // The same order as `sources`, on as many threads as the machine has cores.
  std::vector<CompiledKernel> compile_all(const std::vector<std::string>& sources) const;

 private:
  std::map<std::string, std::string> headers_;  // include name -> text
};

}  // namespace coda::hopper_table
