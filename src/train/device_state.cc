// SPDX-License-Identifier: Apache-2.0
// Transfers the state of a DeviceUpdate to the host and back, for checkpoints.
#include <algorithm>
#include <exception>
#include <utility>

#include "coda/error.h"
#include "coda/float16.h"
#include "train/device_update.h"
#include "train/update_programs.h"

namespace coda {
namespace {

size_t bytes_of(const TensorView& dense) {
  return static_cast<size_t>(dense.size() * size_of(dense.dtype));
}

// For dense fp32 or bf16 on the host.
void widen(const TensorView& from, float* to) {
  const int64_t count = from.size();
  if (from.dtype == DType::f32) {
    std::copy_n(static_cast<const float*>(from.data), count, to);
  } else {
    const auto* const halves = static_cast<const uint16_t*>(from.data);
    std::transform(halves, halves + count, to, float_from_bf16);
  }
}

// The first caller of the result does the work; others wait for it.
std::function<void()> once(const std::function<void()>& work) {
  const std::shared_future<void> done = std::async(std::launch::deferred, work).share();
  return [done] { done.get(); };
}

}  // namespace

DeviceUpdate::Held DeviceUpdate::held(size_t matrix, size_t weight, int rank) const {
  const Part& p = parts_[weight];
  const Bucket& bucket = buckets_[p.bucket];
  const bool whole = is_whole(bucket, matrix);
  const int64_t start = p.first_row * UpdateRows::kElements;
  const int64_t first = whole ? 0 : bucket.own_rows * rank * UpdateRows::kElements;
  const int64_t end = first + (whole ? bucket.rows : bucket.own_rows) * UpdateRows::kElements;
  const int64_t begin = std::max(start, first);
  const int64_t count = std::min(start + p.rows * p.cols, end) - begin;
  if (count <= 0) return {};
  return {begin - start, count, begin - first};
}

void DeviceUpdate::upload(Weights& weights, std::vector<ParameterState>& states) {
  finish_download();
  for (size_t i = 0; i < weights.size(); ++i) {
    WeightTensor& w = weights[i];
    const auto put = [&](size_t matrix, auto& values, DType dtype) {
      const Held part = held(matrix, i, rank_);
      if (part.count == 0) return;
      const TensorView place =
          from(buckets_[parts_[i].bucket].matrices[matrix].view(), part.place, 1, part.count);
      if (values.empty()) return backend_.fill(place, std::byte{0});
      const TensorView given = dense_view(values.data() + part.first, dtype, 1, part.count);
      if (place.dtype == dtype) return backend_.copy_in(given, place);
      Tensor rounded(place.dtype, 1, part.count);
      rounded.set(
          std::span(static_cast<const float*>(given.data), static_cast<size_t>(part.count)));
      backend_.copy_in(rounded.view(), place);
    };
    if (has_master_weights(optimizer_, !w.bf16.empty())) put(master, w.values, DType::f32);
    for (size_t k = 0; k < optimizer_.states.size(); ++k)
      put(first_state + k, states[i][optimizer_.states[k].name], DType::f32);
    if (!w.bf16.empty()) put(copy, w.bf16, DType::bf16);
  }
  is_gathered_ = true;
}

std::vector<DeviceUpdate::Share> DeviceUpdate::shares() const {
  std::vector<Share> all;
  for (size_t i = 0; i < buckets_.size(); ++i)
    for (const size_t matrix : state_matrices(buckets_[i], false))
      if (!is_whole(buckets_[i], matrix)) all.push_back({matrix, i, own(buckets_[i], matrix)});
  return all;
}

// Rank 0 copies its own part to the host and then receives the shares of the others.
std::function<void()> DeviceUpdate::start_download(Weights& weights,
                                                   std::vector<ParameterState>& states) {
  finish_download();
  if (communicator_ != nullptr) communicator_->announce("fetching the state");
  gather_weights();
  if (rank_ > 0) return start_sending();
  std::vector<Backend::CopyOut> copies;
  // Convert states and weights that are stored in 16 bits to fp32.
  std::vector<std::function<void()>> widenings;
  std::vector<Fields> fields;
  for (size_t i = 0; i < weights.size(); ++i) {
    WeightTensor& w = weights[i];
    make_state(optimizer_, w, states[i]);
    Fields& its_fields = fields.emplace_back();
    its_fields[master] = w.values.data();
    for (size_t k = 0; k < optimizer_.states.size(); ++k)
      its_fields[first_state + k] = states[i].find(optimizer_.states[k].name)->second.data();
    if (!w.bf16.empty()) {
      const TensorView halves = dense_view(w.bf16.data(), DType::bf16, w.rows, w.cols);
      copies.push_back({part(copy, i), halves});
      if (!has_master_weights(optimizer_, true))
        widenings.emplace_back([halves, values = w.values.data()] { widen(halves, values); });
    }
    for (const size_t matrix : state_matrices(buckets_[parts_[i].bucket], false)) {
      const Held its = held(matrix, i, 0);
      if (its.count == 0) continue;
      const TensorView place =
          from(buckets_[parts_[i].bucket].matrices[matrix].view(), its.place, 1, its.count);
      float* const wanted = its_fields.at(matrix) + its.first;
      if (place.dtype == DType::f32) {
        copies.push_back({place, dense_view(wanted, DType::f32, 1, its.count)});
        continue;
      }
      const Tensor stored(place.dtype, 1, its.count);
      copies.push_back({place, stored.view()});
      widenings.emplace_back([stored, wanted] { widen(stored.view(), wanted); });
    }
  }
  copied_ = once(backend_.copy_out_concurrently(copies));
  downloaded_ = once([this, widenings, fields, copied = copied_] {
    copied();
    for (const auto& one : widenings) one();
    receive_shares(fields);
  });
  return downloaded_;
}

// Receives the shares of the other processes into the host memory in `fields`.
void DeviceUpdate::receive_shares(std::span<const Fields> fields) const {
  const std::vector<Share> all = shares();
  size_t most = 0;
  for (const Share& share : all) most = std::max(most, bytes_of(share.place));
  const AlignedBuffer received(most);
  for (int rank = 1; rank < world_; ++rank) {
    for (const Share& share : all) {
      communicator_->receive_from(rank, {received.data(), bytes_of(share.place)});
      const TensorView matrix =
          dense_view(received.data(), share.place.dtype, share.place.rows, share.place.cols);
      for (size_t i = 0; i < fields.size(); ++i) {
        if (parts_[i].bucket != share.bucket) continue;
        const Held its = held(share.matrix, i, rank);
        widen(from(matrix, its.place, 1, its.count), fields[i].at(share.matrix) + its.first);
      }
    }
  }
}

// The result does not wait for rank 0, which may take a while.
std::function<void()> DeviceUpdate::start_sending() {
  const std::vector<Share> all = shares();
  if (sent_from_.empty())
    for (const Share& share : all) sent_from_.emplace_back(bytes_of(share.place));
  std::vector<Backend::CopyOut> copies;
  for (size_t i = 0; i < all.size(); ++i) {
    const TensorView& place = all[i].place;
    copies.push_back(
        {place, dense_view(sent_from_[i].data(), place.dtype, place.rows, place.cols)});
  }
  copied_ = once(backend_.copy_out_concurrently(copies));
  const auto send = [this, copied = copied_, stop = gives_up_.get_token()] {
    copied();
    for (const AlignedBuffer& share : sent_from_)
      communicator_->send_to_first({share.data(), share.bytes()}, stop);
  };
  const std::shared_future<void> sent = std::async(std::launch::async, send).share();
  downloaded_ = [sent] { sent.get(); };
  return copied_;
}

void DeviceUpdate::finish_download() {
  copied_ = nullptr;
  if (downloaded_) std::exchange(downloaded_, nullptr)();
}

// During stack unwinding, rank 0 may never take what is sent.
DeviceUpdate::~DeviceUpdate() {
  if (std::uncaught_exceptions() > 0) gives_up_.request_stop();
  try {
    finish_download();
  } catch (const Error&) {  // already reported to its caller
  }
}

}  // namespace coda
