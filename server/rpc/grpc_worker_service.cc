#include "server/rpc/grpc_worker_service.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/process/mutex.h"
#include "proto/legoai/v1/worker_service.grpc.pb.h"
#include "proto/status.h"
#include "server/access/gate.h"
#include "server/fleet/controller.h"
#include "server/metrics/log.h"
#include "server/rpc/grpc_access_control.h"
#include "server/rpc/grpc_status.h"
#include "server/rpc/thread_pool.h"

namespace legoai::server {
namespace {

// An agent keeps far less than this unacknowledged under way, and takes what is sent to it; one that does not is cut off.
constexpr size_t kMostWaiting = 20000;
constexpr size_t kMostOutgoing = 1000;
constexpr size_t kMostAtOnce = 500;
// One for each stream at most.
constexpr size_t kMostTasks = SIZE_MAX;

// One agent's stream. Lives until gRPC and the last task are done with it: each holds a share of it.
class Stream : public grpc::ServerBidiReactor<v1::FromAgent, v1::ToAgent>,
               public AgentLink,
               public std::enable_shared_from_this<Stream> {
 public:
  Stream(absl::StatusOr<std::shared_ptr<Controller>> controller, WorkQueue* writers, grpc::CallbackServerContext* context)
      : refusal_(controller.status()),
        controller_(controller.ok() ? *std::move(controller) : nullptr),
        writers_(writers),
        context_(context) {}

  // If `admitted` is an error, the stream ends with it at once.
  void Begin(const absl::Status& admitted) {
    self_ = shared_from_this();
    if (!admitted.ok()) return Close(admitted);
    if (!refusal_.ok()) return Refuse(refusal_);
    StartRead(&incoming_);
  }

  void Send(const v1::ToAgent& message) override {
    {
      const MutexLock lock(mutex_);
      if (finished_ || cut_off_) return;
      if (outgoing_.size() < kMostOutgoing) {
        outgoing_.push_back(message);
        if (outgoing_.size() == 1) StartWrite(&outgoing_.front());
        return;
      }
      cut_off_ = true;
    }
    // A status would wait behind the messages: the agent hears of it by the end of the stream alone.
    LogWarning("an agent that does not take its messages is cut off", {}, {{"messages", static_cast<int64_t>(kMostOutgoing)}});
    context_->TryCancel();
  }

  void Close(const absl::Status& status) override {
    const MutexLock lock(mutex_);
    FinishOnce(status);
  }

  void OnWriteDone(bool ok) override {
    const MutexLock lock(mutex_);
    outgoing_.pop_front();
    if (!ok) return FinishOnce(absl::CancelledError("the agent has left"));
    if (!outgoing_.empty() && !finished_) StartWrite(&outgoing_.front());
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      const MutexLock lock(mutex_);
      return FinishOnce(said_goodbye_
                            ? absl::OkStatus()
                            : absl::InvalidArgumentError("the stream ended without a goodbye, or with bytes that are no "
                                                         "message of an agent"));
    }
    said_goodbye_ = said_goodbye_ || incoming_.has_goodbye();
    Take(std::move(incoming_));
    incoming_ = v1::FromAgent();
    const MutexLock lock(mutex_);
    if (!finished_) StartRead(&incoming_);
  }

  void OnCancel() override {
    const MutexLock lock(mutex_);
    FinishOnce(absl::CancelledError("the stream was broken off"));
  }

  void OnDone() override {
    // After everything that waits to be written: then nothing uses the session any more.
    {
      const MutexLock lock(mutex_);
      finished_ = done_ = true;
    }
    Schedule();
    self_.reset();
  }

 private:
  void FinishOnce(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (std::exchange(finished_, true)) return;
    Finish(ToGrpcStatus(status));
  }

  void Take(v1::FromAgent message) {
    if (message.has_heartbeat() && session_ != 0) return controller_->Heartbeat(session_, message.heartbeat());
    {
      const MutexLock lock(mutex_);
      if (waiting_.size() >= kMostWaiting)
        return FinishOnce(absl::ResourceExhaustedError(absl::StrCat(waiting_.size(), " messages wait to be written")));
      waiting_.push_back(std::move(message));
    }
    Schedule();
  }

  void Schedule() {
    {
      const MutexLock lock(mutex_);
      if (std::exchange(scheduled_, true)) return;
    }
    writers_->Post([stream = shared_from_this()] { stream->Drain(); });
  }

  // What waits: a run of telemetry, or one other message.
  std::vector<v1::FromAgent> NextMessages() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<v1::FromAgent> messages;
    while (!waiting_.empty() && messages.size() < kMostAtOnce) {
      if (!messages.empty() && (!waiting_.front().has_telemetry() || !messages.back().has_telemetry())) break;
      messages.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
    return messages;
  }

  // One piece of work, then it is others' turn: a stream with a backlog must not keep a thread for itself.
  void Drain() {
    std::vector<v1::FromAgent> messages;
    bool over = false;
    {
      const MutexLock lock(mutex_);
      messages = NextMessages();
      over = messages.empty() && done_;
      if (messages.empty()) scheduled_ = false;
    }
    if (over && session_ != 0) controller_->Disconnected(session_.exchange(0));
    if (messages.empty()) return;
    Handle(messages);
    writers_->Post([stream = shared_from_this()] { stream->Drain(); });
  }

