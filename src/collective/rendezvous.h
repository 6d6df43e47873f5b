// SPDX-License-Identifier: Apache-2.0
// What processes that train together have beside their collectives: a TCP connection of each to
// rank 0 from the start to the end. A collective cannot tell that a process has died (NCCL's wait
// for ever), but its connection closes: at once where the process ends, within 25 seconds where its
// machine does. Over it each also says twice a second that it is alive, and what it is about to
// exchange, so that one that is stopped, or out of step, is noticed. A second connection of each
// carries many bytes to rank 0.
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
  // Returns once all processes are there. `kind` is what this process has and all must have alike,
  // for people ("NVIDIA H200"); `token` is rank 0's, for all. Throws Error in rank 0, and ends the
  // others that are there, if some do not come within the place's patience (it names them) or the
  // kinds differ. Rank 0 listens with `listening` (listen_for_others).
  Rendezvous(const ProcessPlace& place, Socket listening, const std::string& kind,
             const std::string& token);
  // Leaves, rank 0 first: the others wait for it. While an exception unwinds the stack it is as if
  // the process ended.
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  const std::string& token() const;  // rank 0's
  // See Communicator. announce() gives the number of what it announces: 1, 2, ...; it does not
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
