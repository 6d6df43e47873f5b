// SPDX-License-Identifier: Apache-2.0
// A thread in each process reads the connections that the meeting (meeting.h) created, and answers
// for this process. Messages: 'B', alive; 'X', an entry of the process's exchange list (to rank 0);
// 'L', the process leaves after a number of entries; 'E', it gives up, with the reason (to rank 0);
// 'Q', end silently (from rank 0, which prints the reason, or to a rank 0 that was silent).
#include "collective/rendezvous.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "coda/error.h"
#include "coda/messages.h"
#include "collective/exchange_log.h"
#include "collective/meeting.h"

namespace coda {
namespace {

using namespace std::chrono_literals;
using Seconds = std::chrono::duration<double>;

constexpr auto kPause = 300ms;
constexpr auto kForRank1 = 2s;  // for rank 1's line if rank 0 has died
constexpr double kBeat = 0.5;   // maximum seconds between two signs of life

}  // namespace

class Rendezvous::Impl {
  struct Other {
    Peer peer;
    bool has_left = false;
    int unheard = 0;        // own beats since the other's last message
    int64_t announced = 0;  // when it left
  };

 public:
  Impl(const ProcessPlace& place, Socket listening, const std::string& kind,
       const std::string& token)
      : place_(place),
        beat_(std::min(kBeat, place.silence / 4)),
        log_(place.world),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    Met met = place_.rank == 0 ? gather_others(place_, listening, kind, token)
                               : come_to_first(place_, kind);
    listening.close();
    token_ = std::move(met.token);
    for (Peer& peer : met.peers) others_.push_back({std::move(peer)});
    watcher_ = std::thread([this] { watch(); });
  }

  ~Impl() {
    if (std::uncaught_exceptions() == 0) {
      send_announced();
      const std::string count = std::to_string(announced());
      for (const Other& other : others_) send(other, {'L', count});
      // Launchers end all processes when one ends with a nonzero exit status, as after Ctrl-C, and
      // rank 0 may be writing a checkpoint.
      while (place_.rank > 0 && !first_has_left_) std::this_thread::sleep_for(10ms);
    }
    is_leaving_ = true;
    wake();
    watcher_.join();
  }

  const std::string& token() const { return token_; }

  int64_t announce(const std::string& what) { return add(entry_of(what)); }

