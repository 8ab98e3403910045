#include "core/flight/flight_files.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/flight/flight_ring.h"
#include "proto/errors.h"
#include "proto/read_file.h"
#include "proto/status.h"

namespace legoai::comm {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostBytes = int64_t{512} << 20;

// The number after "rank_" or "rank-" at the end of a file's name; -1: none.
int64_t RankInName(const std::string& path) {
  const std::string stem = fs::path(path).stem().string();
  const size_t word = stem.rfind("rank");
  if (word == std::string::npos || word + 5 >= stem.size()) return -1;
  const std::string digits = stem.substr(word + 5);
  const bool separated = stem[word + 4] == '_' || stem[word + 4] == '-';
  int64_t rank = -1;
  const bool number = digits.find_first_not_of("0123456789") == std::string::npos && absl::SimpleAtoi(digits, &rank);
  return separated && number ? rank : -1;
}

// A dump has only groups that its rank is in: whoever is in all of them, if there is one only.
int64_t RankFromGroups(const v1::FlightDump& dump) {
  std::set<int64_t> common;
  for (int i = 0; i < dump.groups_size(); ++i) {
    const std::set<int64_t> ranks(dump.groups(i).ranks().begin(), dump.groups(i).ranks().end());
    std::set<int64_t> both;
    std::set_intersection(common.begin(), common.end(), ranks.begin(), ranks.end(), std::inserter(both, both.end()));
    common = i == 0 ? ranks : both;
  }
  return common.size() == 1 ? *common.begin() : -1;
}

// A ring, which its rank may be writing, says what it is by its first byte.
absl::StatusOr<v1::FlightDump> ReadAs(const std::string& path, std::string* bytes) {
  ASSIGN_OR_RETURN(auto contents, ReadFileOf("flight dump", path, kMostBytes, "give a run directory, or its flight records"));
  const char first = contents.empty() ? '\0' : contents.front();
  if (first != '{' && first != '\x80') return ReadFlightRing(path, "read");
  *bytes = std::move(contents);
  return first == '{' ? FlightDumpFromJson(*bytes) : FlightDumpFromPickle(*bytes);
}

// A JSON dump, if it says what the launcher knew of the rank.
bool HasCondition(const std::string& json) {
  const auto dump = ReadFlightFile(json);
  return dump.ok() && dump->has_condition();
}

absl::StatusOr<std::vector<std::string>> FilesOf(const std::string& folder) {
  std::error_code error;
  const fs::path flight = fs::is_directory(fs::path(folder) / "flight", error) ? fs::path(folder) / "flight" : fs::path(folder);
  struct Dump {
    std::string json, other;
  };
  std::map<std::string, Dump> by_stem;  // name without extension
  ASSIGN_OR_RETURN(const auto entries, ReadFolder(flight.string()));
  for (const fs::path entry : entries) {
    if (RankInName(entry.string()) < 0 || !fs::is_regular_file(entry, error)) continue;
    Dump& dump = by_stem[entry.stem().string()];
    (entry.extension() == ".json" ? dump.json : dump.other) = entry.string();
  }
  std::vector<std::string> files;
  for (const auto& [stem, dump] : by_stem) {
    const bool json = dump.other.empty() || (!dump.json.empty() && HasCondition(dump.json));
    files.push_back(json ? dump.json : dump.other);
  }
  if (files.empty()) {
    return FieldError("RUN_DIR", folder, "has no flight records; name a run's job.dump_folder, its flight folder, or files",
                      absl::StatusCode::kNotFound);
  }
  return files;
}

// How far one rank's ring goes back and has come, of one group and kind.
struct Reach {
  int64_t first = 0, last = 0;
};

class Merger {
 public:
  explicit Merger(const std::vector<v1::FlightDump>& dumps) : dumps_(dumps) {}

  MergedFlight Merge() {
    std::set<int64_t> ranks;
    for (const auto& dump : dumps_) {
      ranks.insert(dump.rank());
      result_.world_size = std::max({result_.world_size, dump.world_size(), dump.rank() + 1});
      AddDump(dump);
    }
    result_.ranks.assign(ranks.begin(), ranks.end());
    for (int64_t rank = 0; rank < result_.world_size; ++rank) {
      if (ranks.count(rank) == 0) result_.missing.push_back(rank);
    }
    for (auto& [key, operation] : operations_) {
      FindAbsent(ranks, &operation);
      result_.operations.push_back(std::move(operation));
    }
    return std::move(result_);
  }

 private:
  // Messages are numbered rank by rank: each rank's is an operation of its own (the last part of the key).
  using Key = std::tuple<int64_t, bool, int64_t, std::string, int64_t>;

  // Groups of one name on different ranks (each tensor parallel group, say) are different groups: the ranks tell them apart.
  int64_t GroupIndex(const std::string& name, const std::vector<int64_t>& ranks) {
    const auto key = std::make_pair(name, ranks);
    return groups_.emplace(key, static_cast<int64_t>(groups_.size())).first->second;
  }

