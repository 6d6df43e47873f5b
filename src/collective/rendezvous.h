// SPDX-License-Identifier: Apache-2.0
// A TCP connection from each process to rank 0 for the whole run, in addition to the collectives. A
// collective cannot detect that a process has died (NCCL waits forever), but the connection closes:
// at once if the process ends, within 25 seconds if its machine fails. Over it each process also
// reports twice a second that it is alive, and what it is about to exchange, so that stopped
// processes and processes out of step are noticed. A second connection of each process carries bulk
// data to rank 0.
#pragma once

#include <memory>
#include <span>
#include <stop_token>
#include <string>

#include "coda/communicator.h"
#include "collective/socket.h"

namespace coda {

class Rendezvous {
 public:
  // Returns when all processes have arrived. `kind` is a description of the device that must be
  // equal in all processes ("NVIDIA H200"); rank 0's `token` is distributed to all. If some
  // processes do not arrive within the place's patience (the message names them) or kinds differ,
  // throws Error in rank 0 and ends the others. Rank 0 listens with `listening`
  // (listen_for_others).
  Rendezvous(const ProcessPlace& place, Socket listening, const std::string& kind,
             const std::string& token);
  // Leaves; the other ranks wait until rank 0 has left. During stack unwinding it acts as if the
  // process had died.
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  const std::string& token() const;  // rank 0's
  // See Communicator. announce() returns the number of the announcement (1, 2, ...) and does not
  // wait.
  int64_t announce(const std::string& what);
  void require_same(const Settings& settings);
  void fail(const std::string& message);
  void set_remedy(const std::string& remedy);
  void send_to_first(std::span<const std::byte> bytes, const std::stop_token& stop);
  void receive_from(int rank, std::span<std::byte> bytes);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace coda
