// SPDX-License-Identifier: Apache-2.0
#include "coda/program_file.h"

#include "base/atomic_file.h"
#include "coda/graph_text.h"
#include "coda/messages.h"
#include "io/mapped_file.h"

namespace coda {

std::vector<Program> read_programs(const std::filesystem::path& file) {
  return parse_programs(read_program_text(file), file.native());
}

Program read_program(const std::filesystem::path& file) {
  return parse_program(read_program_text(file), file.native());
}

NamedGraph read_graph(const std::filesystem::path& file) {
  return parse_graph(read_program_text(file), file.native());
}

std::string read_program_text(const std::filesystem::path& file) {
  std::string text = io::read_file(file);
  io::require_not_empty(text.size(), printable(file));
  return text;
}

void write_program(const std::filesystem::path& file, const Program& program) {
  write_program_text(file, text(program));
}

void write_program_text(const std::filesystem::path& file, std::string_view text) {
  if (file.has_parent_path()) make_folders(file.parent_path());
  write_file_atomically(file, text);
}

}  // namespace coda
