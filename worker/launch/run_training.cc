#include "worker/launch/run_training.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/checkpoint/directory.h"
#include "core/checkpoint/files.h"
#include "core/checkpoint/storage.h"
#include "core/flight/flight_ring.h"
#include "core/process/run_directory.h"
#include "core/recipe/recipe.h"
#include "proto/errors.h"
#include "proto/read_file.h"
#include "proto/status.h"
#include "worker/launch/exit_status.h"
#include "worker/launch/gang_hosts.h"
#include "worker/launch/gang_member.h"
#include "worker/launch/host_options.h"
#include "worker/launch/launcher.h"
#include "worker/launch/metrics_merger.h"
#include "worker/launch/prepare_training.h"

namespace legoai::launch {
namespace {

double UnixNow() { return absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()); }

// With what the attempt begins.
void NoteCheckpoint(const PreparedTraining& prepared, v1::RunAttempt* attempt) {
  attempt->clear_resume_step();
  if (prepared.start.has_resume_step()) attempt->set_resume_step(prepared.start.resume_step());
  attempt->mutable_changes()->Assign(prepared.changes.begin(), prepared.changes.end());
  attempt->mutable_damaged()->Assign(prepared.damaged.begin(), prepared.damaged.end());
}

// run.json with the attempt that begins now.
absl::StatusOr<v1::Run> BeginAttempt(const PreparedTraining& prepared, const std::optional<LeasedAttempt>& lease) {
  const v1::Start& start = prepared.start;
  ASSIGN_OR_RETURN(auto kept, ReadRun(start.run_directory()));
  v1::Run run = kept.has_value() ? *kept : v1::Run();
  if (!kept.has_value()) run.set_build_version(start.build_version());
  run.set_model(start.model().name());
  run.set_parameters(prepared.parameters);
  run.set_seed(start.recipe().training().seed());
  *run.mutable_dataset() = start.dataset();
  // The run directory is locked: nobody runs any more.
  for (v1::RunAttempt& earlier : *run.mutable_attempts()) {
    if (earlier.outcome() == "running") earlier.set_outcome("lost");
  }
  v1::RunAttempt& attempt = *run.add_attempts();
  attempt.set_attempt(lease ? lease->attempt : run.attempts_size());
  attempt.set_build_version(start.build_version());
  attempt.set_world_size(start.world_size());
  NoteCheckpoint(prepared, &attempt);
  attempt.set_started_unix_seconds(UnixNow());
  attempt.set_outcome("running");
  return run;
}

absl::Status EndAttempt(const RunDirectory& directory, v1::Run run, const absl::StatusOr<LaunchOutcome>& outcome) {
  v1::RunAttempt& attempt = *run.mutable_attempts(run.attempts_size() - 1);
  attempt.set_ended_unix_seconds(UnixNow());
  if (outcome.ok()) {
    attempt.set_outcome(outcome->cause == v1::Exit::FINISHED ? "finished" : "stopped");
    attempt.set_last_step(outcome->step);
  } else {
    attempt.set_outcome("failed");
    attempt.set_error(std::string(outcome.status().message()));
  }
  return directory.WriteRun(run);
}

// Nothing is lost by beginning anew: what is there gets the first free name of this attempt.
absl::Status PutAside(const std::string& path, int64_t attempt) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::exists(path, error) || fs::is_empty(path, error)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string to, checkpoint::FreeFolderName(absl::StrCat(path, ".before-attempt-", attempt)));
  return checkpoint::RenameFile(path, to);
}

absl::Status BeginAnew(const v1::Start& start, int64_t attempt) {
  const std::string checkpoints = CheckpointsOf(start);
  RETURN_IF_ERROR(PutAside(HuggingFacePath(start.run_directory()), attempt));
  RETURN_IF_ERROR(checkpoint::PutAllAside(checkpoints, attempt).status());
  return checkpoint::MakeFolders(CheckpointsPath(start.run_directory()));
}

void Warn(const TrainCallbacks& callbacks, const std::string& text) {
  if (callbacks.log) callbacks.log("warning", text);
}

// Where checkpoints are wished for, an earlier attempt has come somewhere, and none is left.
void TellLost(const TrainRequest& request, const PreparedTraining& prepared, const v1::Run& run,
              const TrainCallbacks& callbacks) {
  const bool wished = prepared.start.recipe().checkpoint().enable_checkpoint();
  if (BeginsAnew(request) || request.lease || prepared.checkpoint || !wished || run.attempts_size() < 2) return;
  const int64_t step = run.attempts(run.attempts_size() - 2).last_step();
  if (step == 0) return;
  Warn(callbacks, absl::StrCat("run.json tells of an earlier attempt that came to step ", step,
                               ", and no checkpoint of it is there: the training begins anew"));
}

