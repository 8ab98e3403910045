// A host of a gang that is not its first: joins, starts its ranks when the first host says so, and watches them for its
// coordinator, until that says how the training ended.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "core/process/child_process.h"
#include "proto/legoai/v1/gang.pb.h"
#include "proto/legoai/v1/launch.pb.h"
#include "worker/launch/gang_hosts.h"
#include "worker/launch/prepare_training.h"

namespace legoai::launch {

// What a host says of itself when it joins; `start` has recipe, model, text and tokenizer.
v1::HostHello HelloOf(const TrainRequest& request, const v1::Start& start);

// All run on the thread of RunMember. Each may be empty.
struct MemberCallbacks {
  std::function<void(int64_t rank, int64_t pid)> started;
  // Of the first rank of this host, and what is waited for before.
  std::function<void(const v1::Progress&)> progress;
  std::function<void(const std::string& level, const std::string& text)> log;  // of this host
  // The first host has said how it ended, or why it does not begin: it knows what RunMember() is about to return.
  std::function<void()> ended;
};

struct MemberOutcome {
  v1::Exit::Cause cause = v1::Exit::FINISHED;  // STOPPED: by a request, here or on another host
  int64_t step = 0;
  int64_t attempt = 0;  // 0: nothing was started
  std::string run_directory = {};
  std::string hf_directory = {};  // empty: not written
};

// `request` has a gang, of which this host is not the first; `stop` may be null. Blocks; no process is left when it returns.
// Errors: of the recipe, model or text; FieldErrors of --master-addr, of what differs on this host from the
// first one, and of job.dump_folder, if it is not the first host's folder; DeadlineExceeded: the first host was not there in
// time, or was not heard of; Unavailable: it is gone; else what ended the training on all hosts.
absl::StatusOr<MemberOutcome> RunMember(const TrainRequest& request, const MemberCallbacks& callbacks, StopPipe* stop);

}  // namespace legoai::launch
