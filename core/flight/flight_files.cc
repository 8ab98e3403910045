#include "core/flight/flight_files.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
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

}  // namespace legoai::comm