// What attempts that were cut short left half done goes. Where it cannot, it only takes space: the training goes on. A training
// that saves nothing leaves alone what others may save in its folder.
void RemoveLeftovers(const v1::Start& start, const TrainCallbacks& callbacks) {
  const v1::CheckpointSection& section = start.recipe().checkpoint();
  const bool saves = section.enable_checkpoint() || section.last_save_in_hf();
  for (const absl::Status& status : {saves ? checkpoint::RemoveUncommitted(CheckpointsOf(start)) : absl::OkStatus(),
                                     checkpoint::RemoveAll(PartialExportPath(start.run_directory()))}) {
    if (!status.ok()) Warn(callbacks, absl::StrCat("what an earlier attempt left cannot be removed: ", status.message()));
  }
}

// Until the disk has room for what this process itself writes, or somebody asks to stop.
absl::Status WhenThereIsRoom(const TrainCallbacks& callbacks, StopPipe* stop, const std::function<absl::Status()>& work) {
  const auto waits = [&](const std::string& why) {
    v1::Progress progress;
    progress.set_phase("starting");
    progress.set_waits(why);
    if (callbacks.progress) callbacks.progress(progress);
  };
  return DoWhenThereIsRoom(work, waits, [stop] { return stop != nullptr && stop->Pending(); });
}

// The ranks' logs, so that none is missing for want of room.
absl::Status MakeLogs(const std::string& run_directory, int64_t ranks) {
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const std::string path = absl::StrCat(LogsPath(run_directory), "/rank-", rank, ".log");
    const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0644);
    if (descriptor < 0) return checkpoint::FileError(path, "cannot be written", errno);
    close(descriptor);
  }
  return absl::OkStatus();
}

// What a training begins with, on the disk.
absl::Status WriteBeginning(const RunDirectory& directory, const v1::Start& start, const v1::Run& run) {
  absl::Status status = MakeLogs(start.run_directory(), start.world_size());
  if (status.ok()) status = directory.WriteRecipe(start.recipe());
  return status.ok() ? directory.WriteRun(run) : status;
}

std::string GoesOn(const PreparedTraining& prepared) {
  return prepared.checkpoint ? absl::StrCat("; goes on from step ", *prepared.checkpoint) : std::string();
}

// So that nobody takes it for one to go on from, and whoever wants to look at it finds it. Gives what is to be told of it.
absl::StatusOr<std::string> MoveDamagedAside(const v1::CheckpointDamage& damage, const checkpoint::Cancel& cancel = nullptr) {
  const absl::StatusOr<std::string> to = checkpoint::PutAside(damage, cancel);
  const std::string what = checkpoint::DamageText(damage);
  if (!to.ok()) return Annotate(to.status(), absl::StrCat(what, " and cannot be put aside"));
  return absl::StrCat(what, to->empty() ? "" : absl::StrCat("; it is put aside as ", *to));
}

absl::Status PutDamagedAside(const v1::CheckpointDamage& damage, const std::string& then, const TrainCallbacks& callbacks,
                             const checkpoint::Cancel& cancel = nullptr) {
  const absl::StatusOr<std::string> moved = MoveDamagedAside(damage, cancel);
  if (moved.ok()) Warn(callbacks, *moved + then);
  return moved.status();
}

// The service hears of the damage and chooses another checkpoint, whether this one can be put aside or not. In an object store
// that copies it, which takes its time and keeps the job's slots: whoever asks for these is not kept waiting.
void PutLeasedAside(const absl::Status& failure, const TrainCallbacks& callbacks, const StopPipe* stop) {
  const auto damage = checkpoint::GetDamage(failure);
  if (!damage) return;
  if (checkpoint::IsInObjectStore(damage->directory()) && callbacks.log) {
    callbacks.log("info", absl::StrCat("copies the damaged checkpoint of step ", damage->step(),
                                       " aside within the object store, until it is done or asked to stop"));
  }
  const absl::Status put = PutDamagedAside(*damage, "", callbacks, [stop] { return stop != nullptr && stop->Pending(); });
  if (!put.ok()) Warn(callbacks, std::string(put.message()));
}

