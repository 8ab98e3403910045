#include "worker/launch/host_options.h"

#include "core/checkpoint/storage.h"
#include "core/process/other_user.h"
#include "core/process/run_directory.h"

namespace legoai::launch {
namespace {

// Of a store nobody is let in without keys, and who has nothing there needs none.
bool NeedsKeys(const v1::Start& start) {
  return checkpoint::IsInObjectStore(CheckpointsOf(start)) || checkpoint::IsInObjectStore(start.resume_directory());
}

}  // namespace

HostOptions HostOptionsOf(const TrainRequest& request, const v1::Start& start) {
  const v1::CommSection& comm = start.recipe().comm();
  HostOptions options;
  options.trainer = request.trainer;
  options.start = start;
  options.start.set_threads(request.threads);
  options.pin = request.pin;
  options.processors = request.processors;
  options.gpus = request.gpus;
  options.user = request.user;
  if (request.user) options.environment = EnvironmentOf(*request.user, NeedsKeys(start));
  options.memory_bytes = request.memory_bytes;
  options.log_directory = LogsPath(start.run_directory());
  options.init_timeout = absl::Seconds(comm.init_timeout_seconds());
  options.train_timeout = absl::Seconds(comm.train_timeout_seconds());
  // The next attempt waits for the slots; ranks without their peers have nothing to save.
  if (request.lease) options.stop_grace = absl::Milliseconds(300);
  return options;
}

}  // namespace legoai::launch
