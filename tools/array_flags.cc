// SPDX-License-Identifier: Apache-2.0
// Reports a name that occurs in two files, because otherwise the order of the flags would matter.
#include "array_flags.h"

#include "coda/messages.h"

namespace coda::tools {

CLI::Option* add_array_files(CLI::App& command, const std::string& flag,
                             std::vector<std::string>& files, const std::string& help) {
  return command
      .add_option(flag, files, help + " (.npz, .safetensors); may be given several times")
      ->type_name("FILE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
}

Arrays read_all_arrays(const std::vector<std::string>& files) {
  Arrays all;
  for (const std::string& file : files) {
    for (auto& [name, array] : read_arrays(file)) {
      const bool is_new = all.emplace(name, std::move(array)).second;
      require(is_new, printable(file) + ": the array " + in_quotes(name) +
                          " is in another of the files too: leave one out");
    }
  }
  return all;
}

}  // namespace coda::tools