// The rings lie in files: what a rank did is read also of one that was stopped or killed. `told`: by rank, those that other
// hosts have read.
void DumpFlightRings(const std::string& run_directory, const std::vector<v1::RankCondition>& ranks, const absl::Status& failure,
                     const std::map<int64_t, v1::FlightDump>& told, const TrainCallbacks& callbacks) {
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::string path = FlightRingPath(run_directory, static_cast<int64_t>(rank));
    const auto other = told.find(static_cast<int64_t>(rank));
    auto dump = other != told.end() ? absl::StatusOr<v1::FlightDump>(other->second) : comm::ReadFlightRing(path, "");
    if (!dump.ok()) continue;  // it has not come so far
    dump->set_reason(std::string(failure.message()));
    *dump->mutable_condition() = ranks[rank];
    const absl::Status kept = checkpoint::ReplaceFile(path + ".json", comm::FlightDumpToJson(*dump));
    if (!kept.ok()) Warn(callbacks, absl::StrCat("a flight record is not kept: ", kept.message()));
    if (callbacks.flight_dumped) callbacks.flight_dumped(*dump);
  }
}

// Rings of an earlier attempt, perhaps of more ranks, would pass for this one's.
void RemoveFlightRecords(const std::string& run_directory) {
  const auto records = ReadFolder(run_directory + "/flight");
  if (!records.ok()) return;
  std::error_code error;
  for (const std::string& path : *records) std::filesystem::remove(path, error);
}

std::optional<double> MedianStepSeconds(const std::vector<v1::StepMetrics>& metrics) {
  std::vector<double> seconds;
  for (size_t i = 1; i < metrics.size(); ++i) seconds.push_back(metrics[i].step_seconds());
  if (seconds.empty()) return std::nullopt;
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  return seconds[seconds.size() / 2];
}

void Summarize(std::vector<v1::StepMetrics> metrics, TrainOutcome* outcome) {
  outcome->median_step_seconds = MedianStepSeconds(metrics);
  for (const v1::StepMetrics& entry : metrics) {
    if (entry.has_validation_loss()) outcome->validation_loss = entry.validation_loss();
  }
  outcome->metrics = std::move(metrics);
}

// What an earlier attempt has finished, told from its files.
absl::StatusOr<TrainOutcome> FinishedBefore(TrainOutcome outcome, PreparedTraining prepared) {
  ASSIGN_OR_RETURN(auto metrics, ReadMetrics(outcome.run_directory));
  Summarize(LatestOfEachStep(metrics), &outcome);
  int64_t peak = 0;
  for (const v1::StepMetrics& entry : outcome.metrics) peak = std::max(peak, entry.peak_memory_bytes());
  if (peak > 0) outcome.peak_memory_bytes = {peak};
  outcome.step = *prepared.checkpoint;
  if (prepared.start.recipe().checkpoint().last_save_in_hf()) outcome.hf_directory = HuggingFacePath(outcome.run_directory);
  outcome.prepared = std::move(prepared);
  return outcome;
}

// Asked to stop while it prepared: there is nothing to save.
absl::StatusOr<TrainOutcome> StoppedBefore(const TrainRequest& request, const std::string& run_directory, StopPipe* stop) {
  if (stop->Take() == Stop::kKill) return absl::CancelledError("killed as asked, before a rank was started");
  TrainOutcome outcome;
  outcome.cause = v1::Exit::STOPPED;
  if (request.lease) outcome.step = request.lease->resume_step.value_or(0);
  outcome.run_directory = run_directory;
  return outcome;
}

// Asked to stop, while it worked or waited for room.
bool IsStopped(const absl::Status& status, const StopPipe* stop) {
  return absl::IsCancelled(status) || (absl::IsResourceExhausted(status) && stop != nullptr && stop->Pending());
}

LaunchOptions OptionsOf(const TrainRequest& request, const v1::Start& start, GangHosts* hosts) {
  LaunchOptions options;
  static_cast<HostOptions&>(options) = HostOptionsOf(request, start);
  options.world_size = start.world_size();
  options.hosts = hosts;
  options.rendezvous_port = request.rendezvous_port;
  return options;
}

// Passes on what the ranks say, and keeps it.
class Listener {
 public:
  Listener(const TrainCallbacks& callbacks, RunDirectory& directory, int64_t world_size, bool keeps)
      : callbacks_(callbacks), directory_(directory), merger_(world_size), keeps_(keeps) {}

