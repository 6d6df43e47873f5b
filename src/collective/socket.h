// SPDX-License-Identifier: Apache-2.0
// An owned TCP connection, and messages on it, each a letter and a text.
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
int milliseconds_until(Deadline deadline);        // 0 after the deadline

// A socket that listens at one address of this machine (the first of the host name) and a port (0:
// any free one). Throws Error if the address belongs to another machine or the port is taken.
Socket listen_at(const std::string& address, int port);
int port_of(const Socket& listening);
// The address of this side of a connection or of a listening socket ("127.0.0.1"), and of the other
// side.
std::string own_address(const Socket& socket);
std::string other_address(const Socket& socket);
bool is_loopback(const Socket& listening);  // so that only this machine reaches it
// The next connection, without waiting.
std::optional<Socket> accept_now(const Socket& listening);
// Tries until the deadline, because the listener may start later. Throws Error.
Socket connect_until(const std::string& address, int port, Deadline deadline);

struct Message {
  char kind = 0;
  std::string text;
};
constexpr size_t kLongestMessage = 64 << 10;  // maximum text length; longer texts are cut off
// False if the other side is gone or accepts nothing for some seconds.
bool send_message(const Socket& socket, const Message& message);

// The data that a connection has received so far. Nothing here waits, so a sender of half a message
// delays nobody.
class Inbox {
 public:
  Inbox() = default;
  explicit Inbox(size_t longest) : longest_(longest) {}
  // Takes what has arrived. False if the other side is gone or announces a text longer than
  // `longest`; earlier messages are still returned.
  bool take(const Socket& socket);
  std::optional<Message> next();
  bool is_broken() const { return is_too_long(); }  // what arrived is not a message

 private:
  size_t length() const;  // of the first message's text, if its header has arrived
  bool is_too_long() const;

  size_t longest_ = kLongestMessage;
  std::string bytes_;
};
// The next message; none if there is none before the deadline or if the other side is gone.
std::optional<Message> receive_until(const Socket& socket, Inbox& inbox, Deadline deadline);

// For bulk data: the sender waits for a slow receiver without a limit, until `stop` is requested.
// Returns false in that case, and if the other side is gone.
void allow_slow_receiver(const Socket& socket);
bool send_bytes(const Socket& socket, std::span<const std::byte> bytes,
                const std::stop_token& stop);
bool receive_bytes(const Socket& socket, std::span<std::byte> bytes);

// This machine's name, for example "node7".
std::string host_name();
// An address of this machine that other machines can reach; 127.0.0.1 if there is none.
std::string reachable_address();

}  // namespace coda
