// What each pipeline rank executes in a step: its schedule's actions with messages, waits and the flag for gradient reduction
// added. Trainer (stage_runner.h) and simulator consume the same lists. Pure functions.
//
// - Messages go between neighbouring chunks on different ranks; between chunks on the same rank, as where a V turns, tensors are
//   handed over directly.
// - All messages of a step have one total order, that of CompletionTimes(); ties go by direction, then downstream. On each
//   channel (activations, or their gradients) every rank posts its sends and receives in this order, and before it waits for a
//   message it has posted all receives that come before it on either channel. So the first incomplete message can always proceed,
//   and no choice of communicators deadlocks. A receive that the next action needs may be posted earlier, as far as its channel's
//   order allows, to overlap with the action in between.
// - Receives are posted in the sender's order, not in the order of use; several may be in flight.
// - A link has one send in flight: before the next one, compute waits for the previous one and frees its memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/schedule/schedule.h"

namespace legoai::parallel {

// One of the four kinds of messages of a rank; each has a stream. "Next" is the rank of the next chunk: with two ranks and
// round-robin chunks it is also the previous one, and in a V it is the rank above on the way up.
enum class Link : uint8_t { kSendNext, kReceivePrevious, kSendPrevious, kReceiveNext };
inline constexpr int kLinkCount = 4;

// The stream of a link: comm::kSendNext and so on.
int64_t StreamOfLink(Link link);

struct LoweredAction {
  enum class Kind : uint8_t {
    kPostReceive,  // allocates the receive buffer of `microbatch` and enqueues the receive on `link`
    kWait,         // compute waits for the message of `microbatch` on `link`
    kForward,
    kBackward,       // both gradients at once
    kInputGradient,  // or one by one
    kWeightGradient,
    kPostSend,  // enqueues the send of the output (kSendNext) or of the input's gradient (kSendPrevious) on `link`
  };
  Kind kind = Kind::kForward;
  int32_t chunk = 0;  // of this rank: the one that computes, sends or receives
  int32_t microbatch = 0;
  Link link = Link::kSendNext;  // of messages and waits
  // On the backward of a chunk's last microbatch, or on either part of it: data-parallel reduction starts with the gradients of
  // the weights.
  bool reduce_gradients = false;
  bool operator==(const LoweredAction&) const = default;
};

struct LoweredSchedule {
  Placement placement;
  std::vector<std::vector<LoweredAction>> ranks;  // what each rank does, in order
};

// Of ranks one by one: most uses are of one or of a few. `schedule` is sound (CheckSchedule) or has forwards only, and outlives
// this. Const access is thread-safe.
class Lowering {
 public:
  explicit Lowering(const Schedule& schedule) : schedule_(schedule), times_(CompletionTimes(schedule)) {}
  // What a rank does, in order. All waits are included: nothing is in flight when the list ends.
  std::vector<LoweredAction> Rank(int64_t rank) const;

 private:
  const Schedule& schedule_;
  const std::vector<std::vector<int64_t>> times_;
};

LoweredSchedule Lower(const Schedule& schedule);

// Runs the lists of all ranks against each other under the strictest transport: a send is done only when its receive is posted,
// and a channel carries a rank's messages to and from both neighbours one after the other, in the order of posting, as one NCCL
// communicator would. FailedPrecondition if a send meets the receive of another message, if an action runs before its operand
// arrived, if ranks deadlock, or if something is left over.
absl::Status CheckLowered(const LoweredSchedule& lowered);

// "F3", "B3!" (reduces), "I3", "W3", "recv_previous 3", "wait recv_previous 3", "send_next 3"; of a list with several chunks
// "2F3", "recv_previous 2:3"; one line per action.
std::string Print(const LoweredAction& action, bool with_chunk = false);
std::string Print(const std::vector<LoweredAction>& actions);

}  // namespace legoai::parallel
