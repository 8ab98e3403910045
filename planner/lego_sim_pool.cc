#include "planner/lego_sim_pool.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "worker/launch/child_process.h"
#include "worker/launch/framing.h"

namespace legoai::planner {
namespace {

// How often limits are looked at while nothing is said.
constexpr absl::Duration kLook = absl::Milliseconds(200);

int64_t ResidentBytes(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/statm"));
  int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace

struct LegoSimPool::Child {
  pid_t pid = -1;  // -1: none is running
  int fd = -1;
  std::unique_ptr<launch::MessageReader> reader;
  std::optional<uint64_t> request;  // under way
  absl::Time started;
};

LegoSimPool::LegoSimPool(LegoSimOptions options) : options_(std::move(options)) {
  for (int64_t i = 0; i < options_.processes; ++i) children_.push_back(std::make_unique<Child>());
}

LegoSimPool::~LegoSimPool() {
  for (auto& child : children_) {
    if (child->pid > 0) Kill(*child, "the planner has ended", 0);
  }
}

absl::Status LegoSimPool::Spawn(Child& child) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return absl::UnavailableError("no socket pair for lego-sim");
  launch::ChildSpec spec;
  spec.arguments = {options_.program, absl::StrCat("--socket=", ends[1])};
  spec.inherited = {ends[1]};
  auto pid = launch::SpawnChild(spec);
  close(ends[1]);
  if (!pid.ok()) {
    close(ends[0]);
    return pid.status();
  }
  child.pid = *pid;
  child.fd = ends[0];
  child.reader = std::make_unique<launch::MessageReader>(child.fd);
  return absl::OkStatus();
}

absl::Status LegoSimPool::Start(const v1::SimRequest& request) {
  for (auto& child : children_) {
    if (child->request) continue;
    if (child->pid < 0) {
      if (absl::Status status = Spawn(*child); !status.ok()) return status;
    }
    child->request = request.id();
    child->started = absl::Now();
    // A child that has died meanwhile is noticed by Wait, which answers for it.
    (void)launch::WriteMessage(child->fd, request);
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError("all lego-sim processes are busy");
}

v1::SimResponse LegoSimPool::Kill(Child& child, const std::string& why, int code) {
  v1::SimResponse response;
  response.set_id(child.request.value_or(0));
  response.mutable_error()->set_code(code);
  response.mutable_error()->set_message(why);
  kill(-child.pid, SIGKILL);
  int status = 0;
  waitpid(child.pid, &status, 0);
  close(child.fd);
  child = Child{};
  return response;
}

std::optional<v1::SimResponse> LegoSimPool::Receive(Child& child) {
  v1::SimResponse response;
  auto open = child.reader->Fill();
  auto complete = open.ok() ? child.reader->Next(&response) : open;
  if (complete.ok() && *complete) {
    child.request.reset();
    return response;
  }
  if (complete.ok() && *open) return std::nullopt;  // a part of a message
  int wait_status = 0;
  const bool ended = waitpid(child.pid, &wait_status, WNOHANG) == child.pid;
  return Kill(child, absl::StrCat("lego-sim broke off", ended ? absl::StrCat(": ", launch::DescribeWaitStatus(wait_status)) : ""),
              static_cast<int>(absl::StatusCode::kInternal));
}

std::optional<v1::SimResponse> LegoSimPool::CheckLimits(Child& child) {
  if (absl::Now() - child.started > options_.time_limit) {
    return Kill(child, absl::StrCat("the simulation took longer than ", absl::FormatDuration(options_.time_limit)),
                static_cast<int>(absl::StatusCode::kDeadlineExceeded));
  }
  if (ResidentBytes(child.pid) > options_.resident_limit_bytes) {
    return Kill(child, absl::StrCat("the simulation took more than ", options_.resident_limit_bytes, " bytes of memory"),
                static_cast<int>(absl::StatusCode::kResourceExhausted));
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<v1::SimResponse>> LegoSimPool::Wait(absl::Duration timeout) {
  const absl::Time end = absl::Now() + timeout;
  for (;;) {
    std::vector<pollfd> polled;
    std::vector<Child*> busy;
    for (auto& child : children_) {
      if (!child->request) continue;
      polled.push_back({child->fd, POLLIN, 0});
      busy.push_back(child.get());
    }
    const absl::Duration left = end - absl::Now();
    if (busy.empty() || left < absl::ZeroDuration()) return std::optional<v1::SimResponse>();
    const int64_t wait_ms = absl::ToInt64Milliseconds(std::min(left, kLook)) + 1;
    if (poll(polled.data(), polled.size(), static_cast<int>(wait_ms)) < 0 && errno != EINTR) {
      return absl::UnavailableError("waiting for lego-sim failed");
    }
    for (size_t i = 0; i < busy.size(); ++i) {
      auto answer = polled[i].revents != 0 ? Receive(*busy[i]) : CheckLimits(*busy[i]);
      if (answer) return answer;
    }
  }
}

}  // namespace legoai::planner
