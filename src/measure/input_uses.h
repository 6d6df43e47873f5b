// SPDX-License-Identifier: Apache-2.0
// Finds how programs or a graph use their inputs. A count, a seed or an index needs other values
// than a weight; random_inputs.h draws each input according to its use.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "coda/graph_text.h"
#include "coda/program.h"

namespace coda::measure {

// In ascending order: if an input has several uses, the last one in this list wins.
enum class Use : uint8_t {
  number,
  divisor,           // not near 0
  positive,          // its square root or logarithm is taken
  moment,            // positive; squares of other inputs are subtracted from it
  magnitude,         // a running maximum of magnitudes, which a program updates
  count,             // a sum of `of` values is divided by it
  reciprocal_count,  // a sum of `of` values is multiplied by it
  probability,       // compared with random numbers
  seed,              // an argument of random()
  place,             // the index of a row or column
};

// A place lies in [0, count). `is_strict`: a gather reads the row without a check.
struct PlaceLimit {
  Dim count = 1;
  bool is_strict = false;
};

struct InputUse {
  Use use = Use::number;
  bool is_divisor = false;           // also used as a divisor, whatever `use` is
  bool is_quantity = false;          // of type u8: a number up to 255, not only a mask
  Dim of = 1;                        // for a count: the number of summed values
  std::vector<PlaceLimit> limits{};  // for a place: all limits hold
};

// Uses by the name of the tensor. A tensor without an entry is Use::number.
std::map<std::string, InputUse> uses_of_inputs(std::span<const Program> programs);
std::map<std::string, InputUse> uses_of_inputs(const NamedGraph& named);

}  // namespace coda::measure
