// SPDX-License-Identifier: Apache-2.0
// MappedFile over mmap. The mappings are a list that the signal handler walks without a lock: its
// entries are never freed, and are used again.
#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>

#include "base/file_error.h"

namespace coda::io {

struct Mapping {
  std::atomic<const std::byte*> data = nullptr;  // null: the entry is free
  std::atomic<size_t> size = 0;
  std::atomic<bool> is_cut = false;
  std::string name;  // the handler does not read it
  Mapping* next = nullptr;

  bool has(const void* address) const {
    const std::byte* start = data;
    return start != nullptr && address >= start && address < start + size;
  }
};

namespace {

std::mutex mappings_mutex;  // of making entries and of their names
std::atomic<Mapping*> mappings = nullptr;
struct sigaction action_before = {};

void on_bus_error(int signal, siginfo_t* info, void* context) {
  for (Mapping* m = mappings; m != nullptr; m = m->next) {
    if (!m->has(info->si_addr)) continue;
    const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    char* const start =
        static_cast<char*>(info->si_addr) - reinterpret_cast<uintptr_t>(info->si_addr) % page;
    const size_t rest =
        reinterpret_cast<uintptr_t>(m->data.load()) + m->size - reinterpret_cast<uintptr_t>(start);
    const void* zeros =
        ::mmap(start, rest, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    m->is_cut = true;
    if (zeros != MAP_FAILED) return;
  }
  // Not ours: the handler before, or the same fault again with the system's own action.
  if ((action_before.sa_flags & SA_SIGINFO) != 0) {
    action_before.sa_sigaction(signal, info, context);
  } else if (action_before.sa_handler != SIG_DFL && action_before.sa_handler != SIG_IGN) {
    action_before.sa_handler(signal);
  } else {
    ::signal(signal, SIG_DFL);
    if (info->si_code <= 0) ::raise(signal);  // sent by a program: it does not come again
  }
}

Mapping* keep(const std::byte* data, size_t size, const std::filesystem::path& path) {
  const std::lock_guard lock(mappings_mutex);
  Mapping* entry = mappings;
  if (entry == nullptr) {
    struct sigaction action = {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGBUS, &action, &action_before);
  }
  while (entry != nullptr && entry->data != nullptr) entry = entry->next;
  if (entry == nullptr) {
    entry = new Mapping;
    entry->next = mappings;
    mappings = entry;
  }
  entry->name = printable(path);
  entry->is_cut = false;
  entry->size = size;
  entry->data = data;
  return entry;
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) throw file_error("cannot read", path, errno);
  struct stat status = {};
  int error_number = 0;
  if (::fstat(descriptor, &status) != 0) {
    error_number = errno;
  } else if (S_ISDIR(status.st_mode)) {
    error_number = EISDIR;
  } else if (!S_ISREG(status.st_mode)) {
    ::close(descriptor);
    throw Error("cannot read " + printable(path) +
                ": it is no regular file (copy its content to a file first)");
  } else if (status.st_size > 0) {
    const auto size = static_cast<size_t>(status.st_size);
    void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (address == MAP_FAILED) {
      error_number = errno;
    } else {
      mapping_ = keep(static_cast<const std::byte*>(address), size, path);
    }
  }
  ::close(descriptor);
  if (error_number != 0) throw file_error("cannot read", path, error_number);
}

MappedFile::~MappedFile() {
  if (mapping_ == nullptr) return;
  const std::byte* data = mapping_->data;
  const size_t size = mapping_->size;
  mapping_->data = nullptr;
  ::munmap(const_cast<std::byte*>(data), size);
}

std::span<const std::byte> MappedFile::bytes() const {
  if (mapping_ == nullptr) return {};
  return {mapping_->data.load(), mapping_->size.load()};
}

void require_whole(std::span<const std::byte> bytes) {
  for (const Mapping* m = mappings; m != nullptr; m = m->next) {
    if (!m->is_cut || !m->has(bytes.data())) continue;
    const std::lock_guard lock(mappings_mutex);
    throw Error(m->name +
                ": the file was shortened while it was read (let no other program write it "
                "meanwhile, and start again)");
  }
}

std::string read_file(const std::filesystem::path& path) {
  const MappedFile file(path);
  std::string text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  require_whole(file.bytes());
  return text;
}

void require_not_empty(size_t bytes, const std::string& source) {
  require(bytes > 0, source + ": the file is empty (fetch or write it again)");
}

}  // namespace coda::io
