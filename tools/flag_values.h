// SPDX-License-Identifier: Apache-2.0
// Checks of numbers on the command line. CLI11's own pass "nan" through every range, read 010 as
// octal, and take whole numbers that are negative or too large modulo 2^64.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "coda/compile_request.h"
#include "coda/dtype.h"

namespace coda::tools {

// A number from `low` to `high`, both of them allowed.
CLI::Validator number_within(double low, double high);

// A whole number from 0 to 2^64 - 1.
CLI::Validator whole_number();

// Every whole number of the command and of its subcommands is decimal: 010 is ten, and what is no
// whole number is refused with the name of its flag.
void read_decimal_numbers(CLI::App& app);

// One of these types, or of the recipes of products in 8 bits (coda/eight_bits.h).
CLI::Validator type_or_recipe(std::vector<std::string> types);

// "fp32" or "bf16"; checked by the command line.
DType storage_type(const std::string& name);

// --fp8-except: names divided by commas, see CompileOptions::eight_bits_except.
CLI::Option* add_fp8_except_flag(CLI::App& command, std::string& value);
std::vector<std::string> names_in(const std::string& list);

// --expert-capacity: see expert_rows_of (coda/models.h).
CLI::Option* add_expert_capacity_flag(CLI::App& command, double& value);

// --recompute: what the backward makes again rather than have it saved.
CLI::Option* add_recompute_flag(CLI::App& command, std::string& value);

}  // namespace coda::tools
