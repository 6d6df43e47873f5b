// SPDX-License-Identifier: Apache-2.0
#include "lab/hopper_table/problem.h"

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "lab/hopper_table/support_kernels.h"

namespace coda::hopper_table {
namespace {

constexpr LaunchShape kSupportLaunch{.grid = 132 * 8, .block = 256};

// Operand slices and epilogue sub-tiles are the boxes that the device code declares.
device::TensorMap operand_map(const Device& device, const Matrix& matrix, bool fp16,
                              device::Major major, const device::OperandBox& box) {
  const bool k_inner = major == device::Major::k;
  return device.tensor_map(matrix.data, fp16, matrix.rows, matrix.columns, matrix.pitch,
                           k_inner ? box.outer : box.k, k_inner ? box.k : box.outer);
}

device::TensorMap plane_map(const Device& device, const Matrix& matrix, bool fp16) {
  return device.tensor_map(matrix.data, fp16, matrix.rows, matrix.columns, matrix.pitch,
                           device::kWgmmaM, device::kSubTileColumns);
}

}  // namespace

std::string Shape::name() const {
  return std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k) + " " +
         layout_name(layout) + (fp16 ? " fp16" : "");
}

unsigned padded(unsigned columns) { return device::round_up(columns, 64); }

Support::Support(const Device& device, const NvrtcCompiler& compiler) : device_(device) {
  const CompiledKernel compiled = compiler.compile(kSupportSource);
  if (compiled.cubin.empty()) throw std::runtime_error("support kernels: " + compiled.log);
  fill_ = device.load_kernel(compiled.cubin, "fill_normal", 0);
  gemm_ = device.load_kernel(compiled.cubin, "naive_gemm", 0);
  compare_ = device.load_kernel(compiled.cubin, "compare", 0);
}

void Support::fill_normal(const Matrix& matrix, unsigned long long seed, bool fp16) const {
  unsigned long long rows = matrix.rows;
  unsigned long long columns = matrix.columns;
  unsigned long long pitch = matrix.pitch;
  DevicePointer data = matrix.data;
  int flag = fp16;
  void* arguments[] = {&data, &rows, &columns, &pitch, &seed, &flag};
  device_.launch(fill_, kSupportLaunch, arguments);
}

void Support::naive_gemm(const Shape& shape, const TensorSet& set, DevicePointer out) const {
  const bool a_by_k = shape.layout == device::OperandLayout::nt;
  const bool b_by_k = shape.layout != device::OperandLayout::tn;
  DevicePointer a = set.a.data;
  DevicePointer b = set.b.data;
  unsigned m = shape.m;
  unsigned n = shape.n;
  unsigned k = shape.k;
  unsigned long long a_row = a_by_k ? 1 : set.a.pitch;
  unsigned long long a_k = a_by_k ? set.a.pitch : 1;
  unsigned long long b_column = b_by_k ? 1 : set.b.pitch;
  unsigned long long b_k = b_by_k ? set.b.pitch : 1;
  int fp16 = shape.fp16;
  void* arguments[] = {&a, &b, &out, &m, &n, &k, &a_row, &a_k, &b_column, &b_k, &fp16};
  device_.launch(gemm_, kSupportLaunch, arguments);
}

void Support::compare(const Shape& shape, const TensorSet& set, const Variant& variant,
                      unsigned plane, std::size_t extra, DevicePointer product,
                      DevicePointer verdict) const {
  DevicePointer stored = set.stores.at(plane).data;
  DevicePointer loads[3] = {};
  for (unsigned i = 0; i < variant.shape.loads; ++i) loads[i] = set.loads.at(i).data;
  int load_count = static_cast<int>(variant.shape.loads);
  int which = static_cast<int>(plane);
  unsigned m = shape.m;
  unsigned n = shape.n;
  unsigned k = shape.k;
  unsigned long long pitch = set.stores[plane].pitch;
  unsigned long long tail = extra;
  int fp16 = shape.fp16;
  void* arguments[] = {&stored, &product, &loads[0], &loads[1], &loads[2], &load_count, &which,
                       &m,      &n,       &k,        &pitch,    &tail,     &fp16,       &verdict};
  device_.launch(compare_, kSupportLaunch, arguments);
}

