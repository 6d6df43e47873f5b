// SPDX-License-Identifier: Apache-2.0
// A program with the sizes for which it is lowered. All extents and strides of its tensors are
// queried here.
#pragma once

#include <string>

#include "coda/program.h"
#include "gpu/legalise/lower_options.h"

namespace coda::gpu {

class ProgramSizes {
 public:
  // Keeps references to its arguments, which must outlive it. `given`: the same program with the
  // caller's names, for messages, if `program` has other names for its tensors and steps.
  ProgramSizes(const Program& program, const DimValues& sizes, const LowerOptions& options)
      : ProgramSizes(program, sizes, options, program) {}
  ProgramSizes(const Program& program, const DimValues& sizes, const LowerOptions& options,
               const Program& given)
      : program_(program), sizes_(sizes), options_(options), given_(given) {}

  const Program& program() const { return program_; }
  const Program& given() const { return given_; }
  const LowerOptions& options() const { return options_; }
  const Target& target() const { return *options_.target; }
  const Step& step(int i) const { return program_.steps[i]; }
  const TensorDecl& tensor(int t) const { return program_.tensors[t]; }

  const DimValues& values() const { return sizes_; }
  int64_t size(const Dim& dim) const { return dim.evaluate(sizes_); }

  // The step x of a sum erf(x) + 1, which device code computes as one function; -1 if step i is
  // none.
  int operand_of_erf_plus_one(int i) const;

  // In memory: [lanes * rows, spans] or [lanes * spans, cols] for partials.
  int64_t stored_rows(int t) const;
  int64_t stored_columns(int t) const;
  // Elements between the starts of two rows.
  int64_t stride(int t) const;
  // The columns that a store may write: also those of the padding, if nobody reads it.
  int64_t writable_columns(int t) const;

  // "program 'x' with M = 3, N = 5" for messages.
  std::string description() const;

 private:
  const Program& program_;
  const DimValues& sizes_;
  const LowerOptions& options_;
  const Program& given_;
};

}  // namespace coda::gpu
