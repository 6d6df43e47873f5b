// SPDX-License-Identifier: Apache-2.0
// Collects the fields of the kernel's argument (descriptors, addresses, numbers) while the text is
// written, and gives each a readable name: `a.maps[map_x0]`, `a.pointers[at_w1]`,
// `a.numbers[rows]`. The names are enumerators at the top of the text.
// Invariant: the same field always has the same name, so the text is the same for all sizes with
// the same program structure.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "gpu/codegen/kernel_launch.h"
#include "gpu/legalise/program_sizes.h"

namespace coda::gpu {

// Makes names unique: a second "acc" becomes "acc_2".
class UniqueNames {
 public:
  std::string make(std::string_view wanted);

 private:
  std::set<std::string, std::less<>> taken_;
};

class LaunchArguments {
 public:
  explicit LaunchArguments(const ProgramSizes& sizes) : sizes_(sizes) {}

  const ProgramSizes& sizes() const { return sizes_; }

  // These functions return the expression that reads a field. map: the address of a descriptor;
  // `role` distinguishes several boxes of one tensor.
  std::string map(const TensorMapSpec& spec, const std::string& role);
  std::string pointer(int tensor);
  // The address of the launch's tile counter.
  std::string tile_counter();
  // Throws Error if the value does not fit into 32 bits.
  std::string number(const std::string& name, int64_t value);
  // The distance between a tensor's rows, in elements and in bytes; rows and columns in memory.
  std::string stride(int tensor);
  std::string row_bytes(int tensor);
  std::string stored_rows(int tensor);
  std::string stored_columns(int tensor);
  // "row_start(row, stride)": the first element of a row.
  std::string row_start(std::string_view row, int tensor);
  // "Element::bf16": the element type in memory.
  std::string stored_type(int tensor) const;
  // "  // name": a comment for lines that read or write the tensor.
  std::string comment(int tensor) const { return "  // " + sizes_.tensor(tensor).name; }

  // The enumerators, and `using Arguments = ...`.
  std::string text() const;
  void fill(KernelLaunch& launch) const;

 private:
  struct Number {
    std::string wanted;
    std::string name;
    uint32_t value;
  };

  // `words`: the number's description in error messages.
  std::string number(const std::string& name, const std::string& words, int64_t value);
  // Adds a number named "stride_x" for a tensor x. Error messages use the caller's name of the
  // tensor.
  std::string number_of(const char* what, int tensor, int64_t value);

  const ProgramSizes& sizes_;
  UniqueNames names_;
  std::vector<TensorMapSpec> maps_;
  std::vector<std::string> map_names_;
  std::vector<int> pointers_;
  std::vector<std::string> pointer_names_;
  std::vector<Number> numbers_;
};

}  // namespace coda::gpu
