#include "worker/comm/runtime.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <utility>

#include "proto/status.h"
#include "worker/comm/communicator.h"
#include "worker/comm/step_timeline.h"

namespace legoai::comm {
namespace {

Runtime* g_runtime = nullptr;  // set by RuntimeScope alone
thread_local int64_t t_stream = kCompute;

// Where the sequence is not cut, a dimension taken as one with kCp has the ranks of the dimension without it, which then stands
// for both: no second communicator is opened over the same ranks.
mesh::Dim WithoutContext(mesh::Dim dim) {
  switch (dim) {
    case mesh::Dim::kDpCp: return mesh::Dim::kDp;
    case mesh::Dim::kDpShardCp: return mesh::Dim::kDpShard;
    default: return dim;
  }
}

bool CutsSequence(const std::vector<mesh::Group>& groups) {
  return std::any_of(groups.begin(), groups.end(),
                     [](const mesh::Group& group) { return group.dim == mesh::Dim::kCp && group.ranks.size > 1; });
}

// Which channels a group needs. Of a dimension with and without kCp one alone communicates.
std::vector<int64_t> ChannelsOf(mesh::Dim dim, bool cuts_sequence) {
  const std::vector<int64_t> none, sharding = {kCompute, kAllGather, kReduceScatter};
  switch (dim) {
    case mesh::Dim::kDpShard: return cuts_sequence ? none : sharding;
    case mesh::Dim::kDpShardCp: return cuts_sequence ? sharding : none;
    case mesh::Dim::kDp: return cuts_sequence ? none : std::vector<int64_t>{kCompute};
    case mesh::Dim::kCp:
    case mesh::Dim::kDpCp: return cuts_sequence ? std::vector<int64_t>{kCompute} : none;
    case mesh::Dim::kDpReplicate: return {kCompute, kReplicate};
    case mesh::Dim::kReshard: return {kAllGather};
    case mesh::Dim::kTpGather: return {kTensorGather};
    case mesh::Dim::kPp: return {kCompute, ChannelOfStream(kSendNext), ChannelOfStream(kSendPrevious)};
    case mesh::Dim::kWorld:
    case mesh::Dim::kTp:
    case mesh::Dim::kPpEnds: break;
  }
  return {kCompute};
}

// For each stream, how many of its operations are known to be done. Operations are counted when they are dispatched.
using Clock = std::array<uint64_t, kStreamCount>;

void Merge(Clock& into, const Clock& from) {
  for (size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], from[i]);
}

// Of the compute stream.
template <class Wait>
absl::Status TimedWait(Wait wait) {
  const TimelineScope timed = TimelineScope::Wait();
  return wait();
}

}  // namespace

int64_t ChannelOfStream(int64_t stream) {
  switch (stream) {
    case kRecvPrevious: return kSendNext;
    case kRecvNext: return kSendPrevious;
    case kRotate: return kCompute;
    default: return stream;
  }
}

absl::StatusOr<std::unique_ptr<Communicator>> NoCommunicator(const mesh::Group& group, int64_t, int64_t) {
  return absl::InternalError(std::string("group ") + mesh::NameOf(group.dim) + " of a world of one asked for a communicator");
}

struct Runtime::State {
  std::unique_ptr<Streams> streams;
  CommObserver* observer = nullptr;
  bool fake = false;
  // Kept, for it may hold the place where ranks meet: when this rank is connected to all, others may still be asking there.
  CommunicatorFactory factory;
  std::map<std::pair<int64_t, int64_t>, std::unique_ptr<Communicator>> communicators;  // by (group, channel)

  struct Held {
    uint64_t sequence;
    std::vector<c10::Storage> storages;
  };
  std::array<std::deque<Held>, kStreamCount> held;
  std::array<Clock, kStreamCount> clocks{};  // clocks[s][s] counts what was dispatched on s
  std::map<int64_t, Clock> events;

  absl::Status Health() {
    for (const auto& [_, communicator] : communicators) {
      RETURN_IF_ERROR(communicator->Health());
    }
    return absl::OkStatus();
  }
  void ReleaseKnownDone() {
    for (int64_t stream = 1; stream < kStreamCount; ++stream) {
      auto& queue = held[stream];
      while (!queue.empty() && queue.front().sequence <= clocks[kCompute][stream]) queue.pop_front();
    }
  }
};

Runtime::Runtime(int64_t rank, std::vector<mesh::Group> groups)
    : rank_(rank), groups_(std::move(groups)), state_(std::make_unique<State>()) {}

Runtime::~Runtime() {
  if (state_->streams) (void)Drain();
}

