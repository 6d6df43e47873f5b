// SPDX-License-Identifier: Apache-2.0
// Derives the order of shards from the steps of the plan, then schedules exchanges before opaque
// calls.
#include "train/exchange_plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <variant>

#include "base/rounding.h"
#include "runtime/parameter_copies.h"
#include "train/gradient_session.h"

namespace coda {
namespace {

constexpr int64_t kMostShards = 16;  // of each kind

std::map<std::string, std::string> owners(const Plan& plan) {
  std::map<std::string, std::string> owner;
  for (const PlanTensor& tensor : plan.tensors) {  // a view is declared after its owner
    const bool is_view = !tensor.view_of.empty();
    owner[tensor.decl.name] = is_view ? owner.at(tensor.view_of) : tensor.decl.name;
  }
  return owner;
}

// For each tensor: the number of backward steps after which no step uses it. The steps of a loop
// run for all blocks before later steps.
std::map<std::string, size_t> complete_behind(const Plan& plan) {
  const std::map<std::string, std::string> owner = owners(plan);
  std::map<std::string, size_t> complete;
  for (size_t i = 0; i < plan.backward.size(); ++i) {
    size_t end = i + 1;
    const int loop = plan.backward[i].loop;
    while (loop >= 0 && end < plan.backward.size() && plan.backward[end].loop == loop) ++end;
    for (const StepTensor& use : step_tensors(plan.backward[i])) complete[owner.at(use.name)] = end;
  }
  return complete;
}

// For each tensor: the first forward step that uses it or a copy of it.
std::map<std::string, size_t> first_reads(const Compiled& compiled) {
  const Plan& plan = compiled.plan;
  std::map<std::string, std::string> owner = owners(plan);
  for (const ParameterCopy& copy : compiled.parameter_copies)
    for (const std::string& stored : stored_by({copy})) owner[stored] = copy.parameter;
  std::map<std::string, size_t> first;
  for (size_t i = 0; i < plan.forward.size(); ++i)
    for (const StepTensor& use : step_tensors(plan.forward[i]))
      first.emplace(owner.at(use.name), i);
  return first;
}

int64_t gathered_bytes(const ExchangePlan::Shard& shard) {
  return shard.elements * size_of(shard.has_copy ? DType::bf16 : DType::f32);
}

// Schedules exchanges before opaque calls, with all shards that are complete by then.
void schedule(const Plan& plan, int64_t least_bytes, ExchangePlan& exchange) {
  size_t next = 0;
  for (size_t i = 0; i < plan.backward.size(); ++i) {
    if (!std::holds_alternative<OpaqueCall>(plan.backward[i].work)) continue;
    int64_t elements = 0;
    size_t end = next;
    while (end < exchange.shards.size() && exchange.shards[end].complete <= i)
      elements += exchange.shards[end++].elements;
    if (elements * size_of(DType::f32) < least_bytes) continue;
    while (next < end) exchange.shards[next++].start = i;
  }
}

// Schedules gatherings during the forward, before opaque calls that read no parameter. (An
// embedding reads one, and is short.)
void schedule_gathers(const Compiled& compiled, const std::vector<ExchangedParameter>& parameters,
                      int64_t least_bytes, ExchangePlan& exchange) {
  const Plan& plan = compiled.plan;
  const std::map<std::string, size_t> first = first_reads(compiled);
  exchange.forward_steps = plan.forward.size();
  for (ExchangePlan::Shard& shard : exchange.shards) shard.read = exchange.forward_steps;
  std::set<size_t> readers;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto found = first.find(parameters[i].name);
    if (found == first.end()) continue;
    readers.insert(found->second);
    size_t& read = exchange.shards[exchange.shard_of[i]].read;
    read = std::min(read, found->second);
  }
  std::vector<size_t> calls;
  for (size_t i = 0; i < plan.forward.size(); ++i)
    if (std::holds_alternative<OpaqueCall>(plan.forward[i].work) && !readers.contains(i))
      calls.push_back(i);
  std::map<size_t, int64_t> at_once;  // bytes
  for (ExchangePlan::Shard& shard : exchange.shards) {
    const auto before = std::ranges::lower_bound(calls, shard.read) - calls.begin();
    if (before == 0) continue;
    shard.gather = calls[static_cast<size_t>(std::max<std::ptrdiff_t>(before - 2, 0))];
    at_once[shard.gather] += gathered_bytes(shard);
  }
  for (ExchangePlan::Shard& shard : exchange.shards)
    if (shard.gather != ExchangePlan::kWithUpdate && at_once.at(shard.gather) < least_bytes)
      shard.gather = ExchangePlan::kWithUpdate;
}

int64_t elements_if(const ExchangePlan& exchange, const auto& holds) {
  int64_t sum = 0;
  for (const ExchangePlan::Shard& shard : exchange.shards) sum += holds(shard) ? shard.elements : 0;
  return sum;
}

}  // namespace