  void AddDump(const v1::FlightDump& dump) {
    std::map<int64_t, const v1::FlightGroup*> by_id;
    for (const auto& group : dump.groups()) by_id[group.pg_id()] = &group;
    for (const auto& entry : dump.entries()) {
      const auto found = by_id.find(entry.pg_id());
      std::vector<int64_t> ranks;
      if (found != by_id.end()) ranks.assign(found->second->ranks().begin(), found->second->ranks().end());
      const int64_t group = GroupIndex(entry.process_group(), ranks);
      AddEntry(dump.rank(), group, ranks, entry);
    }
  }

  void AddEntry(int64_t rank, int64_t group, const std::vector<int64_t>& ranks, const v1::FlightEntry& entry) {
    const int64_t sequence = entry.is_p2p() ? entry.p2p_seq_id() : entry.collective_seq_id();
    Reach& reach = reaches_.emplace(std::make_tuple(group, rank, entry.is_p2p()), Reach{sequence, sequence}).first->second;
    reach.first = std::min(reach.first, sequence);
    reach.last = std::max(reach.last, sequence);
    FlightOperation& operation =
        operations_[Key(group, entry.is_p2p(), sequence, entry.profiling_name(), entry.is_p2p() ? rank : -1)];
    operation.group = entry.process_group();
    operation.is_p2p = entry.is_p2p();
    operation.sequence = sequence;
    operation.name = entry.profiling_name();
    operation.bytes = std::max(operation.bytes, entry.bytes());
    operation.group_ranks = ranks;
    operation.states[rank] = entry.state();
    if (entry.is_p2p() && entry.peer() >= 0) {
      operation.peers[rank] = entry.peer() < static_cast<int64_t>(ranks.size()) ? ranks[entry.peer()] : entry.peer();
    }
  }

  void FindAbsent(const std::set<int64_t>& dumped, FlightOperation* operation) {
    if (operation->is_p2p) return;
    const int64_t group = GroupIndex(operation->group, operation->group_ranks);
    for (int64_t rank : operation->group_ranks) {
      if (dumped.count(rank) == 0 || operation->states.count(rank) > 0) continue;
      const auto reach = reaches_.find(std::make_tuple(group, rank, false));
      const bool gone = reach != reaches_.end() && operation->sequence < reach->second.first;
      (gone ? operation->overwritten : operation->not_reached).push_back(rank);
    }
  }

  const std::vector<v1::FlightDump>& dumps_;
  std::map<std::pair<std::string, std::vector<int64_t>>, int64_t> groups_;
  std::map<std::tuple<int64_t, int64_t, bool>, Reach> reaches_;  // by group, rank, is_p2p
  std::map<Key, FlightOperation> operations_;
  MergedFlight result_;
};

}  // namespace

absl::StatusOr<v1::FlightDump> ReadFlightFile(const std::string& path) {
  std::string bytes;
  auto dump = ReadAs(path, &bytes);
  if (!dump.ok()) return bytes.empty() ? dump.status() : Annotate(dump.status(), path);  // a ring's errors name the path
  if (dump->rank() < 0) dump->set_rank(RankInName(path));
  if (dump->rank() < 0) dump->set_rank(RankFromGroups(*dump));
  if (dump->rank() < 0) {
    return FieldError("flight dump", path, "does not say of which rank it is; end the file's name with _rank_N");
  }
  const auto refuse = [&](int64_t rank) {
    return FieldError("flight dump", path, absl::StrCat("speaks of rank ", rank, "; the file is damaged"));
  };
  if (dump->rank() >= kMostFlightRanks) return refuse(dump->rank());
  if (dump->world_size() > kMostFlightRanks) return refuse(dump->world_size());
  for (const v1::FlightGroup& group : dump->groups()) {
    for (const int64_t rank : group.ranks()) {
      if (rank < 0 || rank >= kMostFlightRanks) return refuse(rank);
    }
  }
  return dump;
}

absl::StatusOr<std::vector<v1::FlightDump>> ReadFlight(const std::vector<std::string>& places) {
  std::map<int64_t, std::pair<std::string, v1::FlightDump>> by_rank;
  for (const std::string& place : places) {
    std::vector<std::string> files = {place};
    std::error_code error;
    if (fs::is_directory(place, error)) {
      ASSIGN_OR_RETURN(auto found, FilesOf(place));
      files = std::move(found);
    }
    for (const std::string& file : files) {
      ASSIGN_OR_RETURN(auto dump, ReadFlightFile(file));
      const int64_t rank = dump.rank();
      const auto [kept, added] = by_rank.emplace(rank, std::make_pair(file, std::move(dump)));
      if (!added) {
        return FieldError("FILES", file,
                          absl::StrCat("is a dump of rank ", rank, ", as is ", kept->second.first, "; give one of each"));
      }
    }
  }
  std::vector<v1::FlightDump> dumps;
  for (auto& [rank, named] : by_rank) dumps.push_back(std::move(named.second));
  return dumps;
}

bool FlightOperation::complete() const {
  return not_reached.empty() &&
         std::all_of(states.begin(), states.end(), [](const auto& state) { return state.second == "completed"; });
}

MergedFlight MergeFlightDumps(const std::vector<v1::FlightDump>& dumps) { return Merger(dumps).Merge(); }

}  // namespace legoai::comm
