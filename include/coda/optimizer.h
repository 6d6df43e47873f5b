// SPDX-License-Identifier: Apache-2.0
// How parameters follow from their gradients. An Optimizer is a value: the tensors that it keeps
// for each parameter, the formulas of an update, and the numbers that change from step to step. The
// formulas become a program (coda/program.h), which every backend runs.
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

// A tensor that an optimizer keeps for each parameter: of the parameter's shape, 0 before the first
// step. Checkpoints have it as "<name>.<parameter>".
struct OptimizerState {
  std::string name;
  DType dtype = DType::f32;  // f32, or bf16: rounded behind the step that makes it

  friend bool operator==(const OptimizerState&, const OptimizerState&) = default;
};

// A number of a step, from its learning rate and its number (1, 2, ...); the formulas read it as
// scalar(name).
struct StepScalar {
  std::string name;
  std::function<double(double rate, int64_t step)> value;
};

struct Optimizer {
  std::string name;
  std::map<std::string, double> settings;  // what it was made with, for people and comparisons
  std::vector<OptimizerState> states;
  std::vector<StepScalar> scalars;
  // Lines of a program in the language of docs/program-text.md, elementwise. They read
  //   g        the gradient, scaled to the largest norm
  //   w0       the weight, fp32
  //   decayed  w0 * (1 - rate * decay) where the parameter decays, else w0
  //   m0       for a state "m": its value
  // and define w1, and m1 for each state.
  std::string formulas;
  double decay = 0;  // a step takes this share of a weight, times its rate; 0: none
};

// A setting of an optimizer. Its name is also the flag of `coda train`.
struct OptimizerSetting {
  std::string name;
  double value = 0;      // unless it is given
  bool is_share = true;  // from 0, below 1; else any number from 0
  std::string help;
};

// An optimizer of the library.
struct OptimizerKind {
  std::string name;
  std::string summary;  // one line
  // Peak learning rates that suit it, as a multiple of those that suit AdamW.
  double rate = 1;
  std::vector<OptimizerSetting> settings;
  // With all settings, each within its range, and states of this type.
  std::function<Optimizer(const std::map<std::string, double>& settings, DType states)> make;
};

// adamw (Loshchilov and Hutter), sgd (with momentum), lion (Chen et al.). AdamW has PyTorch's
// semantics; in all of them decay is decoupled from the gradient.
const std::vector<OptimizerKind>& optimizer_kinds();
// Throws Error, naming those that there are, for another name.
const OptimizerKind& optimizer_kind(std::string_view name);

// Settings that are not given have their defaults. Throws Error for a name or a setting that does
// not exist, for a value outside its range, for states that are not f32 or bf16, and for states in
// bf16 that would never fade.
Optimizer make_optimizer(std::string_view name, const std::map<std::string, double>& settings = {},
                         DType states = DType::f32);

// "adamw (adam-eps 1e-08, beta1 0.9, beta2 0.95, decay 0.1; m f32, v f32)".
std::string text(const Optimizer& optimizer);

// What an optimizer keeps for a parameter, by the names of its states. None: zeros.
using ParameterState = std::map<std::string, std::vector<float>, std::less<>>;

// A parameter in memory of the host; all spans have its number of elements, but `bf16`, which may
// be empty.
struct UpdatedTensor {
  std::span<float> weights;              // fp32
  std::vector<std::span<float>> states;  // as Optimizer::states, fp32
  std::span<const float> gradients;
  std::span<uint16_t> bf16;  // the weights rounded to nearest even
  bool decays = true;        // false for norms and biases
};

// An optimizer's step over tensors in the host's memory. The same bits for any number of threads:
// each product is rounded by itself, whatever the backend.
class TensorUpdate {
 public:
  // The backend's memory is the host's; it must outlive this. Throws ProgramError for formulas that
  // are no program.
  TensorUpdate(Optimizer optimizer, Backend& backend);
  ~TensorUpdate();
  TensorUpdate(TensorUpdate&&) noexcept;
  TensorUpdate& operator=(TensorUpdate&&) noexcept;

  // Step `step` (1, 2, ...) with gradients times `gradient_scale` (see clip_scale). Throws Error
  // for a rate below 0.
  void run(std::span<const UpdatedTensor> tensors, double rate, int64_t step,
           double gradient_scale = 1);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace CODA_API coda
