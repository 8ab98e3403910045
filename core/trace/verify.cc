#include "core/trace/verify.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <unordered_map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/trace/effects.h"

namespace legoai::graph {
namespace {

constexpr size_t kStreams = 64;
using Clock = std::array<uint32_t, kStreams>;  // by stream: instructions of it known to be done

std::string Named(const Trace& trace, uint32_t storage) {
  return absl::StrCat("storage ", storage, trace.storages[storage].name.empty() ? "" : " ", trace.storages[storage].name);
}

class RaceCheck {
 public:
  RaceCheck(const Trace& trace, int64_t limit) : trace_(trace), limit_(limit), uses_(trace.storages.size()) {}

  std::vector<std::string> Run() {
    for (index_ = 0; index_ < trace_.instructions.size(); ++index_) Step(trace_.instructions[index_]);
    return std::move(findings_);
  }

 private:
  // Bytes of a storage, from the first element of a tensor to its last.
  struct Range {
    int64_t begin = 0, end = std::numeric_limits<int64_t>::max();
    bool Meets(const Range& other) const { return begin < other.end && other.begin < end; }
    bool Covers(const Range& other) const { return begin <= other.begin && other.end <= end; }
  };
  struct Use {
    uint16_t stream = 0;
    uint32_t time = 0;
    size_t instruction = 0;
    Range range;
  };
  // Those that no later write covers. Of reads on one stream the last of a range.
  struct StorageUses {
    std::vector<Use> writes, reads;
  };

  void Step(const Instruction& instruction) {
    if (instruction.stream >= kStreams) return Report(absl::StrCat("stream ", instruction.stream, " is out of range"));
    switch (instruction.kind) {
      case Instruction::Kind::kResize: return;
      case Instruction::Kind::kFree: Tick(instruction.stream); return Write(instruction.immediate, {}, instruction.stream);
      case Instruction::Kind::kOperator: break;
    }
    if (const auto event = EventOf(trace_, instruction)) return Synchronize(*event);
    Tick(instruction.stream);
    const Operands operands = OperandsOf(trace_, instruction);
    for (uint32_t value : operands.reads) Read(trace_.values[value].storage, RangeOf(value), instruction.stream);
    for (uint32_t value : operands.writes) {
      const bool resizes = StorageResizeOf(trace_, instruction).has_value();
      Write(trace_.values[value].storage, resizes ? Range() : RangeOf(value), instruction.stream);
    }
    for (uint32_t storage : NewStorages(operands)) Write(storage, {}, instruction.stream);
  }

  Range RangeOf(uint32_t value) const {
    const Geometry& geometry = trace_.geometries[trace_.values[value].geometry];
    return {geometry.offset * ElementBytes(geometry.dtype), ExtentBytes(geometry)};
  }

  void Synchronize(const EventUse& event) {
    if (event.stream < 0 || event.stream >= static_cast<int64_t>(kStreams)) return Report("an event on an unknown stream");
    Clock& clock = clocks_[event.stream];
    if (event.is_record) {
      events_[event.event] = clock;
      return;
    }
    auto recorded = events_.find(event.event);
    if (recorded == events_.end()) return Report(absl::StrCat("a wait for event ", event.event, " that nothing has recorded"));
    for (size_t i = 0; i < kStreams; ++i) clock[i] = std::max(clock[i], recorded->second[i]);
  }

  // A storage that comes out of an operator without going in is written by it.
  std::vector<uint32_t> NewStorages(const Operands& operands) const {
    std::vector<uint32_t> storages;
    for (uint32_t value : operands.results) {
      const uint32_t storage = trace_.values[value].storage;
      auto is_it = [&](uint32_t other) { return trace_.values[other].storage == storage; };
      if (std::none_of(operands.reads.begin(), operands.reads.end(), is_it) &&
          std::none_of(operands.writes.begin(), operands.writes.end(), is_it)) {
        storages.push_back(storage);
      }
    }
    return storages;
  }

  void Tick(uint16_t stream) { ++clocks_[stream][stream]; }
  Use Now(uint16_t stream, Range range) const { return {stream, clocks_[stream][stream], index_, range}; }
  bool Unordered(const Use& earlier, uint16_t stream) const {
    return earlier.stream != stream && clocks_[stream][earlier.stream] < earlier.time;
  }

