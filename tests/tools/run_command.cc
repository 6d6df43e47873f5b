// SPDX-License-Identifier: Apache-2.0
#include "tools/run_command.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace coda {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void become(std::vector<char*>& arguments, const CommandOptions& options,
                         const std::string& out, const std::string& err) {
  dup2(options.output >= 0 ? options.output : open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600),
       STDOUT_FILENO);
  dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
  if (options.file_limit > 0) {
    const rlimit limit{static_cast<rlim_t>(options.file_limit),
                       static_cast<rlim_t>(options.file_limit)};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  if (options.memory_limit > 0) {
    const rlimit limit{static_cast<rlim_t>(options.memory_limit),
                       static_cast<rlim_t>(options.memory_limit)};
    setrlimit(RLIMIT_AS, &limit);
  }
  // A shell that runs the tests in its background may have set some signals to be ignored.
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE}) std::signal(signal, SIG_DFL);
  if (options.ignored_signal > 0) std::signal(options.ignored_signal, SIG_IGN);
  if (!options.folder.empty() && chdir(options.folder.c_str()) != 0) _exit(126);
  for (const auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
  setenv("OMP_NUM_THREADS", "1", 1);
  execv(CODA_COMMAND, arguments.data());
  _exit(127);
}

}  // namespace

CommandResult run_coda(const std::vector<std::string>& arguments, const CommandOptions& options) {
  const TestFolder folder;
  std::vector<char*> words{const_cast<char*>("coda")};
  for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("cannot fork");
  if (child == 0) become(words, options, folder / "out", folder / "err");
  if (options.while_running) options.while_running(child);
  int state = 0;
  waitpid(child, &state, 0);
  CommandResult result;
  result.status = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
  result.out = read_bytes(folder / "out");
  result.err = read_bytes(folder / "err");
  return result;
}

bool wait_until(pid_t child, const std::function<bool()>& holds) {
  while (!holds()) {
    siginfo_t ended{};
    if (waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        ended.si_pid == child)
      return holds();
    usleep(2000);
  }
  return true;
}

bool wait_for_file(pid_t child, const fs::path& file) {
  return wait_until(child, [&] { return fs::exists(file); });
}

TestFolder::TestFolder() {
  std::string name = (fs::temp_directory_path() / "coda_test_XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder for a test");
  path_ = name;
}

TestFolder::~TestFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string TestFolder::write(const std::string& name, const std::string& contents) const {
  fs::create_directories((path_ / name).parent_path());
  std::ofstream(path_ / name, std::ios::binary) << contents;
  return (path_ / name).string();
}

std::string read_bytes(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  if (!fs::exists(folder)) return names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace coda