absl::StatusOr<std::unique_ptr<Runtime>> Runtime::Create(int64_t rank, std::vector<mesh::Group> groups,
                                                         std::unique_ptr<Streams> streams, CommunicatorFactory factory,
                                                         CommObserver* observer) {
  std::unique_ptr<Runtime> runtime(new Runtime(rank, std::move(groups)));
  State& state = *runtime->state_;
  state.streams = std::move(streams);
  state.observer = observer;
  state.factory = std::move(factory);
  state.fake = state.factory == nullptr;
  bool has_peers = false;
  const bool cuts_sequence = CutsSequence(runtime->groups_);
  for (size_t id = 0; id < runtime->groups_.size(); ++id) {
    const mesh::Group& group = runtime->groups_[id];
    const int64_t index = group.ranks.IndexOf(rank);
    TORCH_CHECK(index >= 0, "rank ", rank, " is not in its own group ", mesh::NameOf(group.dim));
    runtime->group_ranks_.push_back(index);
    if (state.fake) continue;
    for (int64_t channel : ChannelsOf(group.dim, cuts_sequence)) {
      if (group.ranks.size == 1) {
        state.communicators[{id, channel}] = MakeLocalCommunicator(state.streams.get());
        continue;
      }
      ASSIGN_OR_RETURN(auto communicator, state.factory(group, index, channel));
      state.communicators[{id, channel}] = std::move(communicator);
      has_peers = true;
    }
  }
  if (has_peers) state.streams->SetHealth([&state] { return state.Health(); });
  return runtime;
}

bool Runtime::fake() const { return state_->fake; }
int64_t Runtime::GroupSize(int64_t group) const { return groups_.at(group).ranks.size; }
int64_t Runtime::GroupRank(int64_t group) const { return group_ranks_.at(group); }

int64_t Runtime::GroupId(mesh::Dim dim) const {
  if (!CutsSequence(groups_)) dim = WithoutContext(dim);
  for (size_t id = 0; id < groups_.size(); ++id) {
    if (groups_[id].dim == dim) return static_cast<int64_t>(id);
  }
  TORCH_CHECK(false, "there is no communicator group ", mesh::NameOf(dim));
}

absl::Status Runtime::Communicate(const CommObserver::Call& call, std::vector<c10::Storage> storages,
                                  std::function<absl::Status(Communicator&)> work) {
  const int64_t stream = CurrentStream();
  const uint64_t sequence = ++state_->clocks[stream][stream];
  if (stream != kCompute) state_->held[stream].push_back({sequence, std::move(storages)});
  if (state_->fake) return absl::OkStatus();
  auto it = state_->communicators.find({call.group, ChannelOfStream(stream)});
  if (it == state_->communicators.end()) {
    return absl::InvalidArgumentError(std::string("group ") + mesh::NameOf(groups_.at(call.group).dim) +
                                      " has no communicator for stream " + StreamName(stream));
  }
  CommObserver* observer = state_->observer;
  const int64_t id = observer ? observer->Created(call) : 0;
  Streams* streams = state_->streams.get();
  StepTimeline* timeline = StepTimeline::Current();
  const size_t timed = timeline ? timeline->AddCall(call.kind, call.group, stream) : 0;
  return streams->Post(stream,
                       [communicator = it->second.get(), work = std::move(work), observer, id, streams, stream, timeline, timed] {
                         if (observer) observer->Started(id, stream, streams->Mark(stream));
                         if (timeline) timeline->Start(timed);
                         absl::Status status = work(*communicator);
                         if (timeline && status.ok()) timeline->Close(timed);
                         if (observer && status.ok()) observer->Completed(id, stream, streams->Mark(stream));
                         return status;
                       });
}

absl::Status Runtime::RecordEvent(int64_t stream, int64_t event) {
  state_->events[event] = state_->clocks.at(stream);
  return state_->streams->Record(stream, event);
}

absl::Status Runtime::WaitEvent(int64_t stream, int64_t event) {
  const auto wait = [&] { return state_->streams->Wait(stream, event); };
  const absl::Status status = stream == kCompute ? TimedWait(wait) : wait();
  Merge(state_->clocks.at(stream), state_->events[event]);
  if (stream == kCompute) state_->ReleaseKnownDone();
  return status;
}

absl::Status Runtime::Drain() {
  const absl::Status status = TimedWait([&] { return state_->streams->Drain(); });
  if (!status.ok()) {  // or who waits in a collective of a lost peer would wait on, and this rank behind it
    for (const auto& [_, communicator] : state_->communicators) communicator->Abort();
  }
  for (int64_t stream = 1; stream < kStreamCount; ++stream) {
    Merge(state_->clocks[kCompute], state_->clocks[stream]);
    state_->held[stream].clear();
  }
  return status;
}

Runtime& CurrentRuntime() {
  TORCH_CHECK(g_runtime != nullptr, "no communication runtime is set: a RuntimeScope must be alive");
  return *g_runtime;
}

RuntimeScope::RuntimeScope(Runtime* runtime) : previous_(std::exchange(g_runtime, runtime)) {}
RuntimeScope::~RuntimeScope() { g_runtime = previous_; }

int64_t CurrentStream() { return t_stream; }
StreamScope::StreamScope(int64_t stream) : previous_(std::exchange(t_stream, stream)) {}
StreamScope::~StreamScope() { t_stream = previous_; }

}  // namespace legoai::comm
