// SPDX-License-Identifier: Apache-2.0
// Tests that compile kernels skip where there is no NVRTC, and say why; where CODA_REQUIRE_NVRTC is
// set, as `make test` does, which installs it, they fail instead.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coda/error.h"
#include "hopper/nvrtc_compiler.h"

namespace coda::hopper {

// Nothing, and the reason printed, where NVRTC is not installed.
inline std::optional<NvrtcCompiler> find_nvrtc() {
  try {
    return NvrtcCompiler();
  } catch (const Error& error) {
    if (std::getenv("CODA_REQUIRE_NVRTC") != nullptr) ADD_FAILURE() << error.what();
    std::printf("skipped, no NVRTC: %s\n", error.what());
    return std::nullopt;
  }
}

// A text with its names numbered as they first come, without comments: equal for two texts that
// differ in what their tensors are called, of which the compiler makes the same kernel.
inline std::string without_names(const std::string& text) {
  std::map<std::string, size_t> numbers;
  std::string result;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto is_of_name = [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_';
  };
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    if (text.compare(i, 2, "//") == 0) {
      i = std::min(text.find('\n', i), text.size());
    } else if (!is_of_name(text[i])) {
      result += text[i++];
    } else {
      while (i < text.size() && is_of_name(text[i])) ++i;
      const std::string name = text.substr(begin, i - begin);
      const size_t number = numbers.try_emplace(name, numbers.size()).first->second;
      result += is_digit(name.front()) ? name : "n" + std::to_string(number) + "_";
    }
  }
  return result;
}

// No spill, no local memory, no serialised wgmma. One text is compiled of those that differ in
// names alone.
inline void expect_no_defects(const std::set<std::string>& texts) {
  const auto compiler = find_nvrtc();
  if (!compiler) GTEST_SKIP() << "no NVRTC";
  std::map<std::string, std::string> distinct;
  for (const std::string& text : texts) distinct.try_emplace(without_names(text), text);
  std::vector<std::string> sources;
  for (const auto& [form, text] : distinct) sources.push_back(text);
  const std::vector<CompiledKernel> kernels = compiler->compile_all(sources);
  for (size_t i = 0; i < sources.size(); ++i) {
    EXPECT_EQ(kernels[i].defect, "") << kernels[i].log << "\n" << sources[i];
  }
  std::printf("%zu kernels compiled\n", sources.size());
}

}  // namespace coda::hopper