Problem::Problem(const Device& device, const Support& support, const Shape& shape, unsigned sets,
                 unsigned planes, std::size_t extra)
    : device_(device), shape_(shape), extra_(extra) {
  tile_counter_ = device_.allocate(sizeof(unsigned));
  owned_.push_back(tile_counter_);
  device_.fill_bytes(tile_counter_, 0, sizeof(unsigned));
  const bool a_by_k = shape.layout == device::OperandLayout::nt;
  const bool b_by_k = shape.layout != device::OperandLayout::tn;
  unsigned long long seed = 1;
  for (unsigned i = 0; i < sets; ++i) {
    TensorSet set;
    set.a = a_by_k ? allocate(shape.k, shape.m, 0) : allocate(shape.m, shape.k, 0);
    set.b = b_by_k ? allocate(shape.k, shape.n, 0) : allocate(shape.n, shape.k, 0);
    support.fill_normal(set.a, seed++, shape.fp16);
    support.fill_normal(set.b, seed++, shape.fp16);
    for (unsigned plane = 0; plane < planes; ++plane) {
      set.loads.push_back(allocate(shape.m, shape.n, 0));
      support.fill_normal(set.loads.back(), seed++, shape.fp16);
      set.stores.push_back(allocate(shape.m, shape.n, extra));
    }
    sets_.push_back(set);
  }
}

Problem::~Problem() {
  for (const DevicePointer pointer : owned_) device_.free(pointer);
}

Matrix Problem::allocate(unsigned rows, unsigned columns, std::size_t extra) {
  Matrix matrix{.rows = rows, .columns = columns, .pitch = padded(columns)};
  const std::size_t bytes = matrix.bytes() + extra * 2;
  matrix.data = device_.allocate(bytes);
  owned_.push_back(matrix.data);
  device_.fill_bytes(matrix.data, 0xff, bytes);
  return matrix;
}

void Problem::poison_outputs() const {
  for (const TensorSet& set : sets_) {
    for (const Matrix& store : set.stores) {
      device_.fill_bytes(store.data, 0xff, store.bytes() + extra_ * 2);
    }
  }
}

LoadedKernel load_variant(const Device& device, const Variant& variant,
                          const std::vector<char>& cubin) {
  const device::SharedLayout shared = device::shared_layout(variant.config, variant.shape);
  LoadedKernel kernel;
  kernel.function = device.load_kernel(cubin, "gemm", shared.bytes);
  kernel.launch = {.grid = variant.config.cluster_size(),
                   .block = device::kThreads,
                   .cluster = variant.config.cluster_size(),
                   .shared_bytes = shared.bytes};
  kernel.resident_clusters =
      static_cast<unsigned>(device.max_active_clusters(kernel.function, kernel.launch));
  if (kernel.resident_clusters == 0) throw std::runtime_error(variant.name() + " cannot run");
  return kernel;
}

std::function<void(unsigned set)> prepare(const Device& device, const LoadedKernel& kernel,
                                          const Variant& variant, const Problem& problem,
                                          Band band) {
  using Arguments = device::SyntheticArguments;
  const device::GemmConfig& config = variant.config;
  const Shape& shape = problem.shape();
  const unsigned across =
      band.columns ? config.tile_n * config.cluster_n : config.tile_m * config.cluster_m;
  auto arguments = std::make_shared<std::vector<Arguments>>();
  for (const TensorSet& set : problem.sets()) {
    Arguments one;
    one.a = operand_map(device, set.a, shape.fp16, config.major_a(), device::box_a(config));
    one.b = operand_map(device, set.b, shape.fp16, config.major_b(),
                        device::box_b(config, variant.shape));
    one.order = device::tile_order(config, variant.shape, shape.m, shape.n, band.length / across,
                                   band.columns);
    one.tile_counter = problem.tile_counter();
    one.k_blocks = device::ceil_div(shape.k, device::kBlockK);
    for (unsigned i = 0; i < variant.shape.loads; ++i) {
      one.loads[i] = plane_map(device, set.loads.at(i), shape.fp16);
    }
    for (unsigned i = 0; i < variant.shape.stores; ++i) {
      one.stores[i] = plane_map(device, set.stores.at(i), shape.fp16);
    }
    arguments->push_back(one);
  }
  // No more clusters than give each the same number of tiles: the others would only draw power.
  LaunchShape launch = kernel.launch;
  const unsigned tiles = arguments->front().order.count();
  const unsigned waves = device::ceil_div(tiles, kernel.resident_clusters);
  launch.grid = config.cluster_size() * device::ceil_div(tiles, waves);
  const Function function = kernel.function;
  return [&device, arguments, launch, function](unsigned set) {
    Arguments& one = (*arguments)[set % arguments->size()];
    void* pointers[] = {&one};
    device.launch(function, launch, pointers);
  };
}

}  // namespace coda::hopper_table
