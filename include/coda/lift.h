// SPDX-License-Identifier: Apache-2.0
// A Program as mathematics: adds what a program computes to a Graph, exactly. A partial tensor
// stands for the value whose reduction it holds, so lifting a program and then its finalizer into
// one graph gives whole reductions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "coda/api.h"
#include "coda/compile_request.h"
#include "coda/graph.h"
#include "coda/program.h"

namespace CODA_API coda {

// A partial tensor: it holds the `kind` of each row, or of each column, of `value`.
struct LiftedPartial {
  Value value;
  PartialKind kind = PartialKind::sum;
  bool of_rows = true;
  bool is_combined = false;  // by a program that was lifted later
};

// What the tensors of programs stand for, by name. Programs that share tensors are lifted one after
// the other.
struct LiftedTensors {
  std::map<std::string, Value> values;  // dense tensors; the last that was stored
  std::map<std::string, DType> types;   // of those that were stored, as they are declared
  std::map<std::string, LiftedPartial> reduced;
};

// Tensors that are not in `tensors` yet become inputs of the graph, with their declared types;
// constants, i32 and u8 tensors and those whose rows are gathered are tables, which have no
// gradient; what the program stores is put into `tensors`. as_stored is the identity. Throws Error
// for what has no graph: transposed stores, abs_max_group.
void lift(const Program& program, Graph& graph, LiftedTensors& tensors);

// Puts the whole reductions of partials that no program combined into tensors.values, so that they
// are asked for: under the partial's name, and the mean of mean_m2 as "NAME.mean".
void reduce_partials(LiftedTensors& tensors);

// What is asked of programs that were lifted. Outputs: all that they store; what is stored over
// what was read is "NAME.stored". `with_gradients`: each output is seeded with "grad_of_NAME", and
// the gradients "grad_to_NAME" of all inputs that outputs depend on are asked for. Matrices that
// programs store in 16 bits stay so, and a matrix's gradient has the matrix's type.
CompileRequest program_request(Graph& graph, const LiftedTensors& tensors, bool with_gradients);

}  // namespace CODA_API coda