  LaunchCallbacks Callbacks() {
    LaunchCallbacks callbacks;
    callbacks.started = callbacks_.started;
    callbacks.progress = [this](int64_t rank, const v1::Progress& progress) {
      if (rank == 0 && callbacks_.progress) callbacks_.progress(progress);
    };
    callbacks.metrics = [this](int64_t rank, const v1::StepMetrics& metrics) {
      if (auto merged = merger_.Add(rank, metrics)) Keep(*merged);
    };
    callbacks.log = [this](int64_t rank, const v1::Log& log) {
      if (callbacks_.rank_log) return callbacks_.rank_log(rank, log);
      Log(log.level(), absl::StrCat("rank ", rank, ": ", log.text()));
    };
    callbacks.troubled = [this](const std::vector<v1::RankCondition>& ranks, const absl::Status& failure) {
      DumpFlightRings(directory_.path(), ranks, failure, flights_, callbacks_);
    };
    callbacks.flight = [this](const v1::FlightDump& dump) { flights_[dump.rank()] = dump; };
    callbacks.step_trace = callbacks_.step_trace;
    callbacks.commit = callbacks_.commit;
    return callbacks;
  }

  void Finish(TrainOutcome* outcome) {
    for (const v1::StepMetrics& metrics : merger_.Rest()) Keep(metrics);
    outcome->peak_memory_bytes = merger_.peak_memory_bytes();
    Summarize(std::move(kept_), outcome);
  }

 private:
  void Log(const std::string& level, const std::string& text) {
    if (callbacks_.log) callbacks_.log(level, text);
  }

  void Keep(const v1::StepMetrics& metrics) {
    const absl::Status written = directory_.AppendMetrics(metrics);
    // The training goes on without its figures.
    if (!written.ok() && !std::exchange(warned_, true)) Log("warning", std::string(written.message()));
    if (keeps_) kept_.push_back(metrics);
    if (callbacks_.metrics) callbacks_.metrics(metrics);
  }

  const TrainCallbacks& callbacks_;
  RunDirectory& directory_;
  MetricsMerger merger_;
  const bool keeps_;
  std::vector<v1::StepMetrics> kept_;
  std::map<int64_t, v1::FlightDump> flights_;  // of other hosts' ranks
  bool warned_ = false;
};

// From the checkpoint that a rank has found damaged, with `failure`, to the next older one that is whole. It is put aside first:
// another of its step, which was saved since, may be whole.
absl::Status StepBack(const TrainRequest& request, const v1::CheckpointDamage& damage, const absl::Status& failure,
                      const TrainCallbacks& callbacks, PreparedTraining* prepared) {
  const bool again = std::any_of(prepared->damaged.begin(), prepared->damaged.end(),
                                 [&](const v1::CheckpointDamage& one) { return one.step() == damage.step(); });
  const absl::StatusOr<std::string> moved = MoveDamagedAside(damage);
  prepared->damaged.push_back(damage);
  if (!moved.ok()) return moved.status();
  const size_t known = prepared->damaged.size();
  // It was trained and saved once more in the meantime: this disk, or the way to it, does not keep what is written.
  absl::Status status = again
                            ? Annotate(failure, absl::StrCat("the checkpoint of step ", damage.step(), " was damaged once more"))
                            : FindCheckpoint(request, prepared);
  Warn(callbacks, absl::StrCat(*moved, status.ok() ? GoesOn(*prepared) : ""));
  for (size_t i = known; status.ok() && i < prepared->damaged.size(); ++i)
    status = PutDamagedAside(prepared->damaged[i], GoesOn(*prepared), callbacks);
  return status;
}

