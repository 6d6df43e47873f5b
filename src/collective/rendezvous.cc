// SPDX-License-Identifier: Apache-2.0
// The protocol: a process says hello to rank 0, which welcomes all once all are there, and then
// each says with its rank which connection is for many bytes ('D'). From then on a thread in each
// process reads the first connections, and messages are few: 'L', it leaves; 'E', it gives up and
// why (to rank 0); 'Q', end quietly (from rank 0, which has printed why).
#include "collective/rendezvous.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <sstream>
#include <thread>
#include <vector>

#include "coda/error.h"
#include "coda/messages.h"

namespace coda {
namespace {

using namespace std::chrono_literals;

constexpr const char* kGreeting = "coda 1";
constexpr auto kPause = 300ms;
constexpr std::chrono::duration<double> kDataPatience = 30s;

std::chrono::steady_clock::time_point in(std::chrono::duration<double> time) {
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(time);
}

// Nothing is destroyed: other threads may wait in a collective for ever.
[[noreturn]] void end_process() { std::_Exit(1); }

[[noreturn]] void end_with(const std::string& message) {
  std::fflush(stdout);
  std::fprintf(stderr, "coda: %s\n", without_escapes(message).c_str());
  end_process();
}

// For a message; 0: without an end.
void wait_at_most(const Socket& socket, int seconds) {
  const timeval time{.tv_sec = seconds, .tv_usec = 0};
  ::setsockopt(socket.descriptor(), SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
}

}  // namespace

class Rendezvous::Impl {
  // One of the others, as rank 0 knows it; or rank 0, as the others do.
  struct Peer {
    int rank = 0;
    Socket socket;
    std::string host;
    std::string kind;
    bool has_left = false;
    Socket data;  // for many bytes, to rank 0
  };

 public:
  Impl(const ProcessPlace& place, Socket listening, const std::string& kind,
       const std::string& token)
      : place_(place), token_(token), wake_(::eventfd(0, EFD_CLOEXEC)) {
    if (place_.rank == 0) {
      gather(listening, kind);
    } else {
      come(kind);
    }
    watcher_ = std::thread([this] { watch(); });
  }

  ~Impl() {
    if (std::uncaught_exceptions() == 0) {
      for (const Peer& peer : peers_) send_message(peer.socket, {'L', ""});
      // Launchers end all once one has ended with an exit status that is not 0, as after Ctrl-C,
      // and rank 0 may be writing a checkpoint.
      while (place_.rank > 0 && !first_has_left_) std::this_thread::sleep_for(10ms);
    }
    is_leaving_ = true;
    const uint64_t one = 1;
    if (::write(wake_.descriptor(), &one, sizeof one) == sizeof one) watcher_.join();
  }

  const std::string& token() const { return token_; }

  void fail(const std::string& message) {
    is_failing_ = true;
    if (place_.rank == 0) {
      for (const Peer& peer : peers_) send_message(peer.socket, {'Q', ""});
      return;
    }
    send_message(peers_.front().socket, {'E', message});
    // Until rank 0 has printed it, as a launcher may end all once one has ended.
    std::this_thread::sleep_for(5s);
    end_process();
  }

  void set_remedy(const std::string& remedy) {
    const std::lock_guard lock(mutex_);
    remedy_ = remedy;
  }

  void send_to_first(std::span<const std::byte> bytes, const std::stop_token& stop) {
    require(send_bytes(peers_.front().data, bytes, stop), "rank 0 has not taken all of the state");
  }

  void receive_from(int rank, std::span<std::byte> bytes) {
    const Peer& peer = peer_of(rank);
    require(receive_bytes(peer.data, bytes),
            name_of(peer) + " has ended before it had sent its part of the state");
  }

 private:
  std::string name_of(const Peer& peer) const {
    return "rank " + std::to_string(peer.rank) + " of " + std::to_string(place_.world) + " (" +
           printable(peer.host) + ")";
  }

