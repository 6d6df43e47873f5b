// SPDX-License-Identifier: Apache-2.0
// What a person sees of a run: one line that is rewritten in a terminal, and now and then a line
// elsewhere (a log, a pipe).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace coda::tools {

// "42 s", "3:07", "2:15:00".
std::string duration_text(double seconds);
// "12.3k", "4.56M".
std::string count_text(double count);
// Of the host's memory that this process holds (its resident set).
int64_t resident_bytes();

class Progress {
 public:
  // most_tokens: a second, at the machine's peak; 0: not known. `memory`: bytes that the run holds.
  Progress(int64_t first_step, int64_t steps, int64_t tokens_of_step, double most_tokens,
           std::function<int64_t()> memory);
  ~Progress() { finish_line(); }

  // After each step; prints this step's loss if it is time to.
  void step(int64_t done, double loss);
  // A line of its own, which stays.
  void note(const std::string& text);
  // Time that is no training (an evaluation, a checkpoint) does not count for the speed.
  void exclude(double seconds) { excluded_ += seconds; }
  double tokens_per_second() const;

 private:
  using Clock = std::chrono::steady_clock;
  void finish_line();
  double seconds_since(Clock::time_point when) const;

  int64_t first_;
  int64_t steps_;
  int64_t tokens_of_step_;
  double most_tokens_;
  std::function<int64_t()> memory_;
  int64_t done_;
  bool is_terminal_;
  bool has_line_ = false;
  double excluded_ = 0;
  Clock::time_point start_ = Clock::now();
  Clock::time_point printed_ = start_;
};

}  // namespace coda::tools
