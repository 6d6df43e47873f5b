// SPDX-License-Identifier: Apache-2.0
// What a call's coda::Error says; "" if it throws none. Tests compare messages, because users read
// them.
#pragma once

#include <string>

#include "coda/error.h"

namespace coda {

template <typename Call>
std::string error_message(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace coda
