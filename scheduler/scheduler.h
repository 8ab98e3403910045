// Which job gets which slots: one pure function of a snapshot, without clock, database or network. The caller applies its
// decision and calls it again after every change. Thread-safe.
//
// The queue of a pool: larger priority first; then jobs that were running and lost their slots, then the earlier submitted, then
// by name. A job gets all of its slots at once (a gang) or none, on as many workers as it wants, as many of each. On one: one of
// the kind that its recipe was chosen for, if one fits; among these the one with the fewest free slots, then by name. On several:
// on those that may train together (WorkerView::gang) and are nearest to each other (gang.h). The first job that does not fit is
// the head: it gets a reservation, the slots and the time at which it will fit as far as the ends of running jobs are known.
//
// Later jobs are started (backfill) only if that does not delay the head: on slots that the reservation does not need, or if
// they are expected to end before it begins. This holds only for expected times: a backfilled job that takes longer than
// expected delays the head by the difference, and running jobs are stopped for a head, if at all, by who asks preempt.h. So
// expected_run should err on the long side, and expected_end on the early side. For reservations, a running job without a known
// end never ends; one past its expected end may end at any moment, and one that stops already ends before all others: a head
// waits where such make room, and what they leave one after the other is kept for it. If it is unknown when the head will fit,
// everything that it could use is reserved for it.
// A job that shares no possible worker with an earlier head (another pool or device type) is a head too.
//
// Names are unique; slots of a job are at least 1; a worker's free slots and those of running jobs are together at most its
// slots, but where one became faulty while it was used: then they may be one more until the job there has ended. Jobs on workers
// that are not in the snapshot are ignored; for reservations, slots that are neither free nor checked nor of a running job are
// never free.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace legoai::scheduler {

inline constexpr size_t kDomainLevel = 1;  // of WorkerView::place; an empty name: in no domain that is known

struct WorkerView {
  std::string name;
  std::string pool;
  std::string device_type;
  int64_t slots = 0;
  int64_t free = 0;
  bool accepts = true;    // ready and connected, not draining
  std::string kind = {};  // workers of the same kind run a recipe equally well
  std::string gang = {};  // workers of the same, and so of one kind, may train a job together; empty: this one trains alone
  std::vector<std::string> place = {};  // where it is, outermost first: rack, NVLink domain, node (kDomainLevel)
  int64_t checked = 0;  // slots that are neither free nor used while it is checked, and free at any moment
  bool operator==(const WorkerView&) const = default;
};

struct WaitingJob {
  std::string name;
  int64_t priority = 0;
  bool restarting = false;
  int64_t submitted_us = 0;
  int64_t slots = 1;  // of each worker
  std::string pool;
  std::string device_type;                          // empty: any
  std::string kind = {};                            // that its recipe was chosen for
  std::vector<std::string> kinds = {};              // the only ones it can use; empty: any, and its recipe is chosen again
  std::optional<absl::Duration> expected_run = {};  // unset: it never ends, for backfill
  int64_t workers = 1;                              // over so many
  bool in_domain = false;                           // its recipe is for workers in one NVLink domain; of preempt.h alone
};

struct RunningJob {
  std::string name;
  std::map<std::string, int64_t> slots;  // by worker
  std::optional<absl::Time> expected_end = {};
  int64_t priority = 0;   // of preempt.h alone
  bool stopping = false;  // it was asked to, and gives its slots back at any moment, whatever its expected end
};

struct Snapshot {
  std::vector<WorkerView> workers;
  std::vector<WaitingJob> waiting;
  std::vector<RunningJob> running;
};

struct Grant {
  std::string job;
  std::vector<std::string> workers;  // neighbours follow each other
  int64_t slots = 0;                 // of each
};

// Why a job got nothing.
struct Wait {
  enum class Why {
    kNoSuchWorker,  // no worker of its pool and type accepts jobs
    kTooLarge,      // no worker of its pool and type has that many slots, used or free, or too few have: plan again
    kBusy,          // it is the head, or would fit only on used slots
    kReserved,      // slots are free, but reserved for an earlier job
  };
  std::string job;
  int64_t position = 0;  // among the waiting jobs of its pool, from 1
  Why why = Why::kBusy;
  bool is_first = false;                     // it is a head, and none that waits before it could use any worker that it could
  int64_t largest = 0;                       // slots of the largest worker of its pool and type that accepts jobs
  std::optional<absl::Time> expected_start;  // of a head, if known
  std::string text;  // for people: "2 slots are wanted on one worker, at most 1 is free in pool default; position 3"
};

struct Decision {
  std::vector<Grant> grants;  // in the order of the queue; together they fit the free slots
  std::vector<Wait> waits;    // all other jobs, in the order of the queue
};

Decision Schedule(absl::Time now, const Snapshot& snapshot);

// The order of the queue: by priority, lost slots, time of submission, name.
bool IsBefore(const WaitingJob& a, const WaitingJob& b);

}  // namespace legoai::scheduler
