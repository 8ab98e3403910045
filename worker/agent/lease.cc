#include "worker/agent/lease.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/checkpoint/directory.h"
#include "core/checkpoint/storage.h"
#include "core/flight/flight_ring.h"
#include "core/hardware/host.h"
#include "core/process/checkpoint_roots.h"
#include "core/process/run_directory.h"
#include "proto/errors.h"
#include "proto/read_file.h"
#include "proto/rpc.h"
#include "proto/status.h"
#include "proto/text.h"
#include "worker/agent/attempt_log.h"
#include "worker/agent/epoch_directory.h"
#include "worker/agent/gang_folder.h"
#include "worker/launch/gpus.h"
#include "worker/launch/pending_commits.h"

namespace legoai::agent {
namespace {

// Of a flight record and of a step's trace: the server takes messages of 4 MiB, and heartbeats wait for what is under way.
constexpr int64_t kLargestReportBytes = int64_t{2} << 20;
constexpr int64_t kProgressEveryUs = 200'000;  // of the same phase
constexpr int64_t kWaitsEveryUs = 5'000'000;   // as long as it waits for something
constexpr size_t kLongestLogText = 16 * 1024;
constexpr size_t kLastLines = 20;  // of a rank's output after a failure
constexpr int64_t kLastBytes = 8 * 1024;

// Whether a folder of checkpoints is one of the job whose attempt keeps its own in `own`: a retry begins with another job's, of
// which the server takes nothing from it.
bool IsOfOwnJob(const std::string& checkpoints, const std::string& own) {
  return checkpoints.rfind(own.substr(0, own.rfind("/epoch-") + 1), 0) == 0;
}

int64_t NowUs() { return absl::ToUnixMicros(absl::Now()); }

absl::Status CheckPlacement(const v1::StartAttempt& start) {
  const v1::Placement& placement = start.placement();
  const v1::GangPart& gang = start.gang();
  if (start.world_size() < 1) return FieldError("world_size", absl::StrCat(start.world_size()), "must be at least 1");
  const int64_t workers = start.has_gang() ? gang.workers() : 1;
  const bool fits = workers >= 1 && gang.index() >= 0 && gang.index() < workers &&
                    placement.first_rank() == gang.index() * placement.slots() &&
                    placement.slots() == start.world_size() / workers && start.world_size() % workers == 0;
  if (!fits) {
    return FieldError("placement",
                      absl::StrCat(placement.slots(), " slots from rank ", placement.first_rank(), " on worker ", gang.index(),
                                   " of ", workers),
                      absl::StrCat("must be this worker's part of ", start.world_size(), " ranks, of which each has as many"));
  }
  if (!start.has_gang() || (!gang.address().empty() && gang.port() >= 1 && gang.port() <= 65535)) return absl::OkStatus();
  return FieldError("gang.address", absl::StrCat(gang.address(), ":", gang.port()),
                    "must say where the first worker is reached: give its agent --gang_address");
}

// Where a gang meets is for the flags of its first worker's agent to say, and not for those of `lego train`.
absl::Status WithFlagsOfAgent(const absl::Status& error, const v1::StartAttempt& start) {
  const auto violation = GetFieldViolation(error);
  if (!violation || !start.has_gang()) return error;
  const std::string agent = absl::StrCat("the agent of ", start.gang().first_worker());
  if (violation->field() == "--master-port") {
    return FieldError("--gang_ports", violation->value(),
                      absl::StrCat("is in use, or cannot be listened on: give ", agent, " ports that no other program has"),
                      error.code());
  }
  if (violation->field() == "--master-addr") {
    return FieldError("--gang_address", violation->value(),
                      absl::StrCat("is not the address of the host of ", agent, ": start that anew, or give it another"),
                      error.code());
  }
  return error;
}

}  // namespace

Lease::Lease(v1::StartAttempt start, const LeaseServices& services)
    : start_(std::move(start)), services_(services), step_lines_(start_.recipe().training().steps()) {
  directory_ = EpochDirectory(services_.options.runs, id()).value_or("");
  checkpoints_ = launch::EpochCheckpoints(services_.options.runs, start_.recipe(), id().job(), id().epoch()).value_or("");
  ReportLog("info", BeginText(start_, directory_), std::nullopt, NowUs());
  thread_ = std::thread([this] { Run(); });
}

Lease::~Lease() {
  if (!ended()) Revoke("the agent ends");
  thread_.join();
}

void Lease::Stop(bool save, absl::Duration grace, const std::string& reason) {
  if (save && discards_) {
    return Log("warning", absl::StrCat("is asked to save, too late: it has been asked to stop without: ", reason));
  }
  const bool limited = save && grace < absl::InfiniteDuration();
  const std::string how = !save ? "" : limited ? absl::StrCat(" and save within ", DurationText(grace)) : " and save";
  Log("info", absl::StrCat("is asked to stop", how, ": ", reason));
  stopping_ = true;
  if (limited) grace_ends_ = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(grace);
  if (!save) grace_ends_ = std::chrono::steady_clock::time_point::max();
  discards_ = !save;
  stop_.Request(save);
  services_.slots.RecheckWaiting();
}

void Lease::EndGrace(std::chrono::steady_clock::time_point now) {
  if (now < grace_ends_) return;
  grace_ends_ = std::chrono::steady_clock::time_point::max();
  if (ended()) return;
  ReportLog("warning", "has not saved in the time that it had: it stops without", std::nullopt, NowUs());
  discards_ = true;
  stop_.Request(/*save=*/false);
}

void Lease::Revoke(const std::string& reason) {
  if (revoked_.exchange(true)) return;
  if (ended_fact_ == 0) Log("warning", absl::StrCat("the trainers are killed: ", reason));
  stop_.Kill();
  services_.slots.RecheckWaiting();
}

void Lease::CollectFlight(const std::string& reason) {
  RunInBackground([this, reason] { ReportFlight(reason); });
}

void Lease::RunInBackground(std::function<void()> work) {
  ++background_running_;
  const MutexLock lock(background_mutex_);
  background_threads_.emplace_back([this, work = std::move(work)] {
    if (const absl::Status acts = ActAsTrainers(); acts.ok()) {
      work();
    } else {
      Log("error", std::string(acts.message()));
    }
    --background_running_;
    services_.ended();
  });
}

void Lease::Run() {
  const absl::StatusOr<launch::TrainOutcome> outcome = Train();
  JoinListing();
  if (!outcome.ok()) AwaitVerdicts();
  if (!outcome.ok() && !revoked_ && !IsMember() && committed_step_ >= 0) PutInPlace(checkpoints_, committed_step_);
  for (const auto& [step, question] : questions_) services_.commits.Withdraw(question);
  ReportEnd(outcome);
  ended_ = true;
  services_.ended();
}

absl::StatusOr<launch::TrainOutcome> Lease::Train() {
  ASSIGN_OR_RETURN(const auto directory, EpochDirectory(services_.options.runs, id()));
  ASSIGN_OR_RETURN(auto request, AttemptRequest(start_, directory, services_.options.trainer, services_.options.worker.device()));
  request.data_roots = services_.options.data_roots;
  request.checkpoint_roots = services_.options.checkpoint_roots;
  request.user = services_.options.trainer_user;
  request.memory_bytes = services_.options.trainer_memory_bytes;
  // Before anything is there, or is changed in what it is to go on from.
  RETURN_IF_ERROR(launch::CheckCheckpointRoots(request.recipe, directory, request.checkpoint_roots));
  if (start_.has_resume_step())
    RETURN_IF_ERROR(launch::CheckResumeRoots(start_.resume_directory(), request.checkpoint_roots));
  const absl::Status made = IsMember() ? JoinFolder(directory) : MakeDirectory(directory);
  const bool given_up = absl::IsResourceExhausted(made) || absl::IsCancelled(made);
  if (given_up && stopping_ && !revoked_) return NothingHadBegun();
  if (!made.ok()) return made;
  const auto slots = services_.slots.Take(request.nproc, [this] { return stopping_ || revoked_; });
  if (absl::IsCancelled(slots.status()) && !revoked_) return NothingHadBegun();
  if (!slots.ok()) return slots.status();
  slots_ = *slots;
  request.processors = services_.slots.ProcessorsOf(*slots);
  const v1::Worker& worker = services_.options.worker;
  if (auto gpus = services_.slots.GpusOf(*slots); !gpus.empty())
    launch::ComputeOnGpus(std::move(gpus), worker.host_cores() / worker.slots(), &request);
  last_step_ = start_.resume_step();
  if (start_.has_resume_step() && !IsMember()) {
    PutInPlace(start_.resume_directory(), start_.resume_step());
    if (IsOfOwnJob(start_.resume_directory(), checkpoints_)) ReportKeptCheckpoints(start_.resume_directory());
  }
  auto outcome = launch::RunTraining(request, Callbacks(), &stop_);
  services_.slots.Give(*slots);
  if (!outcome.ok()) return WithFlagsOfAgent(outcome.status(), start_);
  return outcome;
}

launch::TrainOutcome Lease::NothingHadBegun() const {
  launch::TrainOutcome outcome;
  outcome.cause = v1::Exit::STOPPED;
  outcome.step = start_.resume_step();
  return outcome;
}

// Trainers of another user may have put links where they write, to what only this agent may read or remove: whichever of its
// threads looks there has no more rights than they.
absl::Status Lease::ActAsTrainers() const {
  const auto& user = services_.options.trainer_user;
  return user ? launch::ActAs(*user) : absl::OkStatus();
}

// The one thing of a job that its trainers may not make themselves.
absl::Status Lease::GiveJobFolder() const {
  const auto& user = services_.options.trainer_user;
  if (!user) return absl::OkStatus();
  const std::string job = directory_.substr(0, directory_.rfind('/'));
  const size_t name = job.rfind('/');
  return launch::GiveFolder("--runs", job.substr(0, name), job.substr(name + 1), *user);
}

// As soon as the disk has room for it.
absl::Status Lease::MakeDirectory(const std::string& directory) {
  const auto waits = [this](const std::string& why) {
    v1::Progress progress;
    progress.set_phase("starting");
    progress.set_waits(why);
    ReportProgress(progress);
  };
  const auto make = [&] {
    RETURN_IF_ERROR(GiveJobFolder());
    RETURN_IF_ERROR(ActAsTrainers());
    const absl::Status made = MakeEpochDirectory(directory);
    return made.ok() && start_.has_gang() && !IsMember() ? WriteGangNote(directory, start_) : made;
  };
  return launch::DoWhenThereIsRoom(make, waits, [this] { return stopping_ || revoked_; });
}

// The first worker makes it, unless what all need is in an object store.
absl::Status Lease::JoinFolder(const std::string& directory) {
  if (checkpoint::IsInObjectStore(checkpoints_)) return MakeDirectory(directory);
  RETURN_IF_ERROR(ActAsTrainers());
  return AwaitGangNote(directory, start_, services_.options.gang_folder_wait, [this] { return stopping_ || revoked_; });
}

launch::TrainCallbacks Lease::Callbacks() {
  launch::TrainCallbacks callbacks;
  callbacks.prepared = [this](const launch::PreparedTraining& prepared) { ReportStarted(prepared); };
  callbacks.started = [this](int64_t rank, int64_t pid) {
    services_.log.Write("info", absl::StrCat("process ", pid, " is started"),
                        {.job = id().job(), .epoch = id().epoch(), .attempt = start_.attempt(), .rank = rank});
  };
  callbacks.log = [this](const std::string& level, const std::string& text) { ReportLog(level, text, std::nullopt, NowUs()); };
  callbacks.gang_ended = [this] { gang_ended_ = true; };
  if (IsMember()) return callbacks;
  callbacks.progress = [this](const v1::Progress& progress) { ReportProgress(progress); };
  callbacks.metrics = [this](const v1::StepMetrics& metrics) {
    last_step_ = metrics.step();
    v1::Telemetry fact;
    *fact.mutable_metrics() = metrics;
    Report(std::move(fact));
    if (step_lines_.Wants(metrics, NowUs())) ReportLog("info", StepText(metrics), 0, NowUs());
  };
  callbacks.rank_log = [this](int64_t rank, const v1::Log& log) {
    ReportLog(log.level(), log.text(), rank, static_cast<int64_t>(log.time_unix_seconds() * 1e6));
  };
  callbacks.step_trace = [this](int64_t rank, const v1::StepTraceWritten& written) { ReportStepTrace(rank, written); };
  callbacks.flight_dumped = [this](const v1::FlightDump& dump) { ReportDump(dump); };
  callbacks.commit = [this](int64_t step, const std::vector<std::string>& digests) { return Commit(step, digests); };
  return callbacks;
}

// Asked by the launcher again and again: puts the question once, then looks for the answer. The answers are taken in order of
// steps.
std::optional<absl::Status> Lease::Commit(int64_t step, const std::vector<std::string>& digests) {
  if (revoked_ || !killed_because_.empty()) return std::nullopt;
  const auto [question, fresh] = questions_.try_emplace(step);
  if (fresh) {
    v1::CommitRequest request;
    *request.mutable_lease() = id();
    request.set_step(step);
    if (!digests.empty()) request.set_digest(digests[0]);  // rank 0 writes the manifest
    request.set_directory(checkpoints_);
    question->second = services_.commits.Ask(std::move(request), [this] { stop_.Wake(); });
  }
  if (question != questions_.begin()) return std::nullopt;
  const std::optional<CommitVerdict> verdict = services_.commits.Take(question->second);
  if (!verdict) return std::nullopt;
  questions_.erase(question);
  return ApplyVerdict(step, *verdict);
}

// The trainers are gone. What is denied stays on the disk, in nobody's way: the next attempt has a folder of its own.
void Lease::AwaitVerdicts() {
  if (!questions_.empty() && !revoked_)
    ReportLog("info", absl::StrCat("waits: ", launch::WaitsForVerdict(questions_.begin()->first)), std::nullopt, NowUs());
  while (!questions_.empty() && !revoked_ && killed_because_.empty()) {
    const auto oldest = questions_.begin();
    if (const auto verdict = services_.commits.Take(oldest->second)) {
      if (verdict->commit) Committed(oldest->first);
      questions_.erase(oldest);
      continue;
    }
    stop_.Await();
    if (stop_.Take() == launch::Stop::kDiscard) return;
  }
}

// Checkpoints that the server has committed, and whose trainers are gone and may not have heard of it. They are needed even if
// the next attempt goes on from the last of them: that one may turn out to be damaged.
void Lease::PutInPlace(const std::string& directory, int64_t committed_step) {
  const absl::Status committed = checkpoint::CommitPreparedUpTo(directory, committed_step);
  if (!committed.ok()) Log("warning", absl::StrCat("checkpoints cannot be committed on the disk: ", committed.message()));
}

std::optional<absl::Status> Lease::ApplyVerdict(int64_t step, const CommitVerdict& verdict) {
  if (verdict.commit) {
    Committed(step);
    return absl::OkStatus();
  }
  if (!verdict.doubtful) return absl::AbortedError(verdict.reason);
  // Trainers that hear of a denial remove what they wrote. But a lost answer may have been that it counts, and another attempt
  // may be reading it: what is on the disk has to stay.
  killed_because_ = absl::StrCat("the checkpoint of step ", step, " was denied when it was asked for again: ", verdict.reason);
  Log("warning", absl::StrCat("the trainers are killed: ", killed_because_));
  stop_.Kill();
  return std::nullopt;
}

// Once there are as many checkpoints of this epoch as are to be kept, those of earlier ones are in nobody's interest.
void Lease::Committed(int64_t step) {
  ReportLog("info", absl::StrCat("the checkpoint of step ", step, " is committed"), std::nullopt, NowUs());
  committed_step_ = step;
  const int64_t keep = start_.recipe().checkpoint().keep_latest_k();
  kept_changes_ = keep > 0;
  if (keep < 1 || ++commits_ != keep) return;
  // Told before it is done: large ones take their time, and once the end is told nothing more of the lease is believed. Should
  // this agent die in between, or a file not be removed, the server lists too few and not what is half gone; what is left takes
  // room until the next attempt has as many of its own, or somebody removes the job's folder. A warning that comes after the
  // end stands in this agent's log alone.
  v1::Telemetry fact;
  fact.mutable_earlier_removed();
  Report(std::move(fact));
  RunInBackground([this] {
    const absl::Status removed = RemoveEarlierCheckpoints(services_.options.runs, start_.recipe(), id());
    if (!removed.ok())
      ReportLog("warning", absl::StrCat("checkpoints of earlier epochs cannot be removed: ", removed.message()), std::nullopt,
                NowUs());
  });
}

// What the folder holds is looked up, not counted: a trainer or an agent that died may have removed more than was told.
void Lease::ReportKeptCheckpoints(const std::string& directory) {
  const absl::StatusOr<std::vector<int64_t>> steps = checkpoint::ListCheckpoints(directory);
  if (!steps.ok()) return Log("warning", absl::StrCat("what is left of checkpoints is not known: ", steps.status().message()));
  v1::Telemetry fact;
  fact.mutable_directory_kept()->set_directory(directory);
  fact.mutable_directory_kept()->mutable_steps()->Assign(steps->begin(), steps->end());
  Report(std::move(fact));
}

// A store may take long to answer, and the launcher, whose call this is in, must go on. What is listed late is not wrong: the
// server takes only what is older than the newest of a list, and not in it, for gone.
void Lease::ReportKeptWithoutWaiting() {
  if (!checkpoint::IsInObjectStore(checkpoints_)) return ReportKeptCheckpoints(checkpoints_);
  if (listing_) {
    kept_changes_ = true;  // once more, when it is done
    return;
  }
  JoinListing();
  listing_ = true;
  listing_thread_ = std::thread([this] {
    ReportKeptCheckpoints(checkpoints_);
    listing_ = false;
  });
}

void Lease::JoinListing() {
  if (listing_thread_.joinable()) listing_thread_.join();
}

void Lease::ReportStarted(const launch::PreparedTraining& prepared) {
  v1::Telemetry fact;
  fact.mutable_started()->set_unigram_entropy(prepared.unigram_entropy);
  fact.mutable_started()->set_tokens(prepared.tokens);
  Report(std::move(fact));
}

void Lease::ReportProgress(const v1::Progress& progress) {
  last_step_ = std::max(last_step_, progress.step());
  // Rank 0, whose progress this is, removes what is too old while it saves.
  if (progress.phase() != "checkpoint" && std::exchange(kept_changes_, false)) ReportKeptWithoutWaiting();
  const int64_t now = NowUs();
  const bool waits = !progress.waits().empty(), waited = !told_progress_.waits().empty();
  const bool same = progress.phase() == told_progress_.phase() && progress.step() < progress.steps() && waits == waited;
  if (same && now >= told_progress_us_ && now - told_progress_us_ < (waits ? kWaitsEveryUs : kProgressEveryUs)) return;
  if (waits != waited)
    ReportLog(waits ? "warning" : "info", waits ? absl::StrCat("waits: ", progress.waits()) : "goes on", std::nullopt, now);
  told_progress_ = progress;
  told_progress_us_ = now;
  v1::Telemetry fact;
  *fact.mutable_progress() = progress;
  Report(std::move(fact));
}

void Lease::ReportLog(const std::string& level, const std::string& text, std::optional<int64_t> rank, int64_t time_us) {
  services_.log.Write(level, text, {.job = id().job(), .epoch = id().epoch(), .attempt = start_.attempt(), .rank = rank});
  v1::Telemetry fact;
  v1::LogLine& line = *fact.mutable_log();
  line.set_attempt(start_.attempt());
  line.set_epoch(id().epoch());
  if (rank) line.set_rank(*rank);
  line.set_level(level);
  line.set_text(ToUtf8(text.substr(0, kLongestLogText)));  // ranks may write any bytes
  line.set_time_us(time_us);
  Report(std::move(fact));
}

// One that cannot be sent stays where the rank has left it.
void Lease::ReportStepTrace(int64_t rank, const v1::StepTraceWritten& written) {
  absl::StatusOr<std::string> trace = ReadFile(written.path(), kLargestReportBytes);
  if (!trace.ok()) {
    return ReportLog("warning",
                     absl::StrCat("the trace of step ", written.step(), " is not sent to the server: ", trace.status().message(),
                                  "; its place is ", written.path()),
                     rank, NowUs());
  }
  v1::Telemetry fact;
  fact.mutable_step_trace()->set_step(written.step());
  fact.mutable_step_trace()->set_rank(rank);
  fact.mutable_step_trace()->set_trace_gzip(*std::move(trace));
  Report(std::move(fact));
}

void Lease::ReportFlight(const std::string& reason) {
  for (int64_t rank = 0; rank < start_.world_size(); ++rank) {
    auto dump = comm::ReadFlightRing(launch::FlightRingPath(directory_, rank), reason);
    if (dump.ok()) ReportDump(*std::move(dump));  // else it has not come so far; the server sees whose is missing
  }
}

void Lease::ReportDump(v1::FlightDump dump) {
  // What is oldest says least of a hang.
  while (static_cast<int64_t>(dump.ByteSizeLong()) > kLargestReportBytes) {
    auto& entries = *dump.mutable_entries();
    entries.DeleteSubrange(0, std::max(1, entries.size() / 8));
  }
  v1::Telemetry fact;
  *fact.mutable_flight_dump() = std::move(dump);
  Report(std::move(fact));
}

// What ranks wrote to stdout and stderr, which is where a crash leaves its reason.
void Lease::ReportLastLines() {
  if (!ActAsTrainers().ok()) return;  // an attempt that was refused may have come here without
  for (int64_t rank = 0; rank < start_.world_size(); ++rank) {
    const std::string path = absl::StrCat(launch::LogsPath(directory_), "/rank-", rank, ".log");
    for (const std::string& line : LastLines(path, kLastLines, kLastBytes)) ReportLog("error", line, rank, NowUs());
  }
}

// Trainers that fail on a slot with a fault, whatever they say themselves, fail by it: the job goes on elsewhere. Those that live
// through it go on.
absl::Status Lease::BlameSlots(const absl::Status& error) const {
  const std::string faults = services_.slots.FaultsOf(slots_);
  if (faults.empty() || checkpoint::GetDamage(error)) return error;
  return absl::UnavailableError(absl::StrCat(faults, "; the trainers say: ", error.message()));
}

void Lease::ReportEnd(const absl::StatusOr<launch::TrainOutcome>& outcome) {
  if (revoked_) return Log("info", "has ended, revoked");
  if (IsMember()) return ReportMemberEnd(outcome);
  // Ranks may have removed older ones since the last commit.
  if (commits_ > 0) ReportKeptCheckpoints(checkpoints_);
  const std::string attempt = absl::StrCat("attempt ", start_.attempt());
  v1::Telemetry fact;
  v1::AttemptEnded& ended = *fact.mutable_ended();
  if (outcome.ok()) {
    ended.set_stopped(outcome->cause == v1::Exit::STOPPED);
    ended.set_last_step(outcome->step);
    if (!outcome->hf_directory.empty()) ended.set_hf_directory(outcome->hf_directory);
    if (ended.has_hf_directory())
      ReportLog("info", absl::StrCat("the weights are exported to ", ended.hf_directory()), std::nullopt, NowUs());
    ReportLog("info", absl::StrCat(attempt, ended.stopped() ? " has stopped" : " has finished", " at step ", outcome->step),
              std::nullopt, NowUs());
  } else {
    const absl::Status error = killed_because_.empty() ? BlameSlots(outcome.status()) : absl::AbortedError(killed_because_);
    ReportLastLines();
    *ended.mutable_error() = ToRpcStatus(error);
    if (auto damage = checkpoint::GetDamage(error)) *ended.mutable_damage() = *std::move(damage);
    ended.set_last_step(last_step_);
    ReportLog("error", absl::StrCat(attempt, " has failed: ", error.message()), std::nullopt, NowUs());
  }
  ended_fact_ = Report(std::move(fact));
}

// The first worker tells of what it has said itself.
void Lease::ReportMemberEnd(const absl::StatusOr<launch::TrainOutcome>& outcome) {
  v1::Telemetry fact;
  v1::MemberEnded& ended = *fact.mutable_member_ended();
  const std::string ranks = absl::StrCat("the part of ", start_.placement().worker(), " in attempt ", start_.attempt());
  if (gang_ended_) {
    ReportLog("info", absl::StrCat(ranks, " has ended"), std::nullopt, NowUs());
  } else if (outcome.ok()) {
    ended.set_left(true);
    ReportLog("info", absl::StrCat(ranks, " has stopped before it began"), std::nullopt, NowUs());
  } else {
    const absl::Status error = BlameSlots(outcome.status());
    *ended.mutable_error() = ToRpcStatus(error);
    ReportLog("error", absl::StrCat(ranks, " has failed: ", error.message()), std::nullopt, NowUs());
  }
  ended_fact_ = Report(std::move(fact));
}

int64_t Lease::Report(v1::Telemetry fact) {
  *fact.mutable_lease() = id();
  return services_.telemetry.Add(std::move(fact));
}

void Lease::Log(const std::string& level, const std::string& text) const {
  services_.log.Write(level, text, {.job = id().job(), .epoch = id().epoch(), .attempt = start_.attempt()});
}

absl::StatusOr<launch::TrainRequest> AttemptRequest(const v1::StartAttempt& start, const std::string& run_directory,
                                                    const std::string& trainer, const v1::Device& device) {
  RETURN_IF_ERROR(CheckPlacement(start));
  launch::TrainRequest request;
  request.recipe = start.recipe();
  request.recipe.mutable_job()->set_dump_folder(run_directory);
  if (!start.recipe().checkpoint().folder().empty()) {
    ASSIGN_OR_RETURN(auto folder, launch::EpochCheckpoints("", start.recipe(), start.lease().job(), start.lease().epoch()));
    request.recipe.mutable_checkpoint()->set_folder(std::move(folder));
  }
  if (!start.dataset().uri().empty()) request.recipe.mutable_training()->set_dataset_path(start.dataset().uri());
  request.dataset = start.dataset();
  request.model = start.model();
  request.nproc = start.placement().slots();
  if (start.has_gang()) {
    request.gang = launch::GangPlace{.hosts = start.gang().workers(),
                                     .host = start.gang().index(),
                                     .address = start.gang().address(),
                                     .port = start.gang().port(),
                                     .device = device.type()};
  }
  request.trainer = trainer;
  request.lease.emplace();
  request.lease->attempt = start.attempt();
  request.lease->epoch = start.lease().epoch();
  if (start.has_resume_step()) request.lease->resume_step = start.resume_step();
  request.lease->resume_directory = start.resume_directory();
  request.lease->take_back = start.take_back();
  request.device = device.kind() == v1::CUDA ? "cuda" : "cpu";
  request.peak_flops_per_second = sim::TruePeakFlops(device, request.recipe.training().mixed_precision_param());
  return request;
}

}  // namespace legoai::agent
