#include "worker/launch/gang_hosts.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/process/run_directory.h"
#include "proto/errors.h"
#include "proto/read_file.h"
#include "proto/status.h"
#include "proto/text.h"
#include "worker/launch/exit_status.h"
#include "worker/launch/gang_agreement.h"

namespace legoai::launch {
namespace {

constexpr size_t kMostStrangers = 64;  // besides as many as there are hosts

std::unique_ptr<GangLink> LinkOf(int fd) {
  auto alive = std::make_unique<v1::ToHost>();
  alive->mutable_alive();
  return std::make_unique<GangLink>(fd, std::move(alive));
}

bool IsReadable(const std::vector<pollfd>& fds, int fd) {
  return std::any_of(fds.begin(), fds.end(), [fd](const pollfd& one) { return one.fd == fd && one.revents != 0; });
}

v1::ToHost Refusal(const absl::Status& why) {
  v1::ToHost message;
  *message.mutable_ended()->mutable_exit() = MakeExit(v1::Exit::FAILED, 0, why);
  return message;
}

std::string HostsText(const std::vector<int64_t>& hosts) {
  return absl::StrCat(hosts.size() == 1 ? "host " : "hosts ", absl::StrJoin(hosts, ", "));
}

}  // namespace

absl::StatusOr<std::unique_ptr<GangHosts>> GangHosts::Gather(const GangPlace& place, const v1::HostHello& own,
                                                             absl::Duration timeout,
                                                             const std::function<void(const std::string&)>& waits,
                                                             const StopPipe* stop) {
  auto gang = std::unique_ptr<GangHosts>(new GangHosts);
  ASSIGN_OR_RETURN(const ListenSocket listener, ListenOn(place.address, place.port, &gang->address_));
  const auto close_it = absl::MakeCleanup([&] { close(listener.fd); });
  fcntl(listener.fd, F_SETFL, fcntl(listener.fd, F_GETFL) | O_NONBLOCK);
  gang->names_.resize(static_cast<size_t>(place.hosts));
  gang->names_[0] = NameOfHost(0, gang->address_);
  gang->links_.resize(static_cast<size_t>(place.hosts - 1));
  const auto until = std::chrono::steady_clock::now() + absl::ToChronoMilliseconds(timeout);
  absl::Status status;
  for (std::vector<int64_t> told; status.ok();) {
    const std::vector<int64_t> missing = gang->Missing();
    if (missing.empty()) break;
    if (told != missing && waits) {
      waits(absl::StrCat(HostsText(missing), " of ", place.hosts, " to join at ", gang->address_, ":", listener.port));
    }
    told = missing;
    std::vector<pollfd> fds = {{listener.fd, POLLIN, 0}};
    gang->AddDescriptors(&fds);
    for (const auto& stranger : gang->strangers_) fds.push_back({stranger->fd(), POLLIN, 0});
    poll(fds.data(), fds.size(), 100);
    gang->DropThoseWhoLeft(fds);
    status = gang->HearNewcomers(fds, own);
    if (status.ok() && fds[0].revents != 0) gang->Accept(listener.fd);
    if (status.ok() && stop != nullptr && stop->Pending())
      status = absl::CancelledError("asked to stop before all hosts had joined");
    if (status.ok() && std::chrono::steady_clock::now() > until && !gang->Missing().empty()) {
      status = absl::DeadlineExceededError(absl::StrCat(HostsText(gang->Missing()), " of ", place.hosts, " did not join at ",
                                                        gang->address_, ":", listener.port, " within ", DurationText(timeout),
                                                        " (comm.init_timeout_seconds)"));
    }
  }
  if (!status.ok()) gang->End(Refusal(status).ended());
  gang->strangers_.clear();
  if (!status.ok()) return status;
  return gang;
}

std::vector<int64_t> GangHosts::Missing() const {
  std::vector<int64_t> missing;
  for (size_t i = 0; i < links_.size(); ++i) {
    if (links_[i] == nullptr) missing.push_back(static_cast<int64_t>(i) + 1);
  }
  return missing;
}

void GangHosts::Accept(int listener) {
  const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd >= 0) strangers_.push_back(LinkOf(fd));  // else it has left again
  // Whoever knocks and says nothing shall not keep hosts out.
  if (strangers_.size() > links_.size() + kMostStrangers) strangers_.erase(strangers_.begin());
}

