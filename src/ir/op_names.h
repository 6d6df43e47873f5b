// SPDX-License-Identifier: Apache-2.0
// The names of a Graph's primitives, as they are printed and named in errors.
#pragma once

#include <string_view>

#include "coda/graph.h"

namespace coda {

std::string_view name_of(Op op);

}  // namespace coda
