// SPDX-License-Identifier: Apache-2.0
// Asks the driver for attributes of the address, which need no synchronisation.
#include "gpu/launch/device_pointer.h"

#include <cstdint>

#include "gpu/jit/dynamic_library.h"
#include "gpu/launch/device_memory.h"
#include "gpu/launch/driver_api.h"

namespace coda::gpu {
namespace {

constexpr int kInvalidValue = 1;  // the driver does not know the address
constexpr int kMemoryType = 2;    // attributes of addresses
constexpr int kIsPlain = 10;      // allocated as one piece by cuMemAlloc
constexpr int kRangeStart = 11;
constexpr int kRangeSize = 12;

using Attribute = int(void*, int, DeviceAddress);

Attribute* pointer_attribute() {
  static Attribute* const function = [] {
    Attribute* found = nullptr;
    DynamicLibrary(driver_library()).load_optional(found, "cuPointerGetAttribute");
    return found;
  }();
  return function;
}

// Zero if the driver has no answer.
uint64_t asked(int attribute, DeviceAddress address) {
  uint64_t value = 0;
  return pointer_attribute()(&value, attribute, address) == 0 ? value : 0;
}

}  // namespace

std::string why_not_on_device(const TensorView& view) {
  if (pointer_attribute() == nullptr) return "";
  const DeviceAddress address = address_of(view.data);
  uint64_t type = 0;
  const int result = pointer_attribute()(&type, kMemoryType, address);
  if (result == kInvalidValue) {
    return "but its memory is not the GPU's. Remedy: give a tensor in the GPU's memory, as "
           "coda::DeviceTensor is, and copy to it";
  }
  if (result != 0 || asked(kIsPlain, address) == 0) return "";
  const uint64_t start = asked(kRangeStart, address);
  const uint64_t size = asked(kRangeSize, address);
  const auto element = static_cast<uint64_t>(size_of(view.dtype));
  const auto rows_before = static_cast<uint64_t>(view.rows - 1);
  const uint64_t end = address + (rows_before * static_cast<uint64_t>(view.row_stride) +
                                  static_cast<uint64_t>(view.cols)) *
                                     element;
  if (size == 0 || start > address || end <= start + size) return "";
  return "but its memory ends " + std::to_string(end - start - size) +
         " bytes before the tensor does. Remedy: allocate " + std::to_string(end - address) +
         " bytes";
}

}  // namespace coda::gpu
