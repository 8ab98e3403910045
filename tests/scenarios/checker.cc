#include "tests/scenarios/checker.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "proto/enum_text.h"
#include "worker/checkpoint/manifest.h"

namespace legoai::scenarios {
namespace {

namespace fs = std::filesystem;
using Rules = std::vector<std::string>;

constexpr char kProject[] = "projects/default";
constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

bool MayFollow(v1::JobState from, v1::JobState to) {
  using namespace v1;  // the states' names
  switch (from) {
    case JOB_STATE_UNSPECIFIED: return to == SUBMITTED;
    case SUBMITTED: return to == PLANNING || to == FAILED || to == CANCELLED;
    // A server that is started anew plans again what was being planned.
    case PLANNING: return to == SUBMITTED || to == QUEUED || to == RESTARTING || to == FAILED || to == CANCELLED;
    case QUEUED: return to == LEASED || to == PLANNING || to == FAILED || to == CANCELLED;
    case RESTARTING: return to == LEASED || to == PLANNING || to == FAILED || to == CANCELLED;
    // What has slots is never cancelled without being stopped first. Facts between may be lost with an agent.
    case LEASED:
      return to == STARTING || to == RUNNING || to == RESTARTING || to == CANCELLING || to == SUCCEEDED || to == FAILED;
    case STARTING: return to == RUNNING || to == RESTARTING || to == CANCELLING || to == SUCCEEDED || to == FAILED;
    case RUNNING: return to == RESTARTING || to == CANCELLING || to == SUCCEEDED || to == FAILED;
    case CANCELLING: return to == CANCELLED || to == SUCCEEDED || to == FAILED;
    default: return false;
  }
}

bool HasSlots(v1::JobState state) {
  return state == v1::LEASED || state == v1::STARTING || state == v1::RUNNING || state == v1::CANCELLING;
}

bool IsOpen(const v1::Attempt& attempt) { return !attempt.has_end_time_us(); }

template <typename... Parts>
void Break(Rules* rules, const Parts&... parts) {
  rules->push_back(absl::StrCat(parts...));
}

void CheckTransitions(const JobHistory& history, Rules* rules) {
  const std::string& name = history.job.name();
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  int64_t version = 0, epoch = 0;
  for (const v1::Transition& transition : history.transitions) {
    if (transition.version() <= version) {
      Break(rules, "versions strictly increase: ", name, " has version ", transition.version(), " after ", version);
    }
    if (transition.from() != state) {
      Break(rules, "transitions follow each other: ", name, " was ", EnumText(state), ", and version ", transition.version(),
            " leaves ", EnumText(transition.from()));
    }
    if (IsFinalState(state)) {
      Break(rules, "no job leaves a final state: ", name, " was ", EnumText(state), " and became ", EnumText(transition.to()));
    } else if (!MayFollow(state, transition.to())) {
      Break(rules, "states follow the legal table: ", name, " went from ", EnumText(state), " to ", EnumText(transition.to()));
    }
    if (transition.epoch() < epoch || (transition.to() == v1::LEASED && transition.epoch() == epoch)) {
      Break(rules, "epochs of leases strictly increase: ", name, " has epoch ", transition.epoch(), " at version ",
            transition.version(), " after ", epoch);
    }
    state = transition.to(), version = transition.version(), epoch = transition.epoch();
  }
  if (state != history.job.state()) {
    Break(rules, "a job's state is that of its last transition: ", name, " is ", EnumText(history.job.state()),
          ", and its history ends with ", EnumText(state));
  }
  if (version > history.job.version()) {
    Break(rules, "versions strictly increase: ", name, " has version ", history.job.version(), ", and its history has ", version);
  }
}

void CheckAttempts(const JobHistory& history, Rules* rules) {
  const std::string& name = history.job.name();
  int64_t epoch = 0, ended = 0, open = 0;
  for (const v1::Attempt& attempt : history.attempts) {
    if (attempt.epoch() <= epoch) {
      Break(rules, "epochs of leases strictly increase: attempt ", attempt.attempt(), " of ", name, " has epoch ",
            attempt.epoch(), " after ", epoch);
    }
    if (open > 0 || attempt.start_time_us() < ended) {
      Break(rules, "no job runs twice at once: attempt ", attempt.attempt(), " of ", name, " began before the one before ended");
    }
    epoch = attempt.epoch(), ended = attempt.end_time_us();
    open += IsOpen(attempt);
  }
  if (open > 1) Break(rules, "one open attempt at most: ", name, " has ", open);
  if ((open == 1) != HasSlots(history.job.state())) {
    Break(rules, "an attempt is open exactly while the job has slots: ", name, " is ", EnumText(history.job.state()), " with ",
          open, " open attempts");
  }
  if (epoch != history.job.epoch() || static_cast<int64_t>(history.attempts.size()) != history.job.attempts()) {
    Break(rules, "every lease is an attempt: ", name, " has epoch ", history.job.epoch(), " and ", history.job.attempts(),
          " attempts; stored are ", history.attempts.size(), ", the last of epoch ", epoch);
  }
}

// The checkpoint as it will be once its prepared manifest is put in its place, in a folder of our own.
absl::Status ReadPrepared(const v1::Checkpoint& checkpoint, const std::string& scratch) {
  const fs::path step = checkpoint::StepDirectory(checkpoint.directory(), checkpoint.step());
  const fs::path shadow = checkpoint::StepDirectory(scratch, checkpoint.step());
  std::error_code error;
  fs::remove_all(scratch, error);
  fs::create_directories(shadow, error);
  for (const auto& entry : fs::directory_iterator(step, error)) {
    const std::string name = entry.path().filename().string();
    std::error_code link_error;
    fs::create_symlink(entry.path(), shadow / (name == "manifest.pb.tmp" ? "manifest.pb" : name), link_error);
  }
  return checkpoint::ReadManifest(scratch, checkpoint.step(), "").status();
}

absl::Status ReadCommitted(const v1::Checkpoint& checkpoint) {
  return checkpoint::ReadManifest(checkpoint.directory(), checkpoint.step(), "").status();
}

}  // namespace

absl::StatusOr<StoreView> ReadStore(store::Store& store, const std::set<std::string>& requests) {
  StoreView view;
  const absl::Status status = store.Read([&](store::ReadTransaction& read) -> absl::Status {
    store::JobQuery all;
    all.project = kProject, all.limit = kAll;
    auto jobs = read.ListJobs(all);
    if (!jobs.ok()) return jobs.status();
    for (const v1::Job& job : *jobs) {
      auto transitions = read.ListTransitions(job.name(), 0, kAll);
      auto attempts = read.ListAttempts(job.name());
      auto checkpoints = read.ListCheckpoints(job.name());
      for (const absl::Status& part : {transitions.status(), attempts.status(), checkpoints.status()}) {
        if (!part.ok()) return part;
      }
      view.jobs[job.name()] = {job, *std::move(transitions), *std::move(attempts), *std::move(checkpoints)};
    }
    for (const std::string& request : requests) {
      auto submission = read.FindSubmission(kProject, request);
      if (!submission.ok()) return submission.status();
      if (*submission) view.submissions[request] = (*submission)->job;
    }
    auto workers = read.ListWorkers();
    if (!workers.ok()) return workers.status();
    for (const v1::Worker& worker : *workers) view.slots[worker.name()] = worker.slots();
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return view;
}

Rules CheckHistory(const JobHistory& history) {
  Rules rules;
  CheckTransitions(history, &rules);
  CheckAttempts(history, &rules);
  const v1::Job& job = history.job;
  // Restarts are without limit here, and every job can be done.
  if (job.state() == v1::FAILED) Break(&rules, "no job fails of what happens around it: ", job.name(), " failed: ", job.reason());
  if (job.state() == v1::SUCCEEDED && job.progress().step() != job.spec().recipe().training().steps()) {
    Break(&rules, "a job that succeeded has done all its steps: ", job.name(), " did ", job.progress().step(), " of ",
          job.spec().recipe().training().steps());
  }
  return rules;
}

Rules CheckSlots(const StoreView& view) {
  Rules rules;
  std::map<std::string, int64_t> used;
  for (const auto& [name, history] : view.jobs) {
    for (const v1::Attempt& attempt : history.attempts) {
      for (const v1::Placement& placement : attempt.placements()) {
        if (IsOpen(attempt)) used[placement.worker()] += placement.slots();
      }
    }
  }
  for (const auto& [worker, slots] : used) {
    const auto known = view.slots.find(worker);
    const int64_t has = known == view.slots.end() ? 0 : known->second;
    if (slots > has) Break(&rules, "slots are given once: ", worker, " has ", has, ", and open attempts hold ", slots);
  }
  return rules;
}

Rules CheckTold(const StoreView& view, const Told& told) {
  Rules rules = told.Broken();
  for (const auto& [request, name] : told.Acknowledged()) {
    const auto stored = view.submissions.find(request);
    if (view.jobs.count(name) == 0)
      Break(&rules, "no acknowledged job is lost: ", name, " of request ", request, " is not stored");
    if (stored == view.submissions.end() || stored->second != name) {
      Break(&rules, "one job per request_id: ", request, " was answered with ", name, ", and stored is ",
            stored == view.submissions.end() ? "nothing" : stored->second);
    }
  }
  std::map<std::string, std::string> request_of;
  for (const auto& [request, name] : view.submissions) {
    const auto [other, fresh] = request_of.emplace(name, request);
    if (!fresh) Break(&rules, "one request_id per job: ", name, " is stored for ", other->second, " and for ", request);
  }
  for (const auto& [name, history] : view.jobs) {
    if (request_of.count(name) == 0) Break(&rules, "one job per request_id: nobody asked for ", name);
  }
  for (const auto& [name, known] : told.Known()) {
    const auto stored = view.jobs.find(name);
    if (stored == view.jobs.end()) {
      Break(&rules, "no acknowledged job is lost: ", name, " was told and is not stored");
      continue;
    }
    const v1::Job& job = stored->second.job;
    if (job.version() < known.version || job.epoch() < known.epoch || job.committed_step() < known.committed_step) {
      Break(&rules, "what was told is durable: ", name, " was told at version ", known.version, ", epoch ", known.epoch,
            ", committed step ", known.committed_step, ", and stored are ", job.version(), ", ", job.epoch(), ", ",
            job.committed_step());
    }
    if (IsFinalState(known.state) && job.state() != known.state) {
      Break(&rules, "no job leaves a final state: ", name, " was told ", EnumText(known.state), " and is ",
            EnumText(job.state()));
    }
    if (known.cancelled && job.state() != v1::CANCELLING && !IsFinalState(job.state())) {
      Break(&rules, "a cancellation that was acknowledged stays: ", name, " is ", EnumText(job.state()));
    }
    if (!known.retry_of.empty() && job.retry_of() != known.retry_of) {
      Break(&rules, "a retry names what it tries again: ", name, " was told as one of ", known.retry_of, ", stored is ",
            job.retry_of());
    }
  }
  return rules;
}

Rules CheckCheckpoints(const JobHistory& history, int64_t keep_latest, const std::string& scratch) {
  Rules rules;
  const v1::Job& job = history.job;
  std::vector<v1::Checkpoint> newest;
  for (const v1::Checkpoint& checkpoint : history.checkpoints) {
    if (!newest.empty() && checkpoint.epoch() > newest.back().epoch()) newest.clear();
    if (newest.empty() || checkpoint.epoch() == newest.back().epoch()) newest.push_back(checkpoint);
  }
  const auto earlier = [](const v1::Checkpoint& a, const v1::Checkpoint& b) { return a.step() < b.step(); };
  std::sort(newest.begin(), newest.end(), earlier);
  const int64_t last = newest.empty() ? 0 : newest.back().step();
  if (last != job.committed_step()) {
    Break(&rules, "the committed step is that of the newest epoch's last checkpoint: ", job.name(), " says ",
          job.committed_step(), ", stored is ", last);
  }
  const size_t demanded = std::min<size_t>(newest.size(), keep_latest);
  for (size_t i = newest.size() - demanded; i < newest.size(); ++i) {
    absl::Status read = ReadCommitted(newest[i]);
    const bool may_be_prepared = i + 1 == newest.size();
    if (!read.ok() && may_be_prepared && !ReadPrepared(newest[i], scratch).ok()) {
      read = ReadCommitted(newest[i]);  // it was put in its place meanwhile
    } else if (may_be_prepared) {
      continue;
    }
    if (!read.ok()) {
      Break(&rules, "every committed checkpoint loads: step ", newest[i].step(), " of epoch ", newest[i].epoch(), " of ",
            job.name(), ": ", std::string(read.message()));
    }
  }
  return rules;
}

}  // namespace legoai::scenarios
