// SPDX-License-Identifier: Apache-2.0
// Assigns GEMMs to accumulators, tensors to kinds of movement, and staged tensors to planes.
#include "gpu/legalise/space_analysis.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "coda/error.h"
#include "gpu/target/element.h"
#include "program/step_table.h"

namespace coda::gpu {
namespace {

constexpr int64_t kBoxColumns = device::kSubTileColumns;
// The tensor cores keep about 14 bits when they sum 8-bit products and truncate the rest. An
// operand's own error is 3 to 6 %, and up to this many products the error of the sum stays far
// below that (docs/fp8.md). So shorter sums are left to the tensor cores, which allows ping-pong
// tiles that hide epilogues. The limit depends only on the shape, so that every tile gives the same
// bits.
constexpr int64_t kLongestFastSum = 4096;
constexpr int kMostParts = 4;  // accumulators per column that fit into a tile's registers

class Analyser {
 public:
  Analyser(const ProgramSizes& sizes, const program::TileMap& map, int space,
           const SpaceLimits& limits)
      : sizes_(sizes), map_(map), tile_space_(map.spaces[space]), limits_(limits) {
    result_.space = space;
  }

  std::variant<SpaceAnalysis, Refusal> run() {
    result_.ragged_columns = sizes_.size(tile_space_.shape.cols) % kPartialSpan != 0;
    find_representatives();
    if (!find_parts() || !find_groups() || !find_effects()) return refusal_;
    find_loads();
    count_vectors();
    find_long_functions();
    assign_planes();
    count_direct_loads();
    return std::move(result_);
  }

 private:
  const Step& step(int i) const { return sizes_.step(i); }
  // Functions that may refuse return false in that case.
  bool refuse(const Refusal& refusal) {
    refusal_ = refusal;
    return false;
  }
  int64_t half(int i) const {
    return map_.pairing[i] == Dim(0) ? 0 : sizes_.size(map_.pairing[i]) / 2;
  }
  bool is_concatenated(int i) const { return map_.pairing[i] == step(i).shape.cols; }

  // Equal loads and equal GEMMs are computed once.
  void find_representatives() {
    result_.representative.resize(sizes_.program().steps.size());
    for (size_t i = 0; i < result_.representative.size(); ++i)
      result_.representative[i] = static_cast<int>(i);
    for (int i : tile_space_.steps) {
      if (!step(i).operands.empty()) continue;
      for (int j : tile_space_.steps) {
        if (j >= i) break;
        if (step(i) == step(j) && map_.pairing[i] == map_.pairing[j]) {
          result_.representative[i] = j;
          break;
        }
      }
    }
  }
  bool is_first(int i) const { return result_.representative[i] == i; }

  bool find_parts() {
    for (int i : tile_space_.steps) {
      if (program::is_product(step(i)) && is_first(i) && !add_gemm(i)) return false;
    }
    const int parts = static_cast<int>(result_.parts.size());
    if (parts > kMostParts) {
      return refuse({.reason = RefusalReason::accumulators, .value = parts, .budget = kMostParts});
    }
    const Part& first = result_.parts.front();
    const int64_t h = half(first.gemm);
    if (first.member < 0 || is_concatenated(first.gemm)) return true;
    // Whether a tile of 64 or 128 base columns holds whole pairs of halves.
    const bool is_natural = parts == 2 && h % device::kFragmentColumns == 0 && 128 % h == 0;
    if (!is_natural) {
      return refuse({.reason = parts == 2 ? RefusalReason::pair_distance
                                          : RefusalReason::pair_with_other_gemm,
                     .step = first.gemm,
                     .value = h});
    }
    result_.natural_half = static_cast<uint32_t>(h);
    return true;
  }

