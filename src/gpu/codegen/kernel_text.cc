// SPDX-License-Identifier: Apache-2.0
// The fixed order of the parts of a kernel's text.
#include "gpu/codegen/kernel_text.h"

#include <sstream>

#include "coda/error.h"
#include "gpu/codegen/function_text.h"

namespace coda::gpu {

KernelParts KernelParts::plain(std::string function, std::vector<std::string> headers,
                               const std::string& definitions, const std::string& attributes,
                               const std::string& scratch, const std::string& body) {
  return {.function = std::move(function),
          .headers = std::move(headers),
          .before = "namespace {\n\n",
          .behind = "\n" + definitions + "}  // namespace\n\n",
          .attributes = attributes + " ",
          .body = scratch + "  launch_dependents();\n  wait_for_predecessor();\n" + body};
}

KernelLaunch launch_of(const KernelParts& text, const ProgramSizes& sizes,
                       const LaunchArguments& arguments, int64_t blocks, uint32_t threads) {
  require(blocks < int64_t{1} << 31, "program '" + sizes.given().name +
                                         "' has too many tiles for one launch; run it on fewer " +
                                         "rows at a time");
  KernelLaunch launch;
  launch.function = text.function;
  std::istringstream lines(coda::text(sizes.program()));
  for (std::string line; std::getline(lines, line);)
    launch.source += line.empty() ? "//\n" : "// " + line + "\n";
  for (const std::string& header : text.headers)
    launch.source += "#include \"device/" + header + "\"\n";
  launch.source += filled(
      "\nnamespace $ {\n$$$extern \"C\" __global__ void $$(const __grid_constant__ Arguments a) "
      "{\n$}\n\n}  // namespace $\n",
      {text.space, text.before, arguments.text(), text.behind, text.attributes, text.function,
       text.body, text.space});
  launch.grid = static_cast<uint32_t>(blocks);
  launch.threads = threads;
  launch.waits_for_predecessor = true;
  arguments.fill(launch);
  return launch;
}

}  // namespace coda::gpu
