// SPDX-License-Identifier: Apache-2.0
#include "coda/version.h"

#define CODA_TEXT_OF(number) #number
#define CODA_DOTTED(a, b, c) CODA_TEXT_OF(a) "." CODA_TEXT_OF(b) "." CODA_TEXT_OF(c)

namespace coda {

std::string_view version() {
  return CODA_DOTTED(CODA_VERSION_MAJOR, CODA_VERSION_MINOR, CODA_VERSION_PATCH);
}

}  // namespace coda
