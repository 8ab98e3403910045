#include "scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/fleet.h"
#include "scheduler/gang.h"

namespace legoai::scheduler {

bool IsBefore(const WaitingJob& a, const WaitingJob& b) {
  if (a.priority != b.priority) return a.priority > b.priority;
  if (a.restarting != b.restarting) return a.restarting;
  if (a.submitted_us != b.submitted_us) return a.submitted_us < b.submitted_us;
  return a.name < b.name;
}

namespace {

// The jobs of the snapshot, which must outlive the result, in the order in which they are looked at.
std::vector<const WaitingJob*> QueueOrder(const std::vector<WaitingJob>& waiting) {
  std::vector<const WaitingJob*> order;
  order.reserve(waiting.size());
  for (const WaitingJob& job : waiting) order.push_back(&job);
  std::sort(order.begin(), order.end(), [](const WaitingJob* a, const WaitingJob* b) { return IsBefore(*a, *b); });
  return order;
}

// The worker that fits and where nobody's reservation is hurt: of the job's kind rather than of another, then with the fewest
// free slots; -1: none.
int BestFit(const Fleet& fleet, const Reservations& reservations, const WaitingJob& job, absl::Time end) {
  int best = -1;
  const Fleet::Group& group = fleet.Accepting(job);
  if (group.most_free < job.slots) return best;
  const auto order = [&](int worker) {
    return std::pair(fleet.workers()[worker].view->kind != job.kind, fleet.workers()[worker].free);
  };
  for (int worker : group.workers) {
    if (fleet.workers()[worker].free < job.slots || (best >= 0 && order(best) <= order(worker))) continue;
    if (reservations.Allow(worker, job.slots, end)) best = worker;
  }
  return best;
}

// As many workers that fit, of one gang, as the job wants, where nobody's reservation is hurt: of the job's kind rather than of
// another, then the nearest to each other; empty: none.
std::vector<int> BestGang(const Fleet& fleet, const Reservations& reservations, const WaitingJob& job, absl::Time end) {
  std::vector<int> best;
  std::pair<bool, std::vector<size_t>> best_cost;
  for (const auto& [gang, workers] : fleet.Accepting(job).gangs) {
    std::vector<int> fit;
    for (int worker : workers) {
      if (fleet.workers()[worker].free >= job.slots && reservations.Allow(worker, job.slots, end)) fit.push_back(worker);
    }
    if (static_cast<int64_t>(fit.size()) < job.workers) continue;
    std::vector<int> nearest = Nearest(fleet, fit, static_cast<size_t>(job.workers));
    const std::pair cost(fleet.workers()[nearest[0]].view->kind != job.kind, Spread(fleet, nearest));
    if (!best.empty() && best_cost <= cost) continue;
    best = std::move(nearest);
    best_cost = cost;
  }
  return best;
}

std::vector<int> Fit(const Fleet& fleet, const Reservations& reservations, const WaitingJob& job, absl::Time end) {
  if (job.workers > 1) return BestGang(fleet, reservations, job, end);
  const int worker = BestFit(fleet, reservations, job, end);
  return worker < 0 ? std::vector<int>() : std::vector<int>{worker};
}

// Of the workers of one gang, the most that have so many slots, `free` or at all.
int64_t MostAlike(const Fleet& fleet, const WaitingJob& job, bool free) {
  int64_t most = 0;
  for (const auto& [gang, workers] : fleet.Accepting(job).gangs) {
    most = std::max<int64_t>(most, std::count_if(workers.begin(), workers.end(), [&](int worker) {
      return (free ? fleet.workers()[worker].free : fleet.workers()[worker].view->slots) >= job.slots;
    }));
  }
  return most;
}

// The workers on which the job could ever run.
std::vector<int> CouldUse(const Fleet& fleet, const WaitingJob& job) {
  const Fleet::Group& group = fleet.Accepting(job);
  std::vector<int> could_use;
  const auto add = [&](const std::vector<int>& workers) {
    std::vector<int> large;
    for (int worker : workers) {
      if (fleet.workers()[worker].view->slots >= job.slots) large.push_back(worker);
    }
    if (static_cast<int64_t>(large.size()) >= job.workers) could_use.insert(could_use.end(), large.begin(), large.end());
  };
  if (job.workers == 1) add(group.workers);
  for (const auto& [gang, workers] : group.gangs) {
    if (job.workers > 1) add(workers);
  }
  return could_use;
}

// Makes the job a head, unless there is no worker large enough or an earlier head could use one of them. `wanted`: workers that
// waiting jobs before it could use; it adds its own. True: there are none among these.
bool KeepFor(const Fleet& fleet, const WaitingJob& job, Reservations* reservations, std::vector<bool>* wanted) {
  const std::vector<int> could_use = CouldUse(fleet, job);
  bool is_kept = could_use.empty(), is_first = !is_kept;
  for (int worker : could_use) {
    is_kept = is_kept || reservations->KeptFor(worker) != nullptr;
    is_first = is_first && !wanted->at(worker);
  }
  if (!is_kept) reservations->Add(Reserve(fleet, job, could_use), could_use);
  for (int worker : could_use) wanted->at(worker) = true;
  return is_first;
}

std::string WhereText(const WaitingJob& job) {
  return absl::StrCat("pool ", job.pool, job.device_type.empty() ? "" : absl::StrCat(" of type ", job.device_type),
                      job.kinds.empty() ? "" : " of the kind that it is planned for");
}

std::string WantedText(const WaitingJob& job) {
  if (job.workers > 1)
    return absl::StrCat(job.slots, job.slots == 1 ? " slot is" : " slots are", " wanted on each of ", job.workers,
                        " workers that are alike");
  return job.slots == 1 ? "1 slot is wanted" : absl::StrCat(job.slots, " slots are wanted on one worker");
}

std::string CountText(int64_t slots) { return slots == 0 ? "none is" : slots == 1 ? "1 is" : absl::StrCat(slots, " are"); }

std::string BusyText(const WaitingJob& job, const Fleet::Group& group) {
  return absl::StrCat(WantedText(job), ", ", group.most_free > 0 ? "at most " : "", CountText(group.most_free), " free in ",
                      WhereText(job));
}

std::string ReservedText(const WaitingJob& job, const Fleet& fleet, const Reservations& reservations, const Fleet::Group& group) {
  const Reservation* kept = reservations.KeptFor(group.freest);
  return absl::StrCat(WantedText(job), ", ", CountText(group.most_free), " free on ", fleet.workers()[group.freest].view->name,
                      " and kept for ", kept->job->name, ", which is before it");
}

// Of a job over several workers.
void ExplainGang(const Fleet& fleet, const WaitingJob& job, Wait* wait) {
  const int64_t most = MostAlike(fleet, job, /*free=*/false), most_free = MostAlike(fleet, job, /*free=*/true);
  if (most < job.workers) {
    wait->why = Wait::Why::kTooLarge;
    wait->text = absl::StrCat(WantedText(job), ", and so many slots have at most ", most, " that are alike in ", WhereText(job));
  } else if (most_free >= job.workers) {
    wait->why = Wait::Why::kReserved;
    wait->text = absl::StrCat(WantedText(job), ", which are free and kept for a job that is before it");
  } else {
    wait->text = absl::StrCat(WantedText(job), ", and so many are free on at most ", most_free, " in ", WhereText(job));
  }
}

// What a head waits for that starts as soon as that is over.
std::string SoonText(const Fleet& fleet, const Reservation& kept) {
  const bool checked = std::any_of(kept.left_over.begin(), kept.left_over.end(),
                                   [&](const auto& there) { return fleet.workers()[there.first].view->checked > 0; });
  return checked ? ", starts as soon as machines are checked, and jobs have stopped if any were asked to"
                 : ", starts as soon as jobs have stopped that were asked to";
}

// Why a job that got nothing waits, once all grants are made.
Wait Explain(absl::Time now, const Fleet& fleet, const Reservations& reservations, const WaitingJob& job, int64_t position) {
  const Fleet::Group& group = fleet.Accepting(job);
  const Reservation* const kept = reservations.Of(job);
  Wait wait{job.name, position, Wait::Why::kBusy, /*is_first=*/false, group.largest, std::nullopt, ""};
  if (group.workers.empty()) {
    wait.why = Wait::Why::kNoSuchWorker;
    wait.text = absl::StrCat("no worker of ", WhereText(job), " accepts jobs");
  } else if (job.workers > 1) {
    ExplainGang(fleet, job, &wait);
  } else if (group.largest < job.slots) {
    wait.why = Wait::Why::kTooLarge;
    wait.text = absl::StrCat(WantedText(job), ", the largest of ", WhereText(job), " has ", group.largest);
  } else if (group.most_free >= job.slots) {
    wait.why = Wait::Why::kReserved;
    wait.text = ReservedText(job, fleet, reservations, group);
  } else {
    wait.text = BusyText(job, group);
  }
  absl::StrAppend(&wait.text, "; position ", position);
  if (kept != nullptr && kept->at == absl::InfinitePast()) absl::StrAppend(&wait.text, SoonText(fleet, *kept));
  if (kept != nullptr && kept->at.has_value() && *kept->at > now) {
    wait.expected_start = kept->at;
    absl::StrAppend(&wait.text, ", expected to start at ",
                    absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", *kept->at, absl::UTCTimeZone()));
  }
  return wait;
}

}  // namespace

Decision Schedule(absl::Time now, const Snapshot& snapshot) {
  Fleet fleet(now, snapshot);
  Reservations reservations(snapshot.workers.size());
  Decision decision;
  std::vector<bool> wanted(snapshot.workers.size(), false);
  std::vector<std::pair<const WaitingJob*, bool>> left;  // is it the first
  for (const WaitingJob* job : QueueOrder(snapshot.waiting)) {
    const absl::Time end = now + std::max(absl::ZeroDuration(), job->expected_run.value_or(absl::InfiniteDuration()));
    const std::vector<int> workers = Fit(fleet, reservations, *job, end);
    if (workers.empty()) {
      left.push_back({job, KeepFor(fleet, *job, &reservations, &wanted)});
      continue;
    }
    Grant& grant = decision.grants.emplace_back(Grant{job->name, {}, job->slots});
    for (int worker : workers) {
      fleet.Take(worker, job->slots, end);
      reservations.Started(worker, job->slots, end);
      grant.workers.push_back(fleet.workers()[worker].view->name);
    }
  }
  std::map<std::string, int64_t> positions;  // by pool
  for (const auto& [job, is_first] : left) {
    decision.waits.push_back(Explain(now, fleet, reservations, *job, ++positions[job->pool]));
    decision.waits.back().is_first = is_first;
  }
  return decision;
}

}  // namespace legoai::scheduler
