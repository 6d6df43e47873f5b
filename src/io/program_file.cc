// SPDX-License-Identifier: Apache-2.0
#include "coda/program_file.h"

#include "base/atomic_file.h"
#include "io/mapped_file.h"

namespace coda {

Program read_program(const std::filesystem::path& file) {
  return parse_program(io::read_file(file), file.native());
}

void write_program(const std::filesystem::path& file, const Program& program) {
  if (file.has_parent_path()) make_folders(file.parent_path());
  write_file_atomically(file, text(program));
}

}  // namespace coda
