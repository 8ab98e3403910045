#include "worker/launch/rank_process.h"

#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "core/process/child_process.h"

namespace legoai::launch {
namespace {

// As in flight_record.proto.
const char* FaultText(Blame blame) {
  switch (blame) {
    case Blame::kNone: return "none";
    case Blame::kConsequence: return "consequence";
    case Blame::kHung: return "hangs";
    case Blame::kUnresponsive: return "unresponsive";
    case Blame::kCause: return "failed";
  }
  return "";
}

}  // namespace

RankProcess::RankProcess(int64_t rank, pid_t pid, int socket, absl::Duration now, int64_t* failures)
    : last_heard(now),
      rank_(rank),
      pid_(pid),
      socket_(socket),
      failures_(failures),
      reader_(std::make_unique<MessageReader>(socket)) {}

RankProcess::~RankProcess() { CloseSocket(); }

bool RankProcess::EndedWell() const {
  return exit && exit->cause() != v1::Exit::FAILED && wait_status && WIFEXITED(*wait_status) && WEXITSTATUS(*wait_status) == 0;
}

void RankProcess::CloseSocket() {
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
}

void RankProcess::Send(const v1::ToTrainer& message) {
  if (socket_ < 0) return;
  const absl::Status sent = WriteMessage(socket_, message);
  // A rank that is gone is found by its end of file, with a better reason.
  if (!sent.ok() && !absl::IsUnavailable(sent)) Fail(Blame::kUnresponsive, sent);
}

void RankProcess::Fail(Blame new_blame, const absl::Status& status) {
  if (new_blame <= blame) return;
  blame = new_blame;
  reason_ = std::string(status.message());
  failure = absl::Status(status.code(), absl::StrCat(Name(), ": ", status.message()));
  status.ForEachPayload([this](absl::string_view url, const absl::Cord& payload) { failure.SetPayload(url, payload); });
  if (failed_as == 0) failed_as = ++*failures_;
}

void RankProcess::Ended(int status, bool stopping) {
  wait_status = status;
  CloseSocket();
  if (EndedWell() || blame >= Blame::kUnresponsive) return;
  if (exit && exit->cause() == v1::Exit::FAILED) return;  // it has said why
  const absl::Status death = absl::UnavailableError(absl::StrCat("the process ", DescribeWaitStatus(status)));
  Fail(stopping ? Blame::kConsequence : Blame::kCause, death);
}

v1::RankCondition RankProcess::Condition(absl::Duration now) const {
  v1::RankCondition condition;
  condition.set_fault(FaultText(blame));
  condition.set_text(reason_);
  if (!reaped()) condition.set_process_state(std::string(1, ProcessState(pid_)));
  condition.set_silent_seconds(absl::ToDoubleSeconds(now - last_heard));
  condition.set_phase(last_progress.phase());
  condition.set_step(last_progress.step());
  return condition;
}

std::string RankProcess::Name() const {
  if (last_progress.phase().empty()) return absl::StrCat("rank ", rank_);
  return absl::StrCat("rank ", rank_, " (", last_progress.phase(), ", step ", last_progress.step(), ")");
}

}  // namespace legoai::launch