// Whoever speaks another language, or leaves before a word, is none of the gang.
absl::Status GangHosts::HearNewcomers(const std::vector<pollfd>& fds, const v1::HostHello& own) {
  for (auto& stranger : strangers_) {
    if (!IsReadable(fds, stranger->fd())) continue;
    v1::FromHost message;
    std::optional<v1::HostHello> hello;
    const absl::Status heard = stranger->Receive(&message, [&] {
      if (message.has_hello()) hello = message.hello();
    });
    if (hello && heard.ok()) {
      RETURN_IF_ERROR(Admit(std::move(stranger), *hello, own));
    } else if (!heard.ok()) {
      stranger.reset();
    }
  }
  strangers_.erase(std::remove(strangers_.begin(), strangers_.end(), nullptr), strangers_.end());
  return absl::OkStatus();
}

absl::Status GangHosts::Admit(std::unique_ptr<GangLink> link, const v1::HostHello& hello, const v1::HostHello& own) {
  const std::string name = NameOfHost(hello.host(), link->peer());
  if (const absl::Status agrees = CheckAgrees(own, hello, name); !agrees.ok()) {
    link->Finish(Refusal(agrees));
    return agrees;
  }
  const int64_t index = hello.host() - 1;
  const bool known = index >= 0 && index < count();
  if (!known || links_[static_cast<size_t>(index)] != nullptr) {
    const std::string remedy = known ? absl::StrCat("is that of ", this->name(hello.host()), " already: each host has its own")
                                     : absl::StrCat("must be from 1 to ", count(), " on all hosts but the first");
    link->Finish(Refusal(FieldError("--node-rank", absl::StrCat(hello.host()), remedy)));
    return absl::OkStatus();
  }
  names_[static_cast<size_t>(hello.host())] = name;
  links_[static_cast<size_t>(index)] = std::move(link);
  return absl::OkStatus();
}

// They may come back until all are there.
void GangHosts::DropThoseWhoLeft(const std::vector<pollfd>& fds) {
  for (int64_t host = 1; host <= count(); ++host) Receive(host, fds, [](const v1::FromHost&) {}).IgnoreError();
}

void GangHosts::Tell(const v1::ToHost& message) {
  for (const auto& link : links_) {
    if (link != nullptr) link->Send(message);
  }
}

void GangHosts::Begin(const v1::Start& start) {
  v1::ToHost message;
  *message.mutable_begin()->mutable_start() = start;
  if (const auto run_json = ReadFile(RunJsonPath(start.run_directory())); run_json.ok())
    message.mutable_begin()->set_run_json(*run_json);
  Tell(message);
}

void GangHosts::End(const v1::GangEnded& ended) {
  v1::ToHost message;
  *message.mutable_ended() = ended;
  for (auto& link : links_) {
    if (link != nullptr) link->Finish(message);
    link.reset();
  }
  for (auto& stranger : strangers_) {
    if (stranger != nullptr) stranger->Finish(message);
  }
}

void GangHosts::AddDescriptors(std::vector<pollfd>* fds) const {
  for (const auto& link : links_) {
    if (link != nullptr) fds->push_back({link->fd(), POLLIN, 0});
  }
}

absl::Status GangHosts::Receive(int64_t host, const std::vector<pollfd>& fds,
                                absl::FunctionRef<void(const v1::FromHost&)> hear) {
  auto& link = links_.at(static_cast<size_t>(host - 1));
  if (link == nullptr || !IsReadable(fds, link->fd())) return absl::OkStatus();
  v1::FromHost message;
  const absl::Status heard = link->Receive(&message, [&] { hear(message); });
  if (!heard.ok()) link.reset();
  return heard;
}

}  // namespace legoai::launch
