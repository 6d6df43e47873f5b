// SPDX-License-Identifier: Apache-2.0
// The command `coda`. Exit status: 0 done, 1 it failed (one line on stderr says what and what to
// do), 2 the command line was wrong, 130 stopped by Ctrl-C.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <sstream>

#include "coda/error.h"
#include "commands.h"

namespace {

constexpr const char* kAbout =
    "Transformers as GEMM-and-epilogue programs that a compiler derives from plain mathematics.";
constexpr const char* kExamples = R"(
Examples:
  coda train --data book.txt --out out/book        train on a text; Ctrl-C saves and stops
  coda train --out out/book --resume               go on where it stopped
  coda sample out/book --prompt 'Once '            let it write
  coda eval out/book --data other.txt              loss, perplexity, bits a byte
  coda explain --hidden 576 --mlp 1536 --layers 1  what is fused, why, and what it saves

Threads: one a core, or as many as OMP_NUM_THREADS says; results do not depend on it.
Exit status: 0 done, 1 it failed, 2 the command line was wrong, 130 stopped by Ctrl-C.
`coda COMMAND --help` says everything about a command.)";

// Help of options as a person reads it: names, the kind of value, wrapped text, [the default].
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    constexpr size_t kIndent = 28;
    constexpr size_t kColumns = 98;
    std::string line =
        "  " + (is_positional ? option->get_name(true) : option->get_name(false, true));
    if (const size_t brace = line.find('{'); brace != std::string::npos) line.resize(brace);
    if (option->get_type_size() != 0 && !is_positional) line += " " + kind_of(*option);
    std::string text = option->get_description();
    if (const std::string value = option->get_default_str(); !value.empty()) {
      text += " [" + value + "]";
    }
    if (line.size() + 2 > kIndent) line += "\n";
    std::string result;
    std::istringstream words(text);
    for (std::string word; words >> word;) {
      if (line.ends_with('\n') || line.size() + 1 + word.size() > kColumns) {
        result += line.ends_with('\n') ? line : line + "\n";
        line.clear();
      }
      if (line.size() < kIndent) {
        line.resize(kIndent, ' ');
      } else {
        line += ' ';
      }
      line += word;
    }
    return result + line + "\n";
  }

 private:
  static std::string kind_of(const CLI::Option& option) {
    std::string name = option.get_type_name();
    if (name.starts_with("INT") || name.starts_with("UINT")) return "N";
    if (name.starts_with("FLOAT")) return "X";
    if (name.starts_with("TEXT:{")) {  // TEXT:{a,b}
      std::string choices = name.substr(6, name.find('}') - 6);
      std::replace(choices.begin(), choices.end(), ',', '|');
      return choices;
    }
    return name;
  }
};

// One line, whatever the message has in it.
std::string one_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  return text;
}

int fail(const std::string& message, int status) {
  std::fflush(stdout);
  std::fprintf(stderr, "coda: %s\n", one_line(message).c_str());
  return status;
}

// The subcommand that was being parsed, for the hint at its help.
std::string parsed_command(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  return commands.empty() ? "coda" : "coda " + commands.front()->get_name();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(kAbout, "coda");
  app.footer(kExamples);
  app.set_version_flag("--version", "coda " CODA_VERSION, "Print the version and exit");
  app.require_subcommand(1);
  app.formatter(std::make_shared<HelpFormatter>());
  // Of a flag given twice the last counts, as in `coda train $USUAL_FLAGS --steps 10`.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  coda::tools::add_train(app);
  coda::tools::add_eval(app);
  coda::tools::add_sample(app);
  coda::tools::add_explain(app);
  coda::tools::add_emit(app);
  coda::tools::add_check(app);
  coda::tools::add_bench(app);
  coda::tools::add_compile(app);
  coda::tools::add_tune(app);
  coda::tools::add_info(app);
  try {
    app.parse(argc, argv);
    std::fflush(stdout);
    return std::ferror(stdout) != 0 ? fail("cannot write to the standard output", 1) : 0;
  } catch (const CLI::RuntimeError& stop) {
    return stop.get_exit_code();
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return fail(std::string(error.what()) + " (see " + parsed_command(app) + " --help)", 2);
  } catch (const std::bad_alloc&) {
    return fail("there is not enough memory for this: choose a smaller model, batch or sequence",
                1);
  } catch (const std::exception& error) {
    return fail(error.what(), 1);
  }
}
