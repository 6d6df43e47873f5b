// SPDX-License-Identifier: Apache-2.0
// One component of a tokenizer.json: an object with a type and settings, which are read by name.
// Messages name its path in the file: "tokenizer.json: pre_tokenizer Sequence: Split".
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace coda::tokenizer {

class Component {
 public:
  // Throws Error unless it is an object.
  Component(const nlohmann::json& object, std::string source);

  const std::string& source() const { return source_; }
  bool is(const char* type) const { return type_ == type; }

  const nlohmann::json* find(const char* name) const;  // null counts as absent
  // Throw Error where the value is missing (but for `otherwise`) or of another type.
  bool flag(const char* name, bool otherwise) const;
  int64_t number(const char* name, int64_t otherwise) const;
  std::string text(const char* name) const;
  std::string text(const char* name, const char* otherwise) const;
  // The objects of an array; none if it is absent.
  std::vector<Component> parts(const char* name) const;
  Component part(const char* name) const;

  // Says that the component, or a setting of it, is not supported.
  [[noreturn]] void refuse(const std::string& what = "") const;

 private:
  const nlohmann::json& object_;
  std::string type_;
  std::string source_;
};

// The components that one is made of: those in `list` if it is a Sequence, else itself.
std::vector<Component> flattened(const Component& component, const char* list);

}  // namespace coda::tokenizer
