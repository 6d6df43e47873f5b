// SPDX-License-Identifier: Apache-2.0
// Starts copies of this process by fork and exec, forwards signals, and collects exit statuses.
#include "launch.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "coda/communicator.h"
#include "coda/device.h"
#include "coda/error.h"

namespace coda::tools {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kGrace = std::chrono::seconds(5);      // for the others to print the reason and end
constexpr auto kPatience = std::chrono::seconds(15);  // from SIGTERM to SIGKILL

constexpr int kNotStarted = 127;

volatile std::sig_atomic_t handed_on = 0;  // the last forwarded signal

// Signals from a terminal (Ctrl-C, hang-up) already reach the children.
void hand_on_at(int signal) {
  struct sigaction action = {};
  ::sigaction(signal, nullptr, &action);
  if (action.sa_handler == SIG_IGN) return;  // ignored, as under nohup
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = [](int which, siginfo_t* info, void*) {
    if (info->si_code <= 0) handed_on = which;  // sent by a process
  };
  ::sigaction(signal, &action, nullptr);
}

// The arguments of this process, including the program's name.
std::vector<std::string> arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// A port that nothing listens at; 0: none found.
int free_port() {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  const bool is_bound =
      ::bind(descriptor, any, size) == 0 && ::getsockname(descriptor, any, &size) == 0;
  ::close(descriptor);
  return is_bound ? ntohs(address.sin_port) : 0;
}

void set(const char* name, int value) { ::setenv(name, std::to_string(value).c_str(), 1); }

class Children {
 public:
  void start(int rank, std::vector<char*>& words) {
    const pid_t parent = ::getpid();
    const pid_t child = ::fork();
    require(child >= 0, std::string("cannot start a process: ") + std::strerror(errno));
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGTERM);
      if (::getppid() != parent) std::_Exit(1);
      set("RANK", rank);
      set("LOCAL_RANK", rank);
      ::execv("/proc/self/exe", words.data());
      std::_Exit(kNotStarted);
    }
    running_.push_back(child);
    ranks_.push_back(rank);
  }

  bool are_running() const { return !running_.empty(); }
  void signal(int which) const {
    for (const pid_t child : running_) ::kill(child, which);
  }

  struct Ended {
    int rank = -1;  // -1: none yet
    int state = 0;
  };
  // A child that has ended and was not reported yet.
  Ended ended() {
    for (size_t i = 0; i < running_.size(); ++i) {
      Ended one;
      if (::waitpid(running_[i], &one.state, WNOHANG) != running_[i]) continue;
      one.rank = ranks_[i];
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
      ranks_.erase(ranks_.begin() + static_cast<std::ptrdiff_t>(i));
      return one;
    }
    return {};
  }

 private:
  std::vector<pid_t> running_;
  std::vector<int> ranks_;
};

// Waits until all have ended. A child that exits has printed the reason, or another has. A child
// that was killed by a signal has not: if it was the first and no other reports it (before they
// have met), this process does.
int wait_for(Children& children) {
  int status = 0;
  bool is_reported = true;
  std::string about;  // about the first that failed
  Clock::time_point failed;
  bool is_asked = false;
  while (children.are_running()) {
    if (handed_on != 0) {
      children.signal(handed_on);
      handed_on = 0;
    }
    const Children::Ended one = children.ended();
    if (one.rank >= 0 && WIFEXITED(one.state) && WEXITSTATUS(one.state) == 1) is_reported = true;
    if (one.rank >= 0 && one.state != 0 && status == 0) {
      failed = Clock::now();
      is_reported = WIFEXITED(one.state) && WEXITSTATUS(one.state) != kNotStarted;
      status = WIFEXITED(one.state) ? WEXITSTATUS(one.state) : 1;
      if (WIFSIGNALED(one.state)) {
        about = fmt::format("rank {} was ended by signal {} ({})", one.rank, WTERMSIG(one.state),
                            strsignal(WTERMSIG(one.state)));
      } else {
        about = fmt::format("rank {} could not be started", one.rank);
      }
    }
    if (one.rank >= 0) continue;
    if (status != 0 && !is_asked && Clock::now() - failed > kGrace) {
      for (const int which : {SIGTERM, SIGCONT}) children.signal(which);  // one may be stopped
      is_asked = true;
    }
    if (status != 0 && Clock::now() - failed > kPatience) children.signal(SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  if (status != 0 && !is_reported) fmt::print(stderr, "coda: {}\n", about);
  return status;
}

// Starts copies with the same arguments, distinguished by RANK and LOCAL_RANK.
int run_processes(int count) {
  set("WORLD_SIZE", count);
  set("LOCAL_WORLD_SIZE", count);
  ::setenv("MASTER_ADDR", "127.0.0.1", 1);
  // Other users of this machine do not know the secret, so they cannot join the run.
  ::setenv("CODA_JOIN_SECRET", random_secret().c_str(), 0);
  if (std::getenv("MASTER_PORT") == nullptr) set("MASTER_PORT", free_port());
  std::vector<std::string> words = arguments();
  std::vector<char*> pointers = pointers_to(words);
  std::fflush(stdout);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) hand_on_at(signal);
  Children children;
  for (int rank = 0; rank < count; ++rank) children.start(rank, pointers);
  return wait_for(children);
}

}  // namespace

int run_on_gpus(int count) {
  const int there = count_gpus();
  require(count <= there, fmt::format("--gpus {}: this process may use {} (look at nvidia-smi and "
                                      "CUDA_VISIBLE_DEVICES, or choose a lower number)",
                                      count, there));
  return run_processes(count);
}

int run_on_cpus(int count) {
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  ::setenv("OMP_NUM_THREADS", std::to_string(std::max(1, cores / count)).c_str(), 0);
  set("CODA_SHARED_MEMORY", make_shared_memory(count));
  return run_processes(count);
}

}  // namespace coda::tools
