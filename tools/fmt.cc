// SPDX-License-Identifier: Apache-2.0
// coda fmt: formats files of programs and graphs. Reads all files before it writes any.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "coda/error.h"
#include "coda/graph_text.h"
#include "coda/messages.h"
#include "coda/program_file.h"
#include "coda/program_format.h"
#include "commands.h"

namespace coda::tools {
namespace {

struct FmtFlags {
  std::vector<std::string> files;
  bool checks = false;
};

void run(const FmtFlags& flags) {
  std::vector<std::pair<std::string, std::string>> changed;
  for (const std::string& file : flags.files) {
    const std::string text = read_program_text(file);
    std::string formatted =
        is_graph_text(text) ? format_graph(text, file) : format_program(text, file);
    if (formatted != text) changed.emplace_back(file, std::move(formatted));
  }
  for (const auto& [file, text] : changed) {
    if (!flags.checks) write_program_text(file, text);
    fmt::print("{}\n", printable(file));
  }
  require(!flags.checks || changed.empty(),
          std::to_string(changed.size()) + " of " + std::to_string(flags.files.size()) +
              " files are laid out otherwise: coda fmt FILE... changes them");
}

}  // namespace

void add_fmt(CLI::App& app) {
  auto flags = std::make_shared<FmtFlags>();
  CLI::App& command = *app.add_subcommand(
      "fmt", "Formats program files and keeps their comments; prints the names of changed files");
  command
      .add_option("programs", flags->files,
                  "Files of programs or graphs (.coda), replaced where they differ")
      ->required()
      ->type_name("FILE");
  command.add_flag("--check", flags->checks,
                   "Write nothing; print which would change, and fail if one would");
  command.callback([flags] { run(*flags); });
}

}  // namespace coda::tools
