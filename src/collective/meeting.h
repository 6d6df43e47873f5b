// SPDX-License-Identifier: Apache-2.0
// How processes meet: each comes to rank 0, proves that it knows the secret, says who it is, and is
// welcomed once all are there. Whoever else comes is turned away and named, and holds up nobody:
// rank 0 hears all side by side, until one deadline.
#pragma once

#include <string>
#include <vector>

#include "coda/communicator.h"
#include "collective/socket.h"

namespace coda {

// One of the others, as rank 0 knows it; or rank 0, as the others do.
struct Peer {
  int rank = 0;
  std::string host;
  std::string version;  // of coda
  std::string kind;     // what it has, for people: "NVIDIA H200"
  Socket socket;        // for messages
  Inbox inbox;
  Socket data;  // for many bytes, to rank 0
};

struct Met {
  std::vector<Peer> peers;
  std::string token;  // rank 0's
};

// Where rank 0 listens for the others. Throws Error where the place is not this machine's, the port
// is taken, or others than this machine would reach it without having to know a secret; prints a
// notice where this machine's would.
Socket listen_for_others(const ProcessPlace& place);

// "rank 1 of 4 (node7)".
std::string name_of(const Peer& peer, int world);

// Rank 0's part of the meeting. Throws Error if a rank does not arrive before the deadline (the
// message names the rank), or has another version or kind of device. Before the throw, rank 0 sends
// the error to the ranks that have arrived.
Met gather_others(const ProcessPlace& place, const Socket& listening, const std::string& kind,
                  const std::string& token);
// The others'. Throws Error where rank 0 is not reached, turns this process away, or does not know
// the secret. Ends the process without a word where rank 0 has ended and said why.
Met come_to_first(const ProcessPlace& place, const std::string& kind);

// Ends the process with exit status 1, and destroys nothing: other threads may wait in a collective
// for ever.
[[noreturn]] void end_process();
// A line on the standard errors.
void print_line(const std::string& message);

}  // namespace coda
