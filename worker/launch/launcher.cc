#include "worker/launch/launcher.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "proto/text.h"

namespace legoai::launch {
namespace {

GangCoordinator::Options CoordinatorOptions(const LaunchOptions& options) {
  GangCoordinator::Options result;
  result.world_size = options.world_size;
  result.most_pending_commits = options.start.recipe().checkpoint().max_pending_commits();
  result.discard_grace = options.discard_grace;
  if (options.hosts == nullptr) return result;
  result.hosts.clear();
  for (int64_t host = 0; host <= options.hosts->count(); ++host) result.hosts.push_back(options.hosts->name(host));
  return result;
}

std::optional<Stop> StopOf(v1::StopAsked::Way way) {
  switch (way) {
    case v1::StopAsked::SAVE: return Stop::kSave;
    case v1::StopAsked::DISCARD: return Stop::kDiscard;
    case v1::StopAsked::KILL: return Stop::kKill;
    default: return std::nullopt;
  }
}

}  // namespace

Launcher::Launcher(LaunchOptions options, LaunchCallbacks callbacks, StopPipe* stop)
    : options_(std::move(options)),
      callbacks_(std::move(callbacks)),
      stop_(stop),
      clock_(options_.clock),
      coordinator_(CoordinatorOptions(options_), callbacks_, clock_, [this](const v1::ToHost& message) { Tell(message); }) {}

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

void Launcher::Tell(const v1::ToHost& message) {
  supervisor_->Handle(message);
  if (options_.hosts != nullptr) options_.hosts->Tell(message);
}

absl::StatusOr<ListenSocket> Launcher::OpenRendezvous(v1::Start* start) const {
  start->set_rendezvous_host("127.0.0.1");
  if (options_.hosts == nullptr) return ListenOnLoopback(options_.rendezvous_port);
  std::string address;
  ASSIGN_OR_RETURN(const ListenSocket listener, ListenOn(options_.hosts->address(), options_.rendezvous_port, &address));
  start->set_rendezvous_host(address);
  return listener;
}

absl::Status Launcher::StartAll() {
  HostOptions host = options_;
  ASSIGN_OR_RETURN(const ListenSocket listener, OpenRendezvous(&host.start));
  host.start.set_world_size(options_.world_size);
  host.start.set_rendezvous_port(listener.port);
  supervisor_ = std::make_unique<HostSupervisor>(host, /*first_rank=*/0, options_.world_size / CountHosts(), clock_,
                                                 [this](const v1::FromHost& message) { coordinator_.Hear(0, message); });
  const absl::Status started = supervisor_->Start(listener.fd, callbacks_.started);
  close(listener.fd);
  heard_.assign(static_cast<size_t>(CountHosts()), clock_.now());
  if (started.ok() && options_.hosts != nullptr) options_.hosts->Begin(host.start);
  return started;
}

void Launcher::Poll() {
  std::vector<pollfd> fds = {{stop_ != nullptr ? stop_->fd() : -1, POLLIN, 0}};
  supervisor_->AddDescriptors(&fds);
  if (options_.hosts != nullptr) options_.hosts->AddDescriptors(&fds);
  // Where all of this host have ended, others are waited for.
  const absl::Duration patience = supervisor_->done() ? absl::Milliseconds(100) : supervisor_->Patience();
  if (poll(fds.data(), fds.size(), static_cast<int>(absl::ToInt64Milliseconds(patience))) <= 0) {
    for (pollfd& fd : fds) fd.revents = 0;
  }
  if (fds[0].revents != 0) {
    if (const std::optional<Stop> stop = stop_->Take()) coordinator_.HandleStop(*stop);
  }
  supervisor_->Receive(fds);
  HearHosts(fds);
}

void Launcher::HearHosts(const std::vector<pollfd>& fds) {
  for (int64_t host = 1; host < CountHosts(); ++host) {
    absl::Duration& heard = heard_.at(static_cast<size_t>(host));
    const absl::Status received = options_.hosts->Receive(host, fds, [&](const v1::FromHost& message) {
      heard = clock_.now();
      if (const auto stop = StopOf(message.stop().way())) coordinator_.HandleStop(*stop);
      coordinator_.Hear(host, message);
    });
    if (!received.ok()) {
      coordinator_.Lose(host, v1::BLAME_CAUSE,
                        Annotate(received, "is gone: what watches its ranks has ended or was killed, or the connection is lost"));
    } else if (clock_.now() - heard > options_.host_timeout) {
      coordinator_.Lose(host, v1::BLAME_UNRESPONSIVE,
                        absl::DeadlineExceededError(
                            absl::StrCat("was not heard of for ", DurationText(options_.host_timeout),
                                         ": it is stopped, or the network is down between it and host 0")));
      options_.hosts->Close(host);
    }
  }
}

}  // namespace legoai::launch
