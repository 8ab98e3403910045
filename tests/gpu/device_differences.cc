#include "tests/gpu/device_differences.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/operators/operator_table.h"
#include "core/trace/effects.h"
#include "simulator/memory/memory_simulator.h"

namespace legoai::gpu {
namespace {

using graph::Argument;
using graph::Instruction;
using graph::InstructionView;
using graph::Trace;

// Distinct lines with their counts.
class Lines {
 public:
  void Add(std::string line) {
    const auto [it, fresh] = counts_.try_emplace(std::move(line), 0);
    if (fresh) order_.push_back(&it->first);
    ++it->second;
  }
  std::vector<std::string> Take(size_t limit) const {
    std::vector<std::string> lines;
    for (const std::string* line : order_) {
      if (lines.size() == limit) {
        lines.push_back(absl::StrCat(order_.size() - limit, " more distinct differences"));
        break;
      }
      lines.push_back(absl::StrCat(counts_.at(*line), " x ", *line));
    }
    return lines;
  }

 private:
  std::map<std::string, int64_t> counts_;
  std::vector<const std::string*> order_;
};

std::vector<uint32_t> Operators(const Trace& trace) {
  std::vector<uint32_t> indices;
  for (uint32_t i = 0; i < trace.instructions.size(); ++i) {
    if (trace.instructions[i].kind == Instruction::Kind::kOperator) indices.push_back(i);
  }
  return indices;
}

std::string KeyOf(const Trace& trace, uint32_t index) {
  const Instruction& instruction = trace.instructions[index];
  return absl::StrCat(trace.OperatorName(instruction), ", ", graph::PhaseName(instruction.phase),
                      instruction.stream == 0 ? "" : absl::StrCat(", stream ", instruction.stream));
}

// Layers are alike: "model.layers.3.mlp" is said as "model.layers.*.mlp".
std::string PlaceOf(const Trace& trace, uint32_t index) {
  std::string place;
  for (const char c : trace.modules[trace.instructions[index].module]) {
    if (c < '0' || c > '9') {
      place += c;
    } else if (place.empty() || place.back() != '*') {
      place += '*';
    }
  }
  return place.empty() ? "the step" : place;
}

std::string Text(const graph::Geometry& geometry) {
  return absl::StrCat(v1::DType_Name(geometry.dtype), "[", absl::StrJoin(geometry.sizes, ","), "]{",
                      absl::StrJoin(geometry.strides, ","), "}", geometry.offset == 0 ? "" : absl::StrCat("+", geometry.offset));
}

std::vector<int64_t> RowMajor(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * std::max<int64_t>(sizes[i], 1);
  return strides;
}

// (index in `a`, index in `b`); -1 where the other has none.
using Pairs = std::vector<std::pair<int64_t, int64_t>>;

Pairs Match(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  const size_t n = a.size(), m = b.size();
  std::vector<std::vector<uint32_t>> longest(n + 1, std::vector<uint32_t>(m + 1, 0));
  for (size_t i = n; i-- > 0;) {
    for (size_t j = m; j-- > 0;) {
      longest[i][j] = a[i] == b[j] ? longest[i + 1][j + 1] + 1 : std::max(longest[i + 1][j], longest[i][j + 1]);
    }
  }
  Pairs pairs;
  size_t i = 0, j = 0;
  while (i < n || j < m) {
    if (i < n && j < m && a[i] == b[j]) {
      pairs.push_back({i++, j++});
    } else if (j == m || (i < n && longest[i + 1][j] >= longest[i][j + 1])) {
      pairs.push_back({i++, -1});
    } else {
      pairs.push_back({-1, j++});
    }
  }
  return pairs;
}

class Comparison {
 public:
  Comparison(const Trace& recorded, const Trace& captured, v1::DeviceKind kind)
      : recorded_(recorded), captured_(captured), kind_(kind), auxiliary_(captured.storages.size()) {}

  std::vector<std::string> Run(size_t limit) {
    const auto left = Operators(recorded_), right = Operators(captured_);
    const auto keys = [](const Trace& trace, const std::vector<uint32_t>& indices) {
      std::vector<std::string> keys;
      for (uint32_t index : indices) keys.push_back(KeyOf(trace, index));
      return keys;
    };
    bool all_match = true;
    for (const auto& [i, j] : Match(keys(recorded_, left), keys(captured_, right))) {
      all_match &= i >= 0 && j >= 0;
      if (j < 0) {
        lines_.Add(absl::StrCat("only on the device: ", Describe(recorded_, left[i])));
      } else if (i < 0) {
        lines_.Add(absl::StrCat("only in the capture: ", Describe(captured_, right[j])));
      } else {
        CompareOperators(left[i], right[j]);
      }
    }
    if (all_match) CompareLifetimes();
    return lines_.Take(limit);
  }

