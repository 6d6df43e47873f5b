// SPDX-License-Identifier: Apache-2.0
// Sums blocks in pieces, so that the receive buffer is small.
#include "collective/mpi_communicator.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "coda/error.h"
#include "collective/host_communicator.h"
#include "collective/meeting.h"
#include "collective/mpi_api.h"

namespace coda {
namespace {

constexpr int64_t kPiece = 1 << 18;  // floats per transfer, of each block in turn

void check(int result, const char* what) {
  require(result == 0, std::string("MPI: ") + what + " failed (" + std::to_string(result) + ")");
}

class MpiCommunicator : public HostCommunicator {
 public:
  explicit MpiCommunicator(const ProcessPlace& given) {
    int is_initialized = 0;
    check(mpi().initialized(&is_initialized), "MPI_Initialized");
    constexpr int kOneThread = 1;  // only one thread calls MPI
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

 private:
  // Messages of another exchange are not mistaken for those of this one.
  void start(int number) override { tag_ = number; }

  void add_up(float* values, int64_t block) override {
    received_.resize(static_cast<size_t>(world_) * kPiece);
    for (int64_t begin = 0; begin < block; begin += kPiece) {
      const int64_t count = std::min(kPiece, block - begin);
      const int64_t bytes = count * static_cast<int64_t>(sizeof(float));
      for (int step = 1; step < world_; ++step) {
        const int to = (rank_ + step) % world_;
        const int from = (rank_ - step + world_) % world_;
        exchange(values + to * block + begin, to, place_of(from), from, bytes);
      }
      float* const own = values + rank_ * block + begin;
      std::memcpy(place_of(rank_), own, static_cast<size_t>(bytes));
      std::memcpy(own, place_of(0), static_cast<size_t>(bytes));
      for (int from = 1; from < world_; ++from)
        for (int64_t i = 0; i < count; ++i) own[i] += place_of(from)[i];
    }
  }

  void gather(std::byte* blocks, int64_t bytes) override {
    constexpr int64_t kMost = 1 << 30;  // MPI counts as int
    for (int64_t begin = 0; begin < bytes; begin += kMost) {
      for (int step = 1; step < world_; ++step) {
        const int to = (rank_ + step) % world_;
        const int from = (rank_ - step + world_) % world_;
        exchange(blocks + rank_ * bytes + begin, to, blocks + from * bytes + begin, from,
                 std::min(kMost, bytes - begin));
      }
    }
  }

  float* place_of(int from) { return received_.data() + from * kPiece; }

  void exchange(const void* sent, int to, void* received, int from, int64_t bytes) const {
    const auto count = static_cast<int>(bytes);
    check(mpi().sendrecv(sent, count, mpi().byte, to, tag_, received, count, mpi().byte, from, tag_,
                         mpi().comm_world, nullptr),
          "MPI_Sendrecv");
  }

  // MPI distributes rank 0's address and the secret.
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

  bool is_ours_ = false;
  int tag_ = 0;
  std::vector<float> received_;  // a piece from each rank
};

}  // namespace

std::unique_ptr<Communicator> join_over_mpi(const ProcessPlace& place) {
  return std::make_unique<MpiCommunicator>(place);
}

}  // namespace coda
