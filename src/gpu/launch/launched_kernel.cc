// SPDX-License-Identifier: Apache-2.0
// Caches a binding (arguments and descriptors) for each set of tensor addresses. A rectangle that
// TMA cannot address is copied to scratch memory before the launches.
#include "gpu/launch/launched_kernel.h"

#include <algorithm>
#include <cstring>

#include "base/rounding.h"
#include "coda/error.h"
#include "gpu/launch/device_pointer.h"
#include "runtime/why_unfit.h"

namespace coda::gpu {
namespace {

// In a loop over row blocks, a kernel sees one set of addresses per block.
constexpr size_t kMostBindings = 64;
constexpr int64_t kPaddedRow = 128;  // bytes: alignment of rows in staged copies

bool same_places(std::span<const TensorView> places, std::span<const TensorView> tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (places[i].data != tensors[i].data || places[i].row_stride != tensors[i].row_stride)
      return false;
  }
  return true;
}

// The offset of each tensor in shared scratch memory, and the total size.
constexpr int64_t kScratchAlignment = 256;
std::vector<size_t> offsets_of(const std::vector<ScratchTensor>& tensors) {
  std::vector<size_t> offsets{0};
  for (const ScratchTensor& t : tensors) {
    const int64_t bytes = t.rows * t.row_stride * size_of(t.dtype);
    offsets.push_back(offsets.back() + static_cast<size_t>(round_up(bytes, kScratchAlignment)));
  }
  return offsets;
}

// Whether two specs describe the same rectangle; boxes may differ.
bool same_rectangle(const TensorView& original, const Rectangle& rectangle) {
  return address_of(original.data) == rectangle.address && original.rows == rectangle.rows &&
         original.cols == rectangle.columns;
}

// Empty if all are dense.
std::vector<int64_t> strides_of(std::span<const TensorView> tensors) {
  std::vector<int64_t> row_strides;
  const auto is_dense = [](const TensorView& view) { return view.is_contiguous(); };
  if (!std::all_of(tensors.begin(), tensors.end(), is_dense)) {
    for (const TensorView& view : tensors)
      row_strides.push_back(view.rows == 1 ? view.cols : view.row_stride);
  }
  return row_strides;
}

}  // namespace

LaunchedKernel::LaunchedKernel(std::shared_ptr<GpuState> state, std::string name,
                               std::vector<KernelTensor> tensors, Lowering lowering,
                               std::span<const int64_t> expected)
    : state_(std::move(state)),
      name_(std::move(name)),
      tensors_(std::move(tensors)),
      lowering_(std::move(lowering)) {
  variant_for(expected);
}

void LaunchedKernel::run(std::span<const TensorView> tensors) {
  const Context::Scope scope(*state_->context);
  const Binding& binding = bind(tensors);
  const DriverHandle stream = state_->stream;
  for (const Staged& staged : binding.staged) {
    if (tensors_[staged.tensor].read) copy_on_device(staged.original, staged_view(staged), stream);
  }
  const Variant& variant = *binding.variant;
  for (size_t i = 0; i < variant.launches.size(); ++i) {
    const KernelLaunch& launch = variant.launches[i];
    cuda::LaunchAttribute attributes[2];
    unsigned count = 0;
    if (launch.cluster > 1) {
      attributes[count++] = {.id = cuda::kClusterDimension,
                             .padding = 0,
                             .cluster = {launch.cluster, 1, 1},
                             .rest = {}};
    }
    if (launch.waits_for_predecessor && state_->dependent_launch) {
      attributes[count++] = {
          .id = cuda::kDependentLaunch, .padding = 0, .cluster = {1, 0, 0}, .rest = {}};
    }
    const cuda::LaunchConfig config = {.grid = {launch.grid, 1, 1},
                                       .block = {launch.threads, 1, 1},
                                       .shared_bytes = launch.shared_bytes,
                                       .stream = stream,
                                       .attributes = attributes,
                                       .attribute_count = count};
    // The driver copies the arguments before it returns.
    void* arguments[] = {const_cast<ArgumentBlock*>(binding.arguments[i].data())};
    check_driver(driver().launch_kernel_ex(&config, variant.functions[i], arguments, nullptr),
                 "running program ", name_);
  }
  for (const Staged& staged : binding.staged) {
    if (tensors_[staged.tensor].written)
      copy_on_device(staged_view(staged), staged.original, stream);
  }
}

