// SPDX-License-Identifier: Apache-2.0
// parse_json over nlohmann's parser, whose callback sees every name and so finds those that appear
// twice.
#include "io/json_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "base/file_error.h"

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

}  // namespace

json parse_json(std::string_view text, const std::string& source) {
  std::vector<std::unordered_set<std::string>> names;  // of the objects that are open
  const auto see = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > kDeepest) {
      throw Error(source + ": more than " + std::to_string(kDeepest) +
                  " levels of brackets (the file is corrupted)");
    }
    if (event == json::parse_event_t::object_start) {
      names.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      names.pop_back();
    } else if (event == json::parse_event_t::key) {
      const std::string& name = parsed.get_ref<const std::string&>();
      if (!names.back().insert(name).second) {
        throw Error(source + ": the name " + in_quotes(name) +
                    " appears twice in one object (remove one of the two)");
      }
    }
    return true;
  };
  try {
    return json::parse(text, see);
  } catch (const json::parse_error& error) {
    const bool ends_early = error.byte > text.size();
    throw Error(source + ": not valid JSON at " + place_of(text, error.byte) +
                (ends_early ? ", where the text ends too early (" : " (") +
                "the file is corrupted or truncated: fetch or write it again)");
  } catch (const json::exception&) {
    throw Error(source +
                ": not valid JSON: a number is out of range (the file is corrupted: fetch or "
                "write it again)");
  }
}

}  // namespace coda::io
