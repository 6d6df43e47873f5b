// SPDX-License-Identifier: Apache-2.0
// The part of cuDNN's backend API (graphs of operations) that attention needs. It is declared here
// and opened at run time, so that building needs neither cuDNN nor CUDA. Values are those of
// cudnn_graph.h, which hold for all of cuDNN 9.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace coda::gpu::cudnn {

enum class DataType : int { f32 = 0, f16 = 2, i32 = 4, bf16 = 9, boolean = 11 };

enum class Pointwise : int {
  add = 0,
  multiply = 1,
  divide = 6,
  subtract = 9,
  exp = 13,
  log = 15,
  identity = 21,
  greater = 302,
  greater_equal = 303,
  index = 501,   // of a position along an axis
  select = 601,  // the first where the third holds, else the second
};

enum class Reduction : int { add = 0, max = 3 };

enum class Kind : int {  // of descriptors
  pointwise = 0,
  engine_config = 3,
  heuristics = 4,
  plan = 5,
  pointwise_operation = 13,
  operation_graph = 15,
  variant_pack = 16,
  tensor = 17,
  matmul = 18,
  matmul_operation = 19,
  reduction = 21,
  reduction_operation = 22,
  reshape_operation = 31,
};

enum class Attribute : int {
  pointwise_mode = 0,
  pointwise_precision = 1,
  pointwise_axis = 9,
  heuristics_mode = 200,
  heuristics_graph = 201,
  heuristics_results = 202,
  plan_handle = 400,
  plan_config = 401,
  plan_workspace = 402,
  pointwise_descriptor = 750,
  pointwise_x = 751,
  pointwise_b = 752,
  pointwise_y = 753,
  pointwise_t = 758,
  graph_handle = 800,
  graph_operations = 801,
  tensor_alignment = 900,
  tensor_type = 901,
  tensor_dimensions = 902,
  tensor_strides = 903,
  tensor_id = 906,
  tensor_is_virtual = 907,
  tensor_is_by_value = 908,
  pack_ids = 1000,
  pack_pointers = 1001,
  pack_workspace = 1003,
  matmul_precision = 1500,
  matmul_a = 1520,
  matmul_b = 1521,
  matmul_c = 1522,
  matmul_descriptor = 1523,
  reduction_mode = 1600,
  reduction_precision = 1601,
  reduction_x = 1610,
  reduction_y = 1611,
  reduction_descriptor = 1612,
  reshape_x = 2200,
  reshape_y = 2201,
};

enum class ValueType : int {
  handle = 0,
  data_type = 1,
  boolean = 2,
  int64 = 3,
  void_pointer = 6,
  heuristics_mode = 8,
  pointwise_mode = 14,
  descriptor = 15,
  reduction_mode = 18,
};

struct Api {
  // Throws Error if cuDNN is missing, too old, or a version known to be wrong.
  Api();

  size_t version = 0;  // 10000 * major + 100 * minor + patch

  int (*create)(void**);
  int (*destroy)(void*);
  int (*set_stream)(void*, void*);
  const char* (*error_string)(int);
  void (*last_error)(char*, size_t);
  int (*create_descriptor)(int, void**);
  int (*destroy_descriptor)(void*);
  int (*finalize)(void*);
  int (*set_attribute)(void*, int, int, int64_t, const void*);
  int (*get_attribute)(const void*, int, int, int64_t, int64_t*, void*);
  int (*execute)(void*, void*, void*);
};

// Opened at the first call.
const Api& api();

// Throws Error unless `status` is 0, with what was being done and cuDNN's reason.
void check(int status, const char* what);

// "9.19.0".
std::string version_text(size_t version);

}  // namespace coda::gpu::cudnn
