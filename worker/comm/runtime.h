// What the operators of ops.h act on: this process's rank, groups, communicators and streams. Real or fake; the trainer's code is
// the same for both.
//
// Groups are numbered as Mesh::Groups lists them; every rank has the same numbers. One runtime is current at a
// time (RuntimeScope). Used from the dispatching thread only.
#pragma once

#include <c10/core/Storage.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/trace/annotation.h"
#include "core/trace/trace.h"
#include "worker/comm/communicator.h"
#include "worker/comm/streams.h"

namespace legoai::comm {

// Communicators of a group are kept apart by channel: each stream has its own, but that both ends of a pipeline message must use
// the same one, so kSendNext meets kRecvPrevious, and a stage in the middle uses it from two streams. NCCL carries out what is
// asked of one communicator in the order of asking, whatever the streams (NVIDIA/nccl issue 592): the rule under which
// CheckLowered (core/schedule/lowering.h) looks for ranks that block each other. Rotations of a context-parallel group use the
// channel of its compute stream, on which no other collective runs meanwhile.
int64_t ChannelOfStream(int64_t stream);

// Creates the communicator of (group, channel), in the same order on every rank.
using CommunicatorFactory =
    std::function<absl::StatusOr<std::unique_ptr<Communicator>>(const mesh::Group& group, int64_t group_rank, int64_t channel)>;

// The factory for a world of one, whose groups never need a communicator.
absl::StatusOr<std::unique_ptr<Communicator>> NoCommunicator(const mesh::Group& group, int64_t group_rank, int64_t channel);

// Observes every collective and point-to-point message, as the flight recorder does. Called from the dispatching thread (Created)
// and from the stream that runs the call (Started, Completed). A stream that only enqueues passes a mark: the event holds once
// the mark is passed.
class CommObserver {
 public:
  struct Call {
    const char* kind;  // "all_gather"
    int64_t group = 0, stream = 0, peer = -1;
    std::vector<int64_t> input_sizes, output_sizes;
    c10::ScalarType dtype = c10::ScalarType::Float;
    int64_t bytes = 0;
  };
  virtual ~CommObserver() = default;
  virtual int64_t Created(const Call& call) = 0;  // returns the call's id
  virtual void Started(int64_t id, int64_t stream, std::unique_ptr<StreamMark> mark) = 0;
  virtual void Completed(int64_t id, int64_t stream, std::unique_ptr<StreamMark> mark) = 0;
};

class Runtime {
 public:
  // `factory` may be null: a fake runtime, whose communication does nothing. `observer` is not owned and may be null.
  static absl::StatusOr<std::unique_ptr<Runtime>> Create(int64_t rank, std::vector<mesh::Group> groups,
                                                         std::unique_ptr<Streams> streams, CommunicatorFactory factory,
                                                         CommObserver* observer = nullptr);
  ~Runtime();

  int64_t rank() const { return rank_; }
  const std::vector<mesh::Group>& groups() const { return groups_; }
  int64_t GroupSize(int64_t group) const;
  int64_t GroupRank(int64_t group) const;  // this rank's index in the group
  int64_t GroupId(mesh::Dim dim) const;    // throws c10::Error if there is none
  bool fake() const;                       // communication does nothing

  // Event numbers, in the order of the calls.
  int64_t NewEvent() { return next_event_++; }

  // Runs `work` with the group's communicator on the current stream; a fake runtime skips it. `storages` are kept alive until the
  // compute stream dispatches a wait for an event recorded after this call on that stream, directly or through other streams'
  // waits, or until Drain.
  absl::Status Communicate(const CommObserver::Call& call, std::vector<c10::Storage> storages,
                           std::function<absl::Status(Communicator&)> work);
  absl::Status RecordEvent(int64_t stream, int64_t event);
  absl::Status WaitEvent(int64_t stream, int64_t event);
  // Waits for all streams and releases all tensors.
  absl::Status Drain();

 private:
  struct State;
  Runtime(int64_t rank, std::vector<mesh::Group> groups);
  int64_t rank_;
  std::vector<mesh::Group> groups_;
  std::vector<int64_t> group_ranks_;
  int64_t next_event_ = 0;
  std::unique_ptr<State> state_;
};

// The runtime that operators act on.
Runtime& CurrentRuntime();
class RuntimeScope {
 public:
  explicit RuntimeScope(Runtime* runtime);
  ~RuntimeScope();
  RuntimeScope(const RuntimeScope&) = delete;
  RuntimeScope& operator=(const RuntimeScope&) = delete;

 private:
  Runtime* previous_;
};

// The stream on which lego:: operators run now.
int64_t CurrentStream();
class StreamScope {
 public:
  explicit StreamScope(int64_t stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  int64_t previous_;
};

}  // namespace legoai::comm