 private:
  static std::string Describe(const Trace& trace, uint32_t index) {
    return absl::StrCat(KeyOf(trace, index), " in ", PlaceOf(trace, index), ": ",
                        trace.Line(trace.instructions[index], false).substr(0, 300));
  }

  void CompareOperators(uint32_t i, uint32_t j) {
    const Instruction &a = recorded_.instructions[i], &b = captured_.instructions[j];
    const std::string where = absl::StrCat(KeyOf(captured_, j), " in ", PlaceOf(captured_, j));
    if (recorded_.modules[a.module] != captured_.modules[b.module]) {
      lines_.Add(absl::StrCat(where, ": the device says it is in ", PlaceOf(recorded_, i)));
    }
    if (a.microbatch != b.microbatch || a.action != b.action) lines_.Add(absl::StrCat(where, ": another microbatch or action"));
    if (a.argument_count != b.argument_count || a.result_count != b.result_count) {
      return lines_.Add(absl::StrCat(where, ": another number of arguments or results"));
    }
    NoteAuxiliaries(j);
    for (int place = 0; place < a.argument_count; ++place) {
      Compare(where + ", argument ", place, recorded_.arguments[a.first_argument + place],
              captured_.arguments[b.first_argument + place]);
    }
    for (int place = 0; place < a.result_count; ++place) {
      Compare(where + ", result ", place, recorded_.results[a.first_result + place], captured_.results[b.first_result + place]);
    }
  }

  // Results of which it is known what they take on the device.
  void NoteAuxiliaries(uint32_t j) {
    const InstructionView op(captured_, captured_.instructions[j]);
    const sim::OperatorRow* row = sim::FindOperator(op.name());
    if (row == nullptr || row->results == sim::ResultRule::kAsRecorded) return;
    op.ForEachResult([&](int place, uint32_t value) {
      const uint32_t storage = captured_.values[value].storage;
      if (row->results == sim::ResultRule::kContiguous && kind_ == v1::CUDA) row_major_.insert(storage);
      if (place == 0) return;
      auxiliary_[storage] = sim::ResultBytes(op, *row, place, captured_.storages[storage].bytes, kind_);
    });
  }

  void Compare(const std::string& where, int place, const Argument& a, const Argument& b) {
    if (a.kind != b.kind) return lines_.Add(absl::StrCat(where, place, ": of another kind"));
    switch (a.kind) {
      case Argument::Kind::kUndefined: return;
      case Argument::Kind::kValue: return CompareValues(where, place, a.index, b.index);
      case Argument::Kind::kConstant:
      case Argument::Kind::kWrappedNumber:
        if (recorded_.constants[a.index] != captured_.constants[b.index]) {
          lines_.Add(absl::StrCat(where, place, ": another constant"));
        }
        return;
      case Argument::Kind::kList:
      case Argument::Kind::kOptionalList: break;
    }
    const auto &left = recorded_.lists[a.index], &right = captured_.lists[b.index];
    if (left.size() != right.size())
      return lines_.Add(absl::StrCat(where, place, ": ", left.size(), " tensors | ", right.size()));
    for (size_t i = 0; i < left.size(); ++i) {
      if ((left[i] < 0 || right[i] < 0) && left[i] != right[i]) {
        lines_.Add(absl::StrCat(where, place, ": a tensor of the list is missing"));
      } else if (left[i] >= 0) {
        CompareValues(where, place, static_cast<uint32_t>(left[i]), static_cast<uint32_t>(right[i]));
      }
    }
  }

