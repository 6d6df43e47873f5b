// SPDX-License-Identifier: Apache-2.0
// Estimates speed and remaining time from the steps of this start only.
#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <utility>

#include "stop_request.h"

namespace coda::tools {
namespace {

constexpr double kTerminalSeconds = 0.2;  // between two rewrites of the line
constexpr double kLogSeconds = 10;        // between two lines of a log

bool has_moving_cursor() {
  const char* terminal = std::getenv("TERM");
  const bool is_dumb = terminal != nullptr && std::string_view(terminal) == "dumb";
  return isatty(STDOUT_FILENO) != 0 && !is_dumb;
}

}  // namespace

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(std::max(0.0, seconds)));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string count_text(double count) {
  if (count < 1e3) return fmt::format("{:.0f}", count);
  if (count < 1e6) return fmt::format("{:.1f}k", count / 1e3);
  return fmt::format("{:.2f}M", count / 1e6);
}

int64_t resident_bytes() {
  int64_t size = 0;
  int64_t resident = 0;  // pages
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

Progress::Progress(int64_t first_step, int64_t steps, int64_t tokens_of_step, double most_tokens,
                   std::function<int64_t()> memory)
    : first_(first_step),
      steps_(steps),
      tokens_of_step_(tokens_of_step),
      most_tokens_(most_tokens),
      memory_(std::move(memory)),
      done_(first_step),
      is_terminal_(has_moving_cursor()) {}

double Progress::seconds_since(Clock::time_point when) const {
  return std::chrono::duration<double>(Clock::now() - when).count();
}

double Progress::tokens_per_second() const {
  const double seconds = seconds_since(start_) - excluded_;
  return seconds > 0 ? static_cast<double>((done_ - first_) * tokens_of_step_) / seconds : 0;
}

void Progress::step(int64_t done, double loss) {
  const bool is_first = done_ == first_;
  done_ = done;
  const bool is_last = done == steps_;
  const double wait = is_terminal_ ? kTerminalSeconds : kLogSeconds;
  if (!is_first && !is_last && seconds_since(printed_) < wait) return;
  printed_ = Clock::now();
  const double rate = tokens_per_second();
  const double left = rate > 0 ? static_cast<double>((steps_ - done) * tokens_of_step_) / rate : 0;
  const std::string share =
      most_tokens_ > 0 ? fmt::format(" ({:.1f} % of the peak)", 100 * rate / most_tokens_) : "";
  const std::string line =
      fmt::format("step {:>{}}/{}  loss {:.4f}  {} tokens/s{}  {:.2f} GB  {} left", done,
                  std::to_string(steps_).size(), steps_, loss, count_text(rate), share,
                  static_cast<double>(memory_()) / 1e9, duration_text(left));
  say(is_terminal_ ? "\r\x1b[K" + line : line + "\n");
  has_line_ = is_terminal_;
}

void Progress::note(const std::string& text) {
  finish_line();
  say(text + "\n");
}

void Progress::finish_line() {
  if (has_line_) say("\n");
  has_line_ = false;
}

}  // namespace coda::tools
