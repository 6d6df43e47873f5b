// SPDX-License-Identifier: Apache-2.0
// Parses the values of `--recompute`.
#include "coda/recompute.h"

#include <charconv>

#include "coda/error.h"
#include "coda/messages.h"

namespace coda {

Recompute recompute_of(std::string_view name) {
  constexpr std::string_view kSome = "layer:";
  if (name == "none") return {Objective::speed, 0};
  if (name == "norms") return {Objective::memory, 0};
  if (name == "layer") return {Objective::memory, kAllLayers};
  int layers = 0;
  if (name.starts_with(kSome)) {
    const char* const end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(name.data() + kSome.size(), end, layers);
    if (error != std::errc() || rest != end) layers = 0;
  }
  require(layers > 0,
          "--recompute is none, norms, layer or layer:N, not " + in_quotes(std::string(name)));
  return {Objective::memory, layers};
}

}  // namespace coda
