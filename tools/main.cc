// SPDX-License-Identifier: Apache-2.0
// The command `coda`. Exit status: 0 success; 1 failure (one line on stderr says what failed and
// what to do; for a program, each mistake has its own lines); 2 wrong command line; 130 stopped by
// Ctrl-C.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <new>
#include <sstream>
#include <utility>

#include "coda/messages.h"
#include "coda/program_error.h"
#include "coda/version.h"
#include "commands.h"
#include "flag_values.h"
#include "waiting_threads.h"

namespace {

constexpr const char* kAbout =
    "Transformers as GEMM-and-epilogue programs that a compiler derives from plain mathematics.";
constexpr const char* kExamples = R"(
Examples:
  coda train --data book.txt --out out/book        train on a text; Ctrl-C saves and stops
  coda train --data book.txt --out out/book --resume     continue a run
  coda sample out/book --prompt 'Once '            generate text
  coda eval out/book --data other.txt              loss, perplexity, bits per byte
  coda explain --hidden 576 --mlp 1536 --layers 1  what is fused, why, and what it saves
)";
// Examples in the help of each command, instead of the general ones.
constexpr const char* kTrainExamples = R"(
Examples:
  coda train --data book.txt --out out/book        Ctrl-C saves and stops
  coda train --data book.txt --out out/book --resume     continue a run
)";
constexpr const char* kEvalExamples = R"(
Examples:
  coda eval out/book --data other.txt              loss, perplexity, bits per byte
)";
constexpr const char* kSampleExamples = R"(
Examples:
  coda sample out/book --prompt 'Once '
)";
constexpr const char* kExplainExamples = R"(
Examples:
  coda explain mine.coda --sizes M=2048,N=1536,K=576
  coda explain --hidden 576 --mlp 1536 --layers 1  what is fused, why, and what it saves
)";
constexpr const char* kDeriveExamples = R"(
Examples:
  coda derive mine.coda > back.coda                the backward, as programs in one file
  coda derive mine.coda --gradients x,w --objective speed
  coda check back.coda --backward-of mine.coda     is the backward right, also after edits?
)";
constexpr const char* kFmtExamples = R"(
Examples:
  coda fmt mine.coda
  coda fmt --check programs/*.coda                 which are not formatted?
)";
constexpr const char* kInfoExamples = R"(
Examples:
  coda info                                        what this machine has, and what coda uses of it
)";
constexpr const char* kEmitExamples = R"(
Examples:
  coda emit programs/swiglu.coda --sizes M=4096,N=5632,K=2048
  coda emit --hidden 2048 --layers 1               a model's kernels
  coda emit mine.coda --sizes M=4096,N=2048,K=2048 --choices
)";
constexpr const char* kCheckExamples = R"help(
Examples:
  coda check programs/swiglu.coda
  coda check mine.coda --sizes M=300,N=392,K=200 --storage bf16 --brief
  coda check mine.coda --formula "out = silu(x @ wg.T) * (x @ wu.T)"
  coda check mine.coda --in x.npz --expect y.npz   given inputs, given results
  coda check back.coda --backward-of mine.coda     a hand-written backward
)help";
constexpr const char* kRunExamples = R"(
Examples:
  coda run mine.coda --in x.npz --out y.npz
  coda run product.coda finalizer.coda --in x.safetensors --out y.safetensors --device gpu
)";
constexpr const char* kBenchExamples = R"(
Examples:
  coda bench programs/swiglu.coda --sizes M=1024,N=1536,K=512
  coda bench block --hidden 1024 --tokens 2048     compared with its GEMMs alone
  coda bench start                                 on a GPU: first calls, a warm start, a launch
)";
constexpr const char* kCompileExamples = R"(
Examples:
  coda compile mine.coda --sizes M=16384,N=2048,K=2048
  coda compile --config out/book --batch 8         a model's training step
)";
constexpr const char* kTuneExamples = R"(
Examples:
  coda tune mine.coda --sizes M=16384,N=2048,K=2048
  coda tune --config out/book --batch 8 --list     what would be timed; needs no GPU
)";
constexpr const char* kFacts = R"(
Threads: one per core, or OMP_NUM_THREADS; results do not depend on it.
Exit status: 0 success, 1 failure, 2 wrong command line, 130 stopped by Ctrl-C.
`coda COMMAND --help` describes a command.)";

// Formats option help: names, kind of value, wrapped text, [the default].
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

// The message on one line, without escape codes.
std::string one_line(const std::string& text) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find_first_not_of(' ');
    if (first == std::string::npos) continue;
    result += result.empty() ? line : " " + line.substr(first);
  }
  return coda::without_escapes(result);
}

int fail(const std::string& message, int status) {
  std::fflush(stdout);
  std::fprintf(stderr, "coda: %s\n", one_line(message).c_str());
  return status;
}

// Prints the mistakes of a program as a compiler does, each with its line, and their number.
int fail(const coda::ProgramError& error) {
  std::fflush(stdout);
  const size_t count = error.mistakes().size();
  std::fprintf(stderr, "%s\ncoda: %zu mistake%s in the program\n", error.what(), count,
               count == 1 ? "" : "s");
  return 1;
}

// If a flag that keeps one value is given several times, prints which one counts: true or false for
// a flag without a value (--tied --untied).
void say_flags_given_twice(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands({})) {
    say_flags_given_twice(*command);
    command->parse_complete_callback([command] {
      for (const CLI::Option* option : command->get_options())
        if (option->count() > 1 && option->get_items_expected_max() <= 1 &&
            option->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeLast)
          std::fprintf(stderr, "coda: note: %s is given %zu times; the last counts: %s\n",
                       option->get_name().c_str(), option->count(),
                       one_line(option->results().back()).c_str());
    });
  }
}

// The subcommand that was being parsed, as "bench program", for the hint at its help.
std::string parsed_command(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  if (commands.empty()) return app.get_name();
  return app.get_name() + " " + parsed_command(*commands.front());
}

}  // namespace

int main(int argc, char** argv) {
  coda::tools::let_waiting_threads_sleep(argv);
  std::signal(SIGXFSZ, SIG_IGN);  // a too large file is a write error, as on a full disk
  CLI::App app(kAbout, "coda");
  app.footer(std::string(kExamples) + kFacts);
  app.set_version_flag("--version", "coda " + std::string(coda::version()),
                       "Print the version and exit");
  app.require_subcommand(1);
  app.formatter(std::make_shared<HelpFormatter>());
  // If a flag is repeated, the last value counts, as in `coda train $USUAL_FLAGS --steps 10`.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  coda::tools::add_train(app);
  coda::tools::add_eval(app);
  coda::tools::add_sample(app);
  coda::tools::add_explain(app);
  coda::tools::add_derive(app);
  coda::tools::add_emit(app);
  coda::tools::add_check(app);
  coda::tools::add_run(app);
  coda::tools::add_fmt(app);
  coda::tools::add_bench(app);
  coda::tools::add_compile(app);
  coda::tools::add_tune(app);
  coda::tools::add_info(app);
  coda::tools::read_decimal_numbers(app);
  say_flags_given_twice(app);
  for (const auto& [name, examples] :
       {std::pair{"train", kTrainExamples}, std::pair{"eval", kEvalExamples},
        std::pair{"sample", kSampleExamples}, std::pair{"explain", kExplainExamples},
        std::pair{"derive", kDeriveExamples}, std::pair{"fmt", kFmtExamples},
        std::pair{"info", kInfoExamples}, std::pair{"emit", kEmitExamples},
        std::pair{"check", kCheckExamples}, std::pair{"run", kRunExamples},
        std::pair{"bench", kBenchExamples}, std::pair{"compile", kCompileExamples},
        std::pair{"tune", kTuneExamples}}) {
    CLI::App& command = *app.get_subcommand(name);
    command.footer(examples + std::string(kFacts));
    for (CLI::App* below : command.get_subcommands({})) below->footer(command.get_footer());
  }
  try {
    app.parse(argc, argv);
    std::fflush(stdout);
    return std::ferror(stdout) != 0 ? fail("cannot write to the standard output", 1) : 0;
  } catch (const CLI::RuntimeError& stop) {
    return stop.get_exit_code();
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::RequiredError& error) {
    if (app.get_subcommands().empty() && argc > 1)
      return fail("there is no command " + coda::in_quotes(argv[1]) + " (see coda --help)", 2);
    return fail(std::string(error.what()) + " (see " + parsed_command(app) + " --help)", 2);
  } catch (const CLI::ParseError& error) {
    return fail(std::string(error.what()) + " (see " + parsed_command(app) + " --help)", 2);
  } catch (const std::bad_alloc&) {
    return fail("there is not enough memory for this: choose a smaller model, batch or sequence",
                1);
  } catch (const std::filesystem::filesystem_error& error) {
    return fail(coda::file_error("cannot use", error).what(), 1);
  } catch (const coda::ProgramError& error) {
    return fail(error);
  } catch (const std::exception& error) {
    return fail(error.what(), 1);
  }
}
