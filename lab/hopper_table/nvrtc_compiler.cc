// SPDX-License-Identifier: Apache-2.0
#include "lab/hopper_table/nvrtc_compiler.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "coda/error.h"

namespace coda::hopper_table {

NvrtcCompiler::Headers read_headers(const std::string& root) {
  NvrtcCompiler::Headers headers;
  std::error_code error;
  for (const char* folder : {"device", "lab/hopper_table"}) {
    const std::filesystem::recursive_directory_iterator files(root + "/" + folder, error);
    for (const auto& entry : files) {
      if (entry.path().extension() != ".cuh") continue;
      std::ifstream file(entry.path());
      headers[std::filesystem::relative(entry.path(), root).generic_string()] =
          std::string(std::istreambuf_iterator<char>(file), {});
    }
  }
  require(!headers.empty(), "no device/*.cuh under " + root + "; name the source tree by --root");
  return headers;
}

}  // namespace coda::hopper_table
