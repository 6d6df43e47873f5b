// SPDX-License-Identifier: Apache-2.0
// Prints the results of `coda check`: lines as they arrive, or one JSON object at the end.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "coda/check.h"
#include "coda/compare.h"

namespace coda::tools {

class CheckOutput {
 public:
  explicit CheckOutput(bool as_json) : as_json_(as_json) {}

  // Prints one line even if the text contains line ends.
  void device(const std::string& text);
  void says(const std::string& what);  // before work that takes seconds
  void mathematics_of(const Program& program);
  // Announces the next check: of a program, or a graph's plan, on the backends, or another one.
  void begin_backends(const std::string& name);
  void note(const std::string& what);
  void begin(const std::string& what);
  void announce(const DimValues& sizes);
  void add(const DimValues& sizes, const CheckReport& report);  // after its announcement
  void add(const DimValues& sizes, const Comparison& comparison);
  // `is_derived`: derived by the compiler; else a hand-written backward.
  void add(const DimValues& sizes, const BackwardReport& report, bool is_derived);

  // Prints the verdict. Throws Error if something is wrong (with the seed to repeat the check) and
  // if the GPU rejected what it was asked to check.
  void end(uint64_t seed, bool needs_gpu, const std::string& what = "program");

 private:
  void line(const std::string& text) const;

  bool as_json_;
  bool programs_are_right_ = true;  // the programs compute what is meant
  bool backends_are_right_ = true;
  bool gradients_are_right_ = true;
  bool is_refused_ = false;
  nlohmann::ordered_json json_ = nlohmann::ordered_json::object();
};

}  // namespace coda::tools
