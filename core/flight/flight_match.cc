#include "core/flight/flight_match.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/flight/flight_waits.h"

namespace legoai::comm {
namespace {

constexpr int kRingDimensions = 6;  // a ring keeps so many of a tensor's dimensions

using Tensors = std::vector<std::vector<int64_t>>;

// Sizes of several tensors are kept one after another, with -1 between them.
template <class Sizes>
Tensors TensorsOf(const Sizes& sizes) {
  Tensors tensors(1);
  for (int64_t size : sizes) {
    if (size < 0) {
      tensors.emplace_back();
    } else {
      tensors.back().push_back(size);
    }
  }
  return tensors;
}

template <class Sizes>
std::string SizesText(const Sizes& sizes) {
  return absl::StrJoin(TensorsOf(sizes), "", [](std::string* out, const std::vector<int64_t>& tensor) {
    absl::StrAppend(out, "[", absl::StrJoin(tensor, ","), "]");
  });
}

// What must be equal on all ranks beside type and dtype. Where a rank's own part may have a size of its own, it is left out.
std::string SizesOf(const v1::FlightEntry& entry, const std::string& kind) {
  if (kind == "all_to_all") return "";
  const std::string inputs = kind == "scatter" ? "" : SizesText(entry.input_sizes()),
                    outputs = kind == "gather" ? "" : SizesText(entry.output_sizes());
  return absl::StrCat(inputs, " -> ", outputs, entry.is_p2p() || entry.peer() < 0 ? "" : absl::StrCat(" of rank ", entry.peer()));
}

template <class Sizes>
int64_t Elements(const Sizes& sizes) {
  int64_t all = 0;
  for (const auto& tensor : TensorsOf(sizes)) {
    int64_t count = 1;
    for (int64_t size : tensor) count *= size;
    all += count;
  }
  return all;
}

bool IsOneOf(const std::string& kind, std::initializer_list<const char*> kinds) {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

// Whether input and output of one rank can belong to such a collective.
bool FitsItself(const v1::FlightEntry& entry, const std::string& kind, int64_t group_size) {
  auto several = [](const auto& sizes) { return std::find(sizes.begin(), sizes.end(), -1) != sizes.end(); };
  if (several(entry.input_sizes()) || several(entry.output_sizes())) return true;
  if (entry.input_sizes_size() >= kRingDimensions || entry.output_sizes_size() >= kRingDimensions) return true;
  if (entry.input_sizes_size() == 0 || entry.output_sizes_size() == 0) return true;
  const int64_t in = Elements(entry.input_sizes()), out = Elements(entry.output_sizes());
  if (IsOneOf(kind, {"all_gather", "_all_gather_base"})) return out == in * group_size;
  if (IsOneOf(kind, {"reduce_scatter", "_reduce_scatter_base"})) return in == out * group_size;
  if (kind == "all_reduce") return in == out;
  return true;
}

std::vector<int64_t> RanksOf(const std::vector<const FlightPart*>& parts) {
  std::set<int64_t> ranks;
  for (const FlightPart* part : parts) ranks.insert(part->rank);
  return {ranks.begin(), ranks.end()};
}

std::string RankWord(const std::vector<int64_t>& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", RanksText(ranks));
}

// Blames whoever differs from the most; `what` completes "rank 2 has ...".
FlightMatch Compare(const std::vector<FlightPart>& parts, const char* verdict, const char* verb,
                    const std::function<std::string(const FlightPart&)>& of) {
  FlightMatch match;
  std::map<std::string, std::vector<const FlightPart*>> classes;
  for (const FlightPart& part : parts) classes[of(part)].push_back(&part);
  if (classes.size() < 2) return match;
  size_t most = 0, with_most = 0;
  for (const auto& [value, members] : classes) most = std::max(most, members.size());
  for (const auto& [value, members] : classes) with_most += members.size() == most;
  std::vector<const FlightPart*> blamed;
  std::vector<std::string> texts;
  std::string agreed;
  for (const auto& [value, members] : classes) {
    if (with_most == 1 && members.size() == most) {
      agreed = value;
      continue;
    }
    blamed.insert(blamed.end(), members.begin(), members.end());
    texts.push_back(absl::StrCat(RankWord(RanksOf(members)), " ", verb, " ", value));
  }
  match.verdict = verdict;
  match.culprits = RanksOf(blamed);
  match.text = absl::StrCat(absl::StrJoin(texts, ", "), with_most == 1 ? absl::StrCat(", the others ", agreed) : "");
  return match;
}

FlightMatch NotFittingItself(const FlightCollective& collective, const std::string& kind, int64_t group_size) {
  FlightMatch match;
  std::vector<const FlightPart*> blamed;
  for (const FlightPart& part : collective.parts) {
    if (!FitsItself(*part.entry, kind, group_size)) blamed.push_back(&part);
  }
  if (blamed.empty()) return match;
  match.verdict = kSizeMismatch;
  match.culprits = RanksOf(blamed);
  const v1::FlightEntry& entry = *blamed.front()->entry;
  match.text = absl::StrCat(RankWord(match.culprits), " has ", SizesText(entry.input_sizes()), " -> ",
                            SizesText(entry.output_sizes()), ", which no ", kind, " over ", group_size, " ranks has");
  return match;
}

// Every rank sends what the others receive: only the sums over all ranks must agree.
FlightMatch MatchAllToAll(const FlightCollective& collective, int64_t group_size) {
  FlightMatch match;
  int64_t in = 0, out = 0;
  for (const FlightPart& part : collective.parts) {
    in += Elements(part.entry->input_sizes());
    out += Elements(part.entry->output_sizes());
  }
  if (static_cast<int64_t>(collective.parts.size()) < group_size) {
    match.verdict = kUndecided;
  } else if (in != out) {
    match = Compare(collective.parts, kSizeMismatch, "has", [](const FlightPart& part) {
      return absl::StrCat(SizesText(part.entry->input_sizes()), " -> ", SizesText(part.entry->output_sizes()));
    });
    match.verdict = kSizeMismatch;
    absl::StrAppend(&match.text, match.text.empty() ? "" : ": ", in, " elements are sent and ", out, " received");
  }
  return match;
}

}  // namespace

FlightMatch MatchCollective(const FlightCollective& collective, int64_t group_size) {
  const std::string kind = FlightKind(collective.parts.front().entry->profiling_name());
  FlightMatch match = Compare(collective.parts, kTypeMismatch, "is in",
                              [](const FlightPart& part) { return FlightKind(part.entry->profiling_name()); });
  if (match.verdict == kFullyMatched) match = NotFittingItself(collective, kind, group_size);
  if (match.verdict == kFullyMatched) {
    match = Compare(collective.parts, kSizeMismatch, "has", [&](const FlightPart& part) { return SizesOf(*part.entry, kind); });
  }
  if (match.verdict == kFullyMatched) {
    match = Compare(collective.parts, kDtypeMismatch, "has", [](const FlightPart& part) { return part.entry->dtype(); });
  }
  if (match.verdict == kFullyMatched && kind == "all_to_all") match = MatchAllToAll(collective, group_size);
  return match;
}

FlightMatch MatchMessage(const FlightChannel& channel, size_t n) {
  // The channel's other messages tell which of the two is out of line.
  auto match_by = [&](const char* verdict, const std::function<std::string(const FlightPart&)>& of) {
    const std::vector<FlightPart> pair = {channel.sends[n], channel.receives[n]};
    FlightMatch match = Compare(pair, verdict, "has", of);
    if (match.verdict == kFullyMatched) return match;
    std::map<std::string, int64_t> count;
    for (const auto* side : {&channel.sends, &channel.receives}) {
      for (const FlightPart& part : *side) ++count[of(part)];
    }
    const int64_t sent = count[of(pair[0])], received = count[of(pair[1])];
    if (sent != received) match.culprits = {sent < received ? channel.from : channel.to};
    return match;
  };
  FlightMatch match = match_by(kSizeMismatch, [](const FlightPart& part) {
    return SizesText(part.entry->input_sizes_size() > 0 ? part.entry->input_sizes() : part.entry->output_sizes());
  });
  if (match.verdict != kFullyMatched) return match;
  return match_by(kDtypeMismatch, [](const FlightPart& part) { return part.entry->dtype(); });
}

}  // namespace legoai::comm
