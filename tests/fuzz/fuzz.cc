// SPDX-License-Identifier: Apache-2.0
// fuzz TARGET SECONDS [FIRST]: makes inputs for a target until the time is over, from number FIRST
// on, and keeps those that reach code which none before them has reached (where the build notes
// that: CODA_FUZZ) to make others from. A finding's input is left in fuzz-TARGET in the folder:
// `fuzz TARGET FILE` reads it again. `make fuzz` runs all.
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

// A byte for each place in the code, as far as its address tells places apart.
constexpr size_t kPlaces = 1 << 20;
unsigned char reached[kPlaces];
size_t new_places = 0;

}  // namespace

// GCC calls it in each basic block of what is compiled with -fsanitize-coverage=trace-pc.
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
    std::ofstream(left, std::ios::binary) << input;  // there, should the process end here
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
