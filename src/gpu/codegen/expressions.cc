// SPDX-License-Identifier: Apache-2.0
// The table of device functions and operators; their definitions are in device/values/math.cuh
// (floats) and device/values/elements.cuh (several columns).
#include "gpu/codegen/expressions.h"

#include <array>
#include <charconv>
#include <cmath>
#include <set>

#include "coda/error.h"

namespace coda::gpu {
namespace {

struct Row {
  Elementwise op;
  std::string_view name;
  bool is_operator;
};

using E = Elementwise;

// In the order of the enum.
constexpr std::array<Row, kElementwiseCount> kTable = {{
    {E::add, "+", true},
    {E::mul, "*", true},
    {E::max, "maximum", false},
    {E::min, "minimum", false},
    {E::equal, "equal", false},
    {E::less, "less", false},
    {E::select, "select", false},
    {E::exp, "exponential", false},
    {E::log, "logarithm", false},
    {E::rsqrt, "rsqrt", false},
    {E::sqrt, "square_root", false},
    {E::recip, "reciprocal", false},
    {E::sigmoid, "sigmoid", false},
    {E::tanh, "hyperbolic_tangent", false},
    {E::erf, "error_function", false},
    {E::abs, "absolute", false},
    {E::random, "random_number", false},
    {E::stochastic_bf16, "stochastic_bf16", false},
    {E::sub, "-", true},
    {E::div, "/", true},
    {E::neg, "negative", false},
    {E::silu, "silu", false},
    {E::gelu, "gelu", false},
    {E::gelu_tanh, "gelu_tanh", false},
    {E::relu, "relu", false},
    {E::less_equal, "less_equal", false},
    {E::not_equal, "not_equal", false},
}};

constexpr bool is_in_order() {
  for (size_t i = 0; i < kTable.size(); ++i) {
    if (kTable[i].op != static_cast<E>(i)) return false;
  }
  return true;
}
static_assert(is_in_order());

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

}  // namespace

std::string expression(Elementwise op, const std::vector<std::string>& operands) {
  const Row& row = kTable[static_cast<size_t>(op)];
  invariant(static_cast<int>(operands.size()) == info(op).arity,
            "an operation with a wrong number of operands");
  if (row.is_operator) return operands[0] + " " + std::string(row.name) + " " + operands[1];
  std::string text = std::string(row.name) + "(";
  for (size_t i = 0; i < operands.size(); ++i) text += (i == 0 ? "" : ", ") + operands[i];
  return text + ")";
}

std::string number_text(double number) {
  const float nearest = static_cast<float>(number);
  if (std::isinf(nearest)) return nearest < 0 ? "-kInfinity" : "kInfinity";
  std::array<char, 32> buffer;
  const auto [stop, problem] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), nearest);
  std::string text(buffer.data(), stop);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text + "f";
}

std::string identifier(std::string_view name) {
  static const std::set<std::string, std::less<>> kReserved = {
      // C++ keywords.
      "alignas", "alignof", "and", "asm", "auto", "bool", "break", "case", "catch", "char", "class",
      "concept", "const", "constexpr", "continue", "decltype", "default", "delete", "do", "double",
      "else", "enum", "explicit", "export", "extern", "false", "float", "for", "friend", "goto",
      "if", "inline", "int", "long", "mutable", "namespace", "new", "noexcept", "not", "nullptr",
      "operator", "or", "private", "protected", "public", "register", "requires", "return", "short",
      "signed", "sizeof", "static", "struct", "switch", "template", "this", "throw", "true", "try",
      "typedef", "typeid", "typename", "union", "unsigned", "using", "virtual", "void", "volatile",
      "while", "xor",
      // Names in the device files that values must not hide.
      "maximum", "minimum", "equal", "less", "select", "exponential", "logarithm", "sigmoid",
      "reciprocal", "rsqrt", "square_root", "hyperbolic_tangent", "error_function",
      "error_function_plus_one", "negative", "silu", "gelu", "gelu_tanh", "absolute", "relu",
      "random_number", "column_pair", "less_equal", "not_equal", "stochastic_bf16", "u8", "u16",
      "u32", "u64", "bf16", "f16"};
  std::string text;
  for (char c : name) text += is_letter_or_digit(c) ? c : '_';
  // C++ reserves names with two consecutive underscores, and names that start with an underscore
  // and a capital.
  std::string result;
  for (char c : text) {
    if (c != '_' || result.empty() || result.back() != '_') result += c;
  }
  const bool needs_prefix = result.empty() || result.front() == '_' ||
                            (result.front() >= '0' && result.front() <= '9') ||
                            kReserved.contains(result);
  return needs_prefix ? "v_" + result.substr(result.empty() || result.front() != '_' ? 0 : 1)
                      : result;
}

std::string reduction_text(PartialKind kind) {
  return "Reduction::" + std::string(info(kind).name);
}

std::string element_text(DType type) { return "Element::" + std::string(name_of(type)); }

}  // namespace coda::gpu
