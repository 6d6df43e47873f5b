// SPDX-License-Identifier: Apache-2.0
#include "hopper/configure/tuned_table.h"

#include "base/embedded_text.h"
#include "coda/error.h"

namespace coda::hopper {

std::span<const EmbeddedText> tuned_rows_texts();  // tuned_rows.txt

const TunedRows& tuned_table() {
  static const TunedRows rows = [] {
    std::vector<std::string> left_out;
    TunedRows read(tuned_rows_texts().front().text, &left_out);
    if (!left_out.empty())
      throw InternalError("the shipped table has a row that cannot be read: " + left_out.front());
    return read;
  }();
  return rows;
}

}  // namespace coda::hopper
