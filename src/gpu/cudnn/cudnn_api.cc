// SPDX-License-Identifier: Apache-2.0
// Loads cuDNN and rejects versions that are too old or known to be wrong.
#include "gpu/cudnn/cudnn_api.h"

#include "coda/error.h"
#include "gpu/jit/dynamic_library.h"

namespace coda::gpu::cudnn {
namespace {

// The oldest version whose attention was measured and checked.
constexpr size_t kOldest = 91900;

}  // namespace

Api::Api() {
  const DynamicLibrary library(cudnn_library());
  size_t (*get_version)() = nullptr;
  library.load(get_version, "cudnnGetVersion");
  version = get_version();
  require(version >= kOldest && version / 10000 == kOldest / 10000,
          "cuDNN at " + library.location() + " is " + version_text(version) + "; attention needs " +
              version_text(kOldest) +
              " or a newer one of cuDNN 9. Remedy: pip install -U nvidia-cudnn-cu13");
  library.load(create, "cudnnCreate");
  library.load(destroy, "cudnnDestroy");
  library.load(set_stream, "cudnnSetStream");
  library.load(error_string, "cudnnGetErrorString");
  library.load(last_error, "cudnnGetLastErrorString");
  library.load(create_descriptor, "cudnnBackendCreateDescriptor");
  library.load(destroy_descriptor, "cudnnBackendDestroyDescriptor");
  library.load(finalize, "cudnnBackendFinalize");
  library.load(set_attribute, "cudnnBackendSetAttribute");
  library.load(get_attribute, "cudnnBackendGetAttribute");
  library.load(execute, "cudnnBackendExecute");
}

const Api& api() {
  static const Api opened;
  return opened;
}

void check(int status, const char* what) {
  if (status == 0) return;
  char detail[512] = {};
  api().last_error(detail, sizeof detail);
  throw Error(std::string("cuDNN ") + version_text(api().version) + ": " + what + ": " +
              api().error_string(status) + (detail[0] == 0 ? "" : ": ") + detail);
}

std::string version_text(size_t version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace coda::gpu::cudnn
