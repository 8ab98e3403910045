#include "worker/launch/launcher.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "proto/status.h"

namespace legoai::launch {

Launcher::Launcher(LaunchOptions options, LaunchCallbacks callbacks, StopPipe* stop)
    : options_(std::move(options)),
      callbacks_(std::move(callbacks)),
      stop_(stop),
      clock_(options_.clock),
      coordinator_({options_.world_size, options_.start.recipe().checkpoint().max_pending_commits(), options_.discard_grace},
                   callbacks_, clock_, [this](const v1::ToHost& message) { supervisor_->Handle(message); }) {}

absl::StatusOr<LaunchOutcome> Launcher::Run() {
  clock_.Tick();
  const std::optional<Stop> early = stop_ != nullptr ? stop_->Take() : std::nullopt;
  if (early == Stop::kKill) return absl::CancelledError("killed as asked, before a rank was started");
  RETURN_IF_ERROR(StartAll());
  if (early) coordinator_.HandleStop(*early);
  while (!coordinator_.done()) {
    clock_.Tick();
    Poll();
    coordinator_.AskForVerdicts();
    supervisor_->Look();
    coordinator_.Advance();
  }
  return coordinator_.Conclude();
}

absl::Status Launcher::StartAll() {
  ASSIGN_OR_RETURN(const ListenSocket listener, ListenOnLoopback(options_.rendezvous_port));
  HostOptions host = options_;
  host.start.set_world_size(options_.world_size);
  host.start.set_rendezvous_host("127.0.0.1");
  host.start.set_rendezvous_port(listener.port);
  supervisor_ = std::make_unique<HostSupervisor>(std::move(host), /*first_rank=*/0, options_.world_size, clock_,
                                                 [this](const v1::FromHost& message) { coordinator_.Hear(message); });
  const absl::Status started = supervisor_->Start(listener.fd, callbacks_.started);
  close(listener.fd);
  return started;
}

void Launcher::Poll() {
  std::vector<pollfd> fds = {{stop_ != nullptr ? stop_->fd() : -1, POLLIN, 0}};
  supervisor_->AddDescriptors(&fds);
  if (poll(fds.data(), fds.size(), static_cast<int>(absl::ToInt64Milliseconds(supervisor_->Patience()))) <= 0) return;
  if (fds[0].revents != 0) {
    if (const std::optional<Stop> stop = stop_->Take()) coordinator_.HandleStop(*stop);
  }
  supervisor_->Receive(fds);
}

}  // namespace legoai::launch