  void come(const std::string& kind) {
    const Deadline deadline = in(std::chrono::duration<double>(place_.patience));
    Peer& first = peers_.emplace_back();
    first.socket = connect_until(place_.address, place_.port, deadline);
    first.host = place_.address;
    std::ostringstream hello;
    hello << kGreeting << '\n'
          << place_.rank << '\n'
          << place_.world << '\n'
          << host_name() << '\n'
          << kind << '\n';
    // Rank 0 waits as long for others; another program that listens there may never answer.
    wait_at_most(first.socket, static_cast<int>(place_.patience) + 5);
    send_message(first.socket, {'H', hello.str()});
    const auto answer = receive_message(first.socket);
    wait_at_most(first.socket, 0);
    if (answer && answer->kind == 'Q') end_process();
    require(answer && answer->kind == 'W',
            "rank 0 at " + place_.address + ", port " + std::to_string(place_.port) +
                " ended before all processes were there, or another program listens there");
    token_ = answer->text;
    first.data = connect_until(place_.address, place_.port, in(kDataPatience));
    allow_slow_receiver(first.data);
    send_message(first.data, {'D', std::to_string(place_.rank)});
  }

  // Whoever else connects is not answered.
  void greet(Socket socket) {
    wait_at_most(socket, 5);
    const auto hello = receive_message(socket);
    if (!hello || hello->kind != 'H') return;
    std::istringstream text(hello->text);
    std::string greeting;
    Peer peer;
    int world = 0;
    std::getline(text, greeting);
    text >> peer.rank >> world >> std::ws;
    std::getline(text, peer.host);
    std::getline(text, peer.kind);
    if (!text || greeting != kGreeting) return;
    peer.socket = std::move(socket);
    peers_.push_back(std::move(peer));
    const Peer& come = peers_.back();
    require(world == place_.world,
            "rank " + std::to_string(come.rank) + " (" + printable(come.host) + ") is one of " +
                std::to_string(world) + " processes, and rank 0 one of " +
                std::to_string(place_.world) + ": start all with the same number");
    require(come.rank > 0 && come.rank < place_.world && is_first(come),
            "there are two processes of rank " + std::to_string(come.rank) +
                ", and each must have its own (look how they are started)");
  }

  bool is_first(const Peer& come) const {
    int same = 0;
    for (const Peer& peer : peers_) same += peer.rank == come.rank ? 1 : 0;
    return same == 1;
  }

  void gather(const Socket& listening, const std::string& kind) {
    const Deadline deadline = in(std::chrono::duration<double>(place_.patience));
    try {
      while (std::ssize(peers_) < place_.world - 1) {
        auto socket = accept_until(listening, deadline);
        require(socket.has_value(), missing_text());
        greet(std::move(*socket));
      }
      for (const Peer& peer : peers_) {
        require(peer.kind == kind, "rank 0 has " + printable(kind) + " and " + name_of(peer) +
                                       " has " + printable(peer.kind) +
                                       ": all must have the same (choose machines that are alike, "
                                       "or GPUs with CUDA_VISIBLE_DEVICES)");
      }
      for (const Peer& peer : peers_) {
        wait_at_most(peer.socket, 0);
        send_message(peer.socket, {'W', token_});
      }
      const Deadline soon = in(kDataPatience);
      while (const Peer* peer = without_data()) {
        auto socket = accept_until(listening, soon);
        require(socket.has_value(), name_of(*peer) + " has ended before the training began");
        take_data(std::move(*socket));
      }
    } catch (...) {
      for (const Peer& peer : peers_) send_message(peer.socket, {'Q', ""});
      throw;
    }
  }

  const Peer* without_data() const {
    for (const Peer& peer : peers_)
      if (!peer.data.is_open()) return &peer;
    return nullptr;
  }

  // Whoever else connects is not answered.
  void take_data(Socket socket) {
    wait_at_most(socket, 5);
    const auto message = receive_message(socket);
    wait_at_most(socket, 0);
    if (!message || message->kind != 'D') return;
    const auto peer = std::ranges::find(peers_, message->text,
                                        [](const Peer& its) { return std::to_string(its.rank); });
    if (peer != peers_.end()) peer->data = std::move(socket);
  }

