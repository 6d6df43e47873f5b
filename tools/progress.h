// SPDX-License-Identifier: Apache-2.0
// Shows the progress of a run: one line that is rewritten in a terminal, or a line from time to
// time in a log or pipe.
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
// The host memory of this process (its resident set).
int64_t resident_bytes();

class Progress {
 public:
  // most_tokens: tokens per second at the machine's peak; 0: unknown. `memory`: bytes that the run
  // uses.
  Progress(int64_t first_step, int64_t steps, int64_t tokens_of_step, double most_tokens,
           std::function<int64_t()> memory);
  ~Progress() { finish_line(); }

  // Called after each step; prints the loss if it is time.
  void step(int64_t done, double loss);
  // Prints a permanent line.
  void note(const std::string& text);
  // Excludes time without training (an evaluation, a checkpoint) from the speed.
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
