// SPDX-License-Identifier: Apache-2.0
// The judge's checkpoints and results (tests/parity/hf_reference.py), made once a build folder and
// shared by the tests that need them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace coda {

// The folder with a folder for each case, or nothing if there is no Python with transformers (`why`
// says so).
std::optional<std::filesystem::path> hf_reference(std::string& why);

}  // namespace coda
