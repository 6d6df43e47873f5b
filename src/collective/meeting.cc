// SPDX-License-Identifier: Apache-2.0
// The protocol. Rank 0 sends each connection a number that is used once ('C'). The other process
// answers with its identity and a keyed hash of the number and the identity ('H'; 'D' on a second
// connection for bulk data). Rank 0 admits it ('A') or rejects it with a reason ('N'). When all
// have arrived, each gets rank 0's token and a keyed hash of the token and of a number that the
// process chose ('W'), so that no process accepts a token from a stranger. 'Q' ends an admitted
// process; rank 0 prints the reason.
#include "collective/meeting.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <sstream>
#include <thread>

#include "coda/error.h"
#include "coda/messages.h"
#include "coda/version.h"
#include "collective/proof.h"

namespace coda {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr const char* kGreeting = "coda 2";  // a number for each protocol
constexpr size_t kLongestHello = 4096;
constexpr size_t kMostGuests = 256;  // connections that have not sent their identity
constexpr auto kGuestPatience = 10s;
constexpr int kMostNotices = 8;

// The identity that a process sends.
struct Hello {
  std::string nonce;  // a number for rank 0's keyed hash
  int rank = -1;
  int world = 0;
  std::string version;
  std::string has_secret;  // "with a secret" or "without"
  std::string host;
  std::string kind;
};

std::string secret_text(const ProcessPlace& place) {
  return place.secret.empty() ? "without" : "with a secret";
}

std::string text_of(const Hello& hello) {
  std::ostringstream text;
  text << hello.nonce << '\n'
       << hello.rank << '\n'
       << hello.world << '\n'
       << hello.version << '\n'
       << hello.has_secret << '\n'
       << hello.host << '\n'
       << hello.kind << '\n';
  return text.str();
}

std::optional<Hello> hello_of(const std::string& written) {
  std::istringstream text(written);
  Hello hello;
  std::getline(text, hello.nonce);
  text >> hello.rank >> hello.world >> std::ws;
  for (std::string* line : {&hello.version, &hello.has_secret, &hello.host, &hello.kind})
    std::getline(text, *line);
  if (!text) return std::nullopt;
  return hello;
}

std::string proof_of(const std::string& secret, char letter, const std::string& nonce,
                     const std::string& text) {
  return keyed_hash(secret, std::string(1, letter) + nonce + text);
}

// The text after the greeting line; none if the greeting is missing.
std::optional<std::string> behind_greeting(const std::string& text) {
  const std::string start = std::string(kGreeting) + "\n";
  if (!text.starts_with(start)) return std::nullopt;
  return text.substr(start.size());
}

class Reception {
 public:
  Reception(const ProcessPlace& place, const Socket& listening, const std::string& kind)
      : place_(place), listening_(listening), kind_(kind), deadline_(in(seconds_of(place))) {}

  Met gather(const std::string& token) {
    try {
      while (!are_all_there()) {
        require(Clock::now() < deadline_, missing_text());
        wait();
        accept();
        std::erase_if(guests_, [this](Guest& guest) { return !keeps(guest); });
        std::erase_if(met_, [](const Admitted& one) { return has_gone(one.peer.socket); });
      }
      require_alike();
    } catch (...) {
      for (const Admitted& one : met_) send_message(one.peer.socket, {'Q', ""});
      for (const Guest& guest : guests_) send_message(guest.socket, {'Q', ""});
      throw;
    }
    Met met{{}, token};
    for (Admitted& one : met_) {
      send_message(one.peer.socket,
                   {'W', proof_of(place_.secret, 'W', one.nonce, token) + "\n" + token});
      met.peers.push_back(std::move(one.peer));
    }
    std::ranges::sort(met.peers, {}, &Peer::rank);
    return met;
  }

