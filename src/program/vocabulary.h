// SPDX-License-Identifier: Apache-2.0
// The words of program text that name values of enums, in both directions, and the rule for names.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "program/step_table.h"

namespace coda::program {

std::optional<DType> dtype_by_name(std::string_view name);

// Accepts the table's name, and `where` as a more readable name of select.
std::optional<Elementwise> operation_by_word(std::string_view word);

// All words of a kind, for messages.
const std::vector<std::string_view>& type_names();
const std::vector<std::string_view>& effect_words();
const std::vector<std::string_view>& function_words();  // that have a value

// Of ASCII, the underscore among the letters.
bool is_letter(char c);
bool is_digit(char c);
bool is_identifier(std::string_view text);
// Words that cannot name a value: functions, elementwise operations, numbers (inf, nan).
bool is_reserved(std::string_view word);

// A tensor's or a program's name as text: as it is if it is made of identifiers joined by dots,
// else in quotes.
std::string quoted_name(std::string_view name);
// Names may hold anything printable but quotes and backslashes.
bool is_name(std::string_view name);

}  // namespace coda::program