  // Checks that a tile can hold whole groups.
  bool find_groups() {
    SpaceAnalysis::Groups& groups = result_.groups;
    const auto is_of_groups = [&](int i) {
      return map_.grouped[i] || program::repeats_groups(step(i));
    };
    const std::vector<int>& steps = tile_space_.steps;
    if (std::none_of(steps.begin(), steps.end(), is_of_groups)) return true;
    const auto found = tile_layouts(sizes_.program(), map_, tile_space_, sizes_.values());
    if (const auto* refused = std::get_if<Refusal>(&found)) return refuse(*refused);
    const auto& layouts = std::get<TileLayouts>(found);
    groups.span = kPartialSpan;
    for (int i : steps) {
      if (!map_.on_tile[i] || !map_.grouped[i]) continue;
      const TileLayout& layout = layouts.at(i);
      const int64_t base = layout.base_group();
      groups.layouts.emplace(i, layout);
      groups.span = static_cast<uint32_t>(std::lcm(int64_t{groups.span}, base));
      const bool is_of_quad = base % 8 == 0 || base == 2 || base == 4;
      const auto most = static_cast<uint32_t>(256 / result_.parts.size());
      if (!is_of_quad || groups.span > most) {
        return refuse({.reason = RefusalReason::group_in_tile, .step = i, .value = layout.group});
      }
    }
    constexpr uint32_t kWalk = 4;
    groups.registers = kWalk;
    for (int i : steps) {
      if (!program::repeats_groups(step(i)) || !is_first(i)) continue;
      const TileLayout& layout = groups.layouts.at(step(i).operands[0]);
      groups.registers += 2 * static_cast<uint32_t>(layout.planes()) * groups.span /
                          static_cast<uint32_t>(std::max<int64_t>(8, layout.base_group()));
    }
    find_walks();
    return true;
  }

  // A group value is known when its operands are; a sum is known one walk after its operands.
  void find_walks() {
    SpaceAnalysis::Groups& groups = result_.groups;
    std::map<int, uint32_t> after;  // walks
    std::set<int> read;             // by walks
    for (int i : tile_space_.steps) {
      uint32_t walks = 0;
      for (int operand : step(i).operands)
        walks = std::max(walks, map_.on_tile[operand] ? after.at(operand) : 0);
      if (program::sums_groups(step(i))) {
        groups.walks = std::max(groups.walks, ++walks);
        read.insert(step(i).operands[0]);
      }
      if (map_.on_tile[i]) after[i] = walks;
      if (map_.on_tile[i] && map_.grouped[i]) groups.known[i] = walks;
    }
    for (auto i = tile_space_.steps.rbegin(); i != tile_space_.steps.rend(); ++i) {
      if (!read.contains(*i)) continue;
      if (program::is_tile_load(step(*i)) && !map_.grouped[*i])
        groups.loads.push_back(result_.representative[*i]);
      // The operands of repeated groups are known before the walk, or another step reads them.
      if (map_.grouped[*i] && !program::sums_groups(step(*i))) continue;
      read.insert(step(*i).operands.begin(), step(*i).operands.end());
    }
  }
  bool is_read_by_walk(int load) const {
    const std::vector<int>& loads = result_.groups.loads;
    return std::find(loads.begin(), loads.end(), result_.representative[load]) != loads.end();
  }

  bool add_gemm(int i) {
    const std::vector<GemmSegment>& segments = step(i).segments();
    for (const GemmSegment& segment : segments) {
      if (!check_segment(segment)) return false;
    }
    if (result_.parts.empty()) {
      result_.segments = static_cast<int>(segments.size());
      set_layout(segments);
    } else {
      const int first = result_.parts.front().gemm;
      const auto reads_the_same = [](const GemmSegment& x, const GemmSegment& y) {
        return x.a == y.a && x.scales_a == y.scales_a && x.transpose_a == y.transpose_a;
      };
      if (!std::ranges::equal(step(first).segments(), segments, reads_the_same))
        return refuse({.reason = RefusalReason::first_operands, .step = first, .other = i});
    }
    for (const GemmSegment& segment : segments) {
      if (!check_layout(i, segment)) return false;
    }
    if (program::has_scales(step(i))) result_.has_scales = result_.promotes = true;
    const int members = half(i) == 0 ? 1 : 2;
    for (int w = 0; w < members; ++w) result_.parts.push_back({i, members == 1 ? -1 : w});
    return true;
  }

