// SPDX-License-Identifier: Apache-2.0
// The settings of a config.json, read by name and type. Messages name the file, the setting, its
// value and the valid values.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/file_error.h"
#include "coda/error.h"
#include "io/json_text.h"

namespace coda::io {

// The settings of one JSON object, read by name. A setting that is null counts as absent. It keeps
// which names were asked for, so that what nobody asked for is noticed.
class Settings {
 public:
  Settings(const nlohmann::json& object, std::string source)
      : object_(object), source_(std::move(source)) {
    require(object.is_object(), source_ +
                                    ": not a JSON object of settings (it must start with "
                                    "'{': fetch or write the file again)");
  }

  const std::string& source() const { return source_; }

  const nlohmann::json* find(const char* name) const {
    asked_.insert(name);
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  // Given, but as null: for a setting whose default is not null.
  bool is_null(const char* name) const {
    asked_.insert(name);
    const auto found = object_.find(name);
    return found != object_.end() && found->is_null();
  }

  [[noreturn]] void refuse(const char* name, const std::string& needed) const {
    const nlohmann::json* value = find(name);
    throw Error(source_ + ": " + name + " is " +
                (value == nullptr ? "missing" : in_quotes(value->dump())) + ", but " + needed);
  }

  int64_t whole(const char* name, std::optional<int64_t> otherwise = std::nullopt) const {
    const nlohmann::json* value = find(name);
    if (value == nullptr && otherwise) return *otherwise;
    const bool is_whole =
        value != nullptr && value->is_number_integer() &&
        !(value->is_number_unsigned() && value->get<uint64_t>() > uint64_t{INT64_MAX});
    if (!is_whole) refuse(name, "must be a whole number");
    return value->get<int64_t>();
  }

  double number(const char* name, std::optional<double> otherwise = std::nullopt) const {
    const nlohmann::json* value = find(name);
    if (value == nullptr && otherwise) return *otherwise;
    if (value == nullptr || !value->is_number()) refuse(name, "must be a number");
    return value->get<double>();
  }

  bool flag(const char* name, bool otherwise) const {
    const nlohmann::json* value = find(name);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) refuse(name, "must be true or false");
    return value->get<bool>();
  }

  std::string word(const char* name, const char* otherwise) const {
    const nlohmann::json* value = find(name);
    if (value == nullptr) return otherwise;
    if (!value->is_string()) refuse(name, "must be a text");
    return value->get<std::string>();
  }

  // What is not implemented must be off.
  void must_be(const char* name, bool needed, const char* why) const {
    if (flag(name, needed) != needed) {
      refuse(name,
             std::string("only ") + (needed ? "true" : "false") + " is supported (" + why + ")");
    }
  }

  // These have no effect beside what was read.
  void pass_over(std::initializer_list<const char*> names) const {
    asked_.insert(names.begin(), names.end());
  }

  // Names of the object that were not asked for.
  std::vector<std::string> others() const {
    std::vector<std::string> names;
    for (const auto& [name, value] : object_.items())
      if (!asked_.contains(name)) names.push_back(name);
    return names;
  }

 private:
  const nlohmann::json& object_;
  std::string source_;
  mutable std::set<std::string, std::less<>> asked_;
};

}  // namespace coda::io