 private:
  // A connection that has not sent its identity yet.
  struct Guest {
    Socket socket;
    std::string from;
    std::string nonce;
    Deadline patience;
    Inbox inbox{kLongestHello};
  };
  struct Admitted {
    Peer peer;
    std::string nonce;
  };

  static std::chrono::duration<double> seconds_of(const ProcessPlace& place) {
    return std::chrono::duration<double>(place.patience);
  }

  bool are_all_there() const {
    return std::ssize(met_) == place_.world - 1 &&
           std::ranges::all_of(met_, [](const Admitted& one) { return one.peer.data.is_open(); });
  }

  // Waits until there is a new connection, data or a closed connection, or until a deadline.
  void wait() const {
    Deadline until = deadline_;
    std::vector<pollfd> waiting{{listening_.descriptor(), POLLIN, 0}};
    for (const Guest& guest : guests_) {
      waiting.push_back({guest.socket.descriptor(), POLLIN, 0});
      until = std::min(until, guest.patience);
    }
    for (const Admitted& one : met_)
      waiting.push_back({one.peer.socket.descriptor(), POLLRDHUP, 0});
    ::poll(waiting.data(), waiting.size(), milliseconds_until(until) + 1);
  }

  void accept() {
    for (size_t i = 0; i < kMostGuests; ++i) {
      auto socket = accept_now(listening_);
      if (!socket) return;
      // A process that knows the secret answers at once, so the longest silent connection is a
      // stranger.
      if (guests_.size() == kMostGuests) {
        notice_stranger(guests_.front(), "it was silent while many others connected");
        guests_.pop_front();
      }
      Guest guest{std::move(*socket), "", random_secret(), in(kGuestPatience)};
      guest.from = other_address(guest.socket);
      if (send_message(guest.socket, {'C', std::string(kGreeting) + "\n" + guest.nonce}))
        guests_.push_back(std::move(guest));
    }
  }