  // Rows may have any pitch: the launcher copies tensors that TMA cannot address.
  bool check_segment(const GemmSegment& segment) {
    for (int t : {segment.a, segment.b}) {
      if (!sizes_.target().multiplies(element_of(t)))
        return refuse({.reason = RefusalReason::operand_type, .tensor = t});
    }
    if (!device::are_operands(element_of(segment.a), element_of(segment.b))) {
      return refuse(
          {.reason = RefusalReason::operand_types, .other = segment.b, .tensor = segment.a});
    }
    return true;
  }

  void set_layout(const std::vector<GemmSegment>& segments) {
    using device::OperandLayout;
    const GemmSegment& s = segments.front();
    result_.layout = s.transpose_a ? (s.transpose_b ? OperandLayout::tt : OperandLayout::nt)
                                   : (s.transpose_b ? OperandLayout::tn : OperandLayout::nn);
    result_.element = element_of(s.a);
    result_.element_b = element_of(s.b);
    result_.promotes = !device::is_16_bits(result_.element) &&
                       !sizes_.options().fast_accumulation &&
                       length_of_sum(segments) > kLongestFastSum;
  }
  device::Element element_of(int tensor) const {
    return element_row(sizes_.tensor(tensor).dtype).element;
  }
  int64_t length_of_sum(const std::vector<GemmSegment>& segments) const {
    int64_t length = 0;
    for (const GemmSegment& s : segments) {
      const Shape& a = sizes_.tensor(s.a).shape;
      length += sizes_.size(s.transpose_a ? a.rows : a.cols);
    }
    return length;
  }

  bool check_layout(int gemm, const GemmSegment& s) {
    const GemmSegment& first =
        step(result_.parts.empty() ? gemm : result_.parts.front().gemm).segments().front();
    if (s.transpose_a != first.transpose_a || s.transpose_b != first.transpose_b) {
      return refuse({.reason = RefusalReason::mixed_layouts, .step = gemm});
    }
    if (element_of(s.a) != element_of(first.a) || element_of(s.b) != element_of(first.b))
      return refuse({.reason = RefusalReason::mixed_elements, .step = gemm});
    return true;
  }

  bool find_effects() {
    for (int i : tile_space_.steps) {
      const Step& s = step(i);
      if (program::is_tile_store(s) && !map_.grouped[i]) result_.stores.push_back({i});
      if (program::is_vector_store(s)) result_.selections.push_back(i);
      if (program::is_row_partial(s)) result_.row_partials.push_back(i);
      if (program::is_maximum(s)) result_.maxima.push_back(i);
      if (program::is_transposed_store(s) && !add_bytes(i))
        return refuse({.reason = RefusalReason::without_product, .step = i});
      if (!program::is_column_partial(s)) continue;
      if (info(s.partial()).lanes > 1)
        return refuse({.reason = RefusalReason::column_reduction, .step = i});
      result_.column_partials.push_back(i);
      result_.column_fields += half(i) == 0 ? 1 : 2;
    }
    for (TileMove& store : result_.stores) {
      store.is_wide = half(store.step) != 0;
      if (adds_in_memory(store.step)) {
        store.movement = Movement::added;
      } else if (can_stage(store.step, true)) {
        store.movement = Movement::staged;
      } else if (add_bytes(store.step)) {
        store.movement = Movement::bytes;
      }
    }
    return true;
  }