  void Read(uint32_t storage, Range range, uint16_t stream) {
    StorageUses& uses = uses_[storage];
    Check(uses.writes, " is not ordered after ", storage, range, stream);
    for (Use& read : uses.reads) {
      if (read.stream == stream && range.Covers(read.range)) {
        read = Now(stream, range);
        return;
      }
    }
    uses.reads.push_back(Now(stream, range));
  }
  void Write(uint32_t storage, Range range, uint16_t stream) {
    StorageUses& uses = uses_[storage];
    Check(uses.writes, " is not ordered after ", storage, range, stream);
    Check(uses.reads, " overwrites before it was read by ", storage, range, stream);
    for (std::vector<Use>* of : {&uses.writes, &uses.reads}) {
      of->erase(std::remove_if(of->begin(), of->end(), [&](const Use& use) { return range.Covers(use.range); }), of->end());
    }
    uses.writes.push_back(Now(stream, range));
  }
  void Check(const std::vector<Use>& uses, const char* what, uint32_t storage, Range range, uint16_t stream) {
    for (const Use& use : uses) {
      if (range.Meets(use.range) && Unordered(use, stream)) Race(what, use, storage);
    }
  }

  std::string Describe(size_t index) const {
    const Instruction& instruction = trace_.instructions[index];
    const std::string name =
        instruction.kind == Instruction::Kind::kFree ? std::string("free") : trace_.OperatorName(instruction);
    return absl::StrCat(name, " (instruction ", index, ", stream ", instruction.stream, ")");
  }
  void Race(const char* what, const Use& other, uint32_t storage) {
    Report(absl::StrCat(Describe(index_), what, Describe(other.instruction), ": ", Named(trace_, storage)));
  }
  void Report(std::string text) {
    if (static_cast<int64_t>(findings_.size()) < limit_) findings_.push_back(std::move(text));
  }

  const Trace& trace_;
  const int64_t limit_;
  size_t index_ = 0;
  std::array<Clock, kStreams> clocks_{};
  std::unordered_map<int64_t, Clock> events_;
  std::vector<StorageUses> uses_;
  std::vector<std::string> findings_;
};

// Operators that look at an argument's geometry only.
bool ReadsGeometryOnly(const std::string& name) {
  const std::string base = name.substr(0, name.find('.'));
  return absl::EndsWith(base, "_like") || absl::StartsWith(base, "aten::new_");
}
bool MakesBlank(const std::string& name) { return absl::StrContains(name, "empty"); }

class ReadCheck {
 public:
  ReadCheck(const Trace& trace, int64_t limit)
      : trace_(trace), limit_(limit), born_(trace.storages.size()), blank_(trace.storages.size()), bytes_(trace.storages.size()) {
    for (size_t i = 0; i < born_.size(); ++i) {
      if (trace.storages[i].kind != StorageKind::kInner) Bear(i);
    }
  }

  std::vector<std::string> Run() {
    for (const auto& instruction : trace_.instructions) {
      if (instruction.kind == Instruction::Kind::kResize) bytes_[instruction.operator_index] = instruction.immediate;
      if (instruction.kind == Instruction::Kind::kOperator) Step(instruction);
    }
    return std::move(findings_);
  }

 private:
  void Bear(uint32_t storage) {
    born_[storage] = true;
    bytes_[storage] = trace_.storages[storage].bytes;
  }

  void Step(const Instruction& instruction) {
    const std::string& name = trace_.OperatorName(instruction);
    const Operands operands = OperandsOf(trace_, instruction);
    if (const auto resize = StorageResizeOf(trace_, instruction)) {
      bytes_[resize->storage] = resize->bytes;
      blank_[resize->storage] = true;
      return;
    }
    bool makes = !operands.writes.empty() || operands.has_host_result;
    for (uint32_t value : operands.results) makes |= !born_[trace_.values[value].storage];
    // A view reads nothing: what it makes is a geometry.
    if (makes && !ReadsGeometryOnly(name)) {
      for (uint32_t value : operands.reads) CheckRead(name, value);
    }
    for (uint32_t value : operands.writes) blank_[trace_.values[value].storage] = false;
    for (uint32_t value : operands.results) {
      const uint32_t storage = trace_.values[value].storage;
      if (born_[storage]) continue;
      Bear(storage);
      blank_[storage] = MakesBlank(name) && bytes_[storage] > 0;
    }
  }

