#include "planner/lego_sim_pool.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/process/child_process.h"
#include "core/process/framing.h"
#include "proto/status.h"
#include "proto/text.h"

namespace legoai::planner {
namespace {

// How often limits are looked at while nothing is said.
constexpr absl::Duration kLook = absl::Milliseconds(200);

// Of a clock that nobody sets.
absl::Time Now() { return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); }

int64_t ResidentBytes(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/statm"));
  int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// Nothing where no progress was told.
std::string Where(const v1::SimProgress& progress) {
  if (progress.phase().empty()) return "";
  return absl::StrCat(" (", progress.phase(), ": ", progress.done(), " of ", progress.total(), ")");
}

bool IsSound(const v1::SimResponse& response, uint64_t id) {
  return response.id() == id && (response.has_error() || response.has_progress() || response.estimate().stages_size() > 0);
}

}  // namespace

struct LegoSimPool::Child {
  pid_t pid = -1;  // -1: none is running
  int fd = -1;
  std::unique_ptr<launch::MessageReader> reader;
  bool fresh = true;                      // has not answered yet
  std::optional<v1::SimRequest> request;  // under way
  absl::Time heard;                       // when it began, or made progress; by Now()
  v1::SimProgress progress;               // the last that it told of the request
};

LegoSimPool::LegoSimPool(LegoSimOptions options) : options_(std::move(options)) {
  for (int64_t i = 0; i < options_.processes; ++i) children_.push_back(std::make_unique<Child>());
}

LegoSimPool::~LegoSimPool() {
  for (auto& child : children_) End(*child);
}

absl::Status LegoSimPool::Spawn(Child& child) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return absl::UnavailableError("no socket pair for lego-sim");
  launch::ChildSpec spec;
  spec.arguments = {options_.program, absl::StrCat("--socket=", ends[1])};
  spec.arguments.insert(spec.arguments.end(), options_.arguments.begin(), options_.arguments.end());
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
  child.fresh = true;
  return absl::OkStatus();
}

// Gives the child its request; one that died idle is replaced first.
absl::Status LegoSimPool::Send(Child& child) {
  if (child.pid > 0 && launch::WriteMessage(child.fd, *child.request).ok()) return absl::OkStatus();
  End(child);
  RETURN_IF_ERROR(Spawn(child));
  // A fresh child that does not even take its request is noticed by Wait, which answers for it.
  (void)launch::WriteMessage(child.fd, *child.request);
  return absl::OkStatus();
}

void LegoSimPool::Prepare() {
  for (auto& child : children_) {
    if (child->pid <= 0) (void)Spawn(*child);
  }
}

absl::Status LegoSimPool::Start(const v1::SimRequest& request) {
  for (auto& child : children_) {
    if (child->request) continue;
    child->request = request;
    child->heard = Now();
    child->progress.Clear();
    absl::Status status = Send(*child);
    if (!status.ok()) child->request.reset();
    return status;
  }
  return absl::ResourceExhaustedError("all lego-sim processes are busy");
}

// Kills and reaps; gives how it ended. One that was already ending keeps its own end: that is decided before its socket closes.
// Its number stands for it and its group until it is reaped, so nobody else is hit.
int LegoSimPool::End(Child& child) {
  if (child.pid <= 0) return 0;
  kill(-child.pid, SIGKILL);
  int wait_status = 0;
  while (waitpid(child.pid, &wait_status, 0) < 0 && errno == EINTR) {
  }
  close(child.fd);
  child.pid = child.fd = -1;
  child.reader.reset();
  return wait_status;
}

void LegoSimPool::StopAll() {
  for (auto& child : children_) {
    if (!child->request) continue;
    End(*child);
    child->request.reset();
  }
}

v1::SimResponse LegoSimPool::Fail(Child& child, const std::string& why, absl::StatusCode code) {
  v1::SimResponse response;
  response.set_id(child.request->id());
  response.mutable_error()->set_code(static_cast<int>(code));
  response.mutable_error()->set_message(why);
  End(child);
  child.request.reset();
  return response;
}

