// SPDX-License-Identifier: Apache-2.0
// Runs the command `coda` as a person's shell would, and tells what came of it.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace coda {

struct CommandResult {
  int status = 0;  // exit status, or 128 + the signal that ended it
  std::string out;
  std::string err;
};

struct CommandOptions {
  int64_t file_limit = 0;    // largest file it may write, in bytes; 0: any
  int64_t memory_limit = 0;  // of its address space, in bytes; 0: any
  int ignored_signal = 0;    // as nohup has SIGHUP ignored
  int output = -1;           // a descriptor to be its standard output; -1: into the result
  std::string folder = {};   // where it runs; empty: here
  std::map<std::string, std::string> environment = {};
  std::function<void(pid_t)> while_running = {};  // called once it has started
};

// A command line without its program, made of parts: kModel + Words{"--json"}.
struct Words : std::vector<std::string> {
  using vector::vector;
  friend Words operator+(Words a, const Words& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
};

CommandResult run_coda(const std::vector<std::string>& arguments,
                       const CommandOptions& options = {});

// Waits until the condition holds, however slow the machine is. False if the command ends first.
// The timeout of ctest ends a test that waits for ever.
bool wait_until(pid_t child, const std::function<bool()>& holds);
bool wait_for_file(pid_t child, const std::filesystem::path& file);

// A folder of one test, empty at the start and removed at the end.
class TestFolder {
 public:
  TestFolder();
  ~TestFolder();
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  // Writes a file and returns its path.
  std::string write(const std::string& name, const std::string& contents) const;

 private:
  std::filesystem::path path_;
};

std::string read_bytes(const std::filesystem::path& file);
// Names of what lies in a folder, sorted; nothing if there is no such folder.
std::vector<std::string> names_in(const std::filesystem::path& folder);

}  // namespace coda
