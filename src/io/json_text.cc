// SPDX-License-Identifier: Apache-2.0
// parse_json builds the values itself from the parser's events: a name that appears twice is met
// where it is put in, and time is proportional to the text (nlohmann's own builder with a callback
// goes through all of an object again for each object in it).
#include "io/json_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/file_error.h"
#include "io/mapped_file.h"

namespace coda::io {
namespace {

using nlohmann::json;

constexpr int kDeepest = 64;

std::string place_of(std::string_view text, size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte > 0 ? byte - 1 : 0, text.size()));
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t line_start = before.rfind('\n') + 1;  // 0 on the first line: npos + 1
  return "line " + std::to_string(line) + ", column " +
         std::to_string(before.size() - line_start + 1);
}

// What nlohmann's parser tells of a text, from left to right; each returns whether to go on.
class Builder {
 public:
  explicit Builder(const std::string& source) : source_(source) {}

  json root;
  bool is_good = true;
  size_t bad_byte = 0;           // where the text is no JSON
  bool is_out_of_range = false;  // a number is

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(json::number_integer_t value) { return put(value); }
  bool number_unsigned(json::number_unsigned_t value) { return put(value); }
  bool number_float(json::number_float_t value, const std::string&) { return put(value); }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(json::binary_t&) { return false; }  // not in texts
  bool start_object(size_t) { return open(json::object()); }
  bool start_array(size_t) { return open(json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    const auto [place, is_new] = open_.back()->get_ref<json::object_t&>().emplace(name, nullptr);
    if (!is_new) {
      throw Error(source_ + ": the name " + in_quotes(name) +
                  " appears twice in one object (remove one of the two)");
    }
    member_ = &place->second;
    return true;
  }

  bool parse_error(size_t byte, const std::string&, const json::exception& error) {
    is_good = false;
    bad_byte = byte;
    is_out_of_range = dynamic_cast<const json::parse_error*>(&error) == nullptr;
    return false;
  }

 private:
  json* place(json&& value) {
    if (open_.empty()) return &(root = std::move(value));
    if (!open_.back()->is_array()) return &(*member_ = std::move(value));
    open_.back()->push_back(std::move(value));
    return &open_.back()->back();
  }
  bool put(json value) {
    place(std::move(value));
    return true;
  }
  bool open(json&& value) {
    if (std::ssize(open_) == kDeepest) {
      throw Error(source_ + ": more than " + std::to_string(kDeepest) +
                  " levels of brackets (the file is corrupted)");
    }
    open_.push_back(place(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string& source_;
  std::vector<json*> open_;  // arrays and objects, from the outermost
  json* member_ = nullptr;   // of the innermost object, named last
};

}  // namespace

json parse_json(std::string_view text, const std::string& source) {
  require_not_empty(text.size(), source);
  Builder builder(source);
  json::sax_parse(text, &builder);
  if (builder.is_good) return std::move(builder.root);
  if (builder.is_out_of_range) {
    throw Error(source +
                ": not valid JSON: a number is out of range (the file is corrupted: fetch or "
                "write it again)");
  }
  const bool ends_early = builder.bad_byte > text.size();
  throw Error(source + ": not valid JSON at " + place_of(text, builder.bad_byte) +
              (ends_early ? ", where the text ends too early (" : " (") +
              "the file is corrupted or truncated: fetch or write it again)");
}

}  // namespace coda::io
