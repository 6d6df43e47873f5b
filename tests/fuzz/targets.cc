// SPDX-License-Identifier: Apache-2.0
#include "fuzz/targets.h"

#include <sys/socket.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <thread>

#include "coda/array_file.h"
#include "coda/error.h"
#include "coda/formula.h"
#include "coda/graph_text.h"
#include "coda/program.h"
#include "coda/tokenizer.h"
#include "collective/meeting.h"
#include "collective/protocol.h"
#include "graph_text/all_ops.h"
#include "io/mapped_file.h"
#include "io/model_config.h"
#include "io/safetensors.h"
#include "io/temp_folder.h"
#include "tokenizer/small_tokenizer.h"

namespace coda::fuzz {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kJsonWords{
    "0",    "-1",   "1e-5", "1e400", "2147483648", "9223372036854775808",
    "null", "true", "\"\"", "[]",    "{}",         "[",
    "{",    "}",    "\"",   ",",     ":",          "\n",
    "\xff", "0.5",  "-0",   "NaN",   "\\u0000",    "\\ud800"};

void require_that(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error(what);
}

// A message of one line.
template <class Action>
void expect_answer(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    const std::string said = error.what();
    require_that(!said.empty(), "an Error that says nothing");
  }
}

std::vector<std::string> files_in(const fs::path& folder, const std::string& extension) {
  std::vector<std::string> texts;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == extension) texts.push_back(io::read_file(entry.path()));
  std::ranges::sort(texts);
  return texts;
}

// A target whose reader takes a file.
class FileTarget : public Target {
 public:
  FileTarget(const std::string& name, const std::function<void(const fs::path&)>& reader) {
    read = [this, name, reader](const std::string& bytes) {
      std::ofstream(folder_ / name, std::ios::binary) << bytes;
      expect_answer([&] { reader(folder_ / name); });
    };
  }

 protected:
  TempFolder folder_;
};

std::unique_ptr<Target> config() {
  auto target = std::make_unique<Target>();
  for (const char* type : {"llama", "qwen2", "qwen3_moe", "mixtral", "olmoe", "phi3", "smollm3",
                           "gemma2", "gemma3_text", "gpt_neox"}) {
    target->seeds.push_back(
        std::string(R"({"model_type": ")") + type +
        R"(", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
 "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256, "head_dim": 16,
 "sliding_window": 4, "rms_norm_eps": 1e-6, "tie_word_embeddings": true, "num_experts": 4,
 "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 100.0,
  "original_max_position_embeddings": 32}})");
  }
  target->seeds.push_back(R"({"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4,
 "vocab_size": 256, "n_positions": 64, "activation_function": "gelu_new"})");
  target->words = kJsonWords;
  for (const char* word : {"\"longrope\"", "\"linear\"", "\"dynamic\"", "\"llama3\"",
                           "\"rope_scaling\"", "\"layer_types\"", "\"sliding_attention\"",
                           "\"no_rope_layers\"", "\"partial_rotary_factor\"", "\"pad_token_id\""})
    target->words.emplace_back(word);
  target->read = [](const std::string& bytes) {
    expect_answer([&] {
      const io::ReadConfig read = io::read_config(bytes, "config.json");
      const std::string written = io::model_config_text(read.config, DType::f32);
      require_that(io::parse_model_config(written, "written") == read.config,
                   "what is written is read as another config");
    });
  };
  return target;
}

std::unique_ptr<Target> tokenizer() {
  auto target = std::make_unique<FileTarget>("tokenizer.json", [](const fs::path& file) {
    const Tokenizer read(file);
    const std::string text = "line 12\n </s>\xC3\xA9\xCC\x81 \xFF\xE2\x84\xA2  <s>nil";
    const std::vector<int32_t> ids = read.encode(text);
    read.decode(ids);
    TextStream stream(read, {});
    for (const int32_t id : ids) stream.push(id);
  });
  target->seeds = {
      small_tokenizer(),
      small_tokenizer(R"("normalizer": {"type": "NFKC"}, "pre_tokenizer": {"type": "Sequence",
 "pretokenizers": [{"type": "Split", "behavior": "Isolated", "invert": false, "pattern": {"Regex":
 "(?i:'s|'t)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}]++|\\s+(?!\\S)|\\s+"}},
 {"type": "Digits", "individual_digits": true}]},)"),
      small_tokenizer(R"("normalizer": null, "pre_tokenizer": {"type": "Metaspace",
 "replacement": "▁", "prepend_scheme": "first", "split": true},)"),
      small_tokenizer(R"("normalizer": {"type": "Replace", "pattern": {"Regex": " {2,}"},
 "content": "_"}, "pre_tokenizer": null,)")};
  target->words = kJsonWords;
  for (const char* word : {"(?:", "(?!", "[^", "{1000}", "{2,}", "\\\\p{Han}", "&&", ")*", "+?",
                           "\"NFC\"", "\"NFD\"", "\"ByteLevel\"", "\"Removed\"", "\"Contiguous\"",
                           "\"MergedWithNext\"", "\"Strip\"", "|", "\\\\s"})
    target->words.emplace_back(word);
  return target;
}