  void require_same(const Settings& settings) {
    add(entry_of(settings));
    wake();
    if (place_.rank > 0) return;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return log_.is_level() && !log_.difference(); });
  }

  void fail(const std::string& message) {
    is_failing_ = true;
    if (place_.rank == 0) return end_others();
    send(others_.front(), {'E', message});
    // Waits until rank 0 has printed the message, because a launcher may end all when one has
    // ended.
    std::this_thread::sleep_for(5s);
    end_process();
  }

  void set_remedy(const std::string& remedy) {
    const std::lock_guard lock(mutex_);
    remedy_ = remedy;
  }

  void send_to_first(std::span<const std::byte> bytes, const std::stop_token& stop) {
    require(send_bytes(others_.front().peer.data, bytes, stop),
            "rank 0 has not taken all of the state");
  }

  void receive_from(int rank, std::span<std::byte> bytes) {
    const auto found = std::ranges::find(others_, rank, [](const Other& o) { return o.peer.rank; });
    invariant(found != others_.end(), "a rank that is not there");
    require(receive_bytes(found->peer.data, bytes),
            name_of(*found) + " has ended before it had sent its part of the state");
  }

 private:
  std::string name_of(const Other& other) const { return coda::name_of(other.peer, place_.world); }

  int64_t add(const std::string& entry) {
    const std::lock_guard lock(mutex_);
    if (place_.rank == 0) {
      log_.add_own(entry);
    } else {
      to_send_.push_back(entry);
    }
    return ++announced_;
  }

  int64_t announced() {
    const std::lock_guard lock(mutex_);
    return announced_;
  }

  void wake() const {
    const uint64_t one = 1;
    while (::write(wake_.descriptor(), &one, sizeof one) < 0 && errno == EINTR) {
    }
  }

  // One message at a time, from the watcher thread and from callers.
  void send(const Other& to, const Message& message) {
    const std::lock_guard lock(sending_);
    send_message(to.peer.socket, message);
  }

  void send_announced() {
    const std::lock_guard in_order(sending_);
    std::vector<std::string> entries;
    {
      const std::lock_guard lock(mutex_);
      entries.swap(to_send_);
    }
    for (const std::string& entry : entries)
      send_message(others_.front().peer.socket, {'X', entry});
  }

  void watch() {
    Deadline next = in(Seconds(beat_));
    while (!is_leaving_) {
      std::vector<pollfd> waiting{{wake_.descriptor(), POLLIN, 0}};
      for (const Other& other : others_)
        waiting.push_back({other.has_left ? -1 : other.peer.socket.descriptor(), POLLIN, 0});
      ::poll(waiting.data(), waiting.size(), milliseconds_until(next) + 1);
      uint64_t ignored = 0;
      while (::read(wake_.descriptor(), &ignored, sizeof ignored) > 0) {
      }
      for (size_t i = 0; i < others_.size() && !is_leaving_; ++i)
        if (waiting[i + 1].revents != 0) hear(others_[i]);
      if (is_leaving_) return;
      send_announced();
      if (std::chrono::steady_clock::now() >= next) {
        next = in(Seconds(beat_));
        beat();
      }
      look_at_steps();
    }
  }

  // Counts beats instead of time: if all processes were stopped and continue, none counts as
  // silent.
  void beat() {
    for (Other& other : others_) {
      if (other.has_left) continue;
      send(other, {'B', ""});
      if (++other.unheard * beat_ < place_.silence) continue;
      give_up_for(other, name_of(other) + " has been silent for " +
                             std::to_string(static_cast<int>(place_.silence)) +
                             " seconds (it is stopped, or its machine is gone)" + remedy());
    }
  }

  void hear(Other& other) {
    const bool is_open = other.peer.inbox.take(other.peer.socket);
    while (const auto message = other.peer.inbox.next()) {
      take(other, *message);
      if (other.has_left) return;
    }
    if (is_open) return;
    give_up_for(other,
                name_of(other) +
                    (other.peer.inbox.is_broken() ? " has sent an invalid message" : " has ended") +
                    remedy());
  }

  void take(Other& other, const Message& message) {
    other.unheard = 0;
    const bool is_first = place_.rank == 0;
    if (message.kind == 'B') return;
    if (message.kind == 'X' && is_first) {
      const std::lock_guard lock(mutex_);
      log_.add(other.peer.rank, message.text);
      changed_.notify_all();
    } else if (message.kind == 'L') {
      other.has_left = true;
      other.announced = std::atoll(message.text.c_str());
      first_has_left_ = !is_first;
      const std::lock_guard lock(mutex_);
      if (is_first) log_.leave(other.peer.rank);
    } else if (message.kind == 'Q') {
      // A launcher may end rank 0 once another process has ended, and rank 0 prints when it has
      // left.
      receive_until(other.peer.socket, other.peer.inbox, in(2s));
      std::this_thread::sleep_for(kPause);
      end_process();
    } else if (message.kind == 'E' && is_first) {
      give_up_for(other, name_of(other) + ": " + message.text);
    } else {
      give_up_for(other, name_of(other) + " has sent an invalid message" + remedy());
    }
  }

  // Detects exchanges that would wait forever.
  void look_at_steps() {
    std::unique_lock lock(mutex_);
    if (const auto found = log_.difference()) {
      lock.unlock();
      Other& other =
          *std::ranges::find(others_, found->rank, [](const Other& o) { return o.peer.rank; });
      return give_up_for(other, name_of(other) + found->text + remedy());
    }
    if (place_.rank == 0) return;
    const Other& first = others_.front();
    if (!first_has_left_ || announced_ <= first.announced) return;
    const std::string text = name_of(first) + " has left after its exchange " +
                             std::to_string(first.announced) + ", and rank " +
                             std::to_string(place_.rank) +
                             " continues (all processes must call the same functions in the same "
                             "order)";
    lock.unlock();
    print_line(text + remedy());
    end_process();
  }

  // Ends all processes with one line.
  void give_up_for(Other& other, const std::string& text) {
    other.has_left = true;
    // This process may be giving up for the same reason; then it reports it itself.
    std::this_thread::sleep_for(kPause);
    if (is_leaving_ || is_failing_) return;
    end_others();
    if (place_.rank == 0) {
      print_line(text);
    } else if (place_.rank == 1) {  // rank 0 has died: the next rank reports it
      print_line(text);
    } else {
      std::this_thread::sleep_for(kForRank1);
    }
    end_process();
  }

  void end_others() {
    for (const Other& other : others_) send(other, {'Q', ""});
  }

  std::string remedy() {
    const std::lock_guard lock(mutex_);
    return remedy_.empty() ? "" : "; " + remedy_;
  }

  ProcessPlace place_;
  double beat_;  // seconds
  std::string token_;
  std::vector<Other> others_;
  std::mutex sending_;
  std::mutex mutex_;  // guards the members below
  std::string remedy_;
  int64_t announced_ = 0;
  std::vector<std::string> to_send_;  // entries; unused in rank 0
  ExchangeLog log_;                   // rank 0's
  std::condition_variable changed_;   // signals changes of log_
  Socket wake_;                       // closed: wakes the watcher
  std::thread watcher_;
  std::atomic<bool> first_has_left_ = false;  // rank 0
  std::atomic<bool> is_leaving_ = false;
  std::atomic<bool> is_failing_ = false;
};

Rendezvous::Rendezvous(const ProcessPlace& place, Socket listening, const std::string& kind,
                       const std::string& token)
    : impl_(std::make_unique<Impl>(place, std::move(listening), kind, token)) {}
Rendezvous::~Rendezvous() = default;
const std::string& Rendezvous::token() const { return impl_->token(); }
int64_t Rendezvous::announce(const std::string& what) { return impl_->announce(what); }
void Rendezvous::require_same(const Settings& settings) { impl_->require_same(settings); }
void Rendezvous::fail(const std::string& message) { impl_->fail(message); }
void Rendezvous::set_remedy(const std::string& remedy) { impl_->set_remedy(remedy); }
void Rendezvous::send_to_first(std::span<const std::byte> bytes, const std::stop_token& stop) {
  impl_->send_to_first(bytes, stop);
}
void Rendezvous::receive_from(int rank, std::span<std::byte> bytes) {
  impl_->receive_from(rank, bytes);
}

}  // namespace coda