// Runs usually alternate between the same bindings in the same order, so the next one is tried
// first.
const LaunchedKernel::Binding& LaunchedKernel::bind(std::span<const TensorView> tensors) {
  invariant(tensors.size() == tensors_.size(), "a kernel is run with as many tensors as it has");
  for (size_t i = 0; i < bindings_.size(); ++i) {
    const size_t at = (last_ + i) % bindings_.size();
    if (!is_of(*bindings_[at], tensors)) continue;
    last_ = at;
    return *bindings_[at];
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const KernelTensor& tensor = tensors_[i];
    if (tensor.shape.rows == 0) continue;
    std::string why = why_unfit(tensor.dtype, tensor.shape, tensors[i]);
    if (why.empty()) {
      why = why_not_on_device(tensors[i]);
      if (!why.empty())
        why = "is " + describe(tensor.dtype, tensor.shape.rows, tensor.shape.cols) + ", " + why;
    }
    if (!why.empty()) throw Error("program '" + name_ + "': tensor '" + tensor.name + "' " + why);
  }
  auto binding = std::make_unique<Binding>();
  binding->places.assign(tensors.begin(), tensors.end());
  binding->variant = &variant_for(strides_of(tensors));
  place_shared(*binding);
  stage(*binding);
  pack(*binding);
  if (bindings_.size() < kMostBindings) {
    last_ = bindings_.size();
    bindings_.push_back(std::move(binding));
  } else {
    last_ = (last_ + 1) % kMostBindings;
    bindings_[last_] = std::move(binding);
  }
  return *bindings_[last_];
}

const LaunchedKernel::Variant& LaunchedKernel::variant_for(std::span<const int64_t> row_strides) {
  for (const auto& variant : variants_)
    if (std::ranges::equal(variant->row_strides, row_strides)) return *variant;
  auto variant = std::make_unique<Variant>();
  variant->launches = state_->kernels->make(name_, lowering_(row_strides));
  variant->row_strides.assign(row_strides.begin(), row_strides.end());
  for (const KernelLaunch& launch : variant->launches)
    variant->functions.push_back(state_->kernels->load(name_, launch));
  const auto deals_tiles = [](const KernelLaunch& launch) {
    return std::ranges::find(launch.pointers, kTileCounter) != launch.pointers.end();
  };
  if (std::ranges::any_of(variant->launches, deals_tiles)) make_tile_counter();
  if (!variant->launches.empty())
    variant->shared_bytes = offsets_of(variant->launches.front().scratch).back();
  variants_.push_back(std::move(variant));
  return *variants_.back();
}

// The launches run one after another, so they share one counter.
void LaunchedKernel::make_tile_counter() {
  if (tile_counter_.bytes() != 0) return;
  const Context::Scope scope(*state_->context);
  tile_counter_ =
      DeviceMemory(state_->context, sizeof(uint32_t), state_->stream,
                   "the counter of tiles of program '" + name_ + "'", Allocation::plain);
  fill_bytes({tile_counter_.data(), DType::i32, 1, 1, 1}, 0, state_->stream);
  check_driver(driver().stream_synchronize(state_->stream), "clearing a counter of tiles");
}

int64_t scratch_bytes_of(const std::vector<ScratchTensor>& tensors) {
  return static_cast<int64_t>(offsets_of(tensors).back());
}

size_t LaunchedKernel::scratch_bytes() const {
  size_t bytes = 0;
  for (const auto& variant : variants_) bytes = std::max(bytes, variant->shared_bytes);
  return bytes;
}

// Bindings stay: calls of equal layers are lent memory at a few addresses in turns.
void LaunchedKernel::use_scratch(const BackendMemory& memory, size_t bytes) {
  shared_ = memory;
  shared_bytes_ = bytes;
}

bool LaunchedKernel::is_of(const Binding& binding, std::span<const TensorView> tensors) const {
  return (binding.shared == nullptr || binding.shared == shared_.get()) &&
         same_places(binding.places, tensors);
}

void LaunchedKernel::place_shared(Binding& binding) {
  const size_t bytes = binding.variant->shared_bytes;
  if (bytes == 0) return;
  if (bytes > shared_bytes_) {
    const auto memory = std::make_shared<DeviceMemory>(
        state_->context, bytes, state_->stream,
        "what the kernels of program '" + name_ + "' pass on", Allocation::plain);
    use_scratch({memory, memory->data()}, bytes);
  }
  binding.shared = shared_.get();
  const std::vector<ScratchTensor>& tensors = binding.variant->launches.front().scratch;
  const std::vector<size_t> offsets = offsets_of(tensors);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const ScratchTensor& t = tensors[i];
    binding.places.push_back(
        {shared_.get() + offsets[i], t.dtype, t.rows, t.columns, t.row_stride});
  }
}

