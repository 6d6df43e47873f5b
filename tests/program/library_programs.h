// SPDX-License-Identifier: Apache-2.0
// The programs of programs/ for tests that go over all of them: a new file needs no edit of a test.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "coda/program.h"

namespace coda::tests {

// Of the library, by name: "swiglu".
inline std::string library_file(const std::string& name) {
  return std::string(CODA_SOURCE_DIR) + "/programs/" + name + ".coda";
}

inline std::string library_text(const std::string& name) {
  std::ifstream file(library_file(name));
  EXPECT_TRUE(file.good()) << "there is no " << library_file(name);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline Program library_program(const std::string& name) {
  return parse_program(library_text(name));
}

// The names of all, sorted.
inline std::vector<std::string> library_names() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(CODA_SOURCE_DIR "/programs")) {
    if (entry.path().extension() == ".coda") names.insert(entry.path().stem());
  }
  return {names.begin(), names.end()};
}

// A finalizer is derived behind the program that leaves its partials: the first of the library, by
// name, that leaves a partial of that name. Whatever has no partials stands alone.
inline std::vector<std::string> with_makers(const std::string& name) {
  std::set<std::string> wanted;
  for (const Step& step : library_program(name).steps) {
    if (step.kind() == StepKind::combine)
      wanted.insert(library_program(name).tensors[static_cast<size_t>(step.tensor())].name);
  }
  std::vector<std::string> names;
  for (const std::string& maker : library_names()) {
    const Program program = library_program(maker);
    bool makes = false;
    for (const Step& step : program.steps) {
      if (step.kind() != StepKind::row_partial && step.kind() != StepKind::column_partial) continue;
      makes = wanted.erase(program.tensors[static_cast<size_t>(step.tensor())].name) > 0 || makes;
    }
    if (makes) names.push_back(maker);
  }
  EXPECT_TRUE(wanted.empty()) << "no program of the library leaves '" << *wanted.begin() << "' for "
                              << name;
  names.push_back(name);
  return names;
}

inline auto name_of_library_test(const testing::TestParamInfo<std::string>& info) {
  return info.param;
}

}  // namespace coda::tests
