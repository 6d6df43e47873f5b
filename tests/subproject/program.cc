// SPDX-License-Identifier: Apache-2.0
// The program of a project that uses the library: it says whether there is a GPU.
#include <cstdio>

#include "coda/device.h"

int main() {
  const std::string why = coda::why_no_gpu();
  std::puts(why.empty() ? coda::describe_gpu().c_str() : why.c_str());
}