  void CheckRead(const std::string& name, uint32_t value) {
    const uint32_t storage = trace_.values[value].storage;
    if (ExtentBytes(trace_.geometries[trace_.values[value].geometry]) > bytes_[storage]) {
      Report(name, "memory that is resized away", storage);
    } else if (blank_[storage] && Elements(trace_.geometries[trace_.values[value].geometry]) > 0) {
      Report(name, "memory that nothing wrote", storage);
    }
  }
  void Report(const std::string& name, const char* what, uint32_t storage) {
    if (static_cast<int64_t>(findings_.size()) < limit_) {
      findings_.push_back(absl::StrCat(name, " reads ", what, ": ", Named(trace_, storage)));
    }
  }

  const Trace& trace_;
  const int64_t limit_;
  std::vector<char> born_, blank_;
  std::vector<int64_t> bytes_;
  std::vector<std::string> findings_;
};

// Edit scripts longer than this are not worth printing, and their search would take memory with the square of their length.
constexpr int64_t kMaxEdits = 2000;

struct Edit {
  bool removed = false;  // else added
  int64_t index = 0;     // in `a` if removed, else in `b`
};

// Signatures as small numbers, the same in both Traces.
class SignatureTable {
 public:
  std::vector<uint32_t> Signatures(const Trace& trace) {
    std::vector<uint32_t> ids;
    ids.reserve(trace.instructions.size());
    for (const auto& instruction : trace.instructions) {
      std::string line =
          absl::StrCat(trace.Line(instruction, false), " m", instruction.microbatch, " ", trace.modules[instruction.module]);
      ids.push_back(table_.try_emplace(std::move(line), static_cast<uint32_t>(table_.size())).first->second);
    }
    return ids;
  }

 private:
  std::unordered_map<std::string, uint32_t> table_;
};

// Myers' greedy search: frontier[d][k + d] is the furthest position in `a` on diagonal k (= position in a - position in b) that d
// edits reach.
using Frontiers = std::vector<std::vector<int64_t>>;

bool FindFrontiers(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b, Frontiers* frontiers) {
  const int64_t n = a.size(), m = b.size();
  for (int64_t d = 0; d <= std::min(n + m, kMaxEdits); ++d) {
    std::vector<int64_t> now(2 * d + 1, 0);
    for (int64_t k = -d; k <= d; k += 2) {
      int64_t x = 0;
      if (d > 0) {
        const auto& before = frontiers->back();  // diagonals -(d-1) .. d-1
        const bool down = k == -d || (k != d && before[k - 1 + d - 1] < before[k + 1 + d - 1]);
        x = down ? before[k + 1 + d - 1] : before[k - 1 + d - 1] + 1;
      }
      while (x < n && x - k < m && x - k >= 0 && a[x] == b[x - k]) ++x;
      now[k + d] = x;
      if (k == n - m && x >= n) {
        frontiers->push_back(std::move(now));
        return true;
      }
    }
    frontiers->push_back(std::move(now));
  }
  return false;
}

std::vector<Edit> Backtrack(const Frontiers& frontiers, int64_t n, int64_t m) {
  std::vector<Edit> edits;
  int64_t x = n, y = m;
  for (int64_t d = static_cast<int64_t>(frontiers.size()) - 1; d > 0; --d) {
    const auto& before = frontiers[d - 1];
    const int64_t k = x - y;
    const bool down = k == -d || (k != d && before[k - 1 + d - 1] < before[k + 1 + d - 1]);
    const int64_t previous_k = down ? k + 1 : k - 1;
    const int64_t previous_x = before[previous_k + d - 1];
    edits.push_back(down ? Edit{false, previous_x - previous_k} : Edit{true, previous_x});
    x = previous_x;
    y = previous_x - previous_k;
  }
  std::reverse(edits.begin(), edits.end());
  return edits;
}

std::vector<std::string> SignatureDifferences(const Trace& a, const Trace& b, int64_t limit) {
  SignatureTable table;
  const auto left = table.Signatures(a), right = table.Signatures(b);
  if (left == right) return {};
  Frontiers frontiers;
  if (!FindFrontiers(left, right, &frontiers)) {
    const int64_t first = std::mismatch(left.begin(), left.end(), right.begin(), right.end()).first - left.begin();
    return {absl::StrCat("more than ", kMaxEdits, " instructions differ, from instruction ", first)};
  }
  std::vector<std::string> lines;
  for (const Edit& edit : Backtrack(frontiers, left.size(), right.size())) {
    if (static_cast<int64_t>(lines.size()) == limit) break;
    const Trace& trace = edit.removed ? a : b;
    const Instruction& instruction = trace.instructions[edit.index];
    lines.push_back(absl::StrCat(edit.removed ? "- " : "+ ", edit.index, " ", trace.Line(instruction, false), " in '",
                                 trace.modules[instruction.module], "' microbatch ", instruction.microbatch));
  }
  return lines;
}

std::vector<std::string> InstructionWiring(const Trace& a, const Trace& b, int64_t limit) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < a.instructions.size() && static_cast<int64_t>(lines.size()) < limit; ++i) {
    const std::string left = a.Line(a.instructions[i], true), right = b.Line(b.instructions[i], true);
    if (left != right) lines.push_back(absl::StrCat("wiring at ", i, ": ", left, " | ", right));
  }
  return lines;
}

