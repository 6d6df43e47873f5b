// SPDX-License-Identifier: Apache-2.0
#include "collective/mpi_communicator.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "coda/error.h"
#include "collective/exchange_log.h"
#include "collective/meeting.h"
#include "collective/mpi_api.h"
#include "collective/rendezvous.h"

namespace coda {
namespace {

constexpr int64_t kPiece = 1 << 18;  // floats that travel at once: of each block in turn

void check(int result, const char* what) {
  require(result == 0, std::string("MPI: ") + what + " failed (" + std::to_string(result) + ")");
}

class MpiCommunicator : public Communicator {
 public:
  explicit MpiCommunicator(const ProcessPlace& given) {
    int is_initialized = 0;
    check(mpi().initialized(&is_initialized), "MPI_Initialized");
    constexpr int kOneThread = 1;  // of several calls MPI
    int provided = 0;
    if (is_initialized == 0) {
      check(mpi().init_thread(nullptr, nullptr, kOneThread, &provided), "MPI_Init_thread");
      is_ours_ = true;
    }
    check(mpi().comm_rank(mpi().comm_world, &rank_), "MPI_Comm_rank");
    check(mpi().comm_size(mpi().comm_world, &world_), "MPI_Comm_size");
    require(rank_ == given.rank && world_ == given.world,
            "this process is rank " + std::to_string(given.rank) + " of " +
                std::to_string(given.world) + ", but to MPI rank " + std::to_string(rank_) +
                " of " + std::to_string(world_) +
                ": on CPUs start the processes with coda train --processes, or with mpirun "
                "(torchrun starts no MPI)");
    meet(given);
  }
  ~MpiCommunicator() override {
    const bool may_wait = std::uncaught_exceptions() == 0;  // for the others
    rendezvous_.reset();
    if (is_ours_ && may_wait) mpi().finalize();
  }

  int rank() const override { return rank_; }
  int world() const override { return world_; }

  void reduce_scatter(const TensorView& blocks) override {
    require_blocks(blocks);
    invariant(blocks.dtype == DType::f32, "reduce_scatter is for fp32");
    const int tag = announced("reduce_scatter", blocks);
    const int64_t block = blocks.size() / world_;
    auto* const values = static_cast<float*>(blocks.data);
    received_.resize(static_cast<size_t>(world_) * kPiece);
    for (int64_t begin = 0; begin < block; begin += kPiece) {
      const int64_t count = std::min(kPiece, block - begin);
      const int64_t bytes = count * static_cast<int64_t>(sizeof(float));
      for (int step = 1; step < world_; ++step) {
        const int to = (rank_ + step) % world_;
        const int from = (rank_ - step + world_) % world_;
        exchange(values + to * block + begin, to, place_of(from), from, bytes, tag);
      }
      float* const own = values + rank_ * block + begin;
      std::memcpy(place_of(rank_), own, static_cast<size_t>(bytes));
      std::memcpy(own, place_of(0), static_cast<size_t>(bytes));
      for (int from = 1; from < world_; ++from)
        for (int64_t i = 0; i < count; ++i) own[i] += place_of(from)[i];
    }
  }

  void all_gather(const TensorView& blocks) override {
    require_blocks(blocks);
    gather(blocks, announced("all_gather", blocks));
  }

  void maximum(const TensorView& values) override {
    invariant(values.dtype == DType::f32 && values.is_contiguous(), "maximum is for dense fp32");
    const int tag = announced("maximum", values);
    const auto count = static_cast<size_t>(values.size());
    std::vector<float> all(count * static_cast<size_t>(world_));
    auto* const own = static_cast<float*>(values.data);
    std::copy_n(own, count, all.begin() + static_cast<std::ptrdiff_t>(count) * rank_);
    gather(dense_view(all.data(), DType::f32, world_, values.size()), tag);
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

 private:
  float* place_of(int from) { return received_.data() + from * kPiece; }

  void require_blocks(const TensorView& blocks) const {
    invariant(blocks.is_contiguous() && blocks.rows % world_ == 0,
              "blocks of processes are dense and of whole rows");
  }

  // The tag of the messages of an exchange, which has its number: what others send for another
  // exchange is not taken for this one's, and the announcements tell that they differ.
  int announced(const std::string& name, const TensorView& values) {
    const std::string what = exchange_text(name, values);
    constexpr uint64_t kTags = 32749;  // MPI has 32767 at least
    const uint64_t number = static_cast<uint64_t>(rendezvous_->announce(what));
    return static_cast<int>((number * 31 + std::hash<std::string>()(what) % kTags) % kTags);
  }

  void exchange(const void* sent, int to, void* received, int from, int64_t bytes, int tag) const {
    const auto count = static_cast<int>(bytes);
    check(mpi().sendrecv(sent, count, mpi().byte, to, tag, received, count, mpi().byte, from, tag,
                         mpi().comm_world, nullptr),
          "MPI_Sendrecv");
  }

  void gather(const TensorView& blocks, int tag) const {
    const int64_t block = blocks.size() / world_ * size_of(blocks.dtype);
    auto* const bytes = static_cast<std::byte*>(blocks.data);
    constexpr int64_t kMost = 1 << 30;  // MPI counts as int
    for (int64_t begin = 0; begin < block; begin += kMost) {
      for (int step = 1; step < world_; ++step) {
        const int to = (rank_ + step) % world_;
        const int from = (rank_ - step + world_) % world_;
        exchange(bytes + rank_ * block + begin, to, bytes + from * block + begin, from,
                 std::min(kMost, block - begin), tag);
      }
    }
  }

  // Where rank 0 listens and the secret, MPI tells the others.
  void meet(const ProcessPlace& given) {
    ProcessPlace place = given;
    struct {
      int port = 0;
      char address[256] = {};
      char secret[256] = {};
    } said;
    Socket listening;
    if (rank_ == 0) {
      if (place.address.empty()) place.address = reachable_address();
      if (place.secret.empty()) place.secret = random_secret();
      place.port = 0;
      listening = listen_for_others(place);
      said.port = port_of(listening);
      std::snprintf(said.address, sizeof said.address, "%s", own_address(listening).c_str());
      std::snprintf(said.secret, sizeof said.secret, "%s", place.secret.c_str());
    }
    check(mpi().bcast(&said, sizeof said, mpi().byte, 0, mpi().comm_world), "MPI_Bcast");
    place.port = said.port;
    place.address = said.address;
    if (given.secret.empty()) place.secret = said.secret;
    rendezvous_.emplace(place, std::move(listening), "CPUs", "");
  }

  int rank_ = 0;
  int world_ = 1;
  bool is_ours_ = false;
  std::optional<Rendezvous> rendezvous_;
  std::vector<float> received_;  // a piece of each rank
};

}  // namespace

std::unique_ptr<Communicator> join_over_mpi(const ProcessPlace& place) {
  return std::make_unique<MpiCommunicator>(place);
}

}  // namespace coda
