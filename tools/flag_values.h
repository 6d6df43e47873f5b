// SPDX-License-Identifier: Apache-2.0
// Checks numbers on the command line. CLI11's own checks accept "nan" in every range, read 010 as
// octal, and wrap negative or too large integers modulo 2^64.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "coda/compile_request.h"
#include "coda/dtype.h"

namespace coda::tools {

// A number from `low` to `high`, inclusive.
CLI::Validator number_within(double low, double high);

// An integer from 0 to 2^64 - 1.
CLI::Validator whole_number();

// Makes all integers of the command and its subcommands decimal: 010 is ten, and other text is an
// error that names the flag.
void read_decimal_numbers(CLI::App& app);

// One of these types, or a recipe for 8-bit GEMMs (coda/eight_bits.h).
CLI::Validator type_or_recipe(std::vector<std::string> types);

// "fp32" or "bf16"; checked by the command line.
DType storage_type(const std::string& name);

// --fp8-except: names separated by commas, see CompileOptions::eight_bits_except.
CLI::Option* add_fp8_except_flag(CLI::App& command, std::string& value);
std::vector<std::string> names_in(const std::string& list);

// --expert-capacity: see expert_rows_of (coda/models.h).
CLI::Option* add_expert_capacity_flag(CLI::App& command, double& value);

// --recompute: what the backward recomputes instead of having it saved.
CLI::Option* add_recompute_flag(CLI::App& command, std::string& value);
// --layers-on-host: see PlanChoices::layers_on_host.
CLI::Option* add_layers_on_host_flag(CLI::App& command, bool& value);

}  // namespace coda::tools