  // A store along rows or along columns through a byte plane. Both stores of one value in one type
  // share the plane.
  bool add_bytes(int i) {
    const Step& s = step(i);
    const DType type = sizes_.tensor(s.tensor()).dtype;
    const int from = s.operands[0];
    if (!can_be_bytes(s.tensor(), from)) return false;
    const bool is_transposed = program::is_transposed_store(s);
    for (ByteMove& move : result_.bytes) {
      int& own = is_transposed ? move.columns : move.rows;
      const int other = is_transposed ? move.rows : move.columns;
      if (move.from != from || own >= 0) continue;
      if (sizes_.tensor(step(other).tensor()).dtype != type) continue;
      own = i;
      return true;
    }
    int next = 0;
    for (const ByteMove& move : result_.bytes) next += move.is_wide ? 2 : 1;
    const bool is_wide = half(from) != 0;
    if (next + (is_wide ? 2 : 1) > sizes_.target().planes.most_bytes) return false;
    result_.bytes.push_back({.from = from,
                             .rows = is_transposed ? -1 : i,
                             .columns = is_transposed ? i : -1,
                             .is_wide = is_wide,
                             .plane = next});
    return true;
  }
  // Whether an 8-bit tensor can use byte planes, with the layout of `value`.
  bool can_be_bytes(int tensor, int value) const {
    if (size_of(sizes_.tensor(tensor).dtype) != 1 || !can_be_box(tensor)) return false;
    const int64_t h = half(value);
    return h == 0 || h % kBoxColumns == 0 || (is_concatenated(value) && h % kCopyBytes == 0);
  }
  // TMA clips stores to multiples of 16 bytes.
  bool can_be_box(int tensor) const {
    const int64_t granule = kCopyBytes / size_of(sizes_.tensor(tensor).dtype);
    return sizes_.stride(tensor) % granule == 0 &&
           sizes_.size(sizes_.tensor(tensor).shape.cols) % granule == 0;
  }

  // Whether the store is store(t, tile(t) + x) in fp32 and nothing else reads the sum or the load.
  bool adds_in_memory(int store) const {
    return sizes_.target().adds_in_memory && added_load(store) >= 0;
  }
  int added_load(int store) const {
    const int t = step(store).tensor();
    if (sizes_.tensor(t).dtype != DType::f32) return -1;
    const int sum = step(store).operands[0];
    if (!program::applies(step(sum), Elementwise::add)) return -1;
    for (int k = 0; k < 2; ++k) {
      const int load = step(sum).operands[k];
      const int other = step(sum).operands[1 - k];
      if (!program::is_tile_load(step(load)) || step(load).tensor() != t || other == load) continue;
      const bool neighbours = half(store) == 0 || is_concatenated(store) || half(store) % 2 == 0;
      if (!map_.on_tile[other] || !neighbours) continue;
      if (uses(load) == 1 && uses(sum) == 1) return load;
    }
    return -1;
  }
  int uses(int value) const {
    int count = 0;
    for (const Step& s : sizes_.program().steps) {
      for (int operand : s.operands) {
        count += result_.representative[operand] == result_.representative[value] ? 1 : 0;
      }
    }
    return count;
  }

  void find_loads() {
    for (int i : tile_space_.steps) {
      if (!program::is_tile_load(step(i)) || !is_first(i) || map_.grouped[i]) continue;
      TileMove load{i};
      load.is_wide = half(i) != 0;
      if (can_stage(i, false)) load.movement = Movement::staged;
      if (can_load_boxes(i) && can_be_bytes(step(i).tensor(), i)) load.movement = Movement::bytes;
      for (const TileMove& store : result_.stores) {
        if (store.movement == Movement::added && added_load(store.step) == i)
          load.movement = Movement::nothing;
      }
      result_.loads.push_back(load);
    }
  }

  void count_vectors() {
    constexpr uint32_t kMostRegisters = 16;
    const int64_t base = sizes_.size(tile_space_.shape.cols);
    uint32_t packed = 0;
    uint32_t wide = 0;
    for (int i : tile_space_.steps) {
      if (!is_first(i)) continue;
      if (!program::is_vector_load(step(i))) continue;
      if (step(i).shape.is_per_row()) ++result_.row_values;
      if (!step(i).shape.is_per_column()) continue;
      const uint32_t planes = sizes_.size(step(i).shape.cols) == base ? 1 : 2;
      (is_16_bits(sizes_.tensor(step(i).tensor()).dtype) ? packed : wide) += planes;
    }
    result_.loads_columns_by_fragment = 8 * packed + 16 * wide > kMostRegisters;
    result_.column_registers = 8 * packed + (result_.loads_columns_by_fragment ? 4 : 16) * wide;
  }

