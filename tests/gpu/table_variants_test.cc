// SPDX-License-Identifier: Apache-2.0
// The configurations among which the shipped table of tiles was chosen, and each device file by
// itself, so that none leans on what another happens to include: they compile without a defect.
#include <gtest/gtest.h>

#include "gpu/clean_kernels.h"
#include "lab/hopper_table/nvrtc_compiler.h"
#include "lab/hopper_table/variants.h"

namespace coda::gpu {
namespace {

TEST(TableVariants, CompileWithoutDefect) {
  std::set<std::string> sources;
  for (const hopper_table::Variant& variant : hopper_table::representative_variants()) {
    sources.insert(hopper_table::kernel_source(variant));
  }
  ASSERT_GE(sources.size(), 50U);
  if (!find_nvrtc()) GTEST_SKIP() << "no NVRTC";
  expect_no_defects(NvrtcCompiler(hopper_table::read_headers(CODA_SOURCE_DIR)), sources,
                    known_clean_kernels());
}

TEST(DeviceFiles, CompileByThemselves) {
  std::set<std::string> sources;
  for (const auto& [name, text] : embedded_headers()) sources.insert("#include \"" + name + "\"\n");
  ASSERT_GE(sources.size(), 30U);
  expect_no_defects(sources);
}

}  // namespace
}  // namespace coda::gpu
