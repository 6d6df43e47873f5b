// SPDX-License-Identifier: Apache-2.0
// Coverage-guided fuzzing of one target; `make fuzz` runs all targets.
//
//     fuzz TARGET SECONDS [FIRST]   # generates inputs FIRST, FIRST + 1, ... until the time is over
//     fuzz TARGET FILE              # runs the target on one input, such as that of a failure
//
// An input that reaches new code is kept, and later inputs are made from it (the build with
// CODA_FUZZ records which code runs). The input of a failure stays in the file fuzz-TARGET.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <vector>

#include "fuzz/targets.h"
#include "io/mapped_file.h"

namespace {

// One byte for each hash of a code address; two addresses may share a byte.
constexpr size_t kPlaces = 1 << 20;
unsigned char reached[kPlaces];
size_t new_places = 0;

}  // namespace

// Code that GCC compiles with -fsanitize-coverage=trace-pc calls this function in each basic block.
extern "C" __attribute__((no_sanitize_coverage, no_sanitize("address,undefined"))) void
__sanitizer_cov_trace_pc() {
  const auto place = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
  unsigned char& seen = reached[(place ^ place >> 20) % kPlaces];
  if (seen == 0) {
    seen = 1;
    ++new_places;
  }
}

int main(int count, char** words) {
  using Clock = std::chrono::steady_clock;
  using namespace coda::fuzz;
  if (count < 3) {
    std::fprintf(stderr, "usage: fuzz TARGET SECONDS [FIRST], or fuzz TARGET FILE\n");
    return 2;
  }
  const std::string name = words[1];
  const auto target = make_target(name);
  if (std::filesystem::is_regular_file(words[2])) {
    target->read(coda::io::read_file(words[2]));
    std::printf("fuzz: read or refused\n");
    return 0;
  }
  const auto end = Clock::now() + std::chrono::seconds(std::atol(words[2]));
  const uint64_t first = count > 3 ? std::strtoull(words[3], nullptr, 10) : 0;
  std::vector<std::string> inputs = target->seeds;
  const std::string left = "fuzz-" + name;
  uint64_t number = first;
  double longest = 0;
  for (; Clock::now() < end; ++number) {
    const std::string input = changed(*target, inputs, number);
    std::ofstream(left, std::ios::binary) << input;  // written first: read() may end the process
    const size_t before = new_places;
    const auto start = Clock::now();
    try {
      target->read(input);
    } catch (const std::exception& error) {
      std::printf("fuzz: %s, input %lu in %s: %s\n", name.c_str(), number, left.c_str(),
                  error.what());
      std::_Exit(1);
    }
    const double took = std::chrono::duration<double>(Clock::now() - start).count();
    if (took > longest) std::ofstream(left + "-slowest", std::ios::binary) << input;
    longest = std::max(longest, took);
    if (new_places != before) inputs.push_back(input);
  }
  std::filesystem::remove(left);
  std::printf("fuzz: %s: %lu inputs, %zu kept, %zu places reached, the slowest took %.3f s\n",
              name.c_str(), number - first, inputs.size() - target->seeds.size(), new_places,
              longest);
  return 0;
}
