// SPDX-License-Identifier: Apache-2.0
// Reads and writes arrays in .npz (NumPy) and .safetensors files. The file name decides the format.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "coda/api.h"
#include "coda/array.h"
#include "coda/dtype.h"

namespace CODA_API coda {

// Reads the arrays whose names `is_wanted` accepts (all of them if it is empty), converted to
// float64; other arrays are not decompressed. Accepts any floating or integer type. Throws Error
// for an unknown format, a damaged file, an unsupported type, and an integer that float64 cannot
// represent.
Arrays read_arrays(const std::filesystem::path& file,
                   const std::function<bool(const std::string&)>& is_wanted = {});

// Throws Error unless the file name has an extension of a supported format.
void require_array_file(const std::filesystem::path& file);

struct ArrayToWrite {
  std::string name;
  DType dtype = DType::f32;  // values are rounded to this type
  Array array;
};
// Replaces the file atomically and creates its folder. NumPy has no bf16 and no 8-bit floats, so an
// .npz stores these as f32, which represents them exactly. Throws Error, also for an .npz of more
// than 4 GB.
void write_arrays(const std::filesystem::path& file, std::span<const ArrayToWrite> arrays);

}  // namespace CODA_API coda