  static bool has_gone(const Socket& socket) {
    char one = 0;
    return ::recv(socket.descriptor(), &one, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
  }

  // Whether the connection may still identify itself.
  bool keeps(Guest& guest) {
    const bool is_open = guest.inbox.take(guest.socket);
    if (const auto message = guest.inbox.next()) {
      admit(guest, *message);
      return false;
    }
    if (is_open && Clock::now() < guest.patience) return true;
    if (guest.inbox.is_broken())
      reject(guest, "its message is not one of coda");
    else if (is_open)
      notice_stranger(guest, "it does not identify itself");
    return false;
  }

  void admit(Guest& guest, const Message& message) {
    const auto text = behind_greeting(message.text);
    const size_t end = text ? text->find('\n') : std::string::npos;
    if (end == std::string::npos || (message.kind != 'H' && message.kind != 'D'))
      return reject(guest, "its message is not one of this version of coda");
    const std::string body = text->substr(end + 1);
    const auto hello = hello_of(body);
    if (!is_same_hash(text->substr(0, end),
                      proof_of(place_.secret, message.kind, guest.nonce, body))) {
      if (!hello || hello->has_secret == secret_text(place_))
        return reject(guest, "it does not know CODA_JOIN_SECRET");
      return reject(guest, place_.secret.empty()
                               ? "it has a CODA_JOIN_SECRET, and rank 0 has none"
                               : "rank 0 has a CODA_JOIN_SECRET, and it has none");
    }
    if (!hello) return reject(guest, "it does not identify itself");
    Peer peer;
    peer.rank = hello->rank;
    peer.host = hello->host;
    peer.version = hello->version;
    peer.kind = hello->kind;
    const std::string is = "it is " + name_of(peer, hello->world);
    if (hello->world != place_.world)
      return reject(guest, is + ", and rank 0 is one of " + std::to_string(place_.world) +
                               " processes: start all with the same number");
    if (peer.rank < 1 || peer.rank >= place_.world)
      return reject(guest, is + ", which is not a valid rank besides 0");
    const auto there =
        std::ranges::find(met_, peer.rank, [](const Admitted& one) { return one.peer.rank; });
    if (message.kind == 'D') {
      if (there == met_.end() || there->peer.data.is_open() || there->nonce != hello->nonce)
        return reject(guest, is + ", which has not joined before");
      send_message(guest.socket, {'A', ""});
      there->peer.data = std::move(guest.socket);
      return;
    }
    if (there != met_.end())
      return reject(guest, is + ", and a process with this rank has already joined, from " +
                               printable(there->peer.host));
    send_message(guest.socket, {'A', ""});
    peer.socket = std::move(guest.socket);
    met_.push_back({std::move(peer), hello->nonce});
  }

  void reject(const Guest& guest, const std::string& reason) {
    send_message(guest.socket, {'N', reason});
    notice_stranger(guest, reason);
  }

  // Limits the number of notices, in case somebody connects again and again.
  void notice_stranger(const Guest& guest, const std::string& reason) {
    last_rejection_ = guest.from + ": " + reason;
    if (++rejections_ > kMostNotices) return;
    print_line("rejected " + last_rejection_ +
               (rejections_ == kMostNotices ? " (further ones are not reported)" : ""));
  }

  void require_alike() const {
    const std::string own(version());
    for (const Admitted& one : met_) {
      const std::string name = name_of(one.peer, place_.world);
      require(one.peer.version == own, "rank 0 has version " + own + " of coda and " + name +
                                           " has " + printable(one.peer.version) +
                                           ": all must have the same");
      require(one.peer.kind == kind_,
              "rank 0 has " + printable(kind_) + " and " + name + " has " +
                  printable(one.peer.kind) +
                  ": all must have the same (choose machines that are alike, or GPUs with "
                  "CUDA_VISIBLE_DEVICES)");
    }
  }

  std::string missing_text() const {
    std::string missing;
    for (int rank = 1; rank < place_.world; ++rank) {
      const bool is_there = std::ranges::any_of(met_, [rank](const Admitted& one) {
        return one.peer.rank == rank && one.peer.data.is_open();
      });
      if (!is_there) missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
    }
    return "after " + std::to_string(static_cast<int>(place_.patience)) + " seconds rank " +
           missing + " of " + std::to_string(place_.world) + " has not joined rank 0 at " +
           own_address(listening_) + ", port " + std::to_string(port_of(listening_)) +
           (is_loopback(listening_) ? ", which only this machine reaches" : "") +
           (rejections_ > 0 ? "; the last rejected connection: " + last_rejection_ : "") +
           " (check that it was started, with rank 0's MASTER_ADDR and MASTER_PORT; "
           "CODA_JOIN_SECONDS waits longer)";
  }

  const ProcessPlace& place_;
  const Socket& listening_;
  const std::string& kind_;
  Deadline deadline_;
  std::list<Guest> guests_;  // oldest first
  std::vector<Admitted> met_;
  int rejections_ = 0;
  std::string last_rejection_;
};

struct Connection {
  Socket socket;
  Inbox inbox;
};

std::string first_of(const ProcessPlace& place) {
  return "rank 0 at " + place.address + ", port " + std::to_string(place.port);
}

// The next message of rank 0; none if rank 0 closes the connection.
std::optional<Message> message_of_first(const ProcessPlace& place, Connection& to,
                                        Deadline deadline) {
  auto message = receive_until(to.socket, to.inbox, deadline);
  if (!message) return std::nullopt;
  if (message->kind == 'Q') end_process();
  require(message->kind != 'N',
          first_of(place) + " has rejected this process: " + printable(message->text));
  return message;
}

// Connects and sends this process's identity. Tries again if rank 0 closes the connection, which it
// does if too many strangers connect.
Connection admitted(const ProcessPlace& place, char letter, const std::string& hello,
                    Deadline deadline) {
  const std::string start = std::string(kGreeting) + "\n";
  while (true) {
    Connection to{connect_until(place.address, place.port, deadline), Inbox()};
    // Rank 0 sends its challenge first, so a program that sends 'Q' here is not rank 0.
    const auto challenge = receive_until(to.socket, to.inbox, deadline);
    if (challenge) {
      require(challenge->kind == 'C', "what listens at " + place.address + ", port " +
                                          std::to_string(place.port) + " is not rank 0");
      const auto nonce = behind_greeting(challenge->text);
      require(nonce.has_value(), first_of(place) + " has another version of coda");
      const std::string proof = proof_of(place.secret, letter, *nonce, hello);
      send_message(to.socket, {letter, start + proof + "\n" + hello});
      // Rank 0 waits as long for other processes and then reports it.
      const auto answer = message_of_first(place, to, deadline + 5s);
      if (answer && answer->kind == 'A') return to;
    }
    std::this_thread::sleep_for(100ms);
    require(Clock::now() < deadline,
            first_of(place) +
                " does not answer (it has ended, or another program has that port: set "
                "MASTER_PORT to one that no program has)");
  }
}

}  // namespace

[[noreturn]] void end_process() { std::_Exit(1); }

void print_line(const std::string& message) {
  std::fflush(stdout);
  std::fprintf(stderr, "coda: %s\n", without_escapes(message).c_str());
}

std::string name_of(const Peer& peer, int world) {
  return "rank " + std::to_string(peer.rank) + " of " + std::to_string(world) + " (" +
         printable(peer.host) + ")";
}

Socket listen_for_others(const ProcessPlace& place) {
  Socket listening = listen_at(place.address, place.port);
  if (!place.secret.empty() || place.world == 1) return listening;
  const std::string where = own_address(listening) + ", port " + std::to_string(port_of(listening));
  require(is_loopback(listening) || place.is_open,
          "rank 0 would listen at " + where +
              " for processes of other machines, and any program there could join the run: set "
              "CODA_JOIN_SECRET to the same text for all (openssl rand -hex 16 makes one), or "
              "CODA_JOIN_OPEN=1 where the network has only programs that you trust");
  print_line("CODA_JOIN_SECRET is not set, so any program that reaches " + where +
             " may join this run as one of its processes (set it to the same text for all)");
  return listening;
}

Met gather_others(const ProcessPlace& place, const Socket& listening, const std::string& kind,
                  const std::string& token) {
  return Reception(place, listening, kind).gather(token);
}

Met come_to_first(const ProcessPlace& place, const std::string& kind) {
  const Deadline deadline = in(std::chrono::duration<double>(place.patience));
  const Hello hello{random_secret(),    place.rank,  place.world, std::string(version()),
                    secret_text(place), host_name(), kind};
  const std::string text = text_of(hello);
  Connection first = admitted(place, 'H', text, deadline);
  Connection data;
  try {
    data = admitted(place, 'D', text, in(kGuestPatience));
  } catch (const Error&) {
    message_of_first(place, first, in(1s));  // rank 0 may end and print why
    throw;
  }
  allow_slow_receiver(data.socket);
  const auto welcome = message_of_first(place, first, deadline + 5s);
  require(welcome.has_value(), first_of(place) + " ended before all processes were there");
  constexpr size_t kProof = 64;
  const std::string token = welcome->text.substr(std::min(kProof + 1, welcome->text.size()));
  require(welcome->kind == 'W' && is_same_hash(welcome->text.substr(0, kProof),
                                               proof_of(place.secret, 'W', hello.nonce, token)),
          "what listens at " + place.address + ", port " + std::to_string(place.port) +
              " does not know CODA_JOIN_SECRET: it is not this run's rank 0");
  Met met{{}, token};
  Peer& peer = met.peers.emplace_back();
  peer.host = place.address;
  peer.socket = std::move(first.socket);
  peer.inbox = std::move(first.inbox);
  peer.data = std::move(data.socket);
  return met;
}

}  // namespace coda
