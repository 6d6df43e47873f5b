// SPDX-License-Identifier: Apache-2.0
// A communicator for tensors in host memory, independent of how bytes are transported. Sums are
// computed in the order of the ranks, so their bits do not depend on the size of transfers or on
// the transport.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "coda/communicator.h"
#include "coda/error.h"
#include "collective/exchange_log.h"
#include "collective/rendezvous.h"

namespace coda {

class HostCommunicator : public Communicator {
 public:
  int rank() const override { return rank_; }
  int world() const override { return world_; }

  void reduce_scatter(const TensorView& blocks) override {
    require_blocks(blocks);
    invariant(blocks.dtype == DType::f32, "reduce_scatter is for fp32");
    start(announced("reduce_scatter", blocks));
    add_up(static_cast<float*>(blocks.data), blocks.size() / world_);
  }

  void all_gather(const TensorView& blocks) override {
    require_blocks(blocks);
    start(announced("all_gather", blocks));
    gather(static_cast<std::byte*>(blocks.data), bytes_of(blocks) / world_);
  }

  void maximum(const TensorView& values) override {
    invariant(values.dtype == DType::f32 && values.is_contiguous(), "maximum is for dense fp32");
    start(announced("maximum", values));
    const auto count = static_cast<size_t>(values.size());
    std::vector<float> all(count * static_cast<size_t>(world_));
    auto* const own = static_cast<float*>(values.data);
    std::copy_n(own, count, all.begin() + static_cast<std::ptrdiff_t>(count) * rank_);
    gather(reinterpret_cast<std::byte*>(all.data()), bytes_of(values));
    for (size_t i = 0; i < all.size(); ++i)
      own[i % count] = i < count ? all[i] : std::max(own[i % count], all[i]);
  }

  void require_same(const Settings& settings) override { rendezvous_->require_same(settings); }
  void announce(const std::string& what) override { rendezvous_->announce(what); }
  void send_to_first(std::span<const std::byte> bytes, const std::stop_token& stop) override {
    rendezvous_->send_to_first(bytes, stop);
  }
  void receive_from(int rank, std::span<std::byte> bytes) override {
    rendezvous_->receive_from(rank, bytes);
  }
  void fail(const std::string& message) override { rendezvous_->fail(message); }
  void set_remedy(const std::string& remedy) override { rendezvous_->set_remedy(remedy); }

 protected:
  // Starts an exchange with a number that differs between exchanges. If the numbers of processes
  // differ, they must not continue; the announcements then end the run.
  virtual void start(int number) = 0;
  // Adds up block `rank` over all processes; each block has `block` elements.
  virtual void add_up(float* values, int64_t block) = 0;
  // Block r becomes what block r is in process r; each block has `bytes` bytes.
  virtual void gather(std::byte* blocks, int64_t bytes) = 0;

  int rank_ = 0;
  int world_ = 1;
  std::optional<Rendezvous> rendezvous_;

 private:
  static int64_t bytes_of(const TensorView& dense) { return dense.size() * size_of(dense.dtype); }

  void require_blocks(const TensorView& blocks) const {
    invariant(blocks.is_contiguous() && blocks.rows % world_ == 0,
              "blocks of processes are dense and of whole rows");
  }

  int announced(const std::string& name, const TensorView& values) {
    const std::string what = exchange_text(name, values);
    constexpr uint64_t kNumbers = 32749;  // as many as MPI has tags
    const auto count = static_cast<uint64_t>(rendezvous_->announce(what));
    return static_cast<int>((count * 31 + std::hash<std::string>()(what) % kNumbers) % kNumbers);
  }
};

}  // namespace coda
