// SPDX-License-Identifier: Apache-2.0
// How `coda check` says what it found: lines as they come, or one JSON object at the end.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "coda/check.h"
#include "coda/compare.h"

namespace coda::tools {

class CheckOutput {
 public:
  explicit CheckOutput(bool as_json) : as_json_(as_json) {}

  // One line, whatever the text is.
  void device(const std::string& text);
  void says(const std::string& what);  // what takes seconds
  void mathematics_of(const Program& program);
  // What comes next: a program, or a graph's plan, on the backends, or something else.
  void begin_backends(const std::string& name);
  void note(const std::string& what);
  void begin(const std::string& what);
  void announce(const DimValues& sizes);
  void add(const DimValues& sizes, const CheckReport& report);  // behind announce
  void add(const DimValues& sizes, const Comparison& comparison);
  // `is_derived`: by the compiler; else the program is the backward.
  void add(const DimValues& sizes, const BackwardReport& report, bool is_derived);

  // The verdict. Throws Error, with the seed that replays it, where something is wrong, and where
  // the GPU refused what it was asked to check.
  void end(uint64_t seed, bool needs_gpu, const std::string& what = "program");

 private:
  void line(const std::string& text) const;

  bool as_json_;
  bool programs_are_right_ = true;  // they compute what is meant
  bool backends_are_right_ = true;
  bool gradients_are_right_ = true;
  bool is_refused_ = false;
  nlohmann::ordered_json json_ = nlohmann::ordered_json::object();
};

}  // namespace coda::tools
