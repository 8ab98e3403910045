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
#include "core/flight/flight_analysis.h"
#include "core/flight/flight_files.h"
#include "core/flight/flight_waits.h"
#include "core/process/run_directory.h"
#include "proto/errors.h"
#include "proto/json/reflect.h"
#include "proto/status.h"
#include "server/cli/command.h"
#include "server/cli/job_text.h"
#include "server/cli/output.h"
#include "server/cli/server_call.h"

namespace legoai::cli {
namespace {

using comm::RanksText;

Tree OperationTree(const comm::FlightOperation& operation) {
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

std::string StatesText(const comm::FlightOperation& operation) {
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
std::vector<const comm::FlightOperation*> Interesting(const comm::MergedFlight& flight, bool all) {
  std::vector<const comm::FlightOperation*> shown;
  std::map<std::string, const comm::FlightOperation*> last;
  auto key = [](const comm::FlightOperation& operation) {
    return absl::StrCat(operation.group, "|", absl::StrJoin(operation.group_ranks, ","), "|",
                        operation.is_p2p ? operation.states.begin()->first : -1);
  };
  for (const comm::FlightOperation& operation : flight.operations) {
    if (operation.complete()) last[key(operation)] = &operation;
  }
  for (const comm::FlightOperation& operation : flight.operations) {
    if (all || !operation.complete() || last[key(operation)] == &operation) shown.push_back(&operation);
  }
  return shown;
}

std::string FlightTable(const comm::MergedFlight& flight, const std::vector<v1::FlightDump>& dumps, bool all) {
  std::string text = absl::StrCat("flight records of ", flight.ranks.size(), " of ", flight.world_size, " ranks",
                                  flight.missing.empty() ? "" : absl::StrCat("; none of rank ", RanksText(flight.missing)), "\n");
  const auto reason = std::find_if(dumps.begin(), dumps.end(), [](const auto& dump) { return dump.reason() != "read"; });
  if (reason != dumps.end() && !reason->reason().empty()) absl::StrAppend(&text, "reason: ", reason->reason(), "\n");
  Table table({"<group", "<ranks", "sequence", "<operation", "bytes", "<which ranks are how far"});
  for (const comm::FlightOperation* operation : Interesting(flight, all)) {
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

// The job is there, so the call was right; there is nothing to show.
absl::Status NoRecord(Client& client, const std::string& name) {
  v1::GetJobRequest request;
  request.set_name(name);
  if (const auto job = client.GetJob(request); !job.ok()) return job.status();
  return absl::NotFoundError(absl::StrCat(
      name, " has no flight record: one is taken when an attempt hangs or a rank of it dies. ", "While it runs, `lego fr RUNS/",
      IdOf(name), "/epoch-E` on its worker shows what its ", "ranks do; `lego logs ", IdOf(name), "` has what they said"));
}

// The record that a server has of a job; nothing where files are meant.
absl::StatusOr<std::optional<v1::FlightRecord>> OfServer(const Arguments& arguments) {
  if (!RefersToJob(arguments)) return std::optional<v1::FlightRecord>();
  ASSIGN_OR_RETURN(const auto job, FindNamedJob(arguments));
  v1::GetFlightRecordRequest request;
  request.set_name(job.name);
  auto record = job.client->GetFlightRecord(request);
  if (absl::IsNotFound(record.status())) return NoRecord(*job.client, job.name);
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
  *analysis = comm::AnalyzeStandstill(earlier, *later, comm::MergeFlightDumps(*later).world_size, absl::GetCurrentTimeNanos());
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

// Of which attempt the records in a run's folder are, the latest: those of earlier ones are removed when the next begins. Nothing
// where other files are meant.
std::optional<v1::RunAttempt> AttemptOf(const std::vector<std::string>& places) {
  if (places.size() != 1) return std::nullopt;
  const auto run = launch::ReadRun(places[0]);
  if (!run.ok() || !run->has_value() || (*run)->attempts().empty()) return std::nullopt;
  v1::RunAttempt attempt = *(*run)->attempts().rbegin();
  if (attempt.outcome() == "running" && !launch::IsTraining(places[0])) attempt.set_outcome("lost");
  return attempt;
}

std::string UnixTimeText(double seconds) { return TimeText(static_cast<int64_t>(seconds * 1e6)); }

// "attempt 2, which began 2026-11-21 20:52:25 and failed 2026-11-21 20:53:01 at step 7".
std::string OriginText(const v1::RunAttempt& attempt) {
  std::string text =
      absl::StrCat("attempt ", attempt.attempt(), ", which began ", UnixTimeText(attempt.started_unix_seconds()), " and ");
  if (attempt.outcome() == "running") return text + "goes on\n";
  absl::StrAppend(&text, attempt.outcome() == "lost" ? "was lost with its launcher" : attempt.outcome());
  if (attempt.has_ended_unix_seconds()) absl::StrAppend(&text, " ", UnixTimeText(attempt.ended_unix_seconds()));
  if (attempt.has_last_step()) absl::StrAppend(&text, " at step ", attempt.last_step());
  return text + "\n";
}

// A record with where it is from: a server, a run's folder, or files that say nothing of that.
struct Found {
  std::optional<v1::FlightRecord> record;
  std::optional<v1::RunAttempt> attempt;
  std::vector<v1::FlightDump> dumps;
  std::optional<v1::FlightAnalysis> known;  // otherwise it follows from the dumps
};

absl::StatusOr<Found> Find(const Arguments& arguments) {
  Found found;
  ASSIGN_OR_RETURN(auto record, OfServer(arguments));
  found.record = std::move(record);
  if (found.record) {
    found.dumps.assign(found.record->dumps().begin(), found.record->dumps().end());
    if (!found.record->analysis().verdict().empty()) found.known = found.record->analysis();
    return found;
  }
  ASSIGN_OR_RETURN(auto dumps, OfFiles(arguments.positional(), &found.known));
  found.dumps = std::move(dumps);
  found.attempt = AttemptOf(arguments.positional());
  return found;
}

Tree OriginTree(const Found& found) {
  if (found.record) {
    return {{"attempt", found.record->attempt()}, {"reason", found.record->reason()}, {"time_us", found.record->time_us()}};
  }
  return found.attempt ? ToTree(*found.attempt) : Tree::object();
}

absl::StatusOr<int> Run(const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto found, Find(arguments));
  const comm::MergedFlight flight = comm::MergeFlightDumps(found.dumps);
  const v1::FlightAnalysis analysis = found.known ? *found.known : comm::AnalyzeFlight(found.dumps, flight.world_size);
  if (arguments.format() == Format::kTable) {
    const std::string origin = found.record    ? OriginText(*found.record)
                               : found.attempt ? OriginText(*found.attempt)
                                               : std::string();
    Print(absl::StrCat(origin, FlightTable(flight, found.dumps, arguments.Has("all")), AnalysisText(analysis)));
    return kDone;
  }
  Tree tree = OriginTree(found);
  tree["world_size"] = flight.world_size;
  tree["ranks"] = flight.ranks;
  tree["missing"] = flight.missing;
  tree["operations"] = Tree::array();
  for (const comm::FlightOperation& operation : flight.operations) tree["operations"].push_back(OperationTree(operation));
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
