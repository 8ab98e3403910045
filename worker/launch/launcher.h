// Starts the trainer processes of this host, and of the other hosts of its gang, and watches them until all have ended.
//
// A HostSupervisor starts and watches this host's, a GangCoordinator decides what follows; both run on the thread of Run(). Other
// hosts (gang_hosts.h) have supervisors of their own (gang_member.h). When a rank dies, reports a failure, violates the protocol,
// or falls silent (stopped, hung), or a host is lost, all ranks are stopped and reaped, and one Status names the rank or host and
// the cause. No process is left behind: children die with the thread that runs Run().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/process/child_process.h"
#include "proto/legoai/v1/launch.pb.h"
#include "worker/launch/gang_coordinator.h"
#include "worker/launch/gang_hosts.h"
#include "worker/launch/gang_link.h"
#include "worker/launch/host_supervisor.h"
#include "worker/launch/watch_clock.h"

namespace legoai::launch {

// The world size and the rendezvous of `start` are set by the launcher.
struct LaunchOptions : HostOptions {
  int64_t world_size = 1;                           // ranks on all hosts
  GangHosts* hosts = nullptr;                       // the others, which have joined; not owned; null: there are none
  absl::Duration host_timeout = kHostTimeout;       // longest silence of another host
  int64_t rendezvous_port = 0;                      // 0: any free port
  absl::Duration discard_grace = absl::Seconds(5);  // for ranks to stop without saving, before they are killed
  std::function<absl::Duration()> clock;            // measures the limits, for tests; empty: as of WatchClock
};

class Launcher {
 public:
  // `stop` is not owned and may be null; a request in it is passed on to the ranks.
  Launcher(LaunchOptions options, LaunchCallbacks callbacks, StopPipe* stop = nullptr);
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // Blocks until every child is reaped. Call once. A stop without saving succeeds even if a rank hangs. Errors: a rank's own
  // Status, prefixed with the rank, FieldViolation kept; Unavailable: a rank died; DeadlineExceeded: a rank fell silent;
  // FieldError: the trainer cannot be run, the port is in use; Cancelled: killed as asked. A failure of another host names it.
  absl::StatusOr<LaunchOutcome> Run();

  // Whether the ranks were asked to stop, even if Run() returned something else.
  bool asked_to_stop() const { return coordinator_.asked_to_stop(); }

 private:
  absl::StatusOr<ListenSocket> OpenRendezvous(v1::Start* start) const;
  absl::Status StartAll();
  void Poll();
  void HearHosts(const std::vector<pollfd>& fds);
  void Tell(const v1::ToHost& message);
  int64_t CountHosts() const { return 1 + (options_.hosts != nullptr ? options_.hosts->count() : 0); }

  const LaunchOptions options_;
  const LaunchCallbacks callbacks_;
  StopPipe* const stop_;
  WatchClock clock_;
  GangCoordinator coordinator_;
  std::unique_ptr<HostSupervisor> supervisor_;
  std::vector<absl::Duration> heard_;  // when each host was last heard of
};

}  // namespace legoai::launch
