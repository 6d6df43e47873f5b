// SPDX-License-Identifier: Apache-2.0
// Finds an architecture by what a config.json says, or by a config.
#include <vector>

#include "io/architecture.h"

namespace coda::io {
namespace {

const std::vector<Architecture>& architectures() {
#define CODA_CALL(name) name(),
  static const std::vector<Architecture> rows{CODA_ARCHITECTURES(CODA_CALL)};
#undef CODA_CALL
  return rows;
}

std::string supported() {
  std::string text = "only ";
  for (size_t i = 0; i < architectures().size(); ++i) {
    if (i > 0) text += i + 1 < architectures().size() ? ", " : " and ";
    text += architectures()[i].name;
  }
  return text + " are supported";
}

const Architecture* by_name(const std::string& name) {
  for (const Architecture& row : architectures())
    if (row.name == name) return &row;
  return nullptr;
}

}  // namespace

const Architecture& architecture_of(const Settings& settings) {
  const std::string type = settings.word("model_type", "");
  const Architecture* of_type = nullptr;
  for (const Architecture& row : architectures())
    if (row.model_type == type) of_type = &row;
  const nlohmann::json* list = settings.find("architectures");
  if (list == nullptr) {
    if (of_type == nullptr) settings.refuse("model_type", supported());
    return *of_type;
  }
  if (!list->is_array() || list->size() != 1 || !list->front().is_string()) {
    settings.refuse("architectures", "must be a list of one name");
  }
  const Architecture* named = by_name(list->front().get_ref<const std::string&>());
  if (named == nullptr) settings.refuse("architectures", supported());
  if (!type.empty() && of_type != named) {
    settings.refuse("model_type", "architectures is " + list->dump() + ", whose model_type is '" +
                                      named->model_type + "'");
  }
  return *named;
}

const Architecture& architecture_of(const ModelConfig& config) {
  for (const Architecture& row : architectures())
    if (row.has(config)) return row;
  throw Error("model config: architecture is " +
              in_quotes(std::get<LlamaConfig>(config).architecture) + ", but " + supported());
}

}  // namespace coda::io