std::vector<std::string> StorageDifferences(const Trace& a, const Trace& b, int64_t limit) {
  std::vector<std::string> lines;
  if (a.storages.size() != b.storages.size()) {
    lines.push_back(absl::StrCat("storages: ", a.storages.size(), " | ", b.storages.size()));
  }
  const size_t count = std::min(a.storages.size(), b.storages.size());
  for (size_t i = 0; i < count && static_cast<int64_t>(lines.size()) < limit; ++i) {
    const Storage &left = a.storages[i], &right = b.storages[i];
    const bool alike = left.kind == right.kind && left.category == right.category && left.name == right.name;
    if (alike && left.bytes == right.bytes && left.contents != right.contents) {
      lines.push_back(absl::StrCat("storage s", i, ": constants of different contents"));
    } else if (!alike || left.bytes != right.bytes) {
      const auto text = [](const Storage& storage) {
        return absl::StrCat(storage.name, " ", storage.bytes, " bytes, kind ", static_cast<int>(storage.kind), ", category ",
                            static_cast<int>(storage.category));
      };
      lines.push_back(absl::StrCat("storage s", i, ": ", text(left), " | ", text(right)));
    }
  }
  return lines;
}

// Instructions name a group by its number.
std::vector<std::string> GroupDifferences(const Trace& a, const Trace& b) {
  const auto text = [](const Trace& trace, size_t i) {
    if (i >= trace.groups.size()) return std::string("none");
    const auto& [dim, ranks] = trace.groups[i];
    return absl::StrCat(mesh::NameOf(dim), " of ", ranks.size, " ranks from ", ranks.first, " by ", ranks.stride);
  };
  std::vector<std::string> lines;
  for (size_t i = 0; i < std::max(a.groups.size(), b.groups.size()); ++i) {
    const std::string left = text(a, i), right = text(b, i);
    if (left != right) lines.push_back(absl::StrCat("group ", i, ": ", left, " | ", right));
  }
  return lines;
}

std::vector<std::string> BindingDifferences(const char* what, const std::map<std::string, uint32_t>& a,
                                            const std::map<std::string, uint32_t>& b) {
  std::vector<std::string> lines;
  for (const auto& [name, value] : a) {
    auto it = b.find(name);
    if (it == b.end()) {
      lines.push_back(absl::StrCat("- ", what, " ", name));
    } else if (it->second != value) {
      lines.push_back(absl::StrCat(what, " ", name, " is value ", value, " | ", it->second));
    }
  }
  for (const auto& [name, value] : b) {
    if (!a.count(name)) lines.push_back(absl::StrCat("+ ", what, " ", name));
  }
  return lines;
}

}  // namespace

std::vector<std::string> Races(const Trace& trace, int64_t limit) { return RaceCheck(trace, limit).Run(); }
std::vector<std::string> BadReads(const Trace& trace, int64_t limit) { return ReadCheck(trace, limit).Run(); }

std::vector<std::string> Differences(const Trace& a, const Trace& b, int64_t limit) {
  std::vector<std::string> lines = SignatureDifferences(a, b, limit);
  if (!lines.empty()) return lines;
  auto append = [&](std::vector<std::string> more) { lines.insert(lines.end(), more.begin(), more.end()); };
  append(InstructionWiring(a, b, limit));
  append(StorageDifferences(a, b, limit));
  append(GroupDifferences(a, b));
  append(BindingDifferences("input", a.inputs, b.inputs));
  append(BindingDifferences("output", a.outputs, b.outputs));
  if (static_cast<int64_t>(lines.size()) > limit) lines.resize(limit);
  return lines;
}

}  // namespace legoai::graph
