// SPDX-License-Identifier: Apache-2.0
// coda info: prints processor, backends and versions, for bug reports.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "coda/system_info.h"
#include "commands.h"

namespace coda::tools {
namespace {

void run(bool as_json) {
  nlohmann::ordered_json info;
  for (const SystemFact& fact : system_info())
    std::visit([&](const auto& value) { info[fact.name] = value; }, fact.value);
  if (as_json) {
    fmt::print("{}\n", info.dump(2));
    return;
  }
  for (const auto& [name, value] : info.items()) {
    fmt::print("{:18} {}\n", name, value.is_string() ? value.get<std::string>() : value.dump());
  }
}

}  // namespace

void add_info(CLI::App& app) {
  auto as_json = std::make_shared<bool>(false);
  CLI::App& command =
      *app.add_subcommand("info", "The processor, the backends and the versions in use");
  command.add_flag("--json", *as_json, "Print one JSON object");
  command.callback([as_json] { run(*as_json); });
}

}  // namespace coda::tools
