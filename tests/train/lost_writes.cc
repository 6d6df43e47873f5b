// SPDX-License-Identifier: Apache-2.0
#include "train/lost_writes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>

namespace coda {
namespace fs = std::filesystem;
namespace {

struct Inode;
using Names = std::map<std::string, std::shared_ptr<Inode>>;

// A file, folder or link: as it is, and as it was when it was last synced.
struct Inode {
  bool is_folder = false;
  std::string link;  // where a link leads; links are synced with their name
  std::string content;
  std::string kept_content;
  Names names;
  Names kept_names;
};

struct Disk {
  fs::path root;
  std::shared_ptr<Inode> top = std::make_shared<Inode>();
  std::map<int, std::shared_ptr<Inode>> open;
  std::function<void()> after_call;
  LostWritesOptions options;
  bool is_paused = false;
};
Disk* disk = nullptr;

// Runs what follows on the system alone.
struct Pause {
  bool before = disk->is_paused;
  Pause() { disk->is_paused = true; }
  ~Pause() { disk->is_paused = before; }
};

bool is_watched() { return disk != nullptr && !disk->is_paused; }

void changed() {
  const Pause pause;
  disk->after_call();
}

// The folder that a path's last name is in, and that name; no folder if it is not below the root.
struct Place {
  std::shared_ptr<Inode> folder;
  std::string name;

  std::shared_ptr<Inode> node() const {
    if (folder == nullptr) return nullptr;
    if (name.empty()) return folder;
    const auto found = folder->names.find(name);
    return found == folder->names.end() ? nullptr : found->second;
  }
};

Place place_of(const char* name, int base = AT_FDCWD) {
  const Pause pause;
  fs::path path = name;
  if (path.is_relative()) {
    path = (base == AT_FDCWD ? fs::current_path()
                             : fs::read_symlink("/proc/self/fd/" + std::to_string(base))) /
           path;
  }
  const fs::path below = path.lexically_normal().lexically_relative(disk->root);
  if (below.empty() || *below.begin() == "..") return {};
  Place place{disk->top, ""};
  for (const fs::path& part : below) {
    if (part.empty() || part == ".") continue;
    place.folder = place.node();
    if (place.folder == nullptr) return {};
    place.name = part.string();
  }
  return place;
}

void add_entry(const Place& place, std::shared_ptr<Inode> node) {
  place.folder->names[place.name] = std::move(node);
}

int opened(int descriptor, const Place& place, int flags) {
  if (descriptor < 0 || place.folder == nullptr) return descriptor;
  std::shared_ptr<Inode> node = place.node();
  const bool is_new = node == nullptr && (flags & O_CREAT) != 0;
  if (is_new) add_entry(place, node = std::make_shared<Inode>());
  if (node != nullptr) disk->open[descriptor] = node;
  if (is_new) changed();
  return descriptor;
}

int removed(int result, const Place& place) {
  if (result == 0 && place.folder != nullptr) {
    place.folder->names.erase(place.name);
    changed();
  }
  return result;
}

int renamed(int result, const Place& from, const Place& to, unsigned flags) {
  if (result != 0 || from.folder == nullptr || to.folder == nullptr) return result;
  std::shared_ptr<Inode> moved = from.node();
  if ((flags & RENAME_EXCHANGE) != 0) {
    add_entry(from, to.node());
  } else {
    from.folder->names.erase(from.name);
  }
  add_entry(to, moved);
  changed();
  return result;
}

int synced(int descriptor) {
  const auto found = disk->open.find(descriptor);
  if (found == disk->open.end()) return 0;
  Inode& node = *found->second;
  if (node.is_folder && disk->options.syncs_folders) node.kept_names = node.names;
  if (!node.is_folder && disk->options.syncs_files) node.kept_content = node.content;
  changed();
  return 0;
}

void write_out(const Inode& node, const fs::path& path, Crash crash, std::mt19937_64& random) {
  if (!node.link.empty()) {
    fs::create_symlink(node.link, path);
  } else if (!node.is_folder) {
    std::ofstream(path, std::ios::binary) << node.kept_content;
  } else {
    fs::create_directory(path);
    const bool keeps_names =
        crash == Crash::keeps_names || (crash == Crash::keeps_some_names && random() % 2 == 0);
    for (const auto& [name, child] : keeps_names ? node.names : node.kept_names) {
      write_out(*child, path / name, crash, random);
    }
  }
}

}  // namespace

LostWrites::LostWrites(const fs::path& folder, std::function<void()> after_call,
                       LostWritesOptions options) {
  disk = new Disk;
  disk->root = folder;
  disk->after_call = std::move(after_call);
  disk->options = options;
  disk->top->is_folder = true;
}

LostWrites::~LostWrites() {
  delete disk;
  disk = nullptr;
}

void LostWrites::leave_at(const fs::path& folder, Crash crash, uint64_t seed) const {
  const Pause pause;
  std::mt19937_64 random(seed);
  write_out(*disk->top, folder, crash, random);
}

}  // namespace coda

