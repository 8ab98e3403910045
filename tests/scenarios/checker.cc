#include "tests/scenarios/checker.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/enum_text.h"
#include "proto/status.h"

namespace legoai::scenarios {
namespace {

using Rules = std::vector<std::string>;

constexpr char kProject[] = "projects/default";
constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

// What may come of a job with slots at any time.
bool GivesUpSlots(v1::JobState to) {
  return to == v1::RESTARTING || to == v1::CANCELLING || to == v1::SUCCEEDED || to == v1::FAILED;
}

bool MayFollow(v1::JobState from, v1::JobState to) {
  using namespace v1;  // the states' names
  switch (from) {
    case JOB_STATE_UNSPECIFIED: return to == SUBMITTED;
    case SUBMITTED: return to == PLANNING || to == FAILED || to == CANCELLED;
    // A server that is started anew plans again what was being planned.
    case PLANNING: return to == SUBMITTED || to == QUEUED || to == RESTARTING || to == FAILED || to == CANCELLED;
    case QUEUED: return to == LEASED || to == PLANNING || to == FAILED || to == CANCELLED;
    case RESTARTING: return to == LEASED || to == PLANNING || to == FAILED || to == CANCELLED;
    // What has slots is never cancelled without being stopped first. Facts between may be lost with an agent. One that is moved
    // is queued again.
    case LEASED: return to == STARTING || to == RUNNING || to == QUEUED || GivesUpSlots(to);
    case STARTING: return to == RUNNING || to == QUEUED || GivesUpSlots(to);
    case RUNNING: return to == QUEUED || GivesUpSlots(to);
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
  std::vector<int64_t> leases, attempts;
  for (const v1::Attempt& attempt : history.attempts) attempts.push_back(attempt.epoch());
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
    const bool leased = transition.to() == v1::LEASED;
    if (leased ? transition.epoch() <= epoch : transition.epoch() != epoch) {
      Break(rules, "epochs strictly increase, with a lease and never without: ", name, " has epoch ", transition.epoch(),
            " at version ", transition.version(), " after ", epoch);
    }
    if (leased) leases.push_back(transition.epoch());
    state = transition.to(), version = transition.version(), epoch = transition.epoch();
  }
  if (state != history.job.state()) {
    Break(rules, "a job's state is that of its last transition: ", name, " is ", EnumText(history.job.state()),
          ", and its history ends with ", EnumText(state));
  }
  if (leases != attempts) {
    Break(rules, "every lease is an attempt: ", name, " was leased in epochs ", absl::StrJoin(leases, ", "), ", and tried in ",
          absl::StrJoin(attempts, ", "));
  }
  if (version > history.job.version()) {
    Break(rules, "versions strictly increase: ", name, " has version ", history.job.version(), ", and its history has ", version);
  }
}

void CheckAttempts(const JobHistory& history, Rules* rules) {
  const std::string& name = history.job.name();
  int64_t number = 0, ended = 0, open = 0;
  for (const v1::Attempt& attempt : history.attempts) {
    if (attempt.attempt() != ++number) {
      Break(rules, "attempts are counted: that after ", number - 1, " of ", name, " is attempt ", attempt.attempt());
    }
    if (open > 0 || attempt.start_time_us() < ended) {
      Break(rules, "no job runs twice at once: attempt ", attempt.attempt(), " of ", name, " began before the one before ended");
    }
    if (!IsOpen(attempt) && attempt.end_time_us() < attempt.start_time_us()) {
      Break(rules, "an attempt begins before it ends: attempt ", attempt.attempt(), " of ", name, " ended before");
    }
    ended = attempt.end_time_us();
    open += IsOpen(attempt);
  }
  if ((open > 0) != HasSlots(history.job.state())) {
    Break(rules, "an attempt is open exactly while the job has slots: ", name, " is ", EnumText(history.job.state()), " with ",
          open, " open attempts");
  }
  const int64_t epoch = history.attempts.empty() ? 0 : history.attempts.back().epoch();
  if (epoch != history.job.epoch() || number != history.job.attempts()) {
    Break(rules, "every lease is an attempt: ", name, " has epoch ", history.job.epoch(), " and ", history.job.attempts(),
          " attempts; stored are ", number, ", the last of epoch ", epoch);
  }
}

// As the job that saved it has `checkpoint`; nothing where the store has forgotten that job.
absl::StatusOr<std::optional<v1::Checkpoint>> AsSaved(store::ReadTransaction& read, const v1::Checkpoint& checkpoint) {
  const std::string owner = checkpoint.name().substr(0, checkpoint.name().find("/checkpoints/"));
  ASSIGN_OR_RETURN(const auto all, read.ListCheckpoints(owner));
  for (const v1::Checkpoint& one : all) {
    if (one.name() == checkpoint.name() && one.epoch() == checkpoint.epoch()) return one;
  }
  return std::nullopt;
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
      JobHistory& history = view.jobs[job.name()];
      history = {job, *std::move(transitions), *std::move(attempts), *std::move(checkpoints), std::nullopt};
      if (!job.has_starts_from()) continue;
      ASSIGN_OR_RETURN(history.start, AsSaved(read, job.starts_from()));
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
  // What a worker gives from a time on, and takes back: taken back first where both are at one time.
  std::map<std::string, std::vector<std::pair<int64_t, int64_t>>> changes;
  for (const auto& [name, history] : view.jobs) {
    for (const v1::Attempt& attempt : history.attempts) {
      for (const v1::Placement& placement : attempt.placements()) {
        changes[placement.worker()].emplace_back(attempt.start_time_us(), placement.slots());
        if (!IsOpen(attempt)) changes[placement.worker()].emplace_back(attempt.end_time_us(), -placement.slots());
      }
    }
  }
  for (auto& [worker, times] : changes) {
    const auto known = view.slots.find(worker);
    const int64_t has = known == view.slots.end() ? 0 : known->second;
    int64_t given = 0, most = 0;
    std::sort(times.begin(), times.end());
    for (const auto& [time, slots] : times) most = std::max(most, given += slots);
    if (most > has) Break(&rules, "slots are given once: ", worker, " has ", has, ", and attempts held ", most, " at a time");
  }
  return rules;
}

namespace {

// Whether `whole` begins with `part`, message by message.
template <typename Message>
bool BeginsWith(const std::vector<Message>& whole, const std::vector<Message>& part) {
  const auto same = [](const Message& a, const Message& b) { return a.SerializeAsString() == b.SerializeAsString(); };
  return whole.size() >= part.size() && std::equal(part.begin(), part.end(), whole.begin(), same);
}

// As it was committed: when its files were removed, or found damaged, is added later.
std::string AsCommitted(v1::Checkpoint checkpoint) {
  checkpoint.clear_remove_time_us();
  checkpoint.clear_damage();
  checkpoint.clear_damage_time_us();
  return checkpoint.SerializeAsString();
}

// Whether each of `part` is among `whole`: a step that is saved again after a step back stands between others.
bool Hold(const std::vector<v1::Checkpoint>& whole, const std::vector<v1::Checkpoint>& part) {
  std::set<std::string> committed;
  for (const v1::Checkpoint& checkpoint : whole) committed.insert(AsCommitted(checkpoint));
  return std::all_of(part.begin(), part.end(), [&](const auto& one) { return committed.count(AsCommitted(one)) > 0; });
}

}  // namespace

Rules CheckOnlyAdded(const StoreView& before, const StoreView& after) {
  Rules rules;
  for (const auto& [name, old] : before.jobs) {
    const auto found = after.jobs.find(name);
    if (found == after.jobs.end()) {
      Break(&rules, "what is stored stays: ", name, " is gone");
      continue;
    }
    const JobHistory& now = found->second;
    // Only the last attempt may have been under way.
    std::vector<v1::Attempt> ended = old.attempts;
    if (!ended.empty() && IsOpen(ended.back())) ended.pop_back();
    if (!BeginsWith(now.transitions, old.transitions)) Break(&rules, "what is stored stays: transitions of ", name, " changed");
    if (!BeginsWith(now.attempts, ended)) Break(&rules, "what is stored stays: attempts of ", name, " that had ended changed");
    if (!Hold(now.checkpoints, old.checkpoints)) Break(&rules, "what is stored stays: checkpoints of ", name, " changed");
    if (now.job.spec().SerializeAsString() != old.job.spec().SerializeAsString())
      Break(&rules, "what is stored stays: the submission of ", name, " changed");
  }
  for (const auto& [request, job] : before.submissions) {
    const auto found = after.submissions.find(request);
    if (found == after.submissions.end() || found->second != job)
      Break(&rules, "what is stored stays: ", request, " is not of ", job, " any more");
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
    if (job.version() < known.version || WentBack(known, job)) {
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
    if (job.retry_of() != known.retry_of) {
      Break(&rules, "a retry names what it tries again: ", name, " was told as one of ", known.retry_of, ", stored is ",
            job.retry_of());
    }
    if (job.version() == known.version && job.state() != known.state) {
      Break(&rules, "a version has one state: ", name, " was told ", EnumText(known.state), " at version ", known.version,
            ", stored is ", EnumText(job.state()));
    }
  }
  for (const auto& [name, history] : view.jobs) {
    const auto tried = view.jobs.find(history.job.retry_of());
    if (history.job.retry_of().empty()) continue;
    if (tried == view.jobs.end() || tried->second.job.spec().SerializeAsString() != history.job.spec().SerializeAsString())
      Break(&rules, "a retry does the same again: ", name, " is another job than ", history.job.retry_of());
  }
  for (const auto& [request, asked] : told.AskedFor()) {
    const auto stored = view.submissions.find(request);
    const auto job = stored == view.submissions.end() ? view.jobs.end() : view.jobs.find(stored->second);
    if (job == view.jobs.end()) continue;  // never came through, or is told above
    const v1::JobSpec& spec = job->second.job.spec();
    if (AskedOf(spec) != asked) {
      Break(&rules, "a job is what was asked for: ", request, " asked for ", asked.Text(), ", and ", job->first, " is ",
            AskedOf(spec).Text());
    }
  }
  return rules;
}

}  // namespace legoai::scenarios
