#include "core/trace/compare.h"

#include <algorithm>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace legoai::graph {
namespace {

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
