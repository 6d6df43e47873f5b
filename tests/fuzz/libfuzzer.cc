// SPDX-License-Identifier: Apache-2.0
// libFuzzer's entry points, for builds with Clang. Besides libFuzzer's own arguments:
//
//     fuzz --target=NAME [FOLDER...]            # fuzzes the target; FOLDER keeps its corpus
//     fuzz --target=NAME --write-seeds=FOLDER   # writes the target's seeds as files, and ends
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "fuzz/targets.h"

namespace {

std::unique_ptr<coda::fuzz::Target> target;

}  // namespace

extern "C" {

size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

int LLVMFuzzerInitialize(int* count, char*** words) {
  std::string name, folder;
  for (const std::string_view word : std::span(*words, static_cast<size_t>(*count))) {
    if (word.starts_with("--target=")) name = word.substr(word.find('=') + 1);
    if (word.starts_with("--write-seeds=")) folder = word.substr(word.find('=') + 1);
  }
  if (std::ranges::find(coda::fuzz::target_names(), name) == coda::fuzz::target_names().end()) {
    std::fprintf(stderr, "fuzz: give --target=NAME; NAME is one of");
    for (const char* known : coda::fuzz::target_names()) std::fprintf(stderr, " %s", known);
    std::fprintf(stderr, "\n");
    std::exit(2);
  }
  target = coda::fuzz::make_target(name);
  if (folder.empty()) return 0;
  std::filesystem::create_directories(folder);
  for (size_t i = 0; i < target->seeds.size(); ++i)
    std::ofstream(folder + "/seed" + std::to_string(i), std::ios::binary) << target->seeds[i];
  std::exit(0);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  target->read(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}

// Half of the changes are libFuzzer's; the other half inserts the target's words.
size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int number) {
  if (number % 2 == 0) return LLVMFuzzerMutate(data, size, max_size);
  const std::string input(reinterpret_cast<const char*>(data), size);
  const std::string changed = coda::fuzz::changed(*target, {&input, 1}, number);
  size = std::min(changed.size(), max_size);
  std::memcpy(data, changed.data(), size);
  return size;
}

}  // extern "C"
