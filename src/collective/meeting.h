// SPDX-License-Identifier: Apache-2.0
// The meeting of processes at the start: each connects to rank 0, proves that it knows the secret,
// identifies itself, and is welcomed when all have arrived. Other connections are rejected and
// reported. They delay nobody, because rank 0 serves all connections concurrently until one common
// deadline.
#pragma once

#include <string>
#include <vector>

#include "coda/communicator.h"
#include "collective/socket.h"

namespace coda {

// Another process as rank 0 knows it, or rank 0 as the others know it.
struct Peer {
  int rank = 0;
  std::string host;
  std::string version;  // of coda
  std::string kind;     // for people: the device, "NVIDIA H200"
  Socket socket;        // for messages
  Inbox inbox;
  Socket data;  // for bulk data to rank 0
};

struct Met {
  std::vector<Peer> peers;
  std::string token;  // chosen by rank 0
};

// The socket at which rank 0 listens. Throws Error if the address is not on this machine, if the
// port is taken, or if other machines could connect without a secret. Prints a notice if other
// users of this machine could.
Socket listen_for_others(const ProcessPlace& place);

// "rank 1 of 4 (node7)".
std::string name_of(const Peer& peer, int world);

// Rank 0's part of the meeting. Throws Error if a rank does not arrive before the deadline (the
// message names the rank), or has another version or kind of device. Before the throw, rank 0 sends
// the error to the ranks that have arrived.
Met gather_others(const ProcessPlace& place, const Socket& listening, const std::string& kind,
                  const std::string& token);
// The part of the other processes. Throws Error if rank 0 cannot be reached, rejects this process,
// or does not know the secret. Ends the process silently if rank 0 has ended and printed why.
Met come_to_first(const ProcessPlace& place, const std::string& kind);

// Ends the process with exit status 1 without running destructors, because other threads may wait
// in a collective forever.
[[noreturn]] void end_process();
// Prints a line on the standard error.
void print_line(const std::string& message);

}  // namespace coda
