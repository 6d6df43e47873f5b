// SPDX-License-Identifier: Apache-2.0
// Parses the embedded tables once.
#include "gpu/configure/tuned_table.h"

#include <map>
#include <mutex>
#include <utility>

#include "coda/error.h"

namespace coda::gpu {

TunedRows measured_rows(const Target& target, bool on_h100) {
  TunedRows rows;
  if (target.measured == nullptr) return rows;
  for (const EmbeddedText& file : target.measured()) {
    if (is_h100(file.name) != on_h100) continue;
    std::vector<std::string> left_out;
    rows.add(TunedRows(file.text, &left_out));
    if (!left_out.empty())
      throw InternalError("the shipped table has a row that cannot be read: " + left_out.front());
  }
  return rows;
}

namespace {

TunedRows both(const Target& target, bool of_h100) {
  TunedRows rows = measured_rows(target, !of_h100);
  rows.add(measured_rows(target, of_h100));
  return rows;
}

}  // namespace

bool is_h100(std::string_view device) {
  return device.find("H100") != std::string_view::npos ||
         device.find("h100") != std::string_view::npos;
}

const TunedRows& measured_table(const Target& target, bool of_h100) {
  static std::mutex mutex;
  static std::map<std::pair<const Target*, bool>, TunedRows> tables;
  const std::lock_guard lock(mutex);
  const auto found = tables.find({&target, of_h100});
  if (found != tables.end()) return found->second;
  return tables.emplace(std::pair(&target, of_h100), both(target, of_h100)).first->second;
}

}  // namespace coda::gpu
