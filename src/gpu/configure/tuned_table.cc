// SPDX-License-Identifier: Apache-2.0
#include "gpu/configure/tuned_table.h"

#include "base/embedded_text.h"
#include "coda/error.h"

namespace coda::gpu {

std::span<const EmbeddedText> tuned_rows_texts();  // tuned_rows*.txt

TunedRows measured_rows(bool on_h100) {
  TunedRows rows;
  for (const EmbeddedText& file : tuned_rows_texts()) {
    if (is_h100(file.name) != on_h100) continue;
    std::vector<std::string> left_out;
    rows.add(TunedRows(file.text, &left_out));
    if (!left_out.empty())
      throw InternalError("the shipped table has a row that cannot be read: " + left_out.front());
  }
  return rows;
}

namespace {

TunedRows both(bool of_h100) {
  TunedRows rows = measured_rows(!of_h100);
  rows.add(measured_rows(of_h100));
  return rows;
}

}  // namespace

bool is_h100(std::string_view device) {
  return device.find("H100") != std::string_view::npos ||
         device.find("h100") != std::string_view::npos;
}

const TunedRows& tuned_table(bool of_h100) {
  static const TunedRows h200 = both(false);
  static const TunedRows h100 = both(true);
  return of_h100 ? h100 : h200;
}

}  // namespace coda::gpu
