// SPDX-License-Identifier: Apache-2.0
// A TCP connection with an owner, and messages on it: a letter and a text.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>

namespace coda {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }

  bool is_open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  void close();

 private:
  int descriptor_ = -1;
};

using Deadline = std::chrono::steady_clock::time_point;
Deadline in(std::chrono::duration<double> time);  // from now
int milliseconds_until(Deadline deadline);        // 0 behind it

// A socket that listens at one address of this machine, the first that the name stands for, and at
// a port, 0: any free one. Throws Error where the address is another machine's or the port is
// taken.
Socket listen_at(const std::string& address, int port);
int port_of(const Socket& listening);
// "127.0.0.1": of this side of a connection, or of who listens; and of the other side.
std::string own_address(const Socket& socket);
std::string other_address(const Socket& socket);
bool is_loopback(const Socket& listening);  // so that only this machine reaches it
// The next connection, without waiting.
std::optional<Socket> accept_now(const Socket& listening);
// Tries until the deadline, as who listens may start later. Throws Error.
Socket connect_until(const std::string& address, int port, Deadline deadline);

struct Message {
  char kind = 0;
  std::string text;
};
constexpr size_t kLongestMessage = 64 << 10;  // of its text; what is behind that is cut off
// False where the other side is gone, or takes nothing for some seconds.
bool send_message(const Socket& socket, const Message& message);

// What a connection has brought so far. Nothing here waits, so that nobody who sends half a message
// holds up another.
class Inbox {
 public:
  Inbox() = default;
  explicit Inbox(size_t longest) : longest_(longest) {}
  // Takes what has arrived. False where the other side is gone, or announces a text longer than
  // `longest`; what came before that is still given.
  bool take(const Socket& socket);
  std::optional<Message> next();
  bool is_broken() const { return is_too_long(); }  // what came is no message

 private:
  size_t length() const;  // of the first message's text, once its head is there
  bool is_too_long() const;

  size_t longest_ = kLongestMessage;
  std::string bytes_;
};
// The next message; nothing where none comes until the deadline, or the other side is gone.
std::optional<Message> receive_until(const Socket& socket, Inbox& inbox, Deadline deadline);

// Of many bytes: who sends waits for a receiver that is slow, however long, until `stop` is asked
// for. False then, and where the other side is gone.
void allow_slow_receiver(const Socket& socket);
bool send_bytes(const Socket& socket, std::span<const std::byte> bytes,
                const std::stop_token& stop);
bool receive_bytes(const Socket& socket, std::span<std::byte> bytes);

// "node7": of this machine.
std::string host_name();
// An address of this machine that others reach; 127.0.0.1 where it has none.
std::string reachable_address();

}  // namespace coda
