// The other hosts of a gang, as its first host has them: they join before the training begins, hear what the coordinator decides
// (gang_coordinator.h), and are told how it ended. Not thread-safe.
//
// Whoever reaches the port may join or listen, as with torchrun: the hosts' network must be one that is trusted.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/process/child_process.h"
#include "proto/legoai/v1/gang.pb.h"
#include "worker/launch/gang_address.h"
#include "worker/launch/gang_link.h"

namespace legoai::launch {

class GangHosts {
 public:
  // Waits, at most `timeout`, until all hosts of the gang have joined at `place`; each must agree with `own` (gang_agreement.h).
  // `waits` is told for whom it waits. A host of another run is refused, and the others go on waiting. Errors, of which hosts
  // that have joined are told: FieldErrors of --master-addr and --master-port; a FieldError naming what differs on a host of this
  // run; DeadlineExceeded naming the hosts that did not come. Cancelled: there is a request in `stop`, which may be null; the
  // hosts that have joined are told that it was stopped.
  static absl::StatusOr<std::unique_ptr<GangHosts>> Gather(const GangPlace& place, const v1::HostHello& own,
                                                           absl::Duration timeout,
                                                           const std::function<void(const std::string&)>& waits,
                                                           const StopPipe* stop);

  int64_t count() const { return static_cast<int64_t>(links_.size()); }
  // "host 1 at 10.0.0.3"; of host 0, which is this one, too.
  const std::string& name(int64_t host) const { return names_.at(static_cast<size_t>(host)); }
  // Where the others reach this host.
  const std::string& address() const { return address_; }

  // To every host whose connection is open.
  void Tell(const v1::ToHost& message);
  // Has the hosts start their ranks.
  void Begin(const v1::Start& start);
  // The last message, how it ended; closes the connections.
  void End(const v1::GangEnded& ended);

  // For poll: the sockets of those whose connections are open.
  void AddDescriptors(std::vector<pollfd>* fds) const;
  // Reads what `host` says, if its socket is among those that are readable. Errors: as of GangLink::Receive; the connection is
  // then closed.
  absl::Status Receive(int64_t host, const std::vector<pollfd>& fds, absl::FunctionRef<void(const v1::FromHost&)> hear);
  // Nothing more is told to it, or heard from it. Not within Receive().
  void Close(int64_t host) { links_.at(static_cast<size_t>(host - 1)).reset(); }

 private:
  GangHosts() = default;
  // Who has connected, and not said all of who it is.
  struct Stranger {
    std::unique_ptr<GangLink> link;
    std::chrono::steady_clock::time_point until;  // its time to say so
    bool announced = false;                       // how long that is
  };

  bool Accept(int listener);
  static absl::StatusOr<std::optional<v1::HostHello>> HearHello(Stranger& stranger);
  absl::Status HearNewcomers(const std::vector<pollfd>& fds, const v1::HostHello& own);
  absl::Status Admit(std::unique_ptr<GangLink> link, const v1::HostHello& hello, const v1::HostHello& own);
  void DropThoseWhoLeft(const std::vector<pollfd>& fds);
  std::vector<int64_t> Missing() const;

  std::string address_;
  std::vector<std::string> names_;                    // by host; of host 0 too
  std::vector<std::unique_ptr<GangLink>> links_;      // of hosts 1, 2, ...; null: has not joined, or is lost
  std::vector<Stranger> strangers_;                   // in the order in which they came
  std::string refused_;                               // the last of another run, to be told
};

}  // namespace legoai::launch
