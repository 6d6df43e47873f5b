// SPDX-License-Identifier: Apache-2.0
// NumPy's .npy format, in which the members of an .npz are stored: a header that is a Python
// dictionary, then the elements. Source: numpy.lib.format, versions 1.0 to 3.0.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "coda/array.h"
#include "coda/dtype.h"

namespace coda::io {

// Of any floating or whole type of either order of dimensions. Throws Error that begins with
// `source`.
Array parse_npy(std::span<const std::byte> bytes, const std::string& source);

// bf16 and 8-bit types as f32.
std::vector<std::byte> npy_of(const Array& array, DType dtype);

}  // namespace coda::io
