// SPDX-License-Identifier: Apache-2.0
// The words of the meeting's protocol, spoken by hand: what a test needs to be a stranger, or a
// process that misbehaves once it is admitted.
#pragma once

#include <optional>
#include <string>

#include "coda/version.h"
#include "collective/proof.h"
#include "collective/socket.h"

namespace coda {

struct Claim {
  int rank = 1;
  int world = 2;
  std::string secret = {};
  std::string version = std::string(coda::version());
  std::string kind = "CPU";
  std::string has_secret = secret.empty() ? "without" : "with a secret";
  std::string nonce = "a number of the claimant's";
  std::string heard = {};  // the number that the proof is for; empty: the one that is given
};

inline Deadline soon() { return in(std::chrono::seconds(20)); }

struct Spoken {
  Socket socket;
  Inbox inbox;
  std::optional<Message> answer;
};

// Connects, and says with letter 'H' or 'D' what is claimed.
inline Spoken claim(int port, char letter, const Claim& c) {
  Spoken spoken;
  spoken.socket = connect_until("127.0.0.1", port, soon());
  const auto challenge = receive_until(spoken.socket, spoken.inbox, soon());
  if (!challenge) return spoken;
  const std::string given = challenge->text.substr(challenge->text.find('\n') + 1);
  const std::string nonce = c.heard.empty() ? given : c.heard;
  const std::string text = c.nonce + "\n" + std::to_string(c.rank) + "\n" +
                           std::to_string(c.world) + "\n" + c.version + "\n" + c.has_secret +
                           "\nsomewhere\n" + c.kind + "\n";
  const std::string proof = keyed_hash(c.secret, std::string(1, letter) + nonce + text);
  send_message(spoken.socket, {letter, "coda 2\n" + proof + "\n" + text});
  spoken.answer = receive_until(spoken.socket, spoken.inbox, soon());
  return spoken;
}

}  // namespace coda
