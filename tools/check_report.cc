// SPDX-License-Identifier: Apache-2.0
// Converts reports to text and JSON.
#include "check_report.h"

#include <fmt/format.h>

#include <cmath>

#include "coda/error.h"
#include "coda/mathematics.h"
#include "program_file.h"

namespace coda::tools {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no infinity.
Json number(double x) { return std::isfinite(x) ? Json(x) : Json(fmt::format("{}", x)); }

Json json_of(const CheckReport& report) {
  Json all = Json::array();
  for (const CheckedBackend& backend : report.backends) {
    Json one{{"backend", backend.name}, {"right", backend.is_right()}};
    if (!backend.refused.empty()) one["refused"] = backend.refused;
    for (const CheckedTensor& tensor : backend.tensors)
      one["tensors"].push_back({{"name", tensor.decl.name},
                                {"type", std::string(name_of(tensor.decl.dtype))},
                                {"error", number(tensor.error)},
                                {"bound", number(tensor.bound)},
                                {"not_finite", tensor.not_finite},
                                {"right", tensor.is_right()}});
    one["configurations"] = backend.configurations;
    one["different_bits"] = backend.different;
    one["written_outside"] = backend.overrun;
    one["traps"] = backend.traps;
    one["wrong_traps"] = backend.wrong_traps;
    one["notes"] = backend.notes;
    all.push_back(std::move(one));
  }
  return all;
}

Json json_of(const Comparison& comparison) {
  Json all = Json::array();
  for (const ComparedTensor& tensor : comparison.tensors)
    all.push_back({{"name", tensor.name},
                   {"shape", tensor.shape},
                   {"error", number(tensor.error)},
                   {"bound", number(tensor.bound)},
                   {"elements", tensor.elements},
                   {"differing", tensor.differing},
                   {"nan", tensor.nan},
                   {"examples", tensor.examples},
                   {"remark", tensor.remark},
                   {"right", tensor.is_right()}});
  return all;
}

}  // namespace

void CheckOutput::line(const std::string& text) const {
  if (!as_json_) fmt::print("{}\n", text);
}

void CheckOutput::device(const std::string& text) {
  line(text.substr(0, text.find('\n')));
  json_["gpu"] = text;
}

void CheckOutput::says(const std::string& what) { line("  " + what); }

void CheckOutput::mathematics_of(const Program& program) {
  line(fmt::format("\n{}: well formed; {} tensors, {} steps", program.name, program.tensors.size(),
                   program.steps.size()));
  Json& lines = json_["mathematics"][program.name] = Json::array();
  for (const std::string& text : mathematics(program)) {
    line("  " + text);
    lines.push_back(text);
  }
}

void CheckOutput::begin_backends(const std::string& name) {
  line("\n" + name + " on the backends");
  json_["programs"].push_back({{"name", name}});
}

void CheckOutput::note(const std::string& what) {
  line("  note: " + what);
  json_["notes"].push_back(what);
}

void CheckOutput::begin(const std::string& what) { line("\n" + what); }

void CheckOutput::announce(const DimValues& sizes) {
  line("sizes" + (sizes.empty() ? " as written" : text_of(sizes)));
}

void CheckOutput::add(const DimValues& sizes, const CheckReport& report) {
  if (!as_json_) fmt::print("{}", text(report));
  json_["programs"].back()["checked"].push_back({{"sizes", sizes}, {"backends", json_of(report)}});
  for (const CheckedBackend& backend : report.backends)
    is_refused_ = is_refused_ || !backend.refused.empty();
  backends_are_right_ = backends_are_right_ && report.is_right();
}

void CheckOutput::add(const DimValues& sizes, const Comparison& comparison) {
  announce(sizes);
  if (!as_json_) fmt::print("{}", text(comparison));
  json_["compared"].push_back({{"sizes", sizes},
                               {"tensors", json_of(comparison)},
                               {"left_out", comparison.left_out},
                               {"notes", comparison.notes}});
  programs_are_right_ = programs_are_right_ && comparison.is_right();
}

void CheckOutput::add(const DimValues& sizes, const BackwardReport& report, bool is_derived) {
  announce(sizes);
  if (!as_json_) fmt::print("{}", text(report));
  Json gradients = Json::array();
  for (const CheckedGradient& gradient : report.gradients)
    gradients.push_back({{"name", gradient.name},
                         {"error", number(gradient.error)},
                         {"bound", number(gradient.bound)},
                         {"right", gradient.is_right()}});
  json_[is_derived ? "backward" : "backward_of"] = {{"sizes", sizes},
                                                    {"left_out", report.left_out},
                                                    {"gradients", gradients},
                                                    {"without_gradient", report.without_gradient},
                                                    {"not_compared", report.not_compared}};
  bool& verdict = is_derived ? gradients_are_right_ : programs_are_right_;
  verdict = verdict && report.is_right();
}

void CheckOutput::end(uint64_t seed, bool needs_gpu, const std::string& what) {
  json_["seed"] = seed;
  json_["right"] = programs_are_right_ && backends_are_right_ && gradients_are_right_;
  const bool was_compared = json_.contains("compared") || json_.contains("backward_of");
  if (was_compared && programs_are_right_)
    line("\nThe program computes what is wanted, in all that was compared.");
  if (!was_compared && backends_are_right_)
    line("\nThe " + what + " is computed as it is written" +
         (what == "graph" ? "." : "; whether it is what you mean: --formula."));
  if (as_json_) fmt::print("{}\n", json_.dump(2));
  const std::string replay = fmt::format("; --seed {} replays it", seed);
  if (!programs_are_right_)
    throw Error("the program does not compute what is wanted: see WRONG above" + replay);
  if (!backends_are_right_)
    throw Error("a backend does not compute what the " + what + " says: see WRONG above" + replay);
  require(gradients_are_right_,
          "the derived backward is not the " + what + "'s: see WRONG above" + replay);
  require(!needs_gpu || !is_refused_, "--backend gpu: not all was checked: see refused above");
}

}  // namespace coda::tools
