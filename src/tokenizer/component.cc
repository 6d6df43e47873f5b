// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/component.h"

#include "coda/error.h"
#include "coda/messages.h"

namespace coda::tokenizer {

using nlohmann::json;

Component::Component(const json& object, std::string source)
    : object_(object), source_(std::move(source)) {
  require(object.is_object(), source_ + ": not a JSON object (fetch the file again)");
  type_ = text("type", "");
  if (!type_.empty()) source_ += " " + printable(type_);
}

const json* Component::find(const char* name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool Component::flag(const char* name, bool otherwise) const {
  const json* value = find(name);
  if (value == nullptr) return otherwise;
  require(value->is_boolean(), source_ + ": '" + name + "' must be true or false");
  return value->get<bool>();
}

int64_t Component::number(const char* name, int64_t otherwise) const {
  const json* value = find(name);
  if (value == nullptr) return otherwise;
  require(value->is_number_integer() && *value >= 0 && *value <= INT32_MAX,
          source_ + ": '" + name + "' must be a whole number from 0 to 2^31 - 1");
  return value->get<int64_t>();
}

std::string Component::text(const char* name) const {
  require(find(name) != nullptr, source_ + ": '" + name + "' is missing (fetch the file again)");
  return text(name, "");
}

std::string Component::text(const char* name, const char* otherwise) const {
  const json* value = find(name);
  if (value == nullptr) return otherwise;
  require(value->is_string(), source_ + ": '" + name + "' must be a text");
  return value->get<std::string>();
}

std::vector<Component> Component::parts(const char* name) const {
  const json* value = find(name);
  if (value == nullptr) return {};
  require(value->is_array(), source_ + ": '" + name + "' must be a list");
  std::vector<Component> parts;
  for (const json& part : *value) parts.emplace_back(part, source_ + ":");
  return parts;
}

Component Component::part(const char* name) const {
  const json* value = find(name);
  require(value != nullptr, source_ + ": '" + name + "' is missing (fetch the file again)");
  return {*value, source_ + ": " + name};
}

void Component::refuse(const std::string& what) const {
  throw Error(source_ + (what.empty() ? "" : ": " + what) +
              " is not supported (give token ids made with Python's tokenizers)");
}

std::vector<Component> flattened(const Component& component, const char* list) {
  if (!component.is("Sequence")) return {component};
  std::vector<Component> all;
  for (const Component& part : component.parts(list)) {
    for (Component& inner : flattened(part, list)) all.push_back(std::move(inner));
  }
  return all;
}

}  // namespace coda::tokenizer
