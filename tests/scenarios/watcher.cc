#include "tests/scenarios/watcher.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/scenarios/clients.h"
#include "tests/scenarios/told.h"

namespace legoai::scenarios {
namespace {

// Streams are begun anew also where nothing breaks them, on whichever server comes next.
constexpr std::chrono::seconds kOneStream{3};
constexpr useconds_t kPause = 50'000;

std::string Texts(const std::vector<v1::Transition>& transitions) {
  std::string text;
  for (const v1::Transition& one : transitions) absl::StrAppend(&text, " ", one.version(), ":", v1::JobState_Name(one.to()));
  return text;
}

bool Same(const std::vector<v1::Transition>& a, const std::vector<v1::Transition>& b) {
  bool same = a.size() == b.size();
  for (size_t i = 0; same && i < a.size(); ++i) same = a[i].SerializeAsString() == b[i].SerializeAsString();
  return same;
}

}  // namespace

Watcher::Watcher(std::string job, v1::ControlPlane::Stub* stub)
    : job_(std::move(job)), stub_(stub), thread_([this] { Run(); }) {}

Watcher::~Watcher() {
  stop_ = true;
  thread_.join();
}

void Watcher::Run() {
  while (!stop_ && !done_) {
    Watch();
    usleep(kPause);
  }
}

void Watcher::Watch() {
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  context.set_deadline(std::chrono::system_clock::now() + kOneStream);
  v1::WatchJobRequest request;
  request.set_name(job_);
  request.set_after_version(version_);
  ++streams_;
  const auto stream = stub_->WatchJob(&context, request);
  v1::WatchJobResponse response;
  while (!stop_ && stream->Read(&response)) Hear(response);
  if (stop_) context.TryCancel();
  const grpc::Status status = stream->Finish();
  const bool may_be = stop_ || status.ok() || IsUnanswered(status);
  if (may_be) return;
  const MutexLock lock(mutex_);
  broken_.push_back(absl::StrCat("clients are answered as the API says: WatchJob of ", job_, " gave code ",
                                 static_cast<int>(status.error_code()), ", ", status.error_message()));
}

void Watcher::Hear(const v1::WatchJobResponse& response) {
  const MutexLock lock(mutex_);
  if (response.job().version() < version_) {
    broken_.push_back(absl::StrCat("versions never go back: ", job_, " was watched at version ", version_, ", and then at ",
                                   response.job().version()));
  }
  told_.insert(told_.end(), response.transitions().begin(), response.transitions().end());
  version_ = response.job().version();
  if (IsFinalState(response.job().state())) done_ = true;
}

std::vector<std::string> Watcher::Broken(const JobHistory& history) const {
  const MutexLock lock(mutex_);
  std::vector<std::string> broken = broken_;
  if (!Same(told_, history.transitions)) {
    broken.push_back(absl::StrCat("whoever watches is told of each transition once: ", job_, " was told", Texts(told_),
                                  "; stored are", Texts(history.transitions)));
  }
  return broken;
}

}  // namespace legoai::scenarios
