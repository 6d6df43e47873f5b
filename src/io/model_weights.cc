// SPDX-License-Identifier: Apache-2.0
// The weights of a Hugging Face folder: one file, or shards listed by an index. The index is
// checked against the shards: all of them exist, each name is in the shard that the index gives,
// and no name is in two.
#include <nlohmann/json.hpp>
#include <set>

#include "base/file_error.h"
#include "coda/error.h"
#include "io/json_text.h"
#include "io/mapped_file.h"
#include "io/safetensors.h"

namespace coda::io {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

// name -> shard file.
std::map<std::string, std::string> read_index(const fs::path& path) {
  const std::string source = printable(path);
  const json index = parse_json(read_file(path), source);
  const auto found = index.is_object() ? index.find("weight_map") : index.end();
  if (found == index.end() || !found->is_object() || found->empty()) {
    throw Error(source +
                ": no 'weight_map' with tensors (the index is corrupted: fetch or write it again)");
  }
  std::map<std::string, std::string> shard_of;
  for (const auto& [name, shard] : found->items()) {
    // A shard is a file of the same folder: an index must not reach elsewhere.
    const bool is_plain =
        shard.is_string() && !shard.get_ref<const std::string&>().empty() &&
        shard.get_ref<const std::string&>().find_first_of("/\\") == std::string::npos;
    if (!is_plain) {
      throw Error(source + ": tensor " + in_quotes(name) + " is said to lie in " +
                  in_quotes(shard.dump()) +
                  ", which is no file name (fetch or write the index again)");
    }
    shard_of[name] = shard.get<std::string>();
  }
  return shard_of;
}

StoredTensors open_shards(const fs::path& folder, const fs::path& index_path) {
  const std::map<std::string, std::string> shard_of = read_index(index_path);
  std::set<std::string> shards;
  for (const auto& [name, shard] : shard_of) shards.insert(shard);
  StoredTensors result;
  result.source = printable(index_path);
  for (const std::string& shard : shards) {
    std::error_code ignored;  // opening it says what is wrong
    if (!fs::exists(folder / shard, ignored) && !ignored) {
      throw Error(printable(index_path) + ": shard " + in_quotes(shard) +
                  " is missing in the folder (fetch it too)");
    }
    StoredTensors part = open_safetensors(folder / shard);
    result.files.insert(result.files.end(), part.files.begin(), part.files.end());
    result.metadata.merge(part.metadata);
    for (auto& [name, tensor] : part.tensors) {
      const auto [place, is_new] = result.tensors.try_emplace(name, tensor);
      if (!is_new) {
        throw Error(printable(index_path) + ": tensor " + in_quotes(name) + " is in two shards, " +
                    place->second.file + " and " + tensor.file + " (remove one of the two)");
      }
    }
  }
  for (const auto& [name, shard] : shard_of) {
    const StoredTensor* tensor = result.find(name);
    if (tensor == nullptr || tensor->file != printable(folder / shard)) {
      throw Error(printable(index_path) + ": tensor " + in_quotes(name) + " is not in shard " +
                  in_quotes(shard) + ", where the index has it (fetch index and shards again)");
    }
  }
  return result;
}

}  // namespace

StoredTensors open_model_weights(const fs::path& folder) {
  const fs::path file = folder / "model.safetensors";
  const fs::path index = folder / "model.safetensors.index.json";
  std::error_code ignored;
  if (fs::exists(file, ignored)) return open_safetensors(file);
  if (fs::exists(index, ignored)) return open_shards(folder, index);
  throw Error("cannot read weights from " + printable(folder) +
              ": it has neither model.safetensors nor model.safetensors.index.json (give the "
              "folder of a Hugging Face checkpoint)");
}

}  // namespace coda::io