std::optional<v1::SimResponse> LegoSimPool::RetryOrFail(Child& child, const std::string& why, absl::StatusCode code) {
  if (child.fresh) return Fail(child, why, code);
  End(child);
  child.heard = Now();
  child.progress.Clear();
  absl::Status status = Send(child);
  if (status.ok()) return std::nullopt;
  return Fail(child, absl::StrCat(why, "; then: ", status.message()), code);
}

// What came together with the message before is in the buffer already, and the socket tells nothing of it.
std::optional<v1::SimResponse> LegoSimPool::Receive(Child& child, bool readable) {
  v1::SimResponse response;
  absl::StatusOr<bool> open = true;
  auto complete = child.reader->Next(&response);
  if (complete.ok() && !*complete && readable) {
    open = child.reader->Fill();
    complete = open.ok() ? child.reader->Next(&response) : open;
  }
  if (complete.ok() && *complete) {
    if (!IsSound(response, child.request->id()))
      return RetryOrFail(child, "lego-sim gave an answer to another request, or none", absl::StatusCode::kInternal);
    if (response.has_progress()) {
      Advance(child, response.progress());
      return response;
    }
    child.request.reset();
    child.fresh = false;
    return response;
  }
  if (complete.ok() && *open) return std::nullopt;  // a part of a message
  if (!complete.ok())
    return RetryOrFail(child, absl::StrCat("lego-sim broke off: ", complete.status().message()), absl::StatusCode::kInternal);
  const std::string how = launch::DescribeWaitStatus(End(child));
  return RetryOrFail(child, absl::StrCat("lego-sim ", how, " in the simulation", Where(child.progress)),
                     absl::StatusCode::kInternal);
}

// Progress that says what was said before is no sign of life.
void LegoSimPool::Advance(Child& child, const v1::SimProgress& progress) {
  const bool fresh = progress.phase() != child.progress.phase() || progress.done() != child.progress.done() ||
                     progress.total() != child.progress.total();
  if (fresh) child.heard = Now();
  child.progress = progress;
}

std::optional<v1::SimResponse> LegoSimPool::CheckLimits(Child& child) {
  const std::string where = Where(child.progress), limit = DurationText(options_.time_limit);
  if (Now() - child.heard > options_.time_limit) {
    return Fail(child,
                where.empty() ? absl::StrCat("the simulation took longer than ", limit)
                              : absl::StrCat("the simulation made no progress in ", limit, where),
                absl::StatusCode::kDeadlineExceeded);
  }
  if (ResidentBytes(child.pid) > options_.resident_limit_bytes) {
    return RetryOrFail(child,
                       absl::StrCat("the simulation took more than ", options_.resident_limit_bytes, " bytes of memory", where),
                       absl::StatusCode::kResourceExhausted);
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<v1::SimResponse>> LegoSimPool::Wait(absl::Duration timeout) {
  const absl::Time end = Now() + timeout;
  for (;;) {
    std::vector<pollfd> polled;
    std::vector<Child*> busy;
    for (auto& child : children_) {
      if (!child->request) continue;
      if (child->reader->torn()) {
        if (auto answer = Receive(*child, /*readable=*/false)) return answer;
      }
      polled.push_back({child->fd, POLLIN, 0});
      busy.push_back(child.get());
    }
    const absl::Duration left = std::max(end - Now(), absl::ZeroDuration());
    if (busy.empty()) return std::optional<v1::SimResponse>();
    const int64_t wait_ms = absl::ToInt64Milliseconds(absl::Ceil(std::min(left, kLook), absl::Milliseconds(1)));
    if (poll(polled.data(), polled.size(), static_cast<int>(wait_ms)) < 0) {
      if (errno == EINTR) return std::optional<v1::SimResponse>();  // the caller wants to look at what the signal meant
      return absl::UnavailableError("waiting for lego-sim failed");
    }
    for (size_t i = 0; i < busy.size(); ++i) {
      std::optional<v1::SimResponse> answer;
      if (polled[i].revents != 0) answer = Receive(*busy[i], /*readable=*/true);
      if (!answer || answer->has_progress()) {
        if (auto over = CheckLimits(*busy[i])) answer = std::move(over);
      }
      if (answer) return answer;
    }
    if (left == absl::ZeroDuration()) return std::optional<v1::SimResponse>();
  }
}

}  // namespace legoai::planner
