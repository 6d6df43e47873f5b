// SPDX-License-Identifier: Apache-2.0
// Seeds of tests over random inputs: few in CI, others by the environment.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "coda/error.h"

namespace coda::tests {

// A sanitizer looks at each path, and the same test without one at each case: under it, where a
// case takes five times as long, a quarter of them will do.
constexpr int fewer_if_sanitized(int cases) {
#ifdef __SANITIZE_ADDRESS__
  return (cases + 3) / 4;
#else
  return cases;
#endif
}

inline std::vector<uint64_t> seeds(uint64_t first, uint64_t last) {
  std::vector<uint64_t> all(last - first + 1);
  std::iota(all.begin(), all.end(), first);
  return all;
}

// Those of VARIABLE=FIRST-LAST if it is set, else the usual ones.
inline std::vector<uint64_t> seeds_of(const char* variable, std::vector<uint64_t> usual) {
  const char* wanted = std::getenv(variable);
  if (wanted == nullptr) return usual;
  unsigned long first = 0, last = 0;
  require(std::sscanf(wanted, "%lu-%lu", &first, &last) == 2 && first <= last,
          std::string(variable) + "=" + wanted + " is not FIRST-LAST");
  return seeds(first, last);
}

// What `problem_of` says of each seed ("": nothing) is a failure; the first 20 are told.
inline void expect_no_problems(const std::vector<uint64_t>& seeds,
                               const std::function<std::string(uint64_t)>& problem_of) {
  int wrong = 0;
  for (const uint64_t seed : seeds) {
    const std::string problem = problem_of(seed);
    if (problem.empty()) continue;
    ADD_FAILURE() << "seed " << seed << ": " << problem;
    if (++wrong == 20) return;
  }
}

}  // namespace coda::tests
