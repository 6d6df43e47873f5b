// SPDX-License-Identifier: Apache-2.0
// Lifts a Program to mathematics: adds exactly what a program computes to a Graph. A partial tensor
// stands for the value that it reduces, so lifting a program and then its finalizer into one graph
// gives whole reductions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "coda/api.h"
#include "coda/compile_request.h"
#include "coda/graph.h"
#include "coda/program.h"

namespace CODA_API coda {

// A partial tensor: it holds the reduction `kind` of each row, or of each column, of `value`.
struct LiftedPartial {
  Value value;
  PartialKind kind = PartialKind::sum;
  bool of_rows = true;
  bool is_combined = false;  // a program that was lifted later combines it
};

// What the tensors of the programs stand for, by name. Programs that share tensors are lifted one
// after another with the same LiftedTensors.
struct LiftedTensors {
  std::map<std::string, Value> values;  // dense tensors; the value that was stored last
  std::map<std::string, DType> types;   // declared types of the tensors that were stored
  std::map<std::string, LiftedPartial> reduced;
};

// Lifts one program. A tensor that is not in `tensors` becomes an input of the graph with its
// declared type. Constants, i32 and u8 tensors, and tensors whose rows are gathered become tables,
// which have no gradient. The program's stores are added to `tensors`. as_stored becomes the
// identity. Throws Error for steps that have no graph: transposed stores, abs_max_group.
void lift(const Program& program, Graph& graph, LiftedTensors& tensors);

// Adds the whole reduction of each partial that no program combined to tensors.values, under the
// partial's name, so that it can be requested. The mean of mean_m2 becomes "NAME.mean".
void reduce_partials(LiftedTensors& tensors);

// The compile request for lifted programs. Outputs: everything that they store; a tensor that is
// stored after it was read is "NAME.stored". With `with_gradients`, each output gets a cotangent
// "grad_of_NAME", and the gradient "grad_to_NAME" of each input that an output depends on is
// requested. Matrices that are stored in 16 bits stay so, and the gradient of a matrix has the
// matrix's type.
CompileRequest program_request(Graph& graph, const LiftedTensors& tensors, bool with_gradients);

}  // namespace CODA_API coda