  // A gelu, or erf(x) + 1, is half as long as the others and fits if there is one accumulator per
  // column.
  void find_long_functions() {
    for (int i : tile_space_.steps) {
      const bool is_half =
          program::applies(step(i), Elementwise::gelu) || sizes_.operand_of_erf_plus_one(i) >= 0;
      const bool is_one =
          (program::applies(step(i), Elementwise::erf) && !is_only_in_sums_with_one(i)) ||
          program::applies(step(i), Elementwise::random) || (is_half && result_.parts.size() > 1);
      result_.has_long_function = result_.has_long_function || (is_one && map_.on_tile[i]);
    }
  }

  bool is_only_in_sums_with_one(int erf) const {
    const std::vector<Step>& steps = sizes_.program().steps;
    for (int i = 0; i < static_cast<int>(steps.size()); ++i) {
      const std::vector<int>& read = steps[i].operands;
      if (std::find(read.begin(), read.end(), erf) != read.end() &&
          sizes_.operand_of_erf_plus_one(i) < 0) {
        return false;
      }
    }
    return true;
  }

  void count_direct_loads() {
    constexpr uint32_t kMostRegisters = 32;
    uint32_t planes = 0;
    for (TileMove& load : result_.loads) {
      if (load.movement != Movement::direct) continue;
      planes += load.is_wide ? 2 : 1;
      const Step& s = step(load.step);
      load.is_repeated = !s.repeat().is(1) && !load.is_wide &&
                         sizes_.size(sizes_.tensor(s.tensor()).shape.cols) == kPartialSpan;
      if (load.is_repeated) ++result_.repeated_planes;
    }
    result_.loads_early = 8 * planes <= kMostRegisters;
    result_.loads_ahead = 2 * 8 * planes <= kMostRegisters;
    result_.direct_registers = result_.loads_ahead   ? 20 * planes
                               : result_.loads_early ? 8 * planes
                                                     : 4;
  }

  // Whether TMA can move the tensor's sub-tiles as boxes of 64 columns.
  bool can_stage(int i, bool is_store) const {
    const Step& s = step(i);
    const DType type = sizes_.tensor(s.tensor()).dtype;
    if (!is_16_bits(type)) return false;
    const int64_t granule = kCopyBytes / static_cast<int64_t>(size_of(type));
    if (!is_store && !can_load_boxes(i)) return false;
    if (sizes_.stride(s.tensor()) % granule != 0) return false;
    const int64_t h = half(i);
    // TMA clips stores to multiples of 16 bytes.
    const int64_t columns =
        h == 0 ? sizes_.writable_columns(s.tensor()) : sizes_.stored_columns(s.tensor());
    if (is_store && columns % granule != 0) return false;
    if (h == 0) return true;
    if (is_concatenated(i)) return h % granule == 0;
    return h % kBoxColumns == 0 || is_permuted(i);
  }
  bool can_load_boxes(int i) const {
    const Step& s = step(i);
    if (!s.repeat().is(1) || s.row_index() >= 0) return false;
    // The ring holds one sub-tile at a time.
    return result_.groups.span <= kBoxColumns || !is_read_by_walk(i);
  }
  bool is_permuted(int i) const {
    return result_.natural_half != 0 && half(i) == result_.natural_half && !is_concatenated(i) &&
           result_.natural_half < kBoxColumns;
  }

  // Permuted tensors come first. Planes that share memory must have the same permutation, so unless
  // equally many loads and stores are permuted, loads are direct.
  void assign_planes() {
    const int permuted_loads = mark_permuted(result_.loads);
    const int permuted_stores = mark_permuted(result_.stores);
    if (permuted_loads != permuted_stores) {
      for (TileMove& load : result_.loads) {
        if (load.movement == Movement::staged) load.movement = Movement::direct;
        load.is_permuted = false;
      }
    }
    number_planes(result_.stores, Movement::staged, 0);
    const int words = number_planes(result_.loads, Movement::staged, 0);
    number_planes(result_.loads, Movement::bytes, words);
  }

  int mark_permuted(std::vector<TileMove>& moves) const {
    int count = 0;
    for (TileMove& move : moves) {
      move.is_permuted = move.movement == Movement::staged && is_permuted(move.step);
      if (move.is_permuted && 2 * ++count > limits_.planes) {
        move.is_permuted = false;
        move.movement = Movement::direct;
        --count;
      }
    }
    return count;
  }