std::vector<ExchangedParameter> exchanged_parameters(const Weights& weights) {
  std::vector<ExchangedParameter> parameters;
  for (const WeightTensor& w : weights)
    parameters.push_back({w.name, w.rows * w.cols, !w.bf16.empty()});
  return parameters;
}

int64_t ExchangePlan::elements() const {
  return elements_if(*this, [](const Shard&) { return true; });
}

int64_t ExchangePlan::overlapped_elements() const {
  return elements_if(*this, [](const Shard& shard) { return shard.start != kBehind; });
}

int64_t ExchangePlan::elements_under() const {
  return elements_if(*this, [](const Shard& shard) { return shard.gather != kWithUpdate; });
}

std::string ExchangePlan::text() const {
  const auto percent = [this](int64_t part) {
    const auto all = static_cast<double>(std::max<int64_t>(elements(), 1));
    return std::to_string(std::lround(100 * static_cast<double>(part) / all)) + " %";
  };
  return "gradients in " + std::to_string(shards.size()) + " shards, " +
         percent(overlapped_elements()) + " of them exchanged during the backward; " +
         percent(elements_under()) + " of the weights gathered during the next forward";
}

ExchangePlan exchange_plan(const Compiled& compiled,
                           const std::vector<ExchangedParameter>& parameters, int processes,
                           int64_t least_bytes, bool is_mixed) {
  const Plan& plan = compiled.plan;
  ExchangePlan exchange;
  exchange.steps = plan.backward.size();
  exchange.shard_of.resize(parameters.size());
  const std::map<std::string, size_t> complete = complete_behind(plan);
  const auto completed = [&](const ExchangedParameter& p) {
    const auto found = complete.find(gradient_name(p.name));
    return found == complete.end() ? 0 : found->second;
  };
  exchange.order.resize(parameters.size());
  std::iota(exchange.order.begin(), exchange.order.end(), size_t{0});
  std::ranges::sort(exchange.order, {}, [&](size_t i) {
    return std::tuple(completed(parameters[i]), std::string_view(parameters[i].name));
  });
  if (processes == 1) {
    exchange.shards.emplace_back();
    for (const size_t i : exchange.order) {
      const ExchangedParameter& p = parameters[i];
      const bool is_apart = !is_mixed && !p.has_copy;  // in the second shard
      if (is_apart && exchange.shards.size() == 1) exchange.shards.emplace_back();
      exchange.shard_of[i] = is_apart ? 1 : 0;
      ExchangePlan::Shard& shard = exchange.shards[exchange.shard_of[i]];
      shard.has_copy |= p.has_copy;
      shard.elements += p.elements;
    }
    return exchange;
  }
  int64_t all = 0;
  for (const ExchangedParameter& p : parameters) all += p.elements;
  const int64_t enough = ceil_div(all, kMostShards);
  size_t open[2] = {SIZE_MAX, SIZE_MAX};  // shards without a copy, and with one
  for (const size_t i : exchange.order) {
    const ExchangedParameter& p = parameters[i];
    size_t& index = open[p.has_copy ? 1 : 0];
    if (index == SIZE_MAX) {
      index = exchange.shards.size();
      exchange.shards.push_back({.has_copy = p.has_copy});
    }
    ExchangePlan::Shard& shard = exchange.shards[index];
    exchange.shard_of[i] = index;
    shard.elements += p.elements;
    shard.complete = completed(p);
    if (shard.elements >= enough) index = SIZE_MAX;
  }
  // A shard may be opened before another one that is complete earlier.
  std::vector<size_t> by_completion(exchange.shards.size());
  std::iota(by_completion.begin(), by_completion.end(), size_t{0});
  std::ranges::stable_sort(by_completion, {},
                           [&](size_t i) { return exchange.shards[i].complete; });
  std::vector<ExchangePlan::Shard> sorted;
  std::vector<size_t> place(by_completion.size());
  for (const size_t i : by_completion) {
    place[i] = sorted.size();
    sorted.push_back(exchange.shards[i]);
  }
  exchange.shards = std::move(sorted);
  for (size_t& shard : exchange.shard_of) shard = place[shard];
  schedule(plan, least_bytes, exchange);
  schedule_gathers(compiled, parameters, least_bytes, exchange);
  return exchange;
}

}  // namespace coda
