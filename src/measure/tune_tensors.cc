// SPDX-License-Identifier: Apache-2.0
#include "measure/tune_tensors.h"

#include <algorithm>

#include "base/rounding.h"
#include "coda/plan.h"
#include "measure/program_run.h"
#include "measure/random_fill.h"

namespace coda::measure {
namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kPastL2 = size_t{100} << 20;
constexpr size_t kMostTunedSets = 32;
constexpr size_t kSmallest = size_t{256} << 20;  // of a region: most programs then share it

struct Place {
  TensorView view;  // without memory
  size_t bytes = 0;
  bool written = false;
};

std::vector<Place> places(const Program& program, const DimValues& sizes,
                          const std::vector<int64_t>& row_strides) {
  const std::vector<StepTensor> uses = step_tensors({"", {}, program, {}});
  std::vector<Place> result;
  for (size_t t = 0; t < program.tensors.size(); ++t) {
    const TensorDecl& decl = program.tensors[t];
    const PhysicalShape shape = physical_shape(decl, sizes);
    Place place;
    place.view = {nullptr, decl.dtype, shape.rows, shape.cols, row_strides[t]};
    place.written = std::any_of(uses.begin(), uses.end(), [&](const StepTensor& use) {
      return use.name == decl.name && use.written;
    });
    const size_t bytes = static_cast<size_t>(shape.rows * row_strides[t] * size_of(decl.dtype));
    place.bytes = round_up(bytes, kAlignment);
    result.push_back(place);
  }
  return result;
}

}  // namespace

void TuneTensors::reserve(Region& region, size_t bytes) {
  region.used = 0;
  if (region.memory.bytes() >= bytes) return;
  const size_t size = std::max({bytes, 2 * region.memory.bytes(), kSmallest});
  region.memory = {};
  region.memory = {state_.context, size, state_.stream, "tensors to tune with",
                   gpu::Allocation::plain};
  // In pairs these are numbers of fp32 as well.
  fill_random(state_,
              dense_view(region.memory.data(), DType::bf16, 1, static_cast<int64_t>(size / 2)),
              size);
}

std::vector<std::vector<TensorView>> TuneTensors::make(const Program& program,
                                                       const DimValues& sizes,
                                                       const std::vector<int64_t>& row_strides) {
  const std::vector<Place> all = places(program, sizes, row_strides);
  const auto region_of = [&](const Place& place) -> Region& {
    return !is_floating(place.view.dtype) ? indices_ : place.written ? written_ : read_;
  };
  size_t of_set = 0;
  for (const Place& place : all) of_set += place.bytes;
  const size_t sets = std::clamp<size_t>(1 + kPastL2 / of_set, 2, kMostTunedSets);
  for (Region* region : {&read_, &written_, &indices_}) {
    size_t bytes = 0;
    for (const Place& place : all) bytes += &region_of(place) == region ? place.bytes : 0;
    if (bytes != 0) reserve(*region, sets * bytes);
  }
  std::vector<std::vector<TensorView>> views(sets);
  for (std::vector<TensorView>& set : views) {
    for (size_t t = 0; t < all.size(); ++t) {
      Region& region = region_of(all[t]);
      set.push_back(all[t].view);
      set.back().data = region.memory.data() + region.used;
      region.used += all[t].bytes;
      if (!is_floating(set.back().dtype))
        fill_random(state_, set.back(), t, 1.0F, index_limit(program, sizes, static_cast<int>(t)));
    }
  }
  return views;
}

}  // namespace coda::measure
