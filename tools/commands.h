// SPDX-License-Identifier: Apache-2.0
// The subcommands of `coda`. Each adds its flags and help to the app and runs when it is parsed.
// Errors are exceptions, which main turns into one line and an exit status.
#pragma once

namespace CLI {
class App;
}

namespace coda::tools {

void add_train(CLI::App& app);
void add_eval(CLI::App& app);
void add_sample(CLI::App& app);
void add_explain(CLI::App& app);
void add_derive(CLI::App& app);
void add_emit(CLI::App& app);
void add_fmt(CLI::App& app);
void add_check(CLI::App& app);
void add_run(CLI::App& app);
void add_bench(CLI::App& app);
void add_compile(CLI::App& app);
void add_tune(CLI::App& app);
void add_info(CLI::App& app);

}  // namespace coda::tools