  void Handle(const std::vector<v1::FromAgent>& messages) {
    if (refused_) return;
    const v1::FromAgent& first = messages.front();
    if (session_ == 0) return Greet(first);
    if (first.has_heartbeat())
      return controller_->Heartbeat(session_, first.heartbeat());  // it came before the greeting was done
    if (first.has_commit_request()) return controller_->CommitRequest(session_, first.commit_request());
    if (first.has_goodbye()) return controller_->Goodbye(session_);
    if (!first.has_telemetry()) return Refuse(absl::InvalidArgumentError("a second hello, or a message without content"));
    std::vector<v1::Telemetry> facts;
    for (const v1::FromAgent& message : messages) facts.push_back(message.telemetry());
    controller_->Telemetry(session_, facts);
  }

  void Greet(const v1::FromAgent& message) {
    if (!message.has_hello()) return Refuse(absl::InvalidArgumentError("the first message of an agent must be hello"));
    const auto session = controller_->Connect(message.hello(), this);
    if (!session.ok()) return Refuse(session.status());
    session_ = *session;
  }

  void Refuse(const absl::Status& status) {
    refused_ = true;
    Close(status);
  }

  const absl::Status refusal_;  // of the stream as a whole; then there is no controller
  const std::shared_ptr<Controller> controller_;
  WorkQueue* const writers_;
  grpc::CallbackServerContext* const context_;  // until OnDone
  std::shared_ptr<Stream> self_;                // gRPC's share
  v1::FromAgent incoming_;
  bool said_goodbye_ = false;  // where it is read
  bool refused_ = false;       // where it is handled: nothing that it sends counts any more
  std::atomic<uint64_t> session_{0};
  Mutex mutex_;
  std::deque<v1::ToAgent> outgoing_ ABSL_GUARDED_BY(mutex_);  // the first one is being written
  std::deque<v1::FromAgent> waiting_ ABSL_GUARDED_BY(mutex_);
  bool scheduled_ ABSL_GUARDED_BY(mutex_) = false;
  bool cut_off_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

class WorkerServiceImpl final : public v1::WorkerService::CallbackService {
 public:
  WorkerServiceImpl(ControllerSource controller, ThreadPool* pool, int writers, const AgentAccess& access)
      : controller_(std::move(controller)),
        gate_(access.gate),
        certificates_(access.certificates),
        writers_(pool, writers, kMostTasks),
        revocations_(gate_ == nullptr ? nullptr : gate_->AfterRefresh([this] { EndOthers(); })) {}

  grpc::ServerBidiReactor<v1::FromAgent, v1::ToAgent>* Connect(grpc::CallbackServerContext* context) override {
    auto stream = std::make_shared<Stream>(controller_(), &writers_, context);
    const auto who = Admit(*context);
    if (who.ok() && gate_ != nullptr) {
      const MutexLock lock(mutex_);
      streams_.emplace_back(*who, stream);
    }
    stream->Begin(who.status());
    return stream.get();
  }

 private:
  absl::StatusOr<access::Identity> Admit(const grpc::CallbackServerContext& context) const {
    constexpr char kCall[] = "legoai.v1.WorkerService/Connect";
    if (certificates_ && !context.auth_context()->IsPeerAuthenticated()) {
      return absl::UnauthenticatedError(
          "this server takes agents with a certificate alone, signed as its --tls_client_ca says: give --tls_cert and --tls_key");
    }
    if (gate_ == nullptr) return access::Anybody();
    ASSIGN_OR_RETURN(auto who, IdentityOf(gate_, context, kCall));
    const absl::Status right = access::CheckRight(who, kCall, nullptr);
    gate_->Record(who, context.peer(), kCall, "", right);
    if (!right.ok()) return right;
    return who;
  }

  // Streams whose token does not count any more.
  void EndOthers() {
    std::vector<std::shared_ptr<Stream>> over;  // ended when the lock is given back
    {
      const MutexLock lock(mutex_);
      std::erase_if(streams_, [&](const auto& one) {
        auto stream = one.second.lock();
        if (stream == nullptr) return true;
        if (gate_->Holds(one.first)) return false;
        over.push_back(std::move(stream));
        return true;
      });
    }
    for (const auto& stream : over) stream->Close(access::NoLongerHeld());
  }

  const ControllerSource controller_;
  access::Gate* const gate_;
  const bool certificates_;
  WorkQueue writers_;
  Mutex mutex_;
  std::vector<std::pair<access::Identity, std::weak_ptr<Stream>>> streams_ ABSL_GUARDED_BY(mutex_);
  const std::shared_ptr<void> revocations_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeWorkerService(Controller* controller, ThreadPool* pool, int writers,
                                                 const AgentAccess& access) {
  return MakeWorkerService([controller] { return std::shared_ptr<Controller>(std::shared_ptr<Controller>(), controller); }, pool,
                           writers, access);
}

std::unique_ptr<grpc::Service> MakeWorkerService(ControllerSource controller, ThreadPool* pool, int writers,
                                                 const AgentAccess& access) {
  return std::make_unique<WorkerServiceImpl>(std::move(controller), pool, writers, access);
}

}  // namespace legoai::server