std::string bytes_of_file(const std::string& name, const std::vector<ArrayToWrite>& arrays) {
  const TempFolder folder;
  write_arrays(folder / name, arrays);
  return io::read_file(folder / name);
}

const std::vector<ArrayToWrite>& some_arrays() {
  static const std::vector<ArrayToWrite> kArrays{{"x", DType::f32, {{3, 2}, {1.5, 2, 3, 4, 5, -6}}},
                                                 {"halves", DType::f16, {{4}, {1, 2, 3, 4}}},
                                                 {"ids", DType::i32, {{2}, {2, 0}}}};
  return kArrays;
}

std::unique_ptr<Target> safetensors() {
  auto target = std::make_unique<FileTarget>("x.safetensors", [](const fs::path& file) {
    for (const auto& [name, tensor] : io::open_safetensors(file).tensors) {
      [[maybe_unused]] volatile std::byte read{};  // volatile: the compiler keeps the reads
      for (const std::byte byte : tensor.bytes) read = byte;
    }
    read_arrays(file);
  });
  target->seeds = {bytes_of_file("x.safetensors", some_arrays())};
  target->words = kJsonWords;
  for (const char* word : {"\"F32\"", "\"BF16\"", "\"F8_E4M3\"", "\"data_offsets\"", "\"shape\"",
                           "\"__metadata__\"", "\x08"})
    target->words.emplace_back(word);
  return target;
}

std::unique_ptr<Target> npz() {
  auto target =
      std::make_unique<FileTarget>("x.npz", [](const fs::path& file) { read_arrays(file); });
  target->seeds = {bytes_of_file("x.npz", some_arrays())};
  target->words = {"'<f4'",
                   "'>f8'",
                   "'|O'",
                   "True",
                   "(3, 2)",
                   "(",
                   "PK\x01\x02",
                   "PK\x05\x06",
                   std::string("\xff\xff\xff\xff", 4),
                   std::string("\0\0\0\0", 4),
                   "\x93NUMPY"};
  return target;
}

std::unique_ptr<Target> program() {
  auto target = std::make_unique<Target>();
  target->seeds = files_in(fs::path(CODA_SOURCE_DIR) / "programs", ".coda");
  target->words = {"(",
                   ")",
                   "[",
                   "]",
                   ",",
                   "=",
                   ":bf16",
                   ":f32",
                   "M",
                   "2*N",
                   "gemm(",
                   "tile(",
                   "per_row(",
                   "store(",
                   "row_partial(",
                   "scalar(",
                   "1e400",
                   "nan",
                   "\n",
                   "}",
                   "program p {",
                   "merge_pairs(",
                   "repeat=3",
                   "rows=",
                   "exp(",
                   "nt",
                   "#",
                   "\xff"};
  target->read = [](const std::string& bytes) {
    expect_answer([&] {
      const Program read = parse_program(bytes);
      require_that(parse_program(text(read)) == read, "what is printed is read as another program");
    });
  };
  return target;
}

std::unique_ptr<Target> graph() {
  auto target = std::make_unique<Target>();
  target->seeds = {text(tests::graph_of_all_ops())};
  target->words = {"(", ")",         "[",       "]",          ",",         "=",     ":bf16",
                   "M", "2*N",       "matmul(", "attention(", "sum_rows(", "1e400", "\n",
                   "}", "graph g {", "input",   "output",     "\xff",      "0"};
  target->read = [](const std::string& bytes) {
    expect_answer([&] {
      const NamedGraph read = parse_graph(bytes);
      parse_graph(text(read));
    });
  };
  return target;
}

std::unique_ptr<Target> formula() {
  auto target = std::make_unique<Target>();
  target->seeds = {
      "h = x * rsqrt(mean(x ** 2, axis=1, keepdims=True) + 1e-5) * w\nout = silu(h @ x.T)",
      "y = x[:, ::2] - x[..., 1:2] if 1 else 0", "z = concatenate([x, x[::-1]], axis=0)\nq = z.T",
      "p = softmax(x, axis=-1)\nl = -log(p[arange(M), ids])", "m = where(x > 0, x, 0.1 * x)"};
  target->words = {"(",      ")",     "[",      "]",       ",",        "=",
                   "x",      "w",     "ids",    "M",       "N",        "@",
                   "**",     ".T",    ":",      "None",    "axis=",    "keepdims=True",
                   "-1",     "1e300", "sum(",   "max(",    "reshape(", "arange(",
                   "zeros(", "ones(", "outer(", "repeat(", "\n",       "...",
                   "lambda", "\xff"};
  target->read = [](const std::string& bytes) {
    const Arrays known{{"x", {{3, 2}, {1.5, 2, 3, 4, 5, -6}}},
                       {"w", {{2}, {1, 2}}},
                       {"ids", {{3}, {1, 0, 1}}},
                       {"M", {{}, {3}}},
                       {"N", {{}, {2}}}};
    expect_answer([&] { evaluate_formula(bytes, known); });
  };
  return target;
}