  // Numbers planes from `next` on and returns the next free number.
  int number_planes(std::vector<TileMove>& moves, Movement movement, int next) const {
    for (const bool permuted : {true, false}) {
      for (TileMove& move : moves) {
        if (move.movement != movement || move.is_permuted != permuted) continue;
        const int planes = move.is_wide ? 2 : 1;
        if (next + planes > limits_.planes) {
          move.movement = Movement::direct;
          continue;
        }
        move.plane = next;
        next += planes;
      }
    }
    return next;
  }

  const ProgramSizes& sizes_;
  const program::TileMap& map_;
  const TileSpace& tile_space_;
  const SpaceLimits limits_;
  SpaceAnalysis result_;
  Refusal refusal_;
};

}  // namespace

device::GemmConfig SpaceAnalysis::with_products(device::GemmConfig tile) const {
  tile.layout = layout;
  tile.element = element;
  tile.element_b = element_b;
  tile.promotes = promotes;
  tile.has_scales = has_scales;
  return tile;
}

bool SpaceAnalysis::multiplies_as(const SpaceAnalysis& other) const {
  return layout == other.layout && element == other.element && element_b == other.element_b &&
         promotes == other.promotes && has_scales == other.has_scales;
}

const TileMove* SpaceAnalysis::find_load(int step) const {
  for (const TileMove& load : loads) {
    if (load.step == representative[step]) return &load;
  }
  return nullptr;
}

device::EpilogueTraits SpaceAnalysis::traits() const {
  device::EpilogueTraits shape{.parts = static_cast<uint32_t>(parts.size()),
                               .natural_half = natural_half,
                               .segments = static_cast<uint32_t>(segments),
                               .loads = 0,
                               .stores = 0,
                               .column_partials = column_fields,
                               .group_span = groups.span,
                               .group_walks = groups.walks};
  for (const TileMove& load : loads) {
    if (load.plane < 0) continue;
    shape.loads += load.is_wide ? 2 : 1;
    if (load.movement == Movement::bytes) shape.byte_loads += load.is_wide ? 2 : 1;
    if (load.is_permuted) shape.wide_loads |= 1u << load.plane;
    const bool is_walked =
        std::find(groups.loads.begin(), groups.loads.end(), load.step) != groups.loads.end();
    if (is_walked) shape.group_loads |= (load.is_wide ? 3u : 1u) << load.plane;
  }
  for (const TileMove& store : stores) {
    if (store.movement != Movement::staged) continue;
    shape.stores += store.is_wide ? 2 : 1;
    if (store.is_permuted) shape.wide_stores |= 1u << store.plane;
  }
  for (const ByteMove& move : bytes) {
    const uint32_t planes = (move.is_wide ? 3u : 1u) << move.plane;
    shape.bytes += move.is_wide ? 2 : 1;
    if (move.rows >= 0) shape.byte_rows |= planes;
    if (move.columns >= 0) shape.byte_columns |= planes;
  }
  return shape;
}

const ByteMove* SpaceAnalysis::find_bytes(int effect) const {
  for (const ByteMove& move : bytes)
    if (move.rows == effect || move.columns == effect) return &move;
  return nullptr;
}

bool SpaceAnalysis::needs_whole_sub_tiles() const {
  const auto moved_by_threads = [](const TileMove& move) {
    return move.movement == Movement::direct || move.movement == Movement::added;
  };
  const device::EpilogueTraits shape = traits();
  return groups.span != 0 || shape.bytes + shape.byte_loads != 0 || !row_partials.empty() ||
         !column_partials.empty() || !selections.empty() || column_registers != 0 ||
         std::any_of(loads.begin(), loads.end(), moved_by_threads) ||
         std::any_of(stores.begin(), stores.end(), moved_by_threads);
}

std::variant<SpaceAnalysis, Refusal> analyse_space(const ProgramSizes& sizes,
                                                   const program::TileMap& map, int space,
                                                   const SpaceLimits& limits) {
  return Analyser(sizes, map, space, limits).run();
}

}  // namespace coda::gpu
