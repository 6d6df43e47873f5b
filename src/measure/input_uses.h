// SPDX-License-Identifier: Apache-2.0
// What inputs are to the programs or the graph that read them: a count, a seed or an index has
// other numbers than a weight, and is drawn so (random_inputs.h).
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "coda/graph_text.h"
#include "coda/program.h"

namespace coda::measure {

// In ascending order: of several uses the last one counts.
enum class Use : uint8_t {
  number,
  divisor,           // not near 0
  positive,          // a root or a logarithm is taken of it
  moment,            // positive, and squares of other inputs are subtracted from it
  magnitude,         // the largest so far, which a program raises
  count,             // a sum of `of` values is divided by it
  reciprocal_count,  // or multiplied by it
  probability,       // compared with random numbers
  seed,              // an argument of random()
  place,             // the number of a row or column
};

// A place lies in [0, count). `is_strict`: rows are gathered without a check.
struct PlaceLimit {
  Dim count = 1;
  bool is_strict = false;
};

struct InputUse {
  Use use = Use::number;
  bool is_divisor = false;           // whatever else it is
  Dim of = 1;                        // of a count
  std::vector<PlaceLimit> limits{};  // of a place: all hold
};

// By the names of tensors that are read; one without an entry is a number.
std::map<std::string, InputUse> uses_of_inputs(std::span<const Program> programs);
std::map<std::string, InputUse> uses_of_inputs(const NamedGraph& named);

}  // namespace coda::measure
