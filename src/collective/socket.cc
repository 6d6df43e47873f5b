// SPDX-License-Identifier: Apache-2.0
// POSIX sockets with keep-alive, deadlines instead of blocking calls, and errors in words.
#include "collective/socket.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>

#include "coda/error.h"

namespace coda {
namespace {

constexpr size_t kHead = 5;  // bytes before a message's text: letter and length

void set(int descriptor, int level, int option, int value) {
  ::setsockopt(descriptor, level, option, &value, sizeof value);
}

constexpr int kSendCheck = 100;  // milliseconds between two checks of a stop token

// Sends messages without delay, and detects dead machines: probes after 10 seconds of silence,
// gives up 15 seconds later.
void prepare(int descriptor) {
  set(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  set(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(descriptor, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, 25000);
  const timeval patience{.tv_sec = 5, .tv_usec = 0};
  ::setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

// The addresses of a host name, or the reason why there are none.
struct Found {
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> first = {nullptr, ::freeaddrinfo};
  std::string problem;
};
Found find(const std::string& address, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int failed = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &list);
  Found found;
  if (failed != 0) {
    found.problem = ::gai_strerror(failed);
  } else {
    found.first.reset(list);
  }
  return found;
}

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET6) {
    const in6_addr& six = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(&six);
  }
  constexpr uint32_t kNetwork = 127;
  return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24 == kNetwork;
}

std::string text_of(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST] = {};
  const bool is_known =
      ::getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0;
  return is_known ? text : "an unknown address";
}

// The result of getsockname or getpeername.
struct Name {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

bool send_all(int descriptor, const char* data, size_t count) {
  while (count > 0) {
    const ssize_t sent = ::send(descriptor, data, count, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    data += sent;
    count -= static_cast<size_t>(sent);
  }
  return true;
}

}  // namespace

void Socket::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

Deadline in(std::chrono::duration<double> time) {
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(time);
}

int milliseconds_until(Deadline deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::max<int64_t>(0, left.count()));
}

Socket listen_at(const std::string& address, int port) {
  const Found found = find(address, port);
  std::string problem = found.problem;
  int failed = 0;
  for (const addrinfo* at = found.first.get(); at != nullptr; at = at->ai_next) {
    Socket socket(
        ::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol));
    if (!socket.is_open()) continue;
    set(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (::bind(socket.descriptor(), at->ai_addr, at->ai_addrlen) == 0 &&
        ::listen(socket.descriptor(), 512) == 0)
      return socket;
    failed = errno;
    problem = std::strerror(failed);
  }
  throw Error("rank 0 cannot listen at " + address + ", port " + std::to_string(port) + ": " +
              problem +
              (failed == EADDRINUSE || failed == EACCES
                   ? " (set MASTER_PORT to a port that no program has)"
                   : " (MASTER_ADDR must name an address of rank 0's machine)"));
}

int port_of(const Socket& listening) {
  Name name;
  ::getsockname(listening.descriptor(), name.get(), &name.size);
  return ntohs(reinterpret_cast<const sockaddr_in*>(name.get())->sin_port);  // sockaddr_in6's, too
}

std::string own_address(const Socket& socket) {
  Name name;
  ::getsockname(socket.descriptor(), name.get(), &name.size);
  return text_of(name.get(), name.size);
}

std::string other_address(const Socket& socket) {
  Name name;
  ::getpeername(socket.descriptor(), name.get(), &name.size);
  return text_of(name.get(), name.size);
}

bool is_loopback(const Socket& listening) {
  Name name;
  ::getsockname(listening.descriptor(), name.get(), &name.size);
  return is_loopback(name.get());
}

std::optional<Socket> accept_now(const Socket& listening) {
  const int descriptor = ::accept4(listening.descriptor(), nullptr, nullptr, SOCK_CLOEXEC);
  if (descriptor < 0) return std::nullopt;
  prepare(descriptor);
  return Socket(descriptor);
}

Socket connect_until(const std::string& address, int port, Deadline deadline) {
  std::string reason = "there was no time";
  while (std::chrono::steady_clock::now() < deadline) {
    const Found found = find(address, port);
    if (!found.problem.empty()) reason = found.problem;
    for (const addrinfo* at = found.first.get(); at != nullptr; at = at->ai_next) {
      Socket socket(::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol));
      if (!socket.is_open()) continue;
      prepare(socket.descriptor());
      if (::connect(socket.descriptor(), at->ai_addr, at->ai_addrlen) == 0) return socket;
      reason = std::strerror(errno);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  throw Error("cannot reach rank 0 at " + address + ", port " + std::to_string(port) + ": " +
              reason + " (is it started? MASTER_ADDR and MASTER_PORT must be the same for all)");
}

bool send_message(const Socket& socket, const Message& message) {
  const size_t length = std::min(message.text.size(), kLongestMessage);
  std::string bytes(1, message.kind);
  for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(length >> shift & 0xff);
  bytes.append(message.text, 0, length);
  return send_all(socket.descriptor(), bytes.data(), bytes.size());
}

bool Inbox::take(const Socket& socket) {
  while (true) {
    // Keeps at most one message, however much is sent.
    if (bytes_.size() >= kHead + longest_) return true;
    char piece[4096];
    const ssize_t got = ::recv(socket.descriptor(), piece, sizeof piece, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) && !is_too_long();
    bytes_.append(piece, static_cast<size_t>(got));
    if (is_too_long()) return false;
  }
}

size_t Inbox::length() const {
  size_t length = 0;
  for (size_t i = kHead - 1; i > 0; --i)
    length = length << 8 | static_cast<unsigned char>(bytes_[i]);
  return length;
}

bool Inbox::is_too_long() const { return bytes_.size() >= kHead && length() > longest_; }

std::optional<Message> Inbox::next() {
  if (bytes_.size() < kHead || is_too_long() || bytes_.size() < kHead + length())
    return std::nullopt;
  Message message{bytes_[0], bytes_.substr(kHead, length())};
  bytes_.erase(0, kHead + message.text.size());
  return message;
}

std::optional<Message> receive_until(const Socket& socket, Inbox& inbox, Deadline deadline) {
  for (bool is_open = true; is_open;) {
    if (auto message = inbox.next()) return message;
    pollfd waiting{socket.descriptor(), POLLIN, 0};
    const int ready = ::poll(&waiting, 1, milliseconds_until(deadline));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return std::nullopt;
    is_open = inbox.take(socket);
  }
  return inbox.next();
}

// The system gives up on a receiver that accepts nothing for TCP_USER_TIMEOUT.
void allow_slow_receiver(const Socket& socket) {
  set(socket.descriptor(), IPPROTO_TCP, TCP_USER_TIMEOUT, 0);
}

bool send_bytes(const Socket& socket, std::span<const std::byte> bytes,
                const std::stop_token& stop) {
  while (!bytes.empty()) {
    if (stop.stop_requested()) return false;
    pollfd waiting{socket.descriptor(), POLLOUT, 0};
    if (::poll(&waiting, 1, kSendCheck) == 0) continue;
    const ssize_t sent =
        ::send(socket.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (sent <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
  return true;
}

bool receive_bytes(const Socket& socket, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::recv(socket.descriptor(), bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(got));
  }
  return true;
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "an unnamed machine";
}

std::string reachable_address() {
  const Found named = find(host_name(), 0);
  for (const addrinfo* at = named.first.get(); at != nullptr; at = at->ai_next)
    if (!is_loopback(at->ai_addr)) return text_of(at->ai_addr, at->ai_addrlen);
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return "127.0.0.1";
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(list, ::freeifaddrs);
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    const bool is_four = at->ifa_addr != nullptr && at->ifa_addr->sa_family == AF_INET;
    if (is_four && (at->ifa_flags & IFF_UP) != 0 && !is_loopback(at->ifa_addr))
      return text_of(at->ifa_addr, sizeof(sockaddr_in));
  }
  return "127.0.0.1";
}

}  // namespace coda
