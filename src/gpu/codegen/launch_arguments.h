// SPDX-License-Identifier: Apache-2.0
// Collects what a kernel's text names of its argument - descriptors, addresses, numbers - while the
// text is written, and gives each a readable name: `a.maps[map_x0]`, `a.pointers[at_w1]`,
// `a.numbers[rows]`. The names are enumerators at the top of the text.
// Invariant: the same thing has the same name, so text is the same for all sizes that give the same
// program structure.
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

  // Each returns the expression to read it by. A descriptor's address; `role` tells apart boxes of
  // one tensor.
  std::string map(const TensorMapSpec& spec, const std::string& role);
  std::string pointer(int tensor);
  // Where the launch's counter of tiles lies.
  std::string tile_counter();
  // Throws Error if the value does not fit into 32 bits.
  std::string number(const std::string& name, int64_t value);
  // Elements and bytes between a tensor's rows; its rows and columns as it lies in memory.
  std::string stride(int tensor);
  std::string row_bytes(int tensor);
  std::string stored_rows(int tensor);
  std::string stored_columns(int tensor);
  // "row_start(row, stride)": the element at which a row starts.
  std::string row_start(std::string_view row, int tensor);
  // "Element::bf16": how its elements lie in memory.
  std::string stored_type(int tensor) const;
  // "  // name", behind a line that reads or writes it.
  std::string comment(int tensor) const { return "  // " + sizes_.tensor(tensor).name; }

  // Enumerators, and `using Arguments = ...`.
  std::string text() const;
  void fill(KernelLaunch& launch) const;

 private:
  struct Number {
    std::string wanted;
    std::string name;
    uint32_t value;
  };

  // `words`: what error messages call the number.
  std::string number(const std::string& name, const std::string& words, int64_t value);
  // A number named "stride_x" for a tensor x; error messages use the caller's name of the tensor.
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