  const Peer& peer_of(int rank) const {
    const auto found = std::ranges::find(peers_, rank, &Peer::rank);
    invariant(found != peers_.end(), "a rank that is not there");
    return *found;
  }

  std::string missing_text() const {
    std::string missing;
    for (int rank = 1; rank < place_.world; ++rank) {
      if (!is_there(rank)) missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
    }
    return "after " + std::to_string(static_cast<int>(place_.patience)) + " seconds rank " +
           missing + " of " + std::to_string(place_.world) + " has not come to rank 0 at port " +
           std::to_string(place_.port) +
           " (look whether it was started, with rank 0's MASTER_ADDR and MASTER_PORT; "
           "CODA_JOIN_SECONDS waits longer)";
  }

  bool is_there(int rank) const {
    return std::ranges::find(peers_, rank, &Peer::rank) != peers_.end();
  }

  void watch() {
    while (!is_leaving_) {
      std::vector<pollfd> waiting{{wake_.descriptor(), POLLIN, 0}};
      for (const Peer& peer : peers_)
        waiting.push_back({peer.has_left ? -1 : peer.socket.descriptor(), POLLIN, 0});
      if (::poll(waiting.data(), waiting.size(), -1) < 0) continue;
      for (size_t i = 0; i < peers_.size() && !is_leaving_; ++i)
        if (waiting[i + 1].revents != 0) hear(peers_[i]);
    }
  }

  void hear(Peer& peer) {
    const auto message = receive_message(peer.socket);
    if (message && message->kind == 'L') {
      peer.has_left = true;
      first_has_left_ = place_.rank > 0;
      return;
    }
    if (message && message->kind == 'Q') {
      // A launcher may end rank 0 once another has ended, and rank 0 prints when it has left.
      wait_at_most(peer.socket, 2);
      receive_message(peer.socket);
      std::this_thread::sleep_for(kPause);
      end_process();
    }
    peer.has_left = true;
    // This process may be giving up for the same reason; then it says so itself.
    std::this_thread::sleep_for(kPause);
    if (is_leaving_ || is_failing_) return;
    const std::string text =
        message ? name_of(peer) + ": " + message->text : name_of(peer) + " has ended" + remedy();
    if (place_.rank == 0) {
      for (const Peer& other : peers_) send_message(other.socket, {'Q', ""});
      end_with(text);
    }
    // Rank 0 is gone: the next one says so.
    if (place_.rank == 1) end_with(text);
    end_process();
  }

  std::string remedy() {
    const std::lock_guard lock(mutex_);
    return remedy_.empty() ? "" : "; " + remedy_;
  }

  ProcessPlace place_;
  std::string token_;
  std::vector<Peer> peers_;
  Socket wake_;  // no socket: what wakes the watcher
  std::thread watcher_;
  std::atomic<bool> first_has_left_ = false;  // rank 0
  std::atomic<bool> is_leaving_ = false;
  std::atomic<bool> is_failing_ = false;
  std::mutex mutex_;
  std::string remedy_;
};

Rendezvous::Rendezvous(const ProcessPlace& place, Socket listening, const std::string& kind,
                       const std::string& token)
    : impl_(std::make_unique<Impl>(place, std::move(listening), kind, token)) {}
Rendezvous::~Rendezvous() = default;
const std::string& Rendezvous::token() const { return impl_->token(); }
void Rendezvous::fail(const std::string& message) { impl_->fail(message); }
void Rendezvous::set_remedy(const std::string& remedy) { impl_->set_remedy(remedy); }
void Rendezvous::send_to_first(std::span<const std::byte> bytes, const std::stop_token& stop) {
  impl_->send_to_first(bytes, stop);
}
void Rendezvous::receive_from(int rank, std::span<std::byte> bytes) {
  impl_->receive_from(rank, bytes);
}

}  // namespace coda
