// SPDX-License-Identifier: Apache-2.0
// The weights of a Hugging Face folder: one file, or shards listed by an index. The index is
// checked against the shards: all of them exist, each name is in the shard that the index gives,
// and no name is in two. Names are those of the plain model, also where a wrapper of it was saved.
#include <algorithm>
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

// A parameter's name without what wrappers put into it: torch.compile, FSDP and checkpointing
// anywhere, data parallel and PEFT in front.
std::string unwrapped(std::string name) {
  for (const std::string_view part :
       {"_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_forward_module."}) {
    size_t at = 0;
    while ((at = name.find(part, at)) != std::string::npos) {
      const bool is_component = at == 0 || name[at - 1] == '.';
      if (is_component) name.erase(at, part.size());
      at += is_component ? 0 : 1;
    }
  }
  for (const std::string_view prefix : {"module.", "base_model.model."})
    while (name.starts_with(prefix)) name.erase(0, prefix.size());
  return name;
}

StoredTensors without_wrappers(StoredTensors stored) {
  std::map<std::string, StoredTensor, std::less<>> tensors;
  for (auto& [name, tensor] : stored.tensors) {
    require(name.find(".lora_A.") == std::string::npos,
            stored.source + ": tensor " + in_quotes(name) +
                " is of a LoRA adapter: merge it into the weights first (PEFT: "
                "merge_and_unload() of the model, then save_pretrained())");
    const auto [place, is_new] = tensors.try_emplace(unwrapped(name), std::move(tensor));
    require(is_new, stored.source + ": tensors " + in_quotes(place->second.name) + " and " +
                        in_quotes(name) + " are both " + in_quotes(place->first) +
                        " of the model (remove one of the two)");
  }
  stored.tensors = std::move(tensors);
  return stored;
}

bool have_same_values(const StoredTensor& a, const StoredTensor& b) {
  if (a.shape != b.shape) return false;
  if (a.type == b.type) return std::ranges::equal(a.bytes, b.bytes);
  std::vector<float> values_a(static_cast<size_t>(a.count())), values_b(values_a.size());
  read_floats(a, a.shape, values_a);
  read_floats(b, b.shape, values_b);
  return values_a == values_b;
}

}  // namespace

StoredTensors open_model_weights(const fs::path& folder) {
  const fs::path file = folder / "model.safetensors";
  const fs::path index = folder / "model.safetensors.index.json";
  std::error_code ignored;
  if (fs::exists(file, ignored)) return without_wrappers(open_safetensors(file));
  if (fs::exists(index, ignored)) return without_wrappers(open_shards(folder, index));
  throw Error("cannot read weights from " + printable(folder) +
              ": it has neither model.safetensors nor model.safetensors.index.json (give the "
              "folder of a Hugging Face checkpoint)");
}

bool has_head_of_its_own(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::exists(folder / "model.safetensors", ignored) &&
      !fs::exists(folder / "model.safetensors.index.json", ignored))
    return false;
  const StoredTensors stored = open_model_weights(folder);
  const auto first = [&](std::initializer_list<const char*> names) -> const StoredTensor* {
    for (const char* name : names)
      if (const StoredTensor* tensor = stored.find(name)) return tensor;
    return nullptr;
  };
  const StoredTensor* head = first({"lm_head.weight", "embed_out.weight"});
  const StoredTensor* embedding =
      first({"model.embed_tokens.weight", "embed_tokens.weight", "transformer.wte.weight",
             "wte.weight", "gpt_neox.embed_in.weight", "embed_in.weight"});
  return head != nullptr && embedding != nullptr && !have_same_values(*head, *embedding);
}

}  // namespace coda::io
