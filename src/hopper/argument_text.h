// SPDX-License-Identifier: Apache-2.0
// Gives the pointers and numbers of a kernel's argument their names in its text and their places in
// the launch, in the order in which they are first asked for.
// Invariant: names and order come from the program alone, values from the sizes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "hopper/kernel_launch.h"

namespace coda::hopper {

class ArgumentText {
 public:
  ArgumentText(const Program& program, const DimValues& sizes, const LowerOptions& options);

  // The address of a tensor: "a.pointers[Pointer::x]".
  std::string pointer(int tensor);
  // A number: "a.numbers[Number::rows_0]". Throws Error, naming `name`, unless it fits 32 bits.
  std::string number(const std::string& name, int64_t value);
  // Elements between a tensor's rows.
  std::string pitch(int tensor);
  // Rows or columns of a tensor as it lies in memory.
  std::string stored_rows(int tensor);
  std::string stored_columns(int tensor);
  // "static_cast<u64>(row) * pitch": the element at which a row starts.
  std::string row_start(const std::string& row, int tensor);

  // The enumerations Pointer and Number, and the type Arguments. When all are known.
  std::string declarations() const;
  void fill(KernelLaunch& launch) const;

 private:
  std::string name_of_tensor(int tensor);

  const Program& program_;
  const DimValues& sizes_;
  const LowerOptions& options_;
  std::map<int, std::string> tensor_names_;
  std::map<std::string, int> names_taken_;
  std::vector<int> pointers_;
  std::vector<std::string> number_names_;
  std::vector<uint32_t> numbers_;
};

// The program's text as a comment, which begins the text of each of its kernels.
std::string program_comment(const Program& program);

}  // namespace coda::hopper
