// A coordinator's state of one rank of its gang: what it last said, and how it failed. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/legoai/v1/flight_record.pb.h"
#include "proto/legoai/v1/gang.pb.h"
#include "proto/legoai/v1/launch.pb.h"

namespace legoai::launch {

// How a rank or a host failed, if it did.
struct Failure {
  v1::Blame blame = v1::BLAME_NONE;
  absl::Status status;    // prefixed with a name
  std::string reason;     // without the prefix
  int64_t failed_as = 0;  // 1: the first of the gang that failed

  // Keeps the first with the greatest blame. `failures` counts those of the gang.
  void Note(v1::Blame new_blame, const absl::Status& why, const std::string& name, int64_t* failures);
  // Whether it is nearer to the root cause than `other`.
  bool IsWorseThan(const Failure& other) const;
};

class GangRank {
 public:
  // `failures` counts the gang's failures and is not owned. `host` is the name of the rank's host; empty: the gang has only one.
  GangRank(int64_t rank, std::string host, absl::Duration now, int64_t* failures)
      : last_heard(now), rank_(rank), host_(std::move(host)), failures_(failures) {}

  int64_t rank() const { return rank_; }
  void Fail(v1::Blame blame, const absl::Status& status);  // keeps the first failure with the greatest blame
  // "rank 1 (train, step 12)", "rank 5 of host 1 at 10.0.0.3 (train, step 12)"
  std::string Name() const;
  // Its current condition, for its flight record.
  v1::RankCondition Condition(absl::Duration now) const;

  absl::Duration last_heard;  // on the coordinator's clock
  v1::Progress last_progress;
  bool answered = false;      // for its flight record
  std::string waits_in;       // its answer; empty: no communication
  std::string process_state;  // when its supervisor had asked it; empty: not asked, or ended by then
  bool connected = true;      // by then
  int64_t meeting = 0;        // the last it entered
  std::optional<v1::CheckpointReady> ready;
  std::optional<v1::Exit> exit;
  bool ended = false;  // its process is reaped
  Failure failure;

 private:
  const int64_t rank_;
  const std::string host_;
  int64_t* const failures_;
};

}  // namespace legoai::launch
