#include "server/cli/flight_command.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "proto/errors.h"
#include "proto/json/reflect.h"
#include "server/cli/flight_merge.h"
#include "server/cli/job_text.h"
#include "server/cli/output.h"
#include "server/cli/server_call.h"
#include "worker/comm/flight_analysis.h"
#include "worker/comm/flight_files.h"
#include "worker/comm/flight_standstill.h"
#include "worker/comm/ranks_text.h"
#include "worker/launch/run_lock.h"

namespace legoai::cli {
namespace {

using comm::RanksText;

Tree OperationTree(const FlightOperation& operation) {
  Tree tree;
  tree["group"] = operation.group;
  tree["group_ranks"] = operation.group_ranks;
  tree["is_p2p"] = operation.is_p2p;
  tree["sequence"] = operation.sequence;
  tree["name"] = operation.name;
  tree["bytes"] = operation.bytes;
  tree["states"] = Tree::object();
  for (const auto& [rank, state] : operation.states) tree["states"][std::to_string(rank)] = state;
  tree["peers"] = Tree::object();
  for (const auto& [rank, peer] : operation.peers) tree["peers"][std::to_string(rank)] = peer;
  tree["not_reached"] = operation.not_reached;
  tree["overwritten"] = operation.overwritten;
  return tree;
}

std::string StatesText(const FlightOperation& operation) {
  std::map<std::string, std::vector<int64_t>> by_state;
  for (const auto& [rank, state] : operation.states) by_state[state].push_back(rank);
  std::vector<std::string> parts;
  for (const char* state : {"completed", "started", "scheduled"}) {
    if (by_state.count(state) > 0) parts.push_back(absl::StrCat(state, ": ", RanksText(by_state[state])));
  }
  for (const auto& [rank, peer] : operation.peers) parts.push_back(absl::StrCat("with ", peer));
  if (!operation.not_reached.empty()) parts.push_back("not there yet: " + RanksText(operation.not_reached));
  if (!operation.overwritten.empty()) parts.push_back("overwritten: " + RanksText(operation.overwritten));
  return absl::StrJoin(parts, ", ");
}

// Of operations that everybody has completed, only the last of a group (of a rank, with messages) is of interest.
std::vector<const FlightOperation*> Interesting(const MergedFlight& flight, bool all) {
  std::vector<const FlightOperation*> shown;
  std::map<std::string, const FlightOperation*> last;
  auto key = [](const FlightOperation& operation) {
    return absl::StrCat(operation.group, "|", absl::StrJoin(operation.group_ranks, ","), "|",
                        operation.is_p2p ? operation.states.begin()->first : -1);
  };
  for (const FlightOperation& operation : flight.operations) {
    if (operation.complete()) last[key(operation)] = &operation;
  }
  for (const FlightOperation& operation : flight.operations) {
    if (all || !operation.complete() || last[key(operation)] == &operation) shown.push_back(&operation);
  }
  return shown;
}

std::string FlightTable(const MergedFlight& flight, const std::vector<v1::FlightDump>& dumps, bool all) {
  std::string text = absl::StrCat("flight records of ", flight.ranks.size(), " of ", flight.world_size, " ranks",
                                  flight.missing.empty() ? "" : absl::StrCat("; none of rank ", RanksText(flight.missing)), "\n");
  const auto reason = std::find_if(dumps.begin(), dumps.end(), [](const auto& dump) { return dump.reason() != "read"; });
  if (reason != dumps.end() && !reason->reason().empty()) absl::StrAppend(&text, "reason: ", reason->reason(), "\n");
  Table table({"<group", "<ranks", "sequence", "<operation", "bytes", "<which ranks are how far"});
  for (const FlightOperation* operation : Interesting(flight, all)) {
    table.Add({operation->group, RanksText(operation->group_ranks), std::to_string(operation->sequence), operation->name,
               BytesText(operation->bytes), StatesText(*operation)});
  }
  if (table.empty()) return text + "no operation was recorded\n";
  absl::StrAppend(&text, "\n", table.Text());
  if (!all)
    absl::StrAppend(&text,
                    "\nof what is completed everywhere only the last of each group is shown; --all shows every operation\n");
  return text;
}

std::string AnalysisText(const v1::FlightAnalysis& analysis) {
  std::string text = absl::StrCat("\nverdict: ", analysis.verdict(), "\n");
  if (analysis.culprits_size() > 0) {
    const std::vector<int64_t> culprits(analysis.culprits().begin(), analysis.culprits().end());
    absl::StrAppend(&text, culprits.size() == 1 ? "culprit: rank " : "culprits: ranks ", RanksText(culprits), "\n");
  }
  return absl::StrCat(text, analysis.text(), "\n");
}

// The record that a server has of a job; nothing where files are meant.
absl::StatusOr<std::optional<v1::FlightRecord>> OfServer(const Arguments& arguments) {
  if (!MeansJob(arguments)) return std::optional<v1::FlightRecord>();
  const auto job = FindNamedJob(arguments);
  if (!job.ok()) return job.status();
  v1::GetFlightRecordRequest request;
  request.set_name(job->name);
  auto record = job->client->GetFlightRecord(request);
  if (!record.ok()) return record.status();
  return std::optional<v1::FlightRecord>(*std::move(record));
}

// Not what was kept when something had gone wrong.
bool AreRings(const std::vector<v1::FlightDump>& dumps) {
  return std::all_of(dumps.begin(), dumps.end(), [](const v1::FlightDump& dump) { return dump.reason() == "read"; });
}

constexpr absl::Duration kBetweenLooks = absl::Milliseconds(300);

// Rings of a run that goes on are looked at twice: `analysis` says who waits for whom in the meantime.
absl::StatusOr<std::vector<v1::FlightDump>> LookAgain(const std::vector<std::string>& places, std::vector<v1::FlightDump> earlier,
                                                      std::optional<v1::FlightAnalysis>* analysis) {
  absl::SleepFor(kBetweenLooks);
  auto later = comm::ReadFlight(places);
  if (!later.ok() || !AreRings(*later)) return later;
  *analysis = comm::AnalyzeStandstill(earlier, *later, MergeFlightDumps(*later).world_size, absl::GetCurrentTimeNanos());
  return later;
}

absl::StatusOr<std::vector<v1::FlightDump>> OfFiles(const std::vector<std::string>& places,
                                                    std::optional<v1::FlightAnalysis>* analysis) {
  for (const std::string& place : places) {
    std::error_code error;
    if (std::filesystem::exists(place, error)) continue;
    return FieldError("RUN_DIR|FILES...|JOB", place, "is no file or folder", absl::StatusCode::kNotFound);
  }
  auto dumps = comm::ReadFlight(places);
  const bool live = dumps.ok() && AreRings(*dumps) && places.size() == 1 && launch::IsTraining(places[0]);
  return live ? LookAgain(places, *std::move(dumps), analysis) : dumps;
}

// Where and why it was taken.
std::string OriginText(const v1::FlightRecord& record) {
  return absl::StrCat("attempt ", record.attempt(), ", ", TimeText(record.time_us()), ": ", record.reason(), "\n");
}

absl::StatusOr<int> Run(const Arguments& arguments) {
  const auto record = OfServer(arguments);
  if (!record.ok()) return record.status();
  absl::StatusOr<std::vector<v1::FlightDump>> dumps = std::vector<v1::FlightDump>();
  std::optional<v1::FlightAnalysis> known;
  if (*record) {
    dumps->assign((*record)->dumps().begin(), (*record)->dumps().end());
    if (!(*record)->analysis().verdict().empty()) known = (*record)->analysis();
  } else {
    dumps = OfFiles(arguments.positional(), &known);
  }
  if (!dumps.ok()) return dumps.status();
  const MergedFlight flight = MergeFlightDumps(*dumps);
  const v1::FlightAnalysis analysis = known ? *known : comm::AnalyzeFlight(*dumps, flight.world_size);
  if (arguments.format() == Format::kTable) {
    Print(absl::StrCat(*record ? OriginText(**record) : "", FlightTable(flight, *dumps, arguments.Has("all")),
                       AnalysisText(analysis)));
    return kDone;
  }
  Tree tree;
  if (*record) {
    tree["attempt"] = (*record)->attempt();
    tree["reason"] = (*record)->reason();
  }
  tree["world_size"] = flight.world_size;
  tree["ranks"] = flight.ranks;
  tree["missing"] = flight.missing;
  tree["operations"] = Tree::array();
  for (const FlightOperation& operation : flight.operations) tree["operations"].push_back(OperationTree(operation));
  tree["analysis"] = ToTree(analysis);
  Print(TreeText(arguments.format(), tree));
  return kDone;
}

}  // namespace

Command FlightCommand() {
  CommandSpec spec;
  spec.name = "fr";
  spec.summary =
      "Merges the flight recorders of all ranks: which rank is at which collective or message, and who holds up the others.";
  spec.positional = "RUN_DIR|FILES...|JOB";
  spec.least_positional = 1;
  spec.most_positional = 1 << 20;
  spec.options = {{"all", "", "every operation, the completed ones too"}, ServerOption()};
  spec.details =
      "Reads rings (flight/rank-R), which can be read of a living or a dead process, JSON dumps, and PyTorch's JSON and "
      "pickle files (..._rank_R).\nOf a run that goes on it says who waits for whom, if that lasts for a second; nobody is "
      "blamed for being behind.\nA word that is no file or folder, or any with --server, is a job: the latest record that the "
      "server has of it, which is taken when a\nrank hangs or dies. While a job runs, its rings are in RUNS/JOB/epoch-E of its "
      "worker.";
  spec.example = "lego fr runs/example";
  return {spec, Run};
}

}  // namespace legoai::cli
