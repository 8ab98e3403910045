// Which job gets which slots: one pure function of a snapshot. It knows no clock, no database and no network; whoever calls it
// applies what it decides, and calls it again when something has changed. Thread-safe.
//
// The queue of a pool: larger priority first; of equals those that were running before and lost their slots, then the earlier
// submitted, then by name. A job gets all of its slots at once (a gang) or none, and all on one worker: one of the kind that its
// recipe was chosen for, if there is one that fits; of those the one with the fewest free slots, then by name. The first job that
// does not fit is the head: it gets a reservation, the slots and the moment at which it will fit as far as the ends of running
// jobs are known. Later jobs are started (backfill) only where that delays it by nothing: on slots that the reservation leaves
// over, or if they are expected to end before it begins. That "never" is one of expectations: a later job that was started since
// it should have ended in time, and takes longer, delays the head by what it takes longer; nothing runs so long that it is
// stopped for a head. So expected_run should rather be too long, and expected_end rather too early. A running job without a known
// end never ends, as far as reservations count; one that runs past its expected end may end at any moment. Where no moment is
// known at which the head fits, all that it could use is kept for it. A job that shares no possible worker with an earlier head
// (another pool or device type) is a head too.
//
// Names are unique; slots of a job are at least 1; a worker's free slots and those of running jobs are together at most its
// slots. What runs on workers that are not in the snapshot counts for nothing; slots that are neither free nor of a running job
// are never free again, as far as reservations count.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace legoai::scheduler {

struct WorkerView {
  std::string name;
  std::string pool;
  std::string device_type;
  int64_t slots = 0;
  int64_t free = 0;
  bool accepts = true;    // ready and connected, not draining
  std::string kind = {};  // workers of the same run the same recipe equally well
  bool operator==(const WorkerView&) const = default;
};

struct WaitingJob {
  std::string name;
  int64_t priority = 0;
  bool restarting = false;
  int64_t submitted_us = 0;
  int64_t slots = 1;  // the world size of its recipe
  std::string pool;
  std::string device_type;                          // empty: any
  std::string kind = {};                            // that its recipe was chosen for
  std::vector<std::string> kinds = {};              // it can have no others; empty: any, and its recipe is to be chosen again
  std::optional<absl::Duration> expected_run = {};  // unknown: it never ends, as far as backfill counts
};

struct RunningJob {
  std::string name;
  std::map<std::string, int64_t> slots;  // by worker
  std::optional<absl::Time> expected_end = {};
};

struct Snapshot {
  std::vector<WorkerView> workers;
  std::vector<WaitingJob> waiting;
  std::vector<RunningJob> running;
};

struct Grant {
  std::string job;
  std::string worker;
  int64_t slots = 0;
};

// Why a job got nothing.
struct Wait {
  enum class Why {
    kNoSuchWorker,  // no worker of its pool and type accepts jobs
    kTooLarge,  // no worker of its pool and type has that many slots, used ones included: it is to be planned again for `largest`
    kBusy,      // it is the head, or would fit only on slots that are used
    kReserved,  // slots are free, and kept for a job before it
  };
  std::string job;
  int64_t position = 0;  // among the waiting jobs of its pool, from 1
  Why why = Why::kBusy;
  int64_t largest = 0;                       // slots of the largest worker of its pool and type that accepts jobs
  std::optional<absl::Time> expected_start;  // of a head, where it is known
  std::string text;  // for people: "2 slots are wanted on one worker, at most 1 is free in pool default; position 3"
};

struct Decision {
  std::vector<Grant> grants;  // in the order of the queue; none exceeds what is free, together
  std::vector<Wait> waits;    // all other jobs, in the order of the queue
};

Decision Schedule(absl::Time now, const Snapshot& snapshot);

}  // namespace legoai::scheduler
