// SPDX-License-Identifier: Apache-2.0
#include "lab/table/table_log.h"

#include <algorithm>

#include "coda/error.h"

namespace coda::table {
namespace {

using Json = nlohmann::ordered_json;

std::string key_of(const std::string& kernel_class, const std::string& extents) {
  return kernel_class + " | " + extents;
}

bool is_text(const Json& one, const char* key) { return one.contains(key) && one[key].is_string(); }

bool has_numbers(const Json& list, std::initializer_list<const char*> keys) {
  return list.is_array() && !list.empty() &&
         std::all_of(list.begin(), list.end(), [&](const Json& one) {
           return std::all_of(keys.begin(), keys.end(), [&](const char* key) {
             return one.contains(key) && one[key].is_number();
           });
         });
}

// As json_of writes it, as far as the table needs it.
bool is_kernel(const Json& one) {
  return is_text(one, "class") && is_text(one, "extents") && is_text(one, "chosen") &&
         one.contains("spaces") && has_numbers(one["spaces"], {"rows", "columns", "k", "parts"}) &&
         one.contains("choices") && has_numbers(one["choices"], {"microseconds"}) &&
         std::all_of(one["choices"].begin(), one["choices"].end(),
                     [](const Json& choice) { return is_text(choice, "configuration"); });
}

}  // namespace

TableLog::TableLog(const std::string& file) : file_(file) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    ends_in_a_line_ = lines.eof();
    const Json one = Json::parse(line, nullptr, false);
    if (!one.is_discarded()) keep(one);
  }
}

void TableLog::add(const Json& one) {
  if (!out_.is_open()) {
    out_.open(file_, std::ios::app);
    if (ends_in_a_line_) out_ << "\n";
  }
  out_ << one.dump() << "\n" << std::flush;
  require(out_.good(), "the table's log " + file_ + " cannot be written");
  keep(one);
}

const Json* TableLog::find(const gpu::KernelClass& kernel) const {
  const auto found = kernels_.find(key_of(kernel.name, gpu::text(kernel.extents)));
  return found == kernels_.end() ? nullptr : &found->second;
}

std::string TableLog::long_run(const gpu::KernelClass& kernel) const {
  const auto found = long_runs_.find(key_of(kernel.name, gpu::text(kernel.extents)));
  return found == long_runs_.end() ? "" : found->second;
}

void TableLog::keep(const Json& one) {
  if (is_text(one, "measured_on")) measured_on_ = one["measured_on"];
  if (is_kernel(one)) kernels_[key_of(one["class"], one["extents"])] = one;
  if (is_text(one, "class") && is_text(one, "extents") && is_text(one, "long_run"))
    long_runs_[key_of(one["class"], one["extents"])] = one["long_run"];
}

}  // namespace coda::table
