// SPDX-License-Identifier: Apache-2.0
// Arrays in files: NumPy's .npz and .safetensors, told apart by their names.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "coda/api.h"
#include "coda/array.h"
#include "coda/dtype.h"

namespace CODA_API coda {

// The arrays of the file whose names are wanted, without a function all, of any floating or whole
// type, as float64. What is not wanted is not unpacked. Throws Error for another kind of file, for
// what is damaged, and for a type or a whole number that float64 does not hold.
Arrays read_arrays(const std::filesystem::path& file,
                   const std::function<bool(const std::string&)>& is_wanted = {});

// Throws Error unless the name is that of a kind of file with arrays.
void require_array_file(const std::filesystem::path& file);

struct ArrayToWrite {
  std::string name;
  DType dtype = DType::f32;  // rounded to it
  Array array;
};
// The file is replaced as a whole or not at all; its folder is made. NumPy has no bf16 and no 8-bit
// types: in an .npz those are written as f32, which holds their values. Throws Error, also for an
// .npz of more than 4 GB.
void write_arrays(const std::filesystem::path& file, std::span<const ArrayToWrite> arrays);

}  // namespace CODA_API coda
