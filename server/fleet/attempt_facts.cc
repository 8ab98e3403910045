#include "server/fleet/attempt_facts.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/process/run_directory.h"
#include "proto/errors.h"
#include "proto/rpc.h"
#include "proto/status.h"
#include "server/fleet/failure_policy.h"
#include "server/fleet/resume_point.h"
#include "server/jobs/names.h"
#include "server/jobs/stop.h"
#include "server/jobs/transition.h"

namespace legoai::server {
namespace {

constexpr size_t kLongestPath = 4096;
constexpr int64_t kFirstLines = 10;
constexpr char kGzipBegins[] = "\x1f\x8b";

template <typename... Parts>
absl::Status Refuse(const Parts&... parts) {
  return absl::FailedPreconditionError(absl::StrCat(parts...));
}

bool IsSha256(const std::string& text) {
  return text.size() == 64 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f'); });
}

// Another kind of step is saved by trainers that are stopped, and by nobody else.
bool IsDue(const v1::Recipe& recipe, int64_t step) {
  const int64_t interval = recipe.checkpoint().interval();
  return step == recipe.training().steps() || (interval > 0 && step % interval == 0);
}

// Of the checkpoints of one epoch, the latest that is kept; the latest of all is.
std::optional<v1::Checkpoint> LatestOf(const std::vector<v1::Checkpoint>& kept, int64_t epoch) {
  std::optional<v1::Checkpoint> latest;
  for (const v1::Checkpoint& one : kept) {
    if (one.epoch() == epoch && (!latest || one.step() > latest->step())) latest = one;
  }
  return latest;
}

// Of a step that is not after the last committed one of its epoch.
absl::StatusOr<bool> CheckAgain(store::ReadTransaction& read, const v1::Job& job, const v1::CommitRequest& request,
                                int64_t last) {
  ASSIGN_OR_RETURN(const auto all, read.ListCheckpoints(job.name()));
  for (const v1::Checkpoint& one : all) {
    if (one.epoch() != job.epoch() || one.step() != request.step()) continue;
    if (one.digest() == request.digest()) return false;
    return Refuse("it is committed with another digest, ", one.digest());
  }
  return Refuse("step ", last, " of this attempt is committed already, and they are committed in the order of their steps");
}

// Whether the attempt can have written the checkpoint that is to be committed. `directory` is that of CheckpointsOf.
//
// Trainers save after a step that is a multiple of checkpoint.interval, after the last one, and once more, after any step, when
// they are stopped; so nothing follows a step of the third kind. Several may arrive at once, in the order of their steps: the
// ranks go on while the server is away. True: it is new. False: it is committed already, with the same digest; the answer was
// lost. Errors: FailedPrecondition, with the reason; those of the store.
absl::StatusOr<bool> CheckCommit(store::ReadTransaction& read, const v1::Job& job, const v1::Attempt& attempt,
                                 const std::string& directory, const v1::CommitRequest& request) {
  if (request.directory() != directory) {
    return Refuse("this attempt saves in ", directory, ", and not in ", absl::CHexEscape(request.directory().substr(0, 300)));
  }
  if (!IsSha256(request.digest())) return Refuse("its digest is no SHA-256 in 64 hexadecimal digits");
  const int64_t first = attempt.resume_step() + 1, steps = attempt.recipe().training().steps();
  if (request.step() < first || request.step() > steps) {
    return Refuse("this attempt, which began after step ", attempt.resume_step(), " and ends with step ", steps,
                  ", does not come to it");
  }
  ASSIGN_OR_RETURN(const auto kept, read.ListKeptCheckpoints(job.name()));
  const auto latest = LatestOf(kept, job.epoch());
  if (!latest) return true;
  if (request.step() <= latest->step()) return CheckAgain(read, job, request, latest->step());
  if (!IsDue(attempt.recipe(), latest->step()))
    return Refuse("this attempt was stopped after step ", latest->step(), ", and saved for the last time then");
  return true;
}

// Whether the job's latest attempt can be at the step that the fact names. Errors: OutOfRange, with the reason.
absl::Status CheckStep(const v1::Job& job, const v1::Telemetry& fact) {
  const int64_t steps = (job.has_chosen() ? job.chosen().recipe() : job.spec().recipe()).training().steps();
  int64_t least = 0, step = 0;
  if (fact.has_metrics()) least = 1, step = fact.metrics().step();
  if (fact.has_progress()) step = fact.progress().step();
  if (fact.has_ended()) step = fact.ended().last_step();
  if (fact.has_step_trace()) least = 1, step = fact.step_trace().step();
  if (step >= least && step <= steps) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("a fact of step ", step, " of a training of ", steps));
}

// Whether the ranks of which it tells are those of the job, in order. Errors: OutOfRange, with the reason.
absl::Status CheckRanks(const v1::Job& job, const v1::Telemetry& fact) {
  int64_t before = -1;
  for (const v1::RankMetrics& row : fact.metrics().ranks()) {
    if (row.rank() <= before || row.rank() >= job.world_size())
      return absl::OutOfRangeError(absl::StrCat("rank ", row.rank(), " after ", before, " of ", job.world_size(), " ranks"));
    before = row.rank();
  }
  const int64_t rank = fact.step_trace().rank();
  if (fact.has_step_trace() && (rank < 0 || rank >= job.world_size()))
    return absl::OutOfRangeError(absl::StrCat("a trace of rank ", rank, " of ", job.world_size(), " ranks"));
  return absl::OkStatus();
}

// Whether the sender of this part of a lease can tell this of the job's latest attempt. Errors: OutOfRange, with the reason.
absl::Status CheckFact(const v1::Job& job, const HeldLease& held, const v1::Telemetry& fact) {
  if (!held.first && !fact.has_log() && !fact.has_member_ended())
    return absl::OutOfRangeError("a fact of all ranks, of which the first worker alone tells");
  if (held.alone && fact.has_member_ended()) return absl::OutOfRangeError("the end of a part of ranks that are on one worker");
  RETURN_IF_ERROR(CheckStep(job, fact));
  RETURN_IF_ERROR(CheckRanks(job, fact));
  if (fact.has_step_trace() && !absl::StartsWith(fact.step_trace().trace_gzip(), kGzipBegins))
    return absl::OutOfRangeError("a trace that is not compressed by gzip");
  return absl::OkStatus();
}

// The job of a lease, if the lease is its latest and not over.
absl::StatusOr<std::optional<v1::Job>> JobOfLease(store::Transaction& transaction, const v1::LeaseId& lease) {
  auto job = transaction.GetJob(lease.job());
  if (!job.ok()) return job.status();
  if (!*job || (*job)->epoch() != lease.epoch() || !HoldsLease((*job)->state())) return std::optional<v1::Job>();
  return job;
}

// The attempt that runs under the job's latest lease.
absl::StatusOr<v1::Attempt> LatestAttempt(store::Transaction& transaction, const v1::Job& job) {
  ASSIGN_OR_RETURN(auto attempts, transaction.ListAttempts(job.name()));
  if (attempts.empty() || attempts.back().epoch() != job.epoch())
    return absl::InternalError(absl::StrCat(job.name(), " has no attempt of epoch ", job.epoch()));
  return attempts.back();
}

absl::Status SetAttemptState(store::Transaction& transaction, const v1::Job& job, const std::string& state) {
  ASSIGN_OR_RETURN(auto attempt, LatestAttempt(transaction, job));
  if (attempt.state() == state) return absl::OkStatus();
  attempt.set_state(state);
  return transaction.PutAttempt(job.name(), attempt);
}

std::optional<double> Median(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  const auto middle = values.begin() + values.size() / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// What the attempt's own reports say in the end, beside what was predicted. There may be millions, and everything else waits
// while they are read: the latest tell as much, for a peak is one since the start.
absl::Status Measure(store::Transaction& transaction, const v1::Job& job, v1::Attempt* attempt) {
  std::vector<double> seconds;
  int64_t peak = 0;
  const int64_t before = std::max(attempt->resume_step(), job.progress().step() - kStepsMeasured);
  const absl::Status read = transaction.ForEachMetrics(job.name(), before, [&](const v1::StepMetrics& report) {
    if (report.attempt() != attempt->attempt()) return;
    seconds.push_back(report.step_seconds());
    peak = std::max(peak, report.peak_memory_bytes());
  });
  if (!read.ok()) return read;
  if (!seconds.empty() && before == attempt->resume_step()) seconds.erase(seconds.begin());  // the first warms up
  if (const auto median = Median(std::move(seconds))) attempt->set_measured_step_seconds(*median);
  if (peak > 0) attempt->set_measured_peak_memory_bytes(peak);
  return absl::OkStatus();
}

absl::Status EndAttempt(store::Transaction& transaction, const v1::Job& job, const std::string& state, const absl::Status& error,
                        std::optional<int64_t> last_step, int64_t now_us) {
  ASSIGN_OR_RETURN(auto attempt, LatestAttempt(transaction, job));
  attempt.set_state(state);
  attempt.set_end_time_us(now_us);
  if (job.has_stop()) *attempt.mutable_stop() = job.stop();
  if (state == "stopped" && last_step && job.has_committed_step() && job.committed_step() == *last_step)
    attempt.set_saved_step(*last_step);
  if (!error.ok()) *attempt.mutable_error() = ToRpcStatus(error);
  if (last_step) attempt.set_last_step(*last_step);
  RETURN_IF_ERROR(Measure(transaction, job, &attempt));
  return transaction.PutAttempt(job.name(), attempt);
}

// Whether nothing more can be told of the lease.
bool EndsAll(const v1::Telemetry& fact) {
  return fact.has_ended() || (fact.has_member_ended() && (fact.member_ended().has_error() || fact.member_ended().left()));
}

// The attempt could not begin from its checkpoint: the job goes on from the one before it, and that is no failure of the job. Or
// it cannot read back what it has saved, to export it: that is one.
// False: the damage is of no checkpoint that it could go on from, and nothing was done.
absl::StatusOr<bool> ApplyDamage(store::Transaction& transaction, v1::Job* job, const v1::CheckpointDamage& damage,
                                 int64_t now_us) {
  ASSIGN_OR_RETURN(auto attempt, LatestAttempt(transaction, *job));
  *attempt.mutable_damage() = damage;
  ASSIGN_OR_RETURN(const auto reason, MarkDamaged(transaction, attempt, now_us, job));
  if (!reason) return false;
  absl::Status status = transaction.PutAttempt(job->name(), attempt);
  if (!status.ok()) return status;
  const auto cause = DamagedItsOwn(attempt) ? FailureCause::kOwnCheckpointDamaged : FailureCause::kCheckpointDamaged;
  status = AfterFailure(transaction, job, cause, absl::DataLossError(*reason), now_us);
  if (!status.ok()) return status;
  return true;
}

// An error that is no more than the loss of a peer.
bool MayBeOfLostWorker(const absl::Status& error) {
  return absl::IsUnavailable(error) || absl::IsDeadlineExceeded(error) || absl::IsAborted(error);
}

// Why an attempt ended with `error`, which the agents of its workers tell. Where one of them is gone as well, that is why.
FailureCause CauseOf(const HeldLease& held, const absl::Status& error) {
  return held.torn && MayBeOfLostWorker(error) ? FailureCause::kWorkerLost : FailureCause::kTrainers;
}

// Only one that has failed counts against policy.max_restarts, then and at each failure that follows.
const char* StateAfter(FailureCause cause) {
  return cause == FailureCause::kWorkerLost || cause == FailureCause::kWorkerLeaves ? "lost" : "failed";
}

absl::Status ApplyEnd(store::Transaction& transaction, const Sender& sender, const HeldLease& held, v1::Job* job,
                      const v1::AttemptEnded& ended, int64_t now_us, Effects* effects) {
  const absl::Status error = ended.has_error() ? FromRpcStatus(ended.error()) : absl::OkStatus();
  const FailureCause cause = CauseOf(held, error);
  const char* const state = !error.ok() ? StateAfter(cause) : ended.stopped() ? "stopped" : "succeeded";
  if (job->has_progress()) job->mutable_progress()->clear_waits();
  RETURN_IF_ERROR(EndAttempt(transaction, *job, state, error, ended.last_step(), now_us));
  if (!error.ok() && ended.has_damage()) {
    const auto applied = ApplyDamage(transaction, job, ended.damage(), now_us);
    if (!applied.ok() || *applied) return applied.status();
  }
  if (!error.ok()) return AfterFailure(transaction, job, cause, error, now_us);
  if (ended.stopped() && (job->has_stop() || job->state() == v1::CANCELLING))
    return AfterStop(transaction, ended.last_step(), now_us, job);
  if (ended.stopped()) {
    if (held.alone) effects->leaving = sender.worker;  // else any of them: it declines what it is given next
    const absl::Status leaves = absl::UnavailableError("its worker was told to leave");
    return AfterFailure(transaction, job, FailureCause::kWorkerLeaves, leaves, now_us);
  }
  if (ended.has_hf_directory()) job->set_hf_directory(ended.hf_directory());
  job->clear_stop();
  job->mutable_outcome();
  job->mutable_progress()->set_step(ended.last_step());
  return Move(transaction, job, v1::SUCCEEDED, absl::StrCat("finished at step ", ended.last_step()), now_us);
}

// A job that is content with fewer slots than it asked for says so as long as it runs.
std::string TrainsText(const v1::Job& job) {
  const int64_t slots = job.world_size(), wanted = job.spec().resources().slots();
  if (slots >= wanted) return "trains";
  return absl::StrCat("trains on ", slots, slots == 1 ? " slot" : " slots", " (", wanted, " were asked for)");
}

// The trainers are at work: an attempt becomes starting, then running.
absl::Status Advance(store::Transaction& transaction, v1::Job* job, v1::JobState to, int64_t now_us) {
  if (job->state() != v1::LEASED && !(job->state() == v1::STARTING && to == v1::RUNNING)) return absl::OkStatus();
  const bool runs = to == v1::RUNNING;
  RETURN_IF_ERROR(SetAttemptState(transaction, *job, runs ? "running" : "starting"));
  const std::string reason = job->has_stop() ? job->reason() : runs ? TrainsText(*job) : "trainers are started";
  return Move(transaction, job, to, reason, now_us);
}

void TakeMetrics(const v1::StepMetrics& metrics, v1::JobProgress* progress) {
  progress->set_step(metrics.step());
  if (metrics.has_loss()) progress->set_loss(metrics.loss());
  if (metrics.has_validation_loss()) progress->set_validation_loss(metrics.validation_loss());
  progress->set_tokens_per_second(metrics.tokens_per_second());
  progress->set_step_seconds(metrics.step_seconds());
  if (metrics.has_peak_memory_bytes()) progress->set_peak_memory_bytes(metrics.peak_memory_bytes());
}

absl::Status KeepTrace(store::Transaction& transaction, const v1::Job& job, const v1::StepTrace& trace, int64_t now_us) {
  const StepTraceName name = {job.name(), job.attempts(), trace.step(), trace.rank()};
  v1::StepTraceInfo info;
  info.set_name(FormatStepTraceName(name));
  info.set_attempt(name.attempt);
  info.set_step(name.step);
  info.set_rank(name.rank);
  info.set_bytes(static_cast<int64_t>(trace.trace_gzip().size()));
  info.set_time_us(now_us);
  v1::TraceFile file;
  file.set_file_name(absl::StrCat(job.name().substr(job.name().rfind('/') + 1), "-attempt-", name.attempt, "-step-", name.step,
                                  "-rank-", name.rank, ".json.gz"));
  file.set_trace_gzip(trace.trace_gzip());
  return transaction.PutStepTrace(job.name(), info, file);
}

void CountRefused(int64_t facts, std::string_view why, Effects* effects) {
  if (facts > 0 && effects->refused == 0) effects->refusal = std::string(why);
  effects->refused += facts;
}

// Of one worker of several, which says why it cannot go on, or did not begin.
absl::Status ApplyMemberEnd(store::Transaction& transaction, const Sender& sender, const HeldLease& held, v1::Job* job,
                            const v1::MemberEnded& ended, int64_t now_us, Effects* effects) {
  const absl::Status why = ended.left() ? absl::UnavailableError("its agent was told to leave") : FromRpcStatus(ended.error());
  const absl::Status error = Annotate(why.ok() ? absl::UnknownError("it does not say why it has ended") : why, sender.worker);
  const FailureCause cause = ended.left() ? FailureCause::kWorkerLeaves : CauseOf(held, error);
  if (job->has_progress()) job->mutable_progress()->clear_waits();
  RETURN_IF_ERROR(EndAttempt(transaction, *job, StateAfter(cause), error, std::nullopt, now_us));
  if (ended.left()) effects->leaving = sender.worker;
  return AfterFailure(transaction, job, cause, error, now_us);
}

// Changes `job` in memory where the fact is no transition; the caller stores it. `touched` says so.
absl::Status ApplyFact(store::Transaction& transaction, const Sender& sender, const HeldLease& held, const v1::Telemetry& fact,
                       v1::Job* job, bool* touched, int64_t now_us, Effects* effects) {
  switch (fact.fact_case()) {
    case v1::Telemetry::kMetrics: {
      RETURN_IF_ERROR(Advance(transaction, job, v1::RUNNING, now_us));
      TakeMetrics(fact.metrics(), job->mutable_progress());
      v1::StepMetrics metrics = fact.metrics();
      metrics.set_attempt(job->attempts());
      *touched = true;
      return transaction.AppendMetrics(job->name(), metrics);
    }
    case v1::Telemetry::kProgress:
      job->mutable_progress()->set_phase(fact.progress().phase());
      if (fact.progress().steps() > 0) job->mutable_progress()->set_steps(fact.progress().steps());
      job->mutable_progress()->set_waits(fact.progress().waits());
      *touched = true;
      return absl::OkStatus();
    case v1::Telemetry::kLog: {
      v1::LogLine line = fact.log();
      line.set_attempt(job->attempts());
      line.set_epoch(job->epoch());
      line.clear_worker();
      if (!held.alone) line.set_worker(sender.worker);
      return transaction.AppendLog(job->name(), std::move(line));
    }
    case v1::Telemetry::kStarted:
      job->set_unigram_entropy(fact.started().unigram_entropy());
      *touched = true;
      return Advance(transaction, job, v1::STARTING, now_us);
    case v1::Telemetry::kEnded: return ApplyEnd(transaction, sender, held, job, fact.ended(), now_us, effects);
    case v1::Telemetry::kMemberEnded:
      if (EndsAll(fact)) return ApplyMemberEnd(transaction, sender, held, job, fact.member_ended(), now_us, effects);
      effects->ended_parts.push_back(fact.lease());
      return absl::OkStatus();
    case v1::Telemetry::kFlightDump: {
      v1::FlightRecord head;
      head.set_attempt(job->attempts());
      head.set_reason(fact.flight_dump().reason());
      head.set_time_us(now_us);
      return transaction.PutFlightRecord(job->name(), head, &fact.flight_dump());
    }
    case v1::Telemetry::kStepTrace: return KeepTrace(transaction, *job, fact.step_trace(), now_us);
    case v1::Telemetry::kDirectoryKept: {
      const auto own = KeepOnly(transaction, *job, fact.directory_kept(), now_us);
      if (own.ok() && !*own)
        CountRefused(1, absl::StrCat(job->name(), " has no checkpoint in a directory that is told of"), effects);
      return own.status();
    }
    case v1::Telemetry::kEarlierRemoved: return RemoveEarlier(transaction, *job, now_us);
    case v1::Telemetry::FACT_NOT_SET: return absl::OkStatus();
  }
  return absl::OkStatus();
}

// The facts of one lease that follow each other, with one read and one write of the job.
absl::Status ApplyRun(store::Transaction& transaction, const Sender& sender, const v1::Telemetry* begin,
                      const v1::Telemetry* end, int64_t now_us, Effects* effects) {
  ASSIGN_OR_RETURN(auto found, JobOfLease(transaction, begin->lease()));
  if (!found) {
    effects->fenced += end - begin;
    return absl::OkStatus();
  }
  v1::Job job = *found;
  const auto held = sender.held.find({begin->lease().job(), begin->lease().epoch()});
  if (held == sender.held.end()) {
    CountRefused(end - begin, absl::StrCat("the lease of ", job.name(), ", epoch ", job.epoch(), ", is not its own"), effects);
    return absl::OkStatus();
  }
  bool touched = false;
  for (const v1::Telemetry* fact = begin; fact != end; ++fact) {
    if (const absl::Status can_be = CheckFact(job, held->second, *fact); !can_be.ok()) {
      CountRefused(1, absl::StrCat(job.name(), ": ", can_be.message()), effects);
      continue;
    }
    const int64_t version = job.version();
    RETURN_IF_ERROR(ApplyFact(transaction, sender, held->second, *fact, &job, &touched, now_us, effects));
    if (job.version() != version) touched = false;  // a transition has stored all of it
    if (fact->fact_case() == v1::Telemetry::kMetrics) touched = true;
    if (EndsAll(*fact)) {
      effects->lost_attempts += fact->has_member_ended() || fact->ended().has_error();
      effects->ended_leases.push_back(begin->lease());
      effects->fenced += end - fact - 1;
      break;
    }
  }
  effects->changed_jobs.push_back(job.name());
  if (!touched) return absl::OkStatus();
  job.mutable_progress()->set_update_time_us(now_us);
  return Touch(transaction, &job, now_us);
}

bool SameLease(const v1::LeaseId& a, const v1::LeaseId& b) { return a.job() == b.job() && a.epoch() == b.epoch(); }

}  // namespace

bool MayEndForLostWorker(const v1::Telemetry& fact) {
  if (fact.has_ended()) return fact.ended().has_error() && MayBeOfLostWorker(FromRpcStatus(fact.ended().error()));
  return fact.member_ended().has_error() && MayBeOfLostWorker(FromRpcStatus(fact.member_ended().error()));
}

absl::Status ApplyTelemetry(store::Transaction& transaction, const Sender& sender, const std::vector<v1::Telemetry>& facts,
                            int64_t now_us, Effects* effects) {
  ASSIGN_OR_RETURN(const auto durable, transaction.TelemetrySequence(sender.instance));
  auto begin = facts.begin();
  while (begin != facts.end() && begin->sequence() <= durable) ++begin;
  if (begin == facts.end()) return absl::OkStatus();
  while (begin != facts.end()) {
    const auto end = std::find_if(begin, facts.end(), [&](const auto& fact) { return !SameLease(fact.lease(), begin->lease()); });
    RETURN_IF_ERROR(ApplyRun(transaction, sender, &*begin, &*begin + (end - begin), now_us, effects));
    begin = end;
  }
  return transaction.SetTelemetrySequence(sender.instance, facts.back().sequence());
}

absl::Status CommitCheckpoint(store::Transaction& transaction, const v1::CommitRequest& request, bool held,
                              const std::string& directory, int64_t now_us, Effects* effects) {
  ASSIGN_OR_RETURN(auto found, transaction.GetJob(request.lease().job()));
  if (!found) return absl::FailedPreconditionError(absl::StrCat("the server knows no ", request.lease().job()));
  v1::Job job = *found;
  if (job.epoch() != request.lease().epoch() || !HoldsLease(job.state())) {
    return absl::FailedPreconditionError(absl::StrCat("epoch ", request.lease().epoch(), " of ", job.name(),
                                                      " is over: the job is ", StateText(job.state()), " in epoch ",
                                                      job.epoch()));
  }
  if (!held)
    return absl::FailedPreconditionError(
        absl::StrCat("the lease of ", job.name(), ", epoch ", job.epoch(), ", is not this agent's"));
  ASSIGN_OR_RETURN(const auto attempt, LatestAttempt(transaction, job));
  const bool in_store = !attempt.recipe().checkpoint().folder().empty();  // of objects, not in the agent's folder
  ASSIGN_OR_RETURN(const std::string store, launch::EpochCheckpoints("", attempt.recipe(), job.name(), job.epoch()));
  const auto is_new = CheckCommit(transaction, job, attempt, in_store ? store : directory, request);
  if (!is_new.ok() || !*is_new) return is_new.status();
  v1::Checkpoint checkpoint;
  checkpoint.set_name(FormatCheckpointName(job.name(), request.step()));
  checkpoint.set_step(request.step());
  checkpoint.set_epoch(job.epoch());
  checkpoint.set_attempt(job.attempts());
  checkpoint.set_directory(request.directory());
  checkpoint.set_digest(request.digest());
  checkpoint.set_time_us(now_us);
  job.set_committed_step(request.step());
  effects->changed_jobs.push_back(job.name());
  RETURN_IF_ERROR(transaction.PutCheckpoint(job.name(), checkpoint));
  return Touch(transaction, &job, now_us);
}

absl::Status LoseAttempt(store::Transaction& transaction, const std::string& job_name, int64_t epoch, const std::string& reason,
                         int64_t now_us, Effects* effects) {
  v1::LeaseId lease;
  lease.set_job(job_name);
  lease.set_epoch(epoch);
  effects->ended_leases.push_back(lease);
  ASSIGN_OR_RETURN(auto found, JobOfLease(transaction, lease));
  if (!found) return absl::OkStatus();
  v1::Job job = *found;
  effects->changed_jobs.push_back(job.name());
  ++effects->lost_attempts;
  const absl::Status lost = absl::UnavailableError(reason);
  if (job.has_progress()) job.mutable_progress()->clear_waits();
  RETURN_IF_ERROR(EndAttempt(transaction, job, "lost", lost, std::nullopt, now_us));
  return AfterFailure(transaction, &job, FailureCause::kWorkerLost, lost, now_us);
}

absl::Status CheckRuns(const std::string& runs) {
  const std::filesystem::path path = runs;
  const bool plain = path.is_absolute() && path.has_filename() && path.lexically_normal().string() == runs &&
                     runs.size() <= kLongestPath &&
                     std::none_of(runs.begin(), runs.end(), [](unsigned char c) { return absl::ascii_iscntrl(c); });
  if (plain) return absl::OkStatus();
  return FieldError("worker.runs", absl::CHexEscape(runs.substr(0, 200)),
                    "must be the absolute path of a folder, without `.`, `..` and needless slashes");
}

absl::StatusOr<std::string> CheckpointsOf(const std::string& runs, const v1::LeaseId& lease) {
  ASSIGN_OR_RETURN(auto directory, launch::EpochPath(runs, lease.job(), lease.epoch()));
  return launch::CheckpointsPath(directory);
}

bool ShouldLogRefusal(int64_t count) { return count <= kFirstLines || (count & (count - 1)) == 0; }

}  // namespace legoai::server
