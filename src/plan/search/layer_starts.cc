// SPDX-License-Identifier: Apache-2.0
// Tries each place in a layer as the cut and counts the bytes that cross it.
#include "plan/search/layer_starts.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "plan/search/repeated_layers.h"

namespace coda {
namespace {

constexpr int kFewest = 2;

// The values that cross places in the sequence of computed nodes.
class Crossings {
 public:
  Crossings(const Graph& graph, const RepeatedLayers& layers)
      : graph_(graph), layers_(layers), last_reader_(layers.computed.size(), 0) {
    std::vector<size_t> place(static_cast<size_t>(graph.size()), kNone);
    for (size_t i = 0; i < layers.computed.size(); ++i)
      place[static_cast<size_t>(layers.computed[i])] = i;
    for (size_t i = 0; i < layers.computed.size(); ++i) {
      for (int operand : graph.node(layers.computed[i]).operands) {
        const size_t at = place[static_cast<size_t>(operand)];
        if (at != kNone) last_reader_[at] = std::max(last_reader_[at], i);
      }
    }
  }

  // Values computed before the place and read from it on.
  std::vector<int> at(size_t place) const {
    std::vector<int> ids;
    for (size_t i = 0; i < place; ++i)
      if (last_reader_[i] >= place) ids.push_back(layers_.computed[i]);
    return ids;
  }

  double elements(size_t place, const DimValues& sizes) const {
    double sum = 0;
    for (int id : at(place)) {
      const Shape& shape = graph_.node(id).shape;
      sum += static_cast<double>(shape.rows.evaluate(sizes)) *
             static_cast<double>(shape.cols.evaluate(sizes));
    }
    return sum;
  }

  // The multiplications, for a cut at this place, of the last GEMM before it: the last part of a
  // layer is only added, so it is not recomputed.
  double spared(size_t place, const DimValues& sizes) const {
    while (place > 0 && graph_.node(layers_.computed[place - 1]).op != Op::matmul) --place;
    if (place == 0) return 0;
    const Node& product = graph_.node(layers_.computed[place - 1]);
    const Shape& left = graph_.node(product.operands[0]).shape;
    return static_cast<double>(left.rows.evaluate(sizes) * left.cols.evaluate(sizes)) *
           static_cast<double>(product.shape.cols.evaluate(sizes));
  }

 private:
  static constexpr size_t kNone = SIZE_MAX;

  const Graph& graph_;
  const RepeatedLayers& layers_;
  std::vector<size_t> last_reader_;  // by place; 0: none
};

}  // namespace

LayerStarts find_layer_starts(const Graph& graph, const CompileRequest& request,
                              const DimValues& sizes) {
  const auto layers = find_repeated_layers(graph, request, kFewest);
  if (!layers) return {};
  const Crossings crossings(graph, *layers);
  // Searches in the second layer, because the first may start differently.
  const size_t second = layers->begin + layers->period;
  size_t best = second;
  const auto rank = [&](size_t place) {
    return std::pair(crossings.elements(place, sizes), -crossings.spared(place, sizes));
  };
  for (size_t place = second; place < second + layers->period; ++place)
    if (rank(place) < rank(best)) best = place;
  LayerStarts starts;
  for (size_t place = best - layers->period; place <= layers->end; place += layers->period)
    starts.push_back(crossings.at(place));
  return starts.size() < 2 ? LayerStarts{} : starts;
}

}  // namespace coda
