// SPDX-License-Identifier: Apache-2.0
#include "measure/guarded_run.h"

#include <algorithm>
#include <cmath>

#include "base/rounding.h"
#include "base/stored_element.h"
#include "coda/plan.h"

namespace coda::measure {
namespace {

constexpr int64_t kGuard = 64;  // elements before and behind a tensor

// What a type without NaN and infinity has instead.
double poison_of(DType dtype, double poison) {
  return dtype == DType::i32 ? std::nan("") : dtype == DType::u8 ? 255 : poison;
}

// A tensor between its guards.
class Image {
 public:
  Image(const TensorDecl& decl, const DimValues& sizes, const std::vector<double>* values,
        int64_t row_multiple, double poison)
      : dtype_(decl.dtype),
        shape_(physical_shape(decl, sizes)),
        poison_(rounded_to(dtype_, poison_of(dtype_, poison))) {
    stride_ = shape_.cols == 1 ? 1 : (shape_.cols / row_multiple + 1) * row_multiple;
    const int64_t count = 2 * kGuard + shape_.rows * stride_;
    bytes_.resize(round_up(count * size_of(dtype_), 8));
    for (int64_t i = 0; i < count; ++i)
      write_element(dtype_, bytes_.data(), i, poison_of(dtype_, poison));
    if (values == nullptr) return;
    for (int64_t i = 0; i < shape_.rows * shape_.cols; ++i)
      write_element(dtype_, bytes_.data(), place(i), (*values)[static_cast<size_t>(i)]);
  }

  std::vector<std::byte>& bytes() { return bytes_; }
  TensorView view_at(std::byte* base) const {
    return {base + kGuard * size_of(dtype_), dtype_, shape_.rows, shape_.cols, stride_};
  }
  std::vector<double> values() const {
    std::vector<double> result(static_cast<size_t>(shape_.rows * shape_.cols));
    for (size_t i = 0; i < result.size(); ++i)
      result[i] = read_element(dtype_, bytes_.data(), place(static_cast<int64_t>(i)));
    return result;
  }
  bool guards_are_whole() const {
    const int64_t count = 2 * kGuard + shape_.rows * stride_;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = i - kGuard;
      const bool inside = at >= 0 && at < shape_.rows * stride_ && at % stride_ < shape_.cols;
      const double value = read_element(dtype_, bytes_.data(), i);
      const bool is_poison = std::isnan(poison_) ? std::isnan(value) : value == poison_;
      if (!inside && !is_poison) return false;
    }
    return true;
  }

 private:
  int64_t place(int64_t i) const { return kGuard + i / shape_.cols * stride_ + i % shape_.cols; }

  DType dtype_;
  PhysicalShape shape_;
  double poison_;  // as its type has it
  int64_t stride_ = 0;
  std::vector<std::byte> bytes_;
};

}  // namespace

GuardedRun run_between_guards(Backend& backend, const Program& program, const DimValues& sizes,
                              const TensorValues& inputs, double poison) {
  const int64_t row_multiple = backend.is_on_host() ? 1 : 8;
  // An image as it is copied.
  const auto words = [](std::byte* data, const std::vector<std::byte>& image) {
    return dense_view(data, DType::i32, 1, std::ssize(image) / 4);
  };
  std::vector<Image> images;
  std::vector<BackendMemory> memory;
  std::vector<TensorView> views;
  for (const TensorDecl& decl : program.tensors) {
    const auto given = inputs.find(decl.name);
    std::vector<std::byte>& bytes =
        images
            .emplace_back(decl, sizes, given == inputs.end() ? nullptr : &given->second,
                          row_multiple, poison)
            .bytes();
    memory.push_back(backend.allocate(bytes.size(), decl.name));
    backend.copy_in(words(bytes.data(), bytes), words(memory.back().get(), bytes));
    views.push_back(images.back().view_at(memory.back().get()));
  }
  backend.prepare(program, sizes)->run(views);
  backend.synchronize();
  GuardedRun run;
  const std::vector<StepTensor> uses = step_tensors({program.name, {}, program, {}});
  for (size_t t = 0; t < images.size(); ++t) {
    std::vector<std::byte>& bytes = images[t].bytes();
    backend.copy_out(words(memory[t].get(), bytes), words(bytes.data(), bytes));
    const std::string& name = program.tensors[t].name;
    if (!images[t].guards_are_whole()) run.overrun.push_back(name);
    if (!uses[t].written) continue;
    run.results[name] = images[t].values();
    run.bits[name] = bytes;
  }
  return run;
}

}  // namespace coda::measure
