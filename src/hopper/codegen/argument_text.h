// SPDX-License-Identifier: Apache-2.0
// How the text of a kernel without products reads its argument: addresses, sizes and strides of the
// program's tensors by their names.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "hopper/codegen/launch_arguments.h"
#include "hopper/legalise/program_sizes.h"

namespace coda::hopper {

class ArgumentText {
 public:
  ArgumentText(const Program& program, const DimValues& sizes, const LowerOptions& options)
      : sizes_(program, sizes, options), arguments_(sizes_) {}
  ArgumentText(const ArgumentText&) = delete;
  ArgumentText& operator=(const ArgumentText&) = delete;

  const TensorDecl& tensor(int tensor) const { return sizes_.tensor(tensor); }
  int64_t size(const Dim& dim) const { return sizes_.size(dim); }
  // "Element::bf16": how its elements lie in memory.
  std::string stored_type(int tensor) const;
  // "  // name" and the end of the line that reads or writes it.
  std::string comment(int tensor) const;

  // The address of a tensor.
  std::string pointer(int tensor) { return arguments_.pointer(tensor); }
  // Throws Error, naming `name`, unless the value fits 32 bits.
  std::string number(const std::string& name, int64_t value) {
    return arguments_.number(name, value);
  }
  // Elements between a tensor's rows.
  std::string stride(int tensor);
  // Bytes between them.
  std::string row_bytes(int tensor);
  // Rows or columns of a tensor as it lies in memory.
  std::string stored_rows(int tensor);
  std::string stored_columns(int tensor);
  // "row_start(row, stride)": the element at which a row starts.
  std::string row_start(const std::string& row, int tensor);

  // The enumerations and the type Arguments. When all are known.
  std::string declarations() const { return arguments_.text(); }
  void fill(KernelLaunch& launch) const { arguments_.fill(launch); }

 private:
  std::string name_of(int tensor);

  const ProgramSizes sizes_;
  LaunchArguments arguments_;
  UniqueNames names_;
  std::map<int, std::string> tensor_names_;
};

// The program's text as a comment, which begins the text of each of its kernels.
std::string program_comment(const Program& program);

}  // namespace coda::hopper
