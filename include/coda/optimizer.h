// SPDX-License-Identifier: Apache-2.0
// Optimizers: how parameters are updated from their gradients. An Optimizer is a value: the state
// tensors of each parameter, the formulas of the update, and the scalars that change from step to
// step. The library compiles the formulas into a program (coda/program.h), which every backend
// runs.
//
//     TrainOptions options;
//     options.optimizer = make_optimizer("lion", {{"decay", 0.5}});
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coda/api.h"
#include "coda/backend.h"
#include "coda/dtype.h"

namespace CODA_API coda {

// A state tensor that an optimizer keeps for each parameter. It has the parameter's shape and is 0
// before the first step. A checkpoint stores it as "<name>.<parameter>".
struct OptimizerState {
  std::string name;
  DType dtype = DType::f32;  // f32, or bf16: then each step rounds the new state stochastically

  friend bool operator==(const OptimizerState&, const OptimizerState&) = default;
};

// A scalar of one training step, computed from the learning rate and the step number (1, 2, ...).
// The formulas read it as scalar(name).
struct StepScalar {
  std::string name;
  std::function<double(double rate, int64_t step)> value;
};

struct Optimizer {
  std::string name;
  // The settings given to make_optimizer; for printing and comparison.
  std::map<std::string, double> settings;
  std::vector<OptimizerState> states;
  std::vector<StepScalar> scalars;
  // The update as elementwise lines of a program (docs/program-text.md). The lines read
  //   g        the gradient, after clipping to the largest norm
  //   w0       the weight, fp32
  //   decayed  w0 * (1 - rate * decay) if the parameter has weight decay, else w0
  //   m0       the value of a state named "m"
  // and define w1 and, for each state such as "m", its new value m1.
  std::string formulas;
  double decay = 0;  // weight decay: each step subtracts rate * decay * weight; 0: none
  // Type of the master weights of parameters that plans read as bf16. f32: the plan reads a rounded
  // copy. bf16: there is no other copy, and each step rounds the new weight stochastically.
  DType weights = DType::f32;
  // On a GPU: the states are in pinned memory of the host, and the update reads and writes them
  // over the bus. On the host this changes nothing.
  bool states_on_host = false;
  uint64_t seed = 1;  // of stochastic rounding
};

// A setting of an optimizer. `coda train` has a flag of the same name.
struct OptimizerSetting {
  std::string name;
  double value = 0;      // the default
  bool is_share = true;  // whether the value is in [0, 1); else any number of at least 0
  std::string help;
};

// An optimizer that the library has.
struct OptimizerKind {
  std::string name;
  std::string summary;  // one line
  // Good peak learning rates, as a multiple of AdamW's.
  double rate = 1;
  std::vector<OptimizerSetting> settings;
  // Called with all settings, each within its range. `states`: the type of the states.
  std::function<Optimizer(const std::map<std::string, double>& settings, DType states)> make;
};

// adamw (Loshchilov and Hutter), sgd (with momentum) and lion (Chen et al.). AdamW has PyTorch's
// semantics. All three have decoupled weight decay: the decay is not added to the gradient.
const std::vector<OptimizerKind>& optimizer_kinds();
// Throws Error for an unknown name; the message lists the optimizers.
const OptimizerKind& optimizer_kind(std::string_view name);

// Settings that are not given have their defaults. Throws Error for an unknown optimizer or
// setting, for a value outside its range, and for states that are neither f32 nor bf16.
Optimizer make_optimizer(std::string_view name, const std::map<std::string, double>& settings = {},
                         DType states = DType::f32);

// For example "adamw (adam-eps 1e-08, beta1 0.9, beta2 0.95, decay 0.1; m f32, v f32)", with ";
// master weights bf16, seed 1" at its end if tensors are rounded stochastically.
std::string text(const Optimizer& optimizer);

// The states of one parameter, by the name of the state. Empty: all states are zero.
using ParameterState = std::map<std::string, std::vector<float>, std::less<>>;

// A parameter in host memory. All spans have the parameter's number of elements; only `bf16` may be
// empty.
struct UpdatedTensor {
  std::span<float> weights;              // fp32
  std::vector<std::span<float>> states;  // one for each of Optimizer::states, fp32
  std::span<const float> gradients;
  // Receives the weights, rounded to nearest even. With Optimizer::weights bf16 the weights
  // themselves are rounded stochastically, and both are equal.
  std::span<uint16_t> bf16;
  bool decays = true;  // false for norms and biases
};

// An optimizer's step over tensors in host memory. The result is bitwise the same for any number of
// threads. On every backend, each product is rounded before it is added. Tensors in bf16 are stored
// as fp32 numbers that bf16 has; how an element is rounded depends on its place among all tensors
// of a call.
class TensorUpdate {
 public:
  // The backend must use host memory and must outlive this object. Throws ProgramError for formulas
  // that do not form a valid program.
  TensorUpdate(Optimizer optimizer, Backend& backend);
  ~TensorUpdate();
  TensorUpdate(TensorUpdate&&) noexcept;
  TensorUpdate& operator=(TensorUpdate&&) noexcept;

  // Runs step number `step` (1, 2, ...). Gradients are multiplied by `gradient_scale` (see
  // clip_scale). Throws Error for a negative learning rate.
  void run(std::span<const UpdatedTensor> tensors, double rate, int64_t step,
           double gradient_scale = 1);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace CODA_API coda
