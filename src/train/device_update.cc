// SPDX-License-Identifier: Apache-2.0
#include "train/device_update.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>

#include "base/rounding.h"
#include "coda/error.h"
#include "coda/program.h"

namespace coda {
namespace {

constexpr int64_t kRowElements = 512;
constexpr int64_t kGroup = 64;  // rows whose squares are added together

// What changes from step to step. Each number is the first of a row of its own, as backends want
// tensors aligned.
enum Number : uint8_t { decay, step_size, root_scale, kNumbers };
constexpr int64_t kNumberStride = 64;

// Sums of squares: of a row by its spans of 64, then of groups of rows, whose sums are a matrix
// again, then of all groups. So the order is fixed.
const char* const kSquares = R"(
program gradient_squares {
  g = tile(gradient[R, C])
  row_partial(of_spans, sum(g * g))
})";
const char* const kOfRows = R"(
program gradient_squares_of_rows {
  store(of_rows, combine_rows(sum(of_spans[R, C])))
})";
const char* const kOfGroups = R"(
program gradient_squares_of_groups {
  row_partial(of_groups, sum(tile(of_rows[S, G])))
})";
std::string number_text(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", static_cast<double>(static_cast<float>(value)));
  return text;
}

// A loss, or a norm below, that is infinite or no number is not less, and `sound` becomes 0.
const char* const kLossCheck = R"(
program loss_check {
  l = scalar(loss)
  store(sound, scalar(sound) * less(l * l, inf))
})";
std::string norm_text(double clip) {
  return R"(
program gradient_norm {
  length = sqrt(reduce_vector(combine_rows(sum(of_groups[S, G]))))
  store(norm, length)
  store(sound, scalar(sound) * less(length, inf))
  store(scale, min(1, )" +
         (clip > 0 ? number_text(clip) : "inf") + R"( / (length + 1e-6)))
})";
}

// The formulas of adamw_step in the same order. Where the state is not sound, all is stored as it
// was.
std::string adamw_text(const AdamWOptions& o, bool has_copy) {
  return R"(
program adamw {
  kept = scalar(sound)
  g = tile(gradient[R, C]) * scalar(scale)
  m0 = tile(m[R, C])
  v0 = tile(v[R, C])
  w0 = tile(master[R, C])
  m1 = m0 + )" +
         number_text(1 - o.beta1) + R"( * (g - m0)
  v1 = )" +
         number_text(o.beta2) + " * v0 + " + number_text(1 - o.beta2) + R"( * (g * g)
  step = m1 / (sqrt(v1) * scalar(root_scale) + )" +
         number_text(o.eps) + R"()
  w1 = (1 - scalar(decay) * per_row(decays[R])) * w0 - scalar(step_size) * step
  w = select(kept, w1, w0)
  store(m, select(kept, m1, m0))
  store(v, select(kept, v1, v0))
  store(master, w)
)" + (has_copy ? "  store(copy:bf16, w)\n}" : "}");
}

// Elements of a dense matrix from one on.
TensorView from(const TensorView& whole, int64_t first, int64_t rows, int64_t cols) {
  return dense_view(static_cast<std::byte*>(whole.data) + first * size_of(whole.dtype), whole.dtype,
                    rows, cols);
}

}  // namespace