std::string LaunchedKernel::name_of(int tensor) const {
  const size_t i = static_cast<size_t>(tensor);
  return i < tensors_.size() ? tensors_[i].name : "kept" + std::to_string(i - tensors_.size() + 1);
}

// The address of a spec's rectangle: in the tensor or in its staged copy.
Rectangle LaunchedKernel::rectangle_of(const Binding& binding, const TensorMapSpec& spec) const {
  const TensorView& view = binding.places[spec.tensor];
  Rectangle rectangle = {
      .address = address_of(view.data) +
                 static_cast<uint64_t>((spec.row_offset * view.row_stride + spec.column_offset) *
                                       size_of(view.dtype)),
      .dtype = view.dtype,
      .rows = spec.rows,
      .columns = spec.columns,
      .row_stride = view.row_stride,
      .matrix_rows = spec.matrix_rows};
  for (const Staged& staged : binding.staged) {
    if (staged.tensor != spec.tensor || !same_rectangle(staged.original, rectangle)) continue;
    rectangle.address = scratch_.address() + staged.offset;
    rectangle.row_stride = staged.row_stride;
    break;
  }
  return rectangle;
}

TensorView LaunchedKernel::staged_view(const Staged& staged) const {
  TensorView view = staged.original;
  view.data = scratch_.data() + staged.offset;
  view.row_stride = staged.row_stride;
  return view;
}

void LaunchedKernel::stage(Binding& binding) {
  size_t bytes = 0;
  for (const KernelLaunch& launch : binding.variant->launches) {
    for (const TensorMapSpec& spec : launch.maps) {
      const Rectangle rectangle = rectangle_of(binding, spec);
      if (is_addressable(rectangle)) continue;
      const int64_t size = size_of(rectangle.dtype);
      // NOLINTNEXTLINE(performance-no-int-to-ptr): a device address
      void* const data = reinterpret_cast<void*>(rectangle.address);
      const Staged staged = {.tensor = spec.tensor,
                             .original = {data, rectangle.dtype, rectangle.rows, rectangle.columns,
                                          rectangle.row_stride},
                             .row_stride = round_up(rectangle.columns * size, kPaddedRow) / size,
                             .offset = bytes};
      bytes += static_cast<size_t>(staged.row_stride * rectangle.rows * size);
      binding.staged.push_back(staged);
    }
  }
  if (bytes <= scratch_.bytes()) return;
  // Drops bindings with descriptors of the old memory. Freeing waits for kernels that use it.
  std::erase_if(bindings_, [](const auto& other) { return !other->staged.empty(); });
  last_ = 0;
  scratch_ = DeviceMemory();
  scratch_ = DeviceMemory(state_->context, bytes, state_->stream,
                          "copies of the tensors of program '" + name_ +
                              "' whose rows do not start at multiples of 16 bytes",
                          Allocation::plain);
}

// device/arguments.cuh's KernelArguments.
void LaunchedKernel::pack(Binding& binding) const {
  for (const KernelLaunch& launch : binding.variant->launches) {
    const auto at_least_one = [](size_t count) { return std::max<size_t>(count, 1); };
    const size_t pointers_at = at_least_one(launch.maps.size()) * sizeof(device::TensorMap);
    const size_t numbers_at = pointers_at + at_least_one(launch.pointers.size()) * 8;
    const size_t bytes = numbers_at + at_least_one(launch.numbers.size()) * 4;
    std::vector<ArgumentBlock> blocks(ceil_div(bytes, sizeof(ArgumentBlock)));
    auto* const data = reinterpret_cast<std::byte*>(blocks.data());
    for (size_t i = 0; i < launch.maps.size(); ++i) {
      const TensorMapSpec& spec = launch.maps[i];
      const device::TensorMap map =
          encode_tensor_map(rectangle_of(binding, spec), spec.box_rows, spec.box_columns,
                            "tensor '" + name_of(spec.tensor) + "' of program '" + name_ + "'");
      std::memcpy(data + i * sizeof map, &map, sizeof map);
    }
    for (size_t i = 0; i < launch.pointers.size(); ++i) {
      const int tensor = launch.pointers[i];
      const DeviceAddress address = tensor == kTileCounter
                                        ? tile_counter_.address()
                                        : address_of(binding.places[tensor].data);
      std::memcpy(data + pointers_at + i * 8, &address, 8);
    }
    std::copy(launch.numbers.begin(), launch.numbers.end(),
              reinterpret_cast<uint32_t*>(data + numbers_at));
    binding.arguments.push_back(std::move(blocks));
  }
}

}  // namespace coda::gpu
