// SPDX-License-Identifier: Apache-2.0
// Compares what processes announce before they do it together: exchanges, and settings that must be
// equal. All processes announce in the same order, so rank 0 compares each other list with its own:
// if entry n differs, the processes are out of step and would wait for each other forever.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "coda/communicator.h"

namespace coda {

// For example "all_gather of 4096 bf16".
std::string exchange_text(const std::string& name, const TensorView& values);

// An entry as it is sent.
std::string entry_of(const std::string& what);
std::string entry_of(const Settings& settings);

// The log in rank 0.
class ExchangeLog {
 public:
  explicit ExchangeLog(int world) : others_(static_cast<size_t>(world)) {}
  void add_own(const std::string& entry);
  void add(int rank, const std::string& entry);
  void leave(int rank);  // it announces nothing more
  // Whether all others have announced as many entries as rank 0.
  bool is_level() const;

  struct Difference {
    int rank = 0;
    std::string text;  // text after the rank's name: " has --seed 2 and rank 0 has 1"
  };
  // The first difference that was found.
  const std::optional<Difference>& difference() const { return difference_; }

 private:
  struct Pair {
    std::deque<std::string> own;  // what the other has not announced yet; or the other way round
    std::deque<std::string> theirs;
    int64_t same = 0;  // entries
    bool has_left = false;
  };
  void compare(size_t rank);

  std::vector<Pair> others_;  // by rank; 0: none
  std::optional<Difference> difference_;
};

}  // namespace coda