// Starts the ranks, and again where one of them finds that the checkpoint is damaged: from the next older one.
absl::StatusOr<LaunchOutcome> Launch(const TrainRequest& request, const TrainCallbacks& callbacks, StopPipe* stop,
                                     GangHosts* hosts, RunDirectory& directory, PreparedTraining* prepared, v1::Run* run,
                                     TrainOutcome* outcome) {
  TrainRequest going_on = request;
  going_on.begun_anew = true;  // what this run has saved itself is gone on from
  while (true) {
    Listener listener(callbacks, directory, prepared->start.world_size(), /*keeps=*/!request.lease);
    Launcher launcher(OptionsOf(request, prepared->start, hosts), listener.Callbacks(), stop);
    auto launched = launcher.Run();
    listener.Finish(outcome);
    const auto damage = checkpoint::GetDamage(launched.status());
    if (!damage || request.lease) {
      PutLeasedAside(launched.status(), callbacks, stop);
      return launched;
    }
    absl::Status status = StepBack(going_on, *damage, launched.status(), callbacks, prepared);
    NoteCheckpoint(*prepared, run->mutable_attempts(run->attempts_size() - 1));
    if (status.ok()) status = WhenThereIsRoom(callbacks, stop, [&] { return directory.WriteRun(*run); });
    if (absl::IsResourceExhausted(status) && stop != nullptr && stop->Pending()) {
      if (stop->Take() == Stop::kKill) return absl::CancelledError("killed as asked, while the disk was full");
      return LaunchOutcome{.cause = v1::Exit::STOPPED, .step = prepared->checkpoint.value_or(0)};
    }
    if (!status.ok()) return status;
    outcome->resumed_from = prepared->checkpoint;
    // The wish came while ranks still loaded what turned out to be damaged.
    if (launcher.asked_to_stop()) return LaunchOutcome{.cause = v1::Exit::STOPPED, .step = prepared->checkpoint.value_or(0)};
  }
}

TrainOutcome OutcomeOf(const LaunchOutcome& launched, PreparedTraining prepared, TrainOutcome outcome,
                       const TrainCallbacks& callbacks) {
  outcome.cause = launched.cause;
  outcome.step = launched.step;
  const bool wished = prepared.start.recipe().checkpoint().last_save_in_hf();
  if (wished && outcome.cause == v1::Exit::FINISHED) {
    const auto exported = IsExported(outcome.run_directory, CheckpointsHolding(prepared.start, outcome.step), outcome.step);
    if (!exported.ok())
      Warn(callbacks, absl::StrCat("whether the model is exported is not known: ", exported.status().message()));
    if (exported.ok() && *exported) outcome.hf_directory = HuggingFacePath(outcome.run_directory);
  }
  outcome.prepared = std::move(prepared);
  return outcome;
}

// From the checks to the end: as of RunTraining. `hosts`: the others, which have joined; null: there are none.
absl::StatusOr<TrainOutcome> RunPrepared(const TrainRequest& request, const TrainCallbacks& callbacks, StopPipe* stop,
                                         GangHosts* hosts, RunDirectory& directory, PreparedTraining prepared) {
  const std::string& path = directory.path();
  for (const std::string& change : prepared.changes) Warn(callbacks, change);
  if (!prepared.warning.empty()) Warn(callbacks, prepared.warning);
  for (const v1::CheckpointDamage& damage : prepared.damaged) {
    RETURN_IF_ERROR(PutDamagedAside(damage, GoesOn(prepared), callbacks));
  }
  TrainOutcome outcome;
  outcome.run_directory = path;
  outcome.resumed_from = prepared.checkpoint;
  if (prepared.finished) return FinishedBefore(std::move(outcome), std::move(prepared));

  ASSIGN_OR_RETURN(v1::Run run, BeginAttempt(prepared, request.lease));
  outcome.attempt = run.attempts().rbegin()->attempt();
  TellLost(request, prepared, run, callbacks);
  prepared.start.set_attempt(outcome.attempt);
  prepared.start.set_epoch(request.lease ? request.lease->epoch : outcome.attempt);
  RemoveLeftovers(prepared.start, callbacks);
  if (BeginsAnew(request)) {
    RETURN_IF_ERROR(BeginAnew(prepared.start, outcome.attempt));
    if (callbacks.begun_anew) callbacks.begun_anew();
  }
  RemoveFlightRecords(path);
  const absl::Status begun =
      WhenThereIsRoom(callbacks, stop, [&] { return WriteBeginning(directory, prepared.start, run); });
  if (IsStopped(begun, stop)) return StoppedBefore(request, path, stop);
  if (!begun.ok()) return begun;

  const auto launched = Launch(request, callbacks, stop, hosts, directory, &prepared, &run, &outcome);
  const auto note = [&] { return EndAttempt(directory, run, launched); };
  // A leased attempt's end is kept by the service: nobody's slots wait for that note.
  const bool waits_for_room = launched.ok() && !request.lease;
  const absl::Status kept = waits_for_room ? WhenThereIsRoom(callbacks, stop, note) : note();
  if (!launched.ok()) return launched.status();
  if (request.lease && absl::IsResourceExhausted(kept)) {
    Warn(callbacks, absl::StrCat("how the training ended is not noted: ", kept.message()));
    return OutcomeOf(*launched, std::move(prepared), std::move(outcome), callbacks);
  }
  if (!kept.ok())
    return Annotate(kept, absl::StrCat("step ", launched->step, " is done, but how the training ended cannot be noted"));
  return OutcomeOf(*launched, std::move(prepared), std::move(outcome), callbacks);
}

