// SPDX-License-Identifier: Apache-2.0
// Reads the environment variables of the supported launchers, in order.
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "coda/communicator.h"
#include "coda/error.h"
#include "coda/messages.h"

namespace coda {
namespace {

constexpr int kUsualPort = 29500;       // PyTorch's
constexpr size_t kShortestSecret = 16;  // characters; shorter ones could be guessed

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == 0 ? nullptr : value;
}

int number_of(const char* name, int least, int otherwise) {
  const char* text = variable(name);
  if (text == nullptr) return otherwise;
  int number = 0;
  const char* const end = text + std::strlen(text);
  const auto [rest, error] = std::from_chars(text, end, number);
  require(error == std::errc() && rest == end && number >= least,
          std::string(name) + " is " + in_quotes(text) + ": it must be a whole number from " +
              std::to_string(least) + " (the launcher of the processes sets it)");
  return number;
}

struct Launcher {
  const char* rank;
  const char* world;
  const char* local_rank;
  const char* local_world;
};
constexpr Launcher kLaunchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"},
};

}  // namespace

ProcessPlace process_place() {
  ProcessPlace place;
  for (const Launcher& launcher : kLaunchers) {
    if (variable(launcher.rank) == nullptr || variable(launcher.world) == nullptr) continue;
    place.rank = number_of(launcher.rank, 0, 0);
    place.world = number_of(launcher.world, 1, 1);
    require(place.rank < place.world,
            std::string(launcher.rank) + " is " + std::to_string(place.rank) + " and " +
                launcher.world + " is " + std::to_string(place.world) +
                ": ranks count from 0 (the launcher of the processes sets them)");
    place.local_rank = number_of(launcher.local_rank, 0, place.rank);
    const char* local_world = variable(launcher.local_world);
    if (local_world != nullptr && local_world == std::to_string(place.world))
      place.address = "127.0.0.1";
    break;
  }
  if (const char* address = variable("MASTER_ADDR")) place.address = address;
  place.port = number_of("MASTER_PORT", 1, kUsualPort);
  const char* has_store = variable("TORCHELASTIC_USE_AGENT_STORE");
  if (has_store != nullptr && std::string_view(has_store) == "True") ++place.port;
  place.patience = number_of("CODA_JOIN_SECONDS", 1, static_cast<int>(place.patience));
  place.silence = number_of("CODA_SILENT_SECONDS", 1, static_cast<int>(place.silence));
  place.shared_memory = number_of("CODA_SHARED_MEMORY", 0, -1);
  place.is_open = number_of("CODA_JOIN_OPEN", 0, 0) > 0;
  if (const char* secret = variable("CODA_JOIN_SECRET")) place.secret = secret;
  require(place.secret.empty() || place.secret.size() >= kShortestSecret,
          "CODA_JOIN_SECRET is shorter than " + std::to_string(kShortestSecret) +
              " characters and may be guessed: take what openssl rand -hex 16 prints, the same for "
              "all processes");
  return place;
}

}  // namespace coda