// In front of the C library's, for this program and for the standard library's <filesystem>.
extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  const auto call = [&] {
    return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
  };
  if (!coda::is_watched()) return call();
  const coda::Place place = coda::place_of(path);
  return coda::opened(call(), place, flags);
}

ssize_t write(int descriptor, const void* bytes, size_t count) {
  const ssize_t written = ::syscall(SYS_write, descriptor, bytes, count);
  if (!coda::is_watched() || written <= 0) return written;
  const auto found = coda::disk->open.find(descriptor);
  if (found != coda::disk->open.end()) {  // what a crash may leave is as before
    found->second->content.append(static_cast<const char*>(bytes), static_cast<size_t>(written));
  }
  return written;
}

int fsync(int descriptor) {
  if (!coda::is_watched()) return static_cast<int>(::syscall(SYS_fsync, descriptor));
  return coda::synced(descriptor);
}

int fdatasync(int descriptor) { return fsync(descriptor); }

int close(int descriptor) {
  if (coda::is_watched()) coda::disk->open.erase(descriptor);
  return static_cast<int>(::syscall(SYS_close, descriptor));
}

int renameat2(int from_base, const char* from, int to_base, const char* to,
              unsigned flags) noexcept {
  const auto call = [&] {
    return static_cast<int>(::syscall(SYS_renameat2, from_base, from, to_base, to, flags));
  };
  if (!coda::is_watched()) return call();
  const coda::Place old_place = coda::place_of(from, from_base);
  const coda::Place new_place = coda::place_of(to, to_base);
  return coda::renamed(call(), old_place, new_place, flags);
}

int rename(const char* from, const char* to) noexcept {
  return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int unlinkat(int base, const char* path, int flags) noexcept {
  const auto call = [&] { return static_cast<int>(::syscall(SYS_unlinkat, base, path, flags)); };
  if (!coda::is_watched()) return call();
  const coda::Place place = coda::place_of(path, base);
  return coda::removed(call(), place);
}

int unlink(const char* path) noexcept { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char* path) noexcept { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char* path) noexcept {
  const int result = unlinkat(AT_FDCWD, path, 0);
  return result != 0 && errno == EISDIR ? rmdir(path) : result;
}

int mkdir(const char* path, mode_t mode) noexcept {
  const auto call = [&] { return static_cast<int>(::syscall(SYS_mkdirat, AT_FDCWD, path, mode)); };
  if (!coda::is_watched()) return call();
  const coda::Place place = coda::place_of(path);
  const int result = call();
  if (result != 0 || place.folder == nullptr) return result;
  auto node = std::make_shared<coda::Inode>();
  node->is_folder = true;
  coda::add_entry(place, std::move(node));
  coda::changed();
  return result;
}

int symlink(const char* target, const char* path) noexcept {
  const auto call = [&] {
    return static_cast<int>(::syscall(SYS_symlinkat, target, AT_FDCWD, path));
  };
  if (!coda::is_watched()) return call();
  const coda::Place place = coda::place_of(path);
  const int result = call();
  if (result != 0 || place.folder == nullptr) return result;
  auto node = std::make_shared<coda::Inode>();
  node->link = target;
  coda::add_entry(place, std::move(node));
  coda::changed();
  return result;
}

}  // extern "C"
