// SPDX-License-Identifier: Apache-2.0
// Reports a name that occurs in two files, because otherwise the order of the flags would matter.
#include "array_flags.h"

#include <algorithm>

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

Arrays read_all_arrays(const std::vector<std::string>& files,
                       const std::function<bool(const std::string&)>& is_known) {
  Arrays all;
  for (const std::string& file : files) {
    Arrays others;
    Arrays arrays = read_arrays(file, [&](const std::string& name) {
      if (!is_known(name)) others[name] = {};
      return is_known(name);
    });
    arrays.merge(others);
    for (auto& [name, array] : arrays) {
      const bool is_new = all.emplace(name, std::move(array)).second;
      require(is_new, printable(file) + ": the array " + in_quotes(name) +
                          " is in another of the files too: leave one out");
    }
  }
  return all;
}

Arrays read_all_arrays(const std::vector<std::string>& files, std::span<const Program> programs) {
  return read_all_arrays(files, [programs](const std::string& name) {
    return std::ranges::any_of(programs, [&name](const Program& program) {
      return std::ranges::find(program.tensors, name, &TensorDecl::name) != program.tensors.end();
    });
  });
}

}  // namespace coda::tools