absl::StatusOr<TrainOutcome> RunAsMember(const TrainRequest& request, const TrainCallbacks& callbacks, StopPipe* stop) {
  MemberCallbacks member;
  member.started = callbacks.started;
  member.progress = callbacks.progress;
  member.log = callbacks.log;
  member.ended = callbacks.gang_ended;
  ASSIGN_OR_RETURN(MemberOutcome ended, RunMember(request, member, stop));
  TrainOutcome outcome;
  outcome.cause = ended.cause;
  outcome.step = ended.step;
  outcome.attempt = ended.attempt;
  outcome.run_directory = std::move(ended.run_directory);
  outcome.hf_directory = std::move(ended.hf_directory);
  return outcome;
}

absl::StatusOr<std::unique_ptr<GangHosts>> Gather(const TrainRequest& request, const v1::Start& start,
                                                  const TrainCallbacks& callbacks, const StopPipe* stop) {
  const auto waits = [&](const std::string& whom) {
    v1::Progress progress;
    progress.set_phase("joining");
    progress.set_waits(whom);
    if (callbacks.progress) callbacks.progress(progress);
  };
  return GangHosts::Gather(*request.gang, HelloOf(request, start), absl::Seconds(start.recipe().comm().init_timeout_seconds()),
                           waits, stop);
}

v1::GangEnded EndOf(const absl::StatusOr<TrainOutcome>& outcome) {
  v1::GangEnded ended;
  if (!outcome.ok()) {
    *ended.mutable_exit() = MakeExit(v1::Exit::FAILED, 0, outcome.status());
    return ended;
  }
  *ended.mutable_exit() = MakeExit(outcome->cause, outcome->step, absl::OkStatus());
  ended.set_attempt(outcome->attempt);
  ended.set_hf_directory(outcome->hf_directory);
  return ended;
}

}  // namespace

absl::StatusOr<TrainOutcome> RunTraining(const TrainRequest& request, const TrainCallbacks& callbacks, StopPipe* stop) {
  v1::Recipe recipe = request.recipe;
  parallel::FillDefaults(&recipe);
  const std::string path = recipe.job().dump_folder();
  if (request.gang && request.gang->host > 0) return RunAsMember(request, callbacks, stop);
  std::optional<RunDirectory> directory;
  absl::Status status = WhenThereIsRoom(callbacks, stop, [&] {
    auto opened = RunDirectory::Open(path);
    if (opened.ok()) directory.emplace(*std::move(opened));
    return opened.status();
  });
  if (IsStopped(status, stop)) return StoppedBefore(request, path, stop);
  if (!status.ok()) return status;
  // Before anybody asks whether hf/ is there.
  if (absl::Status status = checkpoint::RestoreFolder(HuggingFacePath(path)); !status.ok())
    Warn(callbacks, std::string(status.message()));
  absl::StatusOr<PreparedTraining> prepared = absl::UnknownError("");
  status = WhenThereIsRoom(callbacks, stop, [&] {
    prepared = PrepareTraining(request, TokensPath(path), [stop] { return stop != nullptr && stop->Pending(); });
    return prepared.status();
  });
  if (IsStopped(status, stop)) return StoppedBefore(request, path, stop);
  if (!prepared.ok()) {
    if (request.lease) PutLeasedAside(prepared.status(), callbacks, stop);
    return prepared.status();
  }
  if (callbacks.prepared) callbacks.prepared(*prepared);
  if (!request.gang) return RunPrepared(request, callbacks, stop, nullptr, *directory, *std::move(prepared));
  const auto hosts = Gather(request, prepared->start, callbacks, stop);
  if (absl::IsCancelled(hosts.status())) return StoppedBefore(request, path, stop);
  if (!hosts.ok()) return hosts.status();
  auto outcome = RunPrepared(request, callbacks, stop, hosts->get(), *directory, *std::move(prepared));
  (*hosts)->End(EndOf(outcome));
  return outcome;
}

}  // namespace legoai::launch
