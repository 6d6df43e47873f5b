// SPDX-License-Identifier: Apache-2.0
// An entry is text: a letter for its kind, then a name, or names and values. Entries are compared
// in order, so only those that one side has not announced yet are stored.
#include "collective/exchange_log.h"

#include <algorithm>

#include "base/sha256.h"
#include "coda/messages.h"
#include "collective/socket.h"

namespace coda {
namespace {

constexpr char kExchange = 'X';  // the first letter of an entry
constexpr char kSettings = 'S';
constexpr char kEnd = '\0';       // behind a name, and behind a value
constexpr size_t kLongest = 100;  // bytes of a value

// The start of a long value is for people; the digest distinguishes values.
std::string shortened(const std::string& value) {
  if (value.size() <= kLongest) return value;
  return value.substr(0, kLongest / 2) + "... (" + std::to_string(value.size()) + " characters, " +
         sha256(value).substr(0, 16) + ")";
}

Settings settings_of(const std::string& entry) {
  Settings settings;
  for (size_t at = 1; at < entry.size();) {
    const auto field = [&] {
      const size_t end = std::min(entry.find(kEnd, at), entry.size());
      std::string text = entry.substr(at, end - at);
      at = end + 1;
      return text;
    };
    std::string name = field();
    settings.push_back({std::move(name), at < entry.size() ? field() : ""});
  }
  return settings;
}

std::string described(const std::string& entry) {
  return entry.starts_with(kSettings) ? "a comparison of settings" : printable(entry.substr(1));
}

std::string said(const std::string& value) { return value.empty() ? "none" : in_quotes(value); }

// Describes how two lists of settings differ.
std::string difference_of(const Settings& theirs, const Settings& own) {
  for (size_t i = 0; i < std::min(theirs.size(), own.size()); ++i) {
    if (theirs[i].name != own[i].name) break;
    if (theirs[i].value == own[i].value) continue;
    return " has " + printable(own[i].name) + " " + said(theirs[i].value) + " and rank 0 has " +
           said(own[i].value) +
           ": all processes need the same (start them with the same flags and files)";
  }
  return " has other settings than rank 0 (start all processes with the same flags and version)";
}

}  // namespace

std::string exchange_text(const std::string& name, const TensorView& values) {
  return name + " of " + std::to_string(values.size()) + " " + std::string(name_of(values.dtype));
}

std::string entry_of(const std::string& what) { return kExchange + what; }

std::string entry_of(const Settings& settings) {
  std::string entry(1, kSettings);
  for (const Setting& setting : settings)
    entry += setting.name + kEnd + shortened(setting.value) + kEnd;
  if (entry.size() <= kLongestMessage) return entry;
  return entry_of(Settings{{"settings whose digest is", sha256(entry)}});
}

void ExchangeLog::add_own(const std::string& entry) {
  for (size_t rank = 1; rank < others_.size(); ++rank) {
    others_[rank].own.push_back(entry);
    compare(rank);
  }
}

void ExchangeLog::add(int rank, const std::string& entry) {
  others_[static_cast<size_t>(rank)].theirs.push_back(entry);
  compare(static_cast<size_t>(rank));
}

void ExchangeLog::leave(int rank) {
  others_[static_cast<size_t>(rank)].has_left = true;
  compare(static_cast<size_t>(rank));
}

bool ExchangeLog::is_level() const {
  return std::ranges::all_of(others_, [](const Pair& pair) { return pair.own.empty(); });
}

void ExchangeLog::compare(size_t rank) {
  Pair& pair = others_[rank];
  while (!difference_ && !pair.own.empty() && !pair.theirs.empty()) {
    const std::string own = std::move(pair.own.front());
    const std::string theirs = std::move(pair.theirs.front());
    pair.own.pop_front();
    pair.theirs.pop_front();
    ++pair.same;
    if (own == theirs) continue;
    const bool are_settings = own.starts_with(kSettings) && theirs.starts_with(kSettings);
    difference_ = {static_cast<int>(rank),
                   are_settings
                       ? difference_of(settings_of(theirs), settings_of(own))
                       : " is out of step: its exchange " + std::to_string(pair.same) + " is " +
                             described(theirs) + ", and rank 0's is " + described(own) +
                             " (all processes must call the same functions in the same order)"};
  }
  if (difference_ || !pair.has_left || pair.own.empty()) return;
  difference_ = {static_cast<int>(rank),
                 " has left after its exchange " + std::to_string(pair.same) +
                     ", and rank 0 goes on with " + described(pair.own.front()) +
                     " (all processes must call the same functions in the same order)"};
}

}  // namespace coda
