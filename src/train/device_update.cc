// SPDX-License-Identifier: Apache-2.0
// Allocates the matrices, binds the programs of the update to rows of them, and orders exchanges,
// updates and gatherings. device_state.cc transfers the state.
#include "train/device_update.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <list>
#include <map>
#include <ranges>
#include <string>
#include <utility>

#include "base/rounding.h"
#include "coda/error.h"
#include "coda/program.h"
#include "train/rounding_noise.h"
#include "train/update_programs.h"

namespace coda {
namespace {

constexpr int64_t kRowElements = UpdateRows::kElements;
constexpr int64_t kGroup = UpdateRows::kGroup;
constexpr int64_t kRowSpans = partial_spans(kRowElements);
constexpr int64_t kGroupsAlign = 64;  // alignment of a bucket's groups

constexpr const char* kAddUp = "reduce_scatter gradients";
constexpr const char* kGather = "all_gather weights";

// The first scalar of a training step; the optimizer's scalars follow.
constexpr const char* kDecay = "decay";

size_t place_in(const Program& program, std::string_view name) {
  const auto found = std::ranges::find(program.tensors, name, &TensorDecl::name);
  return static_cast<size_t>(found - program.tensors.begin());
}

}  // namespace

DeviceUpdate::DeviceUpdate(Backend& backend, const Weights& weights, const TrainOptions& options,
                           const ExchangePlan& exchange, const std::set<std::string>& squared,
                           const std::vector<ParameterCopy>& copies)
    : backend_(backend),
      optimizer_(with_noise(options.optimizer)),
      clip_(options.clip),
      microbatches_(options.accumulate),
      communicator_(options.communicator) {
  if (communicator_ != nullptr) {
    rank_ = communicator_->rank();
    world_ = communicator_->world();
  }
  invariant(squared.empty() || world_ == 1, "squares of gradients before they are added up");
  if (world_ > 1) exchange_text_ = exchange.text();
  const std::vector<ExchangedParameter> parameters = exchanged_parameters(weights);
  const UpdateRows rows =
      update_rows(parameters, exchange, squared, updated_apart(copies, world_, optimizer_), world_);
  gradients_.places = gradient_places(parameters, rows);
  place(weights, exchange, rows);
  allocate();
  for (size_t i = 0; i < weights.size(); ++i) {
    const size_t read = weights[i].bf16.empty() ? master : copy;
    parameters_.emplace(weights[i].name, Tensor(part(read, i), backend));
    gradients_.gradients.emplace_back(part(gradient, i), backend);
    if (!squared.contains(weights[i].name)) continue;
    const Part& p = parts_[i];
    squares_.emplace(weights[i].name,
                     Tensor(from(buckets_[p.bucket].of_spans.view(), p.first_row * kRowSpans,
                                 p.rows, partial_spans(p.cols)),
                            backend));
  }
  const auto numbers = 1 + std::ssize(optimizer_.scalars);
  numbers_ = Tensor(DType::f32, numbers, kNumberStride, backend);
  reported_ = Tensor(DType::f32, kReported * world_, kNumberStride, backend);
  for (BackendMemory& staged : staged_) {
    // The last row stages this process's row of reported_.
    const auto bytes = static_cast<size_t>((numbers + 1) * kNumberStride) * sizeof(float);
    staged = backend.allocate_on_host(bytes, "a step's numbers");
    std::memset(staged.get(), 0, bytes);
  }
  for (Tensor* number : {&norm_, &scale_, &is_finite_}) *number = Tensor(DType::f32, 1, 1, backend);
  restore_finiteness();
  prepare(weights, copies);
}

TensorView DeviceUpdate::from(const TensorView& whole, int64_t first, int64_t rows, int64_t cols) {
  return dense_view(static_cast<std::byte*>(whole.data) + first * size_of(whole.dtype), whole.dtype,
                    rows, cols);
}

void DeviceUpdate::place(const Weights& weights, const ExchangePlan& exchange,
                         const UpdateRows& rows) {
  backward_steps_ = exchange.steps;
  for (size_t i = 0; i < exchange.shards.size(); ++i) {
    const ExchangePlan::Shard& shard = exchange.shards[i];
    const UpdateRows::Shard& its = rows.shards[i];
    Bucket& bucket = buckets_.emplace_back();
    bucket.has_copy = shard.has_copy;
    bucket.start = shard.start;
    bucket.gather = shard.gather;
    bucket.read = shard.read;
    bucket.rows = its.rows;
    bucket.own_rows = its.rows / world_;
    bucket.first_own = bucket.own_rows * rank_;
    bucket.squared_rows = its.squared;
    bucket.first_shared = its.first_shared;
    bucket.together = its.together;
    bucket.decays.resize(static_cast<size_t>(its.rows));
    if (has_noise(optimizer_)) bucket.noise_rows.resize(static_cast<size_t>(its.rows));
  }
  static_assert(kRowElements == kNoiseColumns);
  std::vector<int64_t> elements;
  for (const WeightTensor& w : weights) elements.push_back(w.rows * w.cols);
  const std::vector<int64_t> noise =
      has_noise(optimizer_) ? noise_rows(elements) : std::vector<int64_t>();
  for (size_t i = 0; i < weights.size(); ++i) {
    const WeightTensor& w = weights[i];
    const auto& [shard, first_row] = rows.places[i];
    parts_.push_back({shard, first_row, w.rows, w.cols});
    Bucket& bucket = buckets_[shard];
    for (int64_t row = 0; row < ceil_div(elements[i], kRowElements); ++row) {
      const auto place = static_cast<size_t>(first_row + row);
      bucket.decays[place] = w.decays ? 1 : 0;
      if (!noise.empty()) bucket.noise_rows[place] = static_cast<float>(noise[i] + row);
    }
  }
}

// All gradients of a bucket share one allocation.
void DeviceUpdate::allocate() {
  int64_t rows = 0;
  for (const Bucket& bucket : buckets_) rows += bucket.rows;
  gradients_.all = Tensor(DType::f32, rows, kRowElements, backend_);
  rows = 0;
  for (Bucket& bucket : buckets_) {
    bucket.matrices.resize(first_state + optimizer_.states.size());
    for (const size_t matrix : state_matrices(bucket, true)) {
      const int64_t its_rows = is_whole(bucket, matrix) ? bucket.rows : bucket.own_rows;
      bucket.matrices[matrix] = matrix >= first_state && optimizer_.states_on_host
                                    ? on_host(type_of(matrix), its_rows)
                                    : Tensor(type_of(matrix), its_rows, kRowElements, backend_);
    }
    bucket.matrices[gradient] = Tensor(
        from(gradients_.all.view(), rows * kRowElements, bucket.rows, kRowElements), backend_);
    rows += bucket.rows;
    bucket.of_spans = Tensor(DType::f32, bucket.own_rows, kRowSpans, backend_);
    bucket.of_spans.fill(0);  // elements after a parameter stay 0
  }
}

// A GPU's kernels read and write pinned memory at its address on the host.
Tensor DeviceUpdate::on_host(DType dtype, int64_t rows) {
  const int64_t bytes = rows * kRowElements * size_of(dtype);
  host_memory_.push_back(
      backend_.allocate_on_host(static_cast<size_t>(bytes), "the optimizer's states"));
  const TensorView view = dense_view(host_memory_.back().get(), dtype, rows, kRowElements);
  backend_.fill(view, std::byte{0});
  return {view, backend_};
}

DType DeviceUpdate::type_of(size_t matrix) const {
  if (matrix >= first_state) return optimizer_.states[matrix - first_state].dtype;
  return matrix == copy ? DType::bf16 : DType::f32;
}

std::string DeviceUpdate::name_of_matrix(size_t matrix) const {
  if (matrix >= first_state) return optimizer_.states[matrix - first_state].name;
  return matrix == master ? kMaster : matrix == copy ? kCopy : kGradient;
}

std::vector<size_t> DeviceUpdate::state_matrices(const Bucket& bucket, bool with_copy) const {
  std::vector<size_t> all;
  if (has_master_weights(optimizer_, bucket.has_copy)) all.push_back(master);
  if (with_copy && bucket.has_copy) all.push_back(copy);
  for (size_t i = 0; i < optimizer_.states.size(); ++i) all.push_back(first_state + i);
  return all;
}

bool DeviceUpdate::is_whole(const Bucket& bucket, size_t matrix) const {
  return world_ == 1 || matrix == gradient || matrix == copy ||
         (matrix == master && !bucket.has_copy);
}

TensorView DeviceUpdate::own(const Bucket& bucket, size_t matrix) const {
  const int64_t first = is_whole(bucket, matrix) ? bucket.first_own : 0;
  return from(bucket.matrices[matrix].view(), first * kRowElements, bucket.own_rows, kRowElements);
}

TensorView DeviceUpdate::part(size_t matrix, size_t weight) const {
  const Part& p = parts_[weight];
  return from(buckets_[p.bucket].matrices[matrix].view(), p.first_row * kRowElements, p.rows,
              p.cols);
}

// This process's rows of a matrix to which each process contributes the same number of rows.
TensorView DeviceUpdate::own_numbers(const Tensor& of_all, int64_t rows) const {
  return from(of_all.view(), rank_ * rows * of_all.cols(), rows, of_all.cols());
}

struct DeviceUpdate::Prepared {
  Program program;
  DimValues sizes;
  Views* views;
  Launch* launch;
  bool has_copies = false;  // whether tensors not in the views are the session's
};

void DeviceUpdate::prepare(const Weights& weights, const std::vector<ParameterCopy>& copies) {
  int64_t groups = 0;  // per process
  std::vector<int64_t> first_group;
  for (const Bucket& bucket : buckets_) {
    first_group.push_back(groups);
    groups += bucket.own_rows / kGroup;
    if (buckets_.size() > 1 || world_ > 1) groups = round_up(groups, kGroupsAlign);
  }
  of_groups_ = Tensor(DType::f32, world_, groups, backend_);
  Views of_step{{"norm", norm_.view()},
                {"sound", is_finite_.view()},
                {"scale", scale_.view()},
                {"of_groups", of_groups_.view()},
                {"losses", own_numbers(reported_, kReported)}};
  const auto add_number = [&](const std::string& name, int64_t row) {
    of_step[name] = from(numbers_.view(), row * kNumberStride, 1, 1);
  };
  add_number(kDecay, 0);
  for (size_t i = 0; i < optimizer_.scalars.size(); ++i)
    add_number(optimizer_.scalars[i].name, static_cast<int64_t>(i) + 1);
  // One set of views for each bucket, for its rows without stored squares, and for the step.
  std::vector<Views> views(2 * buckets_.size() + 1, of_step);
  std::list<Views> of_rows;  // for some rows of a bucket
  std::vector<Prepared> all;
  const auto add = [&](const std::string& text, const DimValues& sizes, Views& its,
                       Launch& launch) {
    all.push_back({parse_program(text), sizes, &its, &launch});
    verify(all.back().program);
  };
  for (size_t i = 0; i < buckets_.size(); ++i) {
    Bucket& bucket = buckets_[i];
    Views& its = views[i];
    std::vector<size_t> matrices = state_matrices(bucket, true);
    matrices.push_back(gradient);
    for (const size_t matrix : matrices) its[name_of_matrix(matrix)] = own(bucket, matrix);
    const auto add_row_numbers = [&](const char* name, std::span<const float> of_all) {
      kept_.emplace_back(DType::f32, bucket.own_rows, 1, backend_)
          .set(of_all.subspan(static_cast<size_t>(bucket.first_own),
                              static_cast<size_t>(bucket.own_rows)));
      its[name] = kept_.back().view();
    };
    add_row_numbers("decays", bucket.decays);
    if (has_noise(optimizer_)) add_row_numbers(kNoiseRows, bucket.noise_rows);
    its["of_spans"] = bucket.of_spans.view();
    const int64_t own_groups = bucket.own_rows / kGroup;
    its["of_groups"] = from(of_groups_.view(), rank_ * groups + first_group[i], own_groups, 1);
    const DimValues sizes{
        {"R", bucket.own_rows}, {"C", kRowElements}, {"S", own_groups}, {"G", kGroup}};
    Views& rest = views[buckets_.size() + i];
    const int64_t first = bucket.squared_rows;
    const int64_t rows = bucket.own_rows - first;
    rest["gradient"] = from(its["gradient"], first * kRowElements, rows, kRowElements);
    rest["of_spans"] = from(its["of_spans"], first * kRowSpans, rows, kRowSpans);
    bucket.squares.resize(rows > 0 ? 3 : 2);
    Launch* launch = bucket.squares.data();
    if (rows > 0) add(kSquares, {{"R", rows}, {"C", kRowElements}}, rest, *launch++);
    add(kOfRows, sizes, its, *launch++);
    add(kOfGroups, sizes, its, *launch);
    if (bucket.together > 0) {
      Views& together = of_rows.emplace_back(its);
      const auto part = [&](const std::string& name, int64_t cols) {
        together[name] = from(its[name], bucket.first_shared * cols, bucket.together, cols);
      };
      for (const size_t matrix : matrices) part(name_of_matrix(matrix), kRowElements);
      part("decays", 1);
      if (has_noise(optimizer_)) part(kNoiseRows, 1);
      add(update_of_rows(optimizer_, bucket.has_copy),
          {{"R", bucket.together}, {"C", kRowElements}}, together, bucket.update);
    }
  }
  views.back()["loss"] = norm_.view();  // check_loss() selects the microbatch
  add(kLossCheck, {}, views.back(), loss_check_);
  loss_place_ = place_in(all.back().program, "loss");
  add(norm_text(clip_), {{"S", world_ * groups}, {"G", kGroup}}, views.back(), norm_launch_);

  const auto add_copy = [&](const ParameterCopy& its, bool is_with_update) {
    const auto found = std::ranges::find(weights, its.parameter, &WeightTensor::name);
    const auto i = static_cast<size_t>(found - weights.begin());
    Views& of_weight = of_rows.emplace_back(of_step);
    of_weight[its.parameter] = part(copy, i);
    if (is_with_update) {
      for (const size_t matrix : state_matrices(buckets_[parts_[i].bucket], false))
        of_weight[name_of_matrix(matrix)] = part(matrix, i);
      of_weight[kGradient] = part(gradient, i);
    }
    all.push_back({is_with_update ? update_with(its, *found, optimizer_) : its.program,
                   {},
                   &of_weight,
                   &buckets_[parts_[i].bucket].with_copies.emplace_back(),
                   true});
    verify(all.back().program);
  };
  for (const bool is_with_update : {true, false})
    for (const ParameterCopy& its : copies)
      if (is_updated_apart(its, world_, optimizer_) == is_with_update)
        add_copy(its, is_with_update);

  std::vector<AnnouncedProgram> announced;
  for (const Prepared& one : all) announced.push_back({&one.program, one.sizes});
  backend_.announce(announced, {});
  for (const Prepared& one : all) *one.launch = launch_of(one);
}

DeviceUpdate::Launch DeviceUpdate::launch_of(const Prepared& prepared) {
  const auto& [program, sizes, its_views, place, has_copies] = prepared;
  Views& views = *its_views;
  Launch launch{program.name, backend_.prepare(program, sizes), {}};
  for (const TensorDecl& decl : program.tensors) {
    const PhysicalShape shape = physical_shape(decl, sizes);
    const bool is_missing = has_copies && !views.contains(decl.name);
    launch.missing.push_back(is_missing ? decl.name : "");
    if (is_missing) {
      launch.tensors.emplace_back();
      continue;
    }
    if (!views.contains(decl.name)) {
      kept_.emplace_back(decl.dtype, shape.rows, shape.cols, backend_);
      views.emplace(decl.name, kept_.back().view());
    }
    // A tensor that one program uses as a vector may be a matrix in the next program.
    launch.tensors.push_back(from(views.at(decl.name), 0, shape.rows, shape.cols));
  }
  return launch;
}

void DeviceUpdate::bind(GradientSession& session) {
  session_ = &session;
  session.bind_squares(squares_);
  session.bind_weights(parameters_);
  for (Bucket& bucket : buckets_) {
    for (Launch& launch : bucket.with_copies) {
      for (size_t i = 0; i < launch.tensors.size(); ++i)
        if (!launch.missing[i].empty())
          launch.tensors[i] = session.session().view(launch.missing[i]);
    }
  }
}

void DeviceUpdate::start_microbatches() {
  if (microbatches_ > 1)
    for (const Bucket& bucket : buckets_)
      backend_.fill(bucket.matrices[gradient].view(), std::byte{0});
  backend_.fill(own_numbers(reported_, kReported), std::byte{0});
}

GradientSession::Overlapped DeviceUpdate::overlapped(bool is_first, bool is_last) {
  GradientSession::Overlapped work{.between = [this] { check_loss(); }};
  if (world_ > 1 && is_first) work.forward = [this](size_t step) { gather_before(step); };
  if (world_ > 1 && is_last) work.backward = [this](size_t step) { exchange_before(step); };
  return work;
}

void DeviceUpdate::check_loss() {
  loss_check_.tensors[loss_place_] = session_->loss().view();
  run(loss_check_);
}

std::function<StepReport()> DeviceUpdate::start_step(double rate, int64_t step, bool asks_to_stop) {
  if (communicator_ != nullptr) communicator_->announce("step " + std::to_string(step));
  if (copied_) std::exchange(copied_, nullptr)();
  auto* const numbers = reinterpret_cast<float*>(staged_[steps_++ % 2].get());
  const auto set = [&](int64_t row, double value) {
    numbers[row * kNumberStride] = static_cast<float>(value);
  };
  const int64_t stop = numbers_.rows();
  set(0, rate * optimizer_.decay);
  for (size_t i = 0; i < optimizer_.scalars.size(); ++i)
    set(static_cast<int64_t>(i) + 1, optimizer_.scalars[i].value(rate, step));
  set(stop, asks_to_stop ? 1 : 0);
  exchange("copy the step's numbers", [&] {
    backend_.start_copy_in(dense_view(numbers, DType::f32, stop, kNumberStride), numbers_.view());
    if (world_ == 1) return;
    TensorView asks = own_numbers(reported_, kReported);
    asks = from(asks, stop_request * kNumberStride, 1, kNumberStride);
    backend_.start_copy_in(dense_view(numbers + stop * kNumberStride, DType::f32, 1, kNumberStride),
                           asks);
  });
  is_gathered_ = std::ranges::all_of(
      buckets_, [](const Bucket& b) { return b.gather == ExchangePlan::kWithUpdate; });
  if (steps_ == 1 || profiler_ != nullptr) {
    update();
  } else {
    if (!recorded_) recorded_ = backend_.record([this] { update(); });
    recorded_();
  }
  return start_report(rate);
}

// Copies the numbers that all processes reported, and the norm, to the host.
std::function<StepReport()> DeviceUpdate::start_report(double rate) {
  const auto said = static_cast<size_t>(reported_.size());
  const BackendMemory memory =
      backend_.allocate_on_host((said + 1) * sizeof(float), "a step's losses");
  auto* const numbers = reinterpret_cast<float*>(memory.get());
  const auto bring = [&](const Tensor& tensor, size_t place) {
    exchange("copy the step's results", [&] {
      backend_.start_copy_out(
          tensor.view(), dense_view(numbers + place, DType::f32, tensor.rows(), tensor.cols()));
    });
  };
  bring(reported_, 0);
  bring(norm_, said);
  return [this, rate, memory, said, is_there = backend_.mark()] {
    is_there();
    const auto* const numbers = reinterpret_cast<const float*>(memory.get());
    StepReport report{.norm = numbers[said], .rate = rate};
    for (int rank = 0; rank < world_; ++rank) {
      const float* const its = numbers + kReported * kNumberStride * rank;
      report.loss += its[loss_sum * kNumberStride] / static_cast<double>(microbatches_ * world_);
      report.asks_to_stop |= its[stop_request * kNumberStride] != 0;
    }
    return report;
  };
}

void DeviceUpdate::run(const Launch& launch) const {
  run_profiled(profiler_, ProfileTrack::compute, launch.name,
               [&] { launch.kernel->run(launch.tensors); });
}

void DeviceUpdate::exchange(const char* what, const std::function<void()>& work) const {
  run_profiled(profiler_, ProfileTrack::transfers, what, work);
}

// When profiling, exchanges run in sequence with computation.
std::function<void()> DeviceUpdate::start_concurrently(const char* what,
                                                       const std::function<void()>& work) {
  if (profiler_ == nullptr) return communicator_->overlap(work);
  exchange(what, work);
  return [] {};
}

void DeviceUpdate::exchange_concurrently(const char* what, const std::function<void()>& work) {
  concurrent_.push_back(start_concurrently(what, work));
}

void DeviceUpdate::finish_exchanges() {
  for (const auto& wait : concurrent_) wait();
  concurrent_.clear();
}

void DeviceUpdate::add_up(const Bucket& bucket) {
  communicator_->reduce_scatter(bucket.matrices[gradient].view());
}

void DeviceUpdate::exchange_before(size_t step) {
  for (const Bucket& bucket : buckets_) {
    if (bucket.start != step) continue;
    exchange_concurrently(kAddUp, [&] { add_up(bucket); });
  }
  if (step == backward_steps_) finish_exchanges();
}

void DeviceUpdate::gather_weights(const Bucket& bucket) {
  communicator_->all_gather(bucket.matrices[bucket.has_copy ? copy : master].view());
}

// Weights that earlier steps read have already been gathered or started.
void DeviceUpdate::gather_before(size_t step) {
  for (Bucket& bucket : buckets_) {
    if (bucket.read != step || !bucket.wait) continue;
    std::exchange(bucket.wait, nullptr)();
    make_copies(bucket);
  }
  for (Bucket& bucket : std::views::reverse(buckets_))
    if (bucket.gather == step)
      bucket.wait = start_concurrently(kGather, [&] { gather_weights(bucket); });
}

void DeviceUpdate::gather_weights() {
  if (is_gathered_) return;
  is_gathered_ = true;
  for (const Bucket& bucket : buckets_) {
    if (bucket.gather == ExchangePlan::kWithUpdate) continue;
    exchange(kGather, [&] { gather_weights(bucket); });
    make_copies(bucket);
  }
}

void DeviceUpdate::make_copies(const Bucket& bucket) const {
  for (const Launch& launch : bucket.with_copies) run(launch);
}

void DeviceUpdate::update() {
  for (Bucket& bucket : buckets_) {
    if (world_ > 1 && bucket.start == ExchangePlan::kBehind)
      exchange(kAddUp, [&] { add_up(bucket); });
    for (const Launch& launch : bucket.squares) run(launch);
  }
  if (world_ > 1) {
    exchange("all_gather squares", [&] { communicator_->all_gather(of_groups_.view()); });
    exchange("all_gather losses", [&] { communicator_->all_gather(reported_.view()); });
  }
  run(norm_launch_);
  if (EightBitScales* scales = session_->scales(); scales != nullptr) {
    scales->finish_step(is_finite_);
    scales->start_copies();
  }
  // In a model with a tied head, the gradient that the backward completes last is the largest. It
  // is updated first, so that its gathering overlaps with the updates of the other shards.
  for (const Bucket& bucket : std::views::reverse(buckets_)) {
    if (bucket.together > 0) run(bucket.update);
    if (world_ > 1 && bucket.gather == ExchangePlan::kWithUpdate)
      exchange_concurrently(kGather, [&] { gather_weights(bucket); });
  }
  finish_exchanges();
  for (const Bucket& bucket : buckets_)
    if (bucket.gather == ExchangePlan::kWithUpdate) make_copies(bucket);
}

}  // namespace coda
