// SPDX-License-Identifier: Apache-2.0
#include "models/hf_reference.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdlib>

#include "parity/python_modules.h"

namespace coda {
namespace fs = std::filesystem;

std::optional<fs::path> hf_reference(std::string& why) {
  const fs::path source = CODA_SOURCE_DIR;
  const fs::path script = source / "tests/parity/hf_reference.py";
  fs::path folder = fs::path(CODA_BINARY_DIR) / "parity";
  const fs::path done = folder / "done";
  fs::create_directories(folder);
  // Tests run side by side: the first makes the cases, the others wait.
  const int lock = open((folder / "lock").c_str(), O_CREAT | O_RDWR, 0666);
  flock(lock, LOCK_EX);
  const bool is_fresh = fs::exists(done) && fs::last_write_time(done) > fs::last_write_time(script);
  int status = 0;
  if (!is_fresh) {
    const auto python = python_with("torch transformers safetensors", source);
    if (!python) {
      why = kNoJudges;
      close(lock);
      return std::nullopt;
    }
    const std::string log = (folder / "log").string();
    status = std::system((*python + " '" + script.string() + "' '" + folder.string() + "' > '" +
                          log + "' 2>&1 && touch '" + done.string() + "'")
                             .c_str());
  }
  close(lock);
  if (status != 0)
    throw std::runtime_error("hf_reference.py failed; see " + (folder / "log").string());
  return folder;
}

}  // namespace coda
