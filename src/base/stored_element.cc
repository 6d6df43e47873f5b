// SPDX-License-Identifier: Apache-2.0
#include "base/stored_element.h"

#include <cmath>
#include <limits>

#include "base/byte_number.h"
#include "coda/float16.h"
#include "coda/float8.h"

namespace coda {

double read_element(DType type, const void* data, int64_t index) {
  switch (type) {
    case DType::f32: return static_cast<const float*>(data)[index];
    case DType::bf16: return float_from_bf16(static_cast<const uint16_t*>(data)[index]);
    case DType::f16: return float_from_f16(static_cast<const uint16_t*>(data)[index]);
    case DType::e4m3: return float_from_e4m3(static_cast<const uint8_t*>(data)[index]);
    case DType::e5m2: return float_from_e5m2(static_cast<const uint8_t*>(data)[index]);
    case DType::u8: return float_from_byte(static_cast<const uint8_t*>(data)[index]);
    case DType::f64: return static_cast<const double*>(data)[index];
    case DType::i32: return static_cast<const int32_t*>(data)[index];
  }
  return 0;
}

void write_element(DType type, void* data, int64_t index, double value) {
  const float narrow = static_cast<float>(value);
  switch (type) {
    case DType::f32: static_cast<float*>(data)[index] = narrow; break;
    case DType::bf16: static_cast<uint16_t*>(data)[index] = bf16_from_float(narrow); break;
    case DType::f16: static_cast<uint16_t*>(data)[index] = f16_from_float(narrow); break;
    case DType::e4m3: static_cast<uint8_t*>(data)[index] = e4m3_from_float(narrow); break;
    case DType::e5m2: static_cast<uint8_t*>(data)[index] = e5m2_from_float(narrow); break;
    case DType::u8: static_cast<uint8_t*>(data)[index] = byte_from_float(narrow); break;
    case DType::f64: static_cast<double*>(data)[index] = value; break;
    case DType::i32:
      static_cast<int32_t*>(data)[index] = std::isnan(value) ? std::numeric_limits<int32_t>::min()
                                                             : static_cast<int32_t>(lround(value));
      break;
  }
}

double rounded_to(DType type, double value) {
  double memory = 0;  // large enough for any type
  write_element(type, &memory, 0, value);
  return read_element(type, &memory, 0);
}

}  // namespace coda
