// SPDX-License-Identifier: Apache-2.0
// The update of the scales is a program, so that backends run it without waiting for the host.
#include "runtime/eight_bit_scales.h"

#include <string>

#include "coda/eight_bits.h"
#include "coda/error.h"
#include "coda/program.h"

namespace coda {

// The remembered magnitude decays slowly, so that a batch with small values does not make the next
// batch saturate. The remembered magnitude is at most 16 times the seen one. Otherwise an outlier,
// such as a first batch whose loss is 2^24 times as large, would leave gradients without
// significant bits for hundreds of steps.
// A scale is a power of two, so that a number keeps the same value (code times scale) from step to
// step, except for the smallest numbers. With the scale 224 / kept, every step rounded all weights
// anew, and small models learned more slowly (lab/notebook/hopper.md). The power of two nearest to
// `kept` is its highest bit in bf16, found by Dekker's splitting: (x * 129) - (x * 129 - x). This
// power of two gets the code 128, so the code of the largest value is between 95 and 192 of e4m3's
// 448, and values may double from one step to the next.
const char* next_scales_program() {
  return R"(
program next_scales {
  tensors(sound, largest, remembered, scale, inverse)
  seen = per_column(largest[N])
  before = per_column(remembered)
  is_good = scalar(sound) * less(seen, inf)
  remembers = min(0.95 * before, 16 * seen)
  kept = select(is_good, max(seen, remembers), before)
  changes = is_good * less(0, kept)
  x = as_stored(kept, bf16)
  much = as_stored(x * 129, bf16)
  power = much - as_stored(much - x, bf16)
  store(remembered, kept)
  store(scale, select(changes, 128 / power, per_column(scale)))
  store(inverse, select(changes, power / 128, per_column(inverse)))
})";
}

static constexpr const char* kJoin = R"(
program join_magnitudes {
  tensors(largest, of_parameters)
  store(largest, max(per_column(largest[N]), per_column(of_parameters[N])))
})";

EightBitScales::EightBitScales(Backend& backend, std::vector<float> first,
                               Communicator* communicator)
    : backend_(backend), first_(std::move(first)), communicator_(communicator) {
  const int64_t columns = kScaleColumns * std::ssize(first_);
  for (Tensor* vector : {&remembered_, &scale_, &inverse_, &largest_, &of_parameters_})
    *vector = Tensor(DType::f32, 1, columns, backend);
  always_ = Tensor(DType::f32, 1, 1, backend);
  always_.fill(1);
  join_ = backend.prepare(parse_program(kJoin), {{"N", columns}});
  update_ = backend.prepare(parse_program(next_scales_program()), {{"N", columns}});
  restore({});
}

void EightBitScales::bind(Session& session) const {
  session.bind(kScales, scale_);
  session.bind(kInverses, inverse_);
  session.bind(kMagnitudes, largest_);
  session.bind_known({{kParameterMagnitudes, of_parameters_}});
}

void EightBitScales::finish_step(const Tensor& sound) {
  const TensorView both[] = {largest_.view(), of_parameters_.view()};
  join_->run(both);
  if (communicator_ != nullptr) communicator_->maximum(largest_.view());
  const TensorView tensors[] = {sound.view(), largest_.view(), remembered_.view(), scale_.view(),
                                inverse_.view()};
  update_->run(tensors);
}

void EightBitScales::learn(const std::function<void()>& pass) {
  constexpr int kPasses = 3;
  for (int i = 0; i < kPasses; ++i) {
    start_step();
    pass();
    clear(remembered_);
    finish_step();
  }
}

std::vector<float> EightBitScales::state() const {
  std::vector<float> state;
  if (!are_known_) return state;
  for (const Tensor* vector : {&remembered_, &scale_, &inverse_}) {
    const std::vector<float> values = vector->floats();
    for (size_t i = 0; i < first_.size(); ++i) state.push_back(values[kScaleColumns * i]);
  }
  return state;
}

void EightBitScales::restore(const std::vector<float>& state) {
  const size_t scales = first_.size();
  are_known_ = !state.empty();
  require(!are_known_ || state.size() == 3 * scales,
          "the state has " + std::to_string(state.size() / 3) +
              " scales of 8-bit operands and this trainer has " + std::to_string(scales) +
              ": it was saved by a run with other products in 8 bits");
  std::vector<float> values = state;
  if (!are_known_) {
    values.assign(scales, 0);
    values.insert(values.end(), first_.begin(), first_.end());
    for (const float scale : first_) values.push_back(1 / scale);
  }
  const auto part = [&](size_t k) {
    return std::vector<float>(values.begin() + static_cast<std::ptrdiff_t>(k * scales),
                              values.begin() + static_cast<std::ptrdiff_t>((k + 1) * scales));
  };
  set(remembered_, part(0));
  set(scale_, part(1));
  set(inverse_, part(2));
}

// The gaps between two scales hold 1, so that the update computes valid numbers there.
void EightBitScales::set(Tensor& vector, const std::vector<float>& values) {
  std::vector<float> all(static_cast<size_t>(kScaleColumns) * values.size(), 1.0F);
  for (size_t i = 0; i < values.size(); ++i) all[kScaleColumns * i] = values[i];
  vector.set(all);
}

}  // namespace coda