DeviceUpdate::DeviceUpdate(Backend& backend, const Weights& weights, const AdamWOptions& options,
                           double clip)
    : backend_(backend), options_(options) {
  int64_t rows = 0;
  std::vector<float> decays;
  for (const WeightTensor& w : weights) {
    parts_.push_back({rows, w.rows, w.cols});
    rows += ceil_div(w.rows * w.cols, kRowElements);
    decays.resize(static_cast<size_t>(rows), w.decays ? 1.0F : 0.0F);
  }
  rows = round_up(std::max<int64_t>(rows, 1), kGroup);
  decays.resize(static_cast<size_t>(rows));
  const bool has_copy = std::any_of(weights.begin(), weights.end(),
                                    [](const WeightTensor& w) { return !w.bf16.empty(); });
  for (int i = 0; i < kMatrices; ++i) {
    if (i == copy && !has_copy) continue;
    matrices_[i] = Tensor(i == copy ? DType::bf16 : DType::f32, rows, kRowElements, backend);
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    const Matrix read = weights[i].bf16.empty() ? master : copy;
    parameters_.emplace(weights[i].name, Tensor(part(read, i), backend));
    gradients_.emplace_back(part(gradient, i), backend);
  }
  numbers_ = Tensor(DType::f32, kNumbers, kNumberStride, backend);
  for (BackendMemory& staged : staged_) {
    constexpr auto kBytes = static_cast<size_t>(kNumbers * kNumberStride) * sizeof(float);
    staged = backend.allocate_on_host(kBytes, "a step's numbers");
    std::memset(staged.get(), 0, kBytes);
  }
  norm_ = Tensor(DType::f32, 1, 1, backend);
  is_sound_ = Tensor(DType::f32, 1, 1, backend);
  restore_soundness();

  const DimValues sizes{{"R", rows}, {"C", kRowElements}, {"S", rows / kGroup}, {"G", kGroup}};
  std::map<std::string, TensorView, std::less<>> views{
      {"gradient", matrices_[gradient].view()},
      {"m", matrices_[m].view()},
      {"v", matrices_[v].view()},
      {"master", matrices_[master].view()},
      {"copy", matrices_[copy].view()},
      {"norm", norm_.view()},
      {"sound", is_sound_.view()},
      {"decay", from(numbers_.view(), decay * kNumberStride, 1, 1)},
      {"step_size", from(numbers_.view(), step_size * kNumberStride, 1, 1)},
      {"root_scale", from(numbers_.view(), root_scale * kNumberStride, 1, 1)},
  };
  kept_.emplace_back(DType::f32, rows, 1, backend).set(decays);
  views.emplace("decays", kept_.back().view());

  std::vector<Program> programs;
  for (const std::string& text :
       {std::string(kLossCheck), std::string(kSquares), std::string(kOfRows),
        std::string(kOfGroups), norm_text(clip), adamw_text(options, has_copy)}) {
    programs.push_back(parse_program(text));
    verify(programs.back());
  }
  std::vector<AnnouncedProgram> announced;
  for (const Program& program : programs) announced.push_back({&program, sizes});
  backend.announce(announced);
  for (const Program& program : programs) {
    Launch launch{backend.prepare(program, sizes), {}};
    for (const TensorDecl& decl : program.tensors) {
      if (decl.name == "loss") {  // check_loss says where it lies
        loss_place_ = launch.tensors.size();
        launch.tensors.push_back({});
        continue;
      }
      const PhysicalShape shape = physical_shape(decl, sizes);
      if (!views.contains(decl.name)) {
        kept_.emplace_back(decl.dtype, shape.rows, shape.cols, backend);
        views.emplace(decl.name, kept_.back().view());
      }
      // A vector of one program is a matrix of the next.
      launch.tensors.push_back(from(views.at(decl.name), 0, shape.rows, shape.cols));
    }
    launches_.push_back(std::move(launch));
  }
  loss_check_ = std::move(launches_.front());
  launches_.erase(launches_.begin());
}

TensorView DeviceUpdate::part(Matrix matrix, size_t weight) const {
  const Part& p = parts_[weight];
  return from(matrices_[matrix].view(), p.first_row * kRowElements, p.rows, p.cols);
}

void DeviceUpdate::upload(Weights& weights, std::vector<Moments>& moments) {
  for (size_t i = 0; i < weights.size(); ++i) {
    WeightTensor& w = weights[i];
    const auto put = [&](Matrix matrix, void* data, DType dtype) {
      backend_.copy_in(dense_view(data, dtype, w.rows, w.cols), part(matrix, i));
    };
    put(master, w.values.data(), DType::f32);
    if (moments[i].m.empty()) {
      backend_.fill(part(m, i), std::byte{0});
      backend_.fill(part(v, i), std::byte{0});
    } else {
      put(m, moments[i].m.data(), DType::f32);
      put(v, moments[i].v.data(), DType::f32);
    }
    if (!w.bf16.empty()) put(copy, w.bf16.data(), DType::bf16);
  }
}

void DeviceUpdate::download(Weights& weights, std::vector<Moments>& moments) const {
  for (size_t i = 0; i < weights.size(); ++i) {
    WeightTensor& w = weights[i];
    const auto get = [&](Matrix matrix, void* data, DType dtype) {
      backend_.copy_out(part(matrix, i), dense_view(data, dtype, w.rows, w.cols));
    };
    get(master, w.values.data(), DType::f32);
    moments[i].make(w);
    get(m, moments[i].m.data(), DType::f32);
    get(v, moments[i].v.data(), DType::f32);
    if (!w.bf16.empty()) get(copy, w.bf16.data(), DType::bf16);
  }
}

void DeviceUpdate::clear_gradients() { backend_.fill(matrices_[gradient].view(), std::byte{0}); }

void DeviceUpdate::check_loss(const Tensor& loss) {
  loss_check_.tensors[loss_place_] = loss.view();
  loss_check_.kernel->run(loss_check_.tensors);
}

void DeviceUpdate::start_step(double rate, int64_t step) {
  const auto steps = static_cast<double>(step);
  auto* const numbers = reinterpret_cast<float*>(staged_[steps_++ % 2].get());
  const auto set = [&](Number which, double value) {
    numbers[which * kNumberStride] = static_cast<float>(value);
  };
  set(decay, rate * options_.weight_decay);
  set(step_size, rate / (1 - std::pow(options_.beta1, steps)));
  set(root_scale, 1 / std::sqrt(1 - std::pow(options_.beta2, steps)));
  backend_.start_copy_in(dense_view(numbers, DType::f32, kNumbers, kNumberStride), numbers_.view());
  const auto work = [this] {
    for (Launch& launch : launches_) launch.kernel->run(launch.tensors);
  };
  if (steps_ == 1) return work();
  if (!recorded_) recorded_ = backend_.record(work);
  recorded_();
}

}  // namespace coda
