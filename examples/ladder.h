// SPDX-License-Identifier: Apache-2.0
// What every step of the ladder does beside its one idea: it shows that the programs which C++
// built are those of the texts beside it, and runs them one behind the other on random numbers.
#pragma once

#include <coda/coda.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace ladder {

using Programs = std::vector<coda::Program>;
using Values = std::map<std::string, std::vector<float>>;  // of tensors, row by row

// `texts` are files; throws Error for the first program that computes something else, or of tensors
// of other types. (The order in which steps stand may differ, and means nothing.)
inline void require_same(const Programs& built, const std::vector<std::string>& texts) {
  const auto meaning = [](const coda::Program& program) {
    std::vector<std::string> lines = coda::mathematics(program);
    lines.erase(lines.begin());  // its inputs, in the order of the steps
    for (const coda::TensorDecl& tensor : program.tensors)
      lines.push_back(tensor.name + tensor.shape.text() + ":" +
                      std::string(coda::name_of(tensor.dtype)));
    std::sort(lines.begin(), lines.end());
    return lines;
  };
  coda::require(built.size() == texts.size(), "give a text for each program");
  for (size_t i = 0; i < texts.size(); ++i) {
    coda::require(meaning(built[i]) == meaning(coda::read_program(texts[i])),
                  texts[i] + " is another program than\n" + coda::text(built[i]));
  }
}

// Runs programs on the CPU: what one stores the next reads. A tensor without values gets random
// ones.
inline void run(const Programs& programs, const coda::DimValues& sizes, Values& values) {
  const auto backend = coda::make_backend("cpu");
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (const coda::Program& program : programs) {
    coda::Session session(coda::one_step_plan(program), *backend, sizes);
    coda::TensorMap tensors = session.allocate();
    for (auto& [name, tensor] : tensors) {
      std::vector<float>& known = values[name];
      if (known.size() != static_cast<size_t>(tensor.size())) {
        known.resize(static_cast<size_t>(tensor.size()));
        for (float& v : known) v = normal(random);
      }
      tensor.set(known);
    }
    session.forward();
    for (const auto& [name, tensor] : tensors) values[name] = tensor.floats();
  }
}

// What main() does with the arguments, the texts.
inline int main(int count, char** arguments,
                const std::function<void(const std::vector<std::string>&)>& step) {
  try {
    step({arguments + 1, arguments + count});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", arguments[0], error.what());
    return 1;
  }
  return 0;
}

}  // namespace ladder
