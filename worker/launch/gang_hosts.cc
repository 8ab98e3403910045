#include "worker/launch/gang_hosts.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
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

// Whoever connects has so long, and so many bytes, to say which host it is.
constexpr auto kHelloTime = std::chrono::seconds(10);
constexpr int64_t kMostHelloBytes = int64_t{4} << 20;
constexpr int kLengthBytes = 4;  // that lead a message (core/process/framing.h)

// With fewer bytes the socket is not readable yet.
void SetLeastReadable(int fd, int bytes) { setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes)); }

// Of the first message, of which nothing was read yet; -1: there is none.
int64_t AnnouncedBytes(int fd) {
  unsigned char length[kLengthBytes];
  if (recv(fd, length, kLengthBytes, MSG_PEEK) != kLengthBytes) return -1;
  return int64_t{length[0]} | int64_t{length[1]} << 8 | int64_t{length[2]} << 16 | int64_t{length[3]} << 24;
}

bool HasSpoken(const GangLink& link) {
  pollfd readable = {link.fd(), POLLIN, 0};
  return poll(&readable, 1, 0) > 0;
}

bool IsReadable(const std::vector<pollfd>& fds, int fd) {
  return std::any_of(fds.begin(), fds.end(), [fd](const pollfd& one) { return one.fd == fd && one.revents != 0; });
}

v1::ToHost Refusal(const absl::Status& why) {
  v1::ToHost message;
  *message.mutable_ended()->mutable_exit() = MakeExit(v1::Exit::FAILED, 0, why);
  return message;
}

// Why the training does not begin.
v1::GangEnded EndBefore(const absl::Status& why) {
  if (!absl::IsCancelled(why)) return Refusal(why).ended();
  v1::GangEnded ended;
  *ended.mutable_exit() = MakeExit(v1::Exit::STOPPED, 0, absl::OkStatus());
  return ended;
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
  bool can_accept = true;
  for (std::string told; status.ok();) {
    const std::vector<int64_t> missing = gang->Missing();
    if (missing.empty()) break;
    const std::string whom =
        absl::StrCat(HostsText(missing), " of ", place.hosts, " to join at ", gang->address_, ":", listener.port, gang->refused_);
    if (told != whom && waits) waits(whom);
    told = whom;
    std::vector<pollfd> fds = {{can_accept ? listener.fd : -1, POLLIN, 0}};
    gang->AddDescriptors(&fds);
    for (const Stranger& stranger : gang->strangers_) fds.push_back({stranger.link->fd(), POLLIN, 0});
    if (poll(fds.data(), fds.size(), 100) <= 0) {
      for (pollfd& fd : fds) fd.revents = 0;
    }
    gang->DropThoseWhoLeft(fds);
    status = gang->HearNewcomers(fds, own);
    can_accept = !status.ok() || fds[0].revents == 0 || gang->Accept(listener.fd);
    if (status.ok() && stop != nullptr && stop->Pending())
      status = absl::CancelledError("asked to stop before all hosts had joined");
    if (status.ok() && std::chrono::steady_clock::now() > until && !gang->Missing().empty()) {
      status = absl::DeadlineExceededError(absl::StrCat(HostsText(gang->Missing()), " of ", place.hosts, " did not join at ",
                                                        gang->address_, ":", listener.port, " within ", DurationText(timeout),
                                                        " (comm.init_timeout_seconds)", gang->refused_));
    }
  }
  if (!status.ok()) gang->End(EndBefore(status));
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

// False: this process has no descriptor left for whoever has come; it can wait until there is one.
bool GangHosts::Accept(int listener) {
  const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) return errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM;  // else it has left again
  SetLeastReadable(fd, kLengthBytes);
  strangers_.push_back({MakeGangLink<v1::ToHost>(fd), std::chrono::steady_clock::now() + kHelloTime});
  // Whoever knocks and says nothing shall not keep hosts out.
  const size_t most = 2 * names_.size() + 8;
  if (strangers_.size() > most) strangers_.erase(strangers_.begin());
  return true;
}

// When its socket is readable. Nothing: not all of it has come. Errors: it speaks another language, or leaves before a word, and
// is none of the gang.
absl::StatusOr<std::optional<v1::HostHello>> GangHosts::HearHello(Stranger& stranger) {
  if (!std::exchange(stranger.announced, true)) {
    const int64_t bytes = AnnouncedBytes(stranger.link->fd());
    if (bytes < 0 || bytes > kMostHelloBytes) return absl::InvalidArgumentError("it does not say which host it is");
    SetLeastReadable(stranger.link->fd(), 1);
  }
  v1::FromHost message;
  std::optional<v1::FromHost> first;
  RETURN_IF_ERROR(stranger.link->Receive(&message, [&] {
    if (!first) first = message;
  }));
  if (!first) return std::optional<v1::HostHello>();
  if (!first->has_hello()) return absl::InvalidArgumentError("it does not say first which host it is");
  return std::optional<v1::HostHello>(first->hello());
}

absl::Status GangHosts::HearNewcomers(const std::vector<pollfd>& fds, const v1::HostHello& own) {
  const auto now = std::chrono::steady_clock::now();
  for (Stranger& stranger : strangers_) {
    if (!IsReadable(fds, stranger.link->fd())) {
      if (now > stranger.until) stranger.link.reset();
      continue;
    }
    const auto hello = HearHello(stranger);
    if (!hello.ok()) {
      stranger.link.reset();
    } else if (*hello) {
      RETURN_IF_ERROR(Admit(std::move(stranger.link), **hello, own));
    }
  }
  strangers_.erase(std::remove_if(strangers_.begin(), strangers_.end(), [](const Stranger& one) { return one.link == nullptr; }),
                   strangers_.end());
  return absl::OkStatus();
}

absl::Status GangHosts::Admit(std::unique_ptr<GangLink> link, const v1::HostHello& hello, const v1::HostHello& own) {
  const std::string name = NameOfHost(hello.host(), link->peer());
  if (const absl::Status agrees = CheckAgrees(own, hello, name); !agrees.ok()) {
    link->Finish(Refusal(agrees));
    if (CheckIsOfRun(own, hello, name).ok()) return agrees;
    refused_ = absl::StrCat("; refused as of another run: ", agrees.message());
    return absl::OkStatus();
  }
  const int64_t index = hello.host() - 1;
  const bool known = index >= 0 && index < count();
  if (!known || links_[static_cast<size_t>(index)] != nullptr) {
    const std::string remedy = known ? absl::StrCat("is that of ", this->name(hello.host()), " already: each host has its own")
                                     : absl::StrCat("must be from 1 to ", count(), " on all hosts but the first");
    link->Finish(Refusal(FieldError("--node-rank", absl::StrCat(hello.host()), remedy)));
    return absl::OkStatus();
  }
  link->StartBeat();
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
  for (const Stranger& stranger : strangers_) {
    if (stranger.link != nullptr && HasSpoken(*stranger.link)) stranger.link->Finish(message);
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
