// SPDX-License-Identifier: Apache-2.0
#include "measure/chain.h"

#include <algorithm>
#include <optional>

#include "coda/error.h"
#include "coda/plan.h"
#include "program/step_table.h"

namespace coda::measure {
namespace {

std::vector<StepTensor> uses_of(const Program& program) {
  return step_tensors({program.name, {}, program, {}});
}

// What kind of reduction a partial tensor holds: a step says so.
std::optional<PartialKind> kind_of(std::span<const Program> programs, const std::string& name) {
  for (const Program& program : programs) {
    for (const Step& step : program.steps) {
      const bool is_of_partials = program::is_row_partial(step) ||
                                  program::is_column_partial(step) || program::is_combination(step);
      if (is_of_partials && program.tensors[step.tensor()].name == name) return step.partial();
    }
  }
  return std::nullopt;
}

Array dense_array(const TensorDecl& decl, const DimValues& sizes,
                  const std::vector<double>& values) {
  std::vector<int64_t> shape;
  if (!decl.shape.is_scalar()) {
    if (!decl.shape.is_per_column()) shape.push_back(decl.shape.rows.evaluate(sizes));
    if (!decl.shape.is_per_row()) shape.push_back(decl.shape.cols.evaluate(sizes));
  }
  return {shape, values};
}

// Combines the partials of each row or column; adds the results to `arrays`.
void add_reduction(const TensorDecl& decl, PartialKind kind, const DimValues& sizes,
                   const std::vector<double>& values, Arrays& arrays) {
  const PartialInfo& row = info(kind);
  const bool of_rows = decl.kind == TensorKind::row_partial;
  const int64_t lines = (of_rows ? decl.shape.rows : decl.shape.cols).evaluate(sizes);
  const int64_t length = (of_rows ? decl.shape.cols : decl.shape.rows).evaluate(sizes);
  const int64_t spans = partial_spans(length);
  const auto lanes_at = [&](int64_t line, int64_t span) {
    PartialLanes lanes{};
    for (int lane = 0; lane < row.lanes; ++lane) {
      const int64_t place =
          of_rows ? (lane * lines + line) * spans + span : (lane * spans + span) * lines + line;
      lanes[static_cast<size_t>(lane)] = values[static_cast<size_t>(place)];
    }
    return lanes;
  };
  const auto results = static_cast<size_t>(row.lanes);
  std::vector<Array> combined(results, Array{{lines}, {}});
  Array whole{{lines}, {}};
  for (int64_t line = 0; line < lines; ++line) {
    PartialLanes lanes = lanes_at(line, 0);
    int64_t count = std::min(kPartialSpan, length);
    for (int64_t span = 1; span < spans; ++span) {
      const int64_t more = std::min(kPartialSpan, length - span * kPartialSpan);
      lanes = row.merge(lanes, static_cast<double>(count), lanes_at(line, span),
                        static_cast<double>(more));
      count += more;
    }
    double sum = 0;
    for (size_t r = 0; r < results; ++r) {
      combined[r].values.push_back(result_of(kind, lanes, static_cast<int>(r)));
      sum += combined[r].values.back();
    }
    whole.values.push_back(
        row.value == kBothResults ? sum : combined[static_cast<size_t>(row.value)].values.back());
  }
  for (size_t r = 0; r < results && results > 1; ++r)
    arrays.emplace(decl.name + "_" + std::string(row.results[r]), combined[r]);
  arrays[decl.name] = std::move(whole);
}

}  // namespace

void require_chain(std::span<const Program> programs) {
  std::map<std::string, std::pair<const TensorDecl*, const Program*>> known;
  std::map<std::string, const Program*> read;
  for (const Program& program : programs) {
    const std::vector<StepTensor> uses = uses_of(program);
    for (size_t t = 0; t < program.tensors.size(); ++t) {
      const TensorDecl& decl = program.tensors[t];
      const auto [entry, is_new] = known.try_emplace(decl.name, &decl, &program);
      const TensorDecl& first = *entry->second.first;
      const bool is_partial = first.kind != TensorKind::dense;
      require(is_new || !is_partial || decl.kind != TensorKind::dense,
              "program '" + program.name + "' reads tensor '" + decl.name +
                  "' as values, but program '" + entry->second.second->name +
                  "' stores partials in the tensor: combine the partials in a finalizer between "
                  "the two programs, as in store(r, combine_" +
                  (first.kind == TensorKind::row_partial ? "rows" : "columns") + "(sum(" +
                  decl.name + first.shape.text() + "))), and read r");
      require(is_new || first == decl,
              "tensor '" + decl.name + "' is " + first.shape.text() + ":" +
                  std::string(name_of(first.dtype)) + " in program '" + entry->second.second->name +
                  "' and " + decl.shape.text() + ":" + std::string(name_of(decl.dtype)) + " in '" +
                  program.name + "': programs that belong together say the same of a tensor");
      if (uses[t].written && !uses[t].read && read.contains(decl.name)) {
        throw Error("program '" + read.at(decl.name)->name + "' reads '" + decl.name +
                    "', which '" + program.name +
                    "' behind it stores: name the files in the order in which they run");
      }
      if (uses[t].read && is_new) read[decl.name] = &program;
    }
  }
}

ChainTensors tensors_of(std::span<const Program> programs) {
  ChainTensors tensors;
  for (const Program& program : programs) {
    const std::vector<StepTensor> uses = uses_of(program);
    for (size_t t = 0; t < program.tensors.size(); ++t) {
      const TensorDecl& decl = program.tensors[t];
      if (uses[t].read && !tensors.stored.contains(decl.name)) tensors.inputs[decl.name] = decl;
    }
    for (size_t t = 0; t < program.tensors.size(); ++t) {
      if (uses[t].written) tensors.stored[program.tensors[t].name] = program.tensors[t];
    }
  }
  return tensors;
}

std::vector<double> numbers_of(std::span<const Program> programs) {
  std::vector<double> numbers;
  for (const Program& program : programs)
    for (const Step& step : program.steps)
      if (program::is_constant(step)) numbers.push_back(step.number());
  return numbers;
}

TensorValues evaluate_chain(std::span<const Program> programs, const DimValues& sizes,
                            const TensorValues& inputs) {
  TensorValues known = inputs;
  TensorValues stored;
  for (const Program& program : programs) {
    for (auto& [name, values] : program::evaluate(program, sizes, known)) {
      known[name] = values;
      stored[name] = std::move(values);
    }
  }
  return stored;
}

ChainInputs chain_inputs(std::span<const Program> programs, const DimValues& sizes, uint64_t seed) {
  ChainInputs result{.decls = tensors_of(programs).inputs, .uses = uses_of_inputs(programs)};
  for (const auto& [name, decl] : result.decls)
    result.values[name] = drawn(decl, result.uses[name], sizes, seed, true);
  make_finite(result.values, result.uses, result.decls, [&](const TensorValues& inputs) {
    return is_finite(evaluate_chain(programs, sizes, inputs));
  });
  return result;
}

Arrays as_arrays(std::span<const Program> programs, const DimValues& sizes,
                 const TensorValues& values) {
  Arrays arrays;
  for (const Program& program : programs) {
    for (const TensorDecl& decl : program.tensors) {
      const auto found = values.find(decl.name);
      if (found == values.end() || arrays.contains(decl.name)) continue;
      if (decl.kind == TensorKind::dense) {
        arrays[decl.name] = dense_array(decl, sizes, found->second);
      } else {
        add_reduction(decl, kind_of(programs, decl.name).value(), sizes, found->second, arrays);
      }
    }
  }
  return arrays;
}

}  // namespace coda::measure