// A stranger connects to rank 0 of two processes. Rank 0 waits for rank 1, which joins only in the
// destructor. If the first byte of an input is H or D, the rest is sent with a correct proof of the
// secret; otherwise the rest is sent as it is.
class HelloTarget : public Target {
 public:
  HelloTarget() {
    place_.world = 2;
    place_.address = "127.0.0.1";
    place_.patience = 86400;
    listening_ = listen_at("127.0.0.1", 0);
    place_.port = port_of(listening_);
    first_ = std::thread([this] { gather_others(place_, listening_, "CPU", "a token"); });
    const std::string who = "1\n2\n" + std::string(version()) + "\nwithout\nsomewhere\nCPU\n";
    seeds = {"Ha number\n" + who, "Da number\n" + who, std::string("GH\x05\0\0\0hello", 11),
             "GGET / HTTP/1.1\r\n\r\n"};
    words = {"H",
             "D",
             "W",
             "A",
             "Q",
             "-1\n",
             "0\n",
             "2\n",
             "99999999999\n",
             "\n",
             "coda 2\n",
             std::string("\0\0\0\0", 4),
             std::string("\xff\xff\xff\xff", 4),
             "with a secret"};
    read = [this](const std::string& bytes) { speak(bytes); };
  }
  ~HelloTarget() override {
    ProcessPlace rank1 = place_;
    rank1.rank = 1;
    rank1.patience = 60;
    while (true) {
      try {
        const Met met = come_to_first(rank1, "CPU");
        first_.join();
        return;
      } catch (const Error& error) {  // rank 0 took a stranger for rank 1: tries until it notices
        if (std::string(error.what()).find("there already") == std::string::npos) std::terminate();
      }
    }
  }

 private:
  void speak(const std::string& bytes) const {
    const Socket socket = connect_until("127.0.0.1", place_.port, soon());
    Inbox inbox;
    const auto challenge = receive_until(socket, inbox, soon());
    require_that(challenge && challenge->kind == 'C', "rank 0 does not listen");
    if (bytes.empty()) return;
    if (bytes[0] == 'H' || bytes[0] == 'D') {
      const std::string nonce = challenge->text.substr(challenge->text.find('\n') + 1);
      const std::string text = bytes.substr(1);
      const std::string proof = keyed_hash("", bytes.substr(0, 1) + nonce + text);
      send_message(socket, {bytes[0], "coda 2\n" + proof + "\n" + text});
      require_that(receive_until(socket, inbox, soon()).has_value() || text.size() > 3000,
                   "no answer to a hello");
    } else {
      ::send(socket.descriptor(), bytes.data() + 1, bytes.size() - 1, MSG_NOSIGNAL);
    }
  }

  ProcessPlace place_;
  Socket listening_;
  std::thread first_;
};

std::unique_ptr<Target> hello() { return std::make_unique<HelloTarget>(); }

void add_corpus(const std::string& name, std::vector<std::string>& seeds) {
  const fs::path file = fs::path(CODA_SOURCE_DIR) / "tests/fuzz/corpus" / (name + ".bin");
  if (!fs::exists(file)) return;
  const std::string bytes = io::read_file(file);
  for (size_t at = 0; at < bytes.size();) {
    const size_t line = bytes.find('\n', at);
    const size_t size = std::stoul(bytes.substr(at, line - at));
    seeds.push_back(bytes.substr(line + 1, size));
    at = line + 1 + size;
  }
}

constexpr const char* kNames[] = {"config",  "tokenizer", "safetensors", "npz",
                                  "program", "graph",     "formula",     "hello"};

}  // namespace

std::span<const char* const> target_names() { return kNames; }

std::unique_ptr<Target> make_target(const std::string& name) {
  static const std::map<std::string, std::unique_ptr<Target> (*)()> kTargets{
      {"config", config},   {"tokenizer", tokenizer}, {"safetensors", safetensors},
      {"npz", npz},         {"program", program},     {"graph", graph},
      {"formula", formula}, {"hello", hello}};
  const auto found = kTargets.find(name);
  require(found != kTargets.end(), "there is no target " + name);
  auto target = found->second();
  add_corpus(name, target->seeds);
  return target;
}

}  // namespace coda::fuzz
