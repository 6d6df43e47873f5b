// SPDX-License-Identifier: Apache-2.0
// What a user's program may do with an installed library: all public headers compile with the
// user's warnings, nothing of src/ is in reach, a plan is compiled and run, an Error is caught.
#include <coda/coda.h>

#include <cstdio>
#include <string>

#include "net.h"

#if __has_include("runtime/arena.h") || __has_include("base/sha256.h") || \
                                                      __has_include("coda/gpu/device_memory.h")
#error "headers of the library's inside are in reach"
#endif

static_assert(CODA_VERSION_MAJOR == 0);

int main() {
  const Net net = make_net(64, 128, 32);
  const auto backend = coda::make_backend("cpu");
  coda::CompileRequest request;
  request.outputs = {{"y", net.y}};
  coda::CompileOptions options;
  options.rates = backend->rates();
  options.sizes = {{"M", 5}};
  coda::Session session(coda::compile(net.graph, request, options).plan, *backend, options.sizes);
  try {
    session.forward();
    return 1;
  } catch (const coda::Error& error) {  // its type is the library's, and so is its text
    if (std::string(error.what()).find("'w1'") == std::string::npos) return 2;
  }
  session.allocate();
  session.tensor("x").fill(1);
  session.tensor("w1").fill(0.25F);
  session.tensor("w2").fill(0.5F);
  session.forward();
  for (const float v : session.tensor("y").floats())
    if (v != 512) return 3;
  std::printf("coda %s\n", std::string(coda::version()).c_str());
}
