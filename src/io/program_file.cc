// SPDX-License-Identifier: Apache-2.0
#include "coda/program_file.h"

#include "base/atomic_file.h"
#include "coda/error.h"
#include "coda/messages.h"
#include "io/mapped_file.h"

namespace coda {

Program read_program(const std::filesystem::path& file) {
  const std::string text = io::read_file(file);
  try {
    return parse_program(text);
  } catch (const Error& error) {
    throw Error(printable(file) + ": " + error.what());
  }
}

void write_program(const std::filesystem::path& file, const Program& program) {
  if (file.has_parent_path()) make_folders(file.parent_path());
  write_file_atomically(file, text(program));
}

}  // namespace coda