  void CompareValues(const std::string& where, int place, uint32_t i, uint32_t j) {
    const graph::Value &a = recorded_.values[i], &b = captured_.values[j];
    const auto [it, fresh] = storage_of_.try_emplace(a.storage, b.storage);
    if (!fresh && it->second != b.storage) lines_.Add(absl::StrCat(where, place, ": a view of another tensor's memory"));
    const graph::Storage &left = recorded_.storages[a.storage], &right = captured_.storages[b.storage];
    if (left.kind != right.kind || left.name != right.name || left.category != right.category) {
      lines_.Add(absl::StrCat(where, place, ": '", left.name, "' of category ", static_cast<int>(left.category), " | '",
                              right.name, "' of category ", static_cast<int>(right.category)));
    }
    const int64_t expected = auxiliary_[b.storage].value_or(right.bytes);
    if (left.bytes != expected) {
      lines_.Add(absl::StrCat(where, place, ": ", left.bytes, " bytes on the device | ", expected,
                              auxiliary_[b.storage] ? " by simulator/memory/memory_simulator.h" : " in the capture"));
    }
    if (auxiliary_[b.storage]) return;
    graph::Geometry expected_geometry = captured_.geometries[b.geometry];
    if (row_major_.count(b.storage) > 0) expected_geometry.strides = RowMajor(expected_geometry.sizes);
    const std::string device = Text(recorded_.geometries[a.geometry]), capture = Text(expected_geometry);
    if (device != capture) lines_.Add(absl::StrCat(where, place, ": ", device, " on the device | ", capture, " in the capture"));
  }

  // By storage: how many operators ran before it was freed.
  static std::map<uint32_t, size_t> Frees(const Trace& trace) {
    std::map<uint32_t, size_t> frees;
    size_t operators = 0;
    for (const Instruction& instruction : trace.instructions) {
      operators += instruction.kind == Instruction::Kind::kOperator;
      if (instruction.kind == Instruction::Kind::kFree) frees[static_cast<uint32_t>(instruction.immediate)] = operators;
    }
    return frees;
  }

  void CompareLifetimes() {
    const auto left = Frees(recorded_), right = Frees(captured_);
    const auto operators = Operators(captured_);
    const auto place = [&](std::optional<size_t> at) {
      if (!at) return std::string("never");
      if (*at == 0) return std::string("before the first operator");
      return absl::StrCat("after ", KeyOf(captured_, operators[*at - 1]), " in ", PlaceOf(captured_, operators[*at - 1]));
    };
    for (const auto& [a, b] : storage_of_) {
      const auto i = left.find(a), j = right.find(b);
      const std::optional<size_t> device = i == left.end() ? std::nullopt : std::optional(i->second),
                                  capture = j == right.end() ? std::nullopt : std::optional(j->second);
      if (device == capture) continue;
      lines_.Add(absl::StrCat("a storage of ", captured_.storages[b].bytes, " bytes is freed ", place(device),
                              " on the device | ", place(capture), " in the capture"));
    }
  }

  const Trace &recorded_, &captured_;
  const v1::DeviceKind kind_;
  std::vector<std::optional<int64_t>> auxiliary_;  // by storage of the capture: its bytes on the device
  std::set<uint32_t> row_major_;                   // storages of the capture that the device makes so
  std::map<uint32_t, uint32_t> storage_of_;        // recorded -> captured
  Lines lines_;
};

}  // namespace

std::vector<std::string> DeviceDifferences(const Trace& recorded, const Trace& captured, v1::DeviceKind kind, size_t limit) {
  return Comparison(recorded, captured, kind).Run(limit);
}

LiveBytes CompareLiveBytes(const std::vector<int64_t>& counted, const Trace& captured, v1::DeviceKind kind, size_t limit) {
  LiveBytes result;
  sim::MemoryOptions options;
  options.kind = kind;
  const auto profile = sim::SimulateMemory(captured, options);
  if (!profile.ok()) return {0, {profile.status().ToString()}};
  const auto operators = Operators(captured);
  if (operators.size() != counted.size()) {
    return {0, {absl::StrCat(counted.size(), " operators on the device | ", operators.size(), " in the capture")}};
  }
  Lines lines;
  int64_t distance = 0;
  for (size_t i = 0; i < operators.size(); ++i) {
    const int64_t predicted = operators[i] == 0 ? profile->start_bytes : profile->live_bytes[operators[i] - 1];
    const int64_t now = counted[i] - predicted;
    if (i == 0) {
      result.resident = now;
    } else if (now != distance) {
      lines.Add(absl::StrCat("with ", KeyOf(captured, operators[i - 1]), " in ", PlaceOf(captured, operators[i - 1]), ", up to ",
                             KeyOf(captured, operators[i]), ": the device has ", std::abs(now - distance),
                             now > distance ? " bytes more" : " bytes less", " than the memory simulator"));
    }
    distance = now;
  }
  result.differences = lines.Take(limit);
  return result;
}

}  // namespace legoai::gpu
