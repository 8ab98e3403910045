// What each pipeline rank really does in a step: its schedule's actions with the messages, waits and the flag for gradient
// reduction put in. Trainer (stage_runner.h) and simulator consume the same lists. Pure functions.
//
// - Messages go between neighbouring chunks of different ranks; what a chunk gives to a neighbour on its own rank, as where a V
//   turns, is handed over without one.
// - All messages of a step have one total order, that of CompletionTimes(); ties go by direction, then downstream. On each
//   channel (activations, or their gradients) every rank posts its sends and receives in this order, and before it waits for a
//   message it has posted all receives that come before it on either channel. So the first message that is not through yet can
//   always go, and no choice of communicators makes ranks block each other. A receive that the next action needs may be posted
//   earlier, as far as its own channel's order allows, to overlap with the action in between.
// - Receives are posted in the sender's order, not in that of their use; several may be under way.
// - A link has one send under way: before the next one, compute waits for the last one, which lets go of its memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/schedule/schedule.h"

namespace legoai::parallel {

// One of the four kinds of messages of a rank; each has a stream. "Next" is the rank of the next chunk: where chunks go round two
// ranks it also is the previous one, and in a V it is the rank above on the way up.
enum class Link : uint8_t { kSendNext, kReceivePrevious, kSendPrevious, kReceiveNext };
inline constexpr int kLinkCount = 4;

// The stream of a link: comm::kSendNext and so on.
int64_t StreamOfLink(Link link);

struct LoweredAction {
  enum class Kind : uint8_t {
    kPostReceive,  // allocates the receive buffer of `microbatch` and enqueues the receive on `link`
    kWait,         // compute waits for the message of `microbatch` on `link`
    kForward,
    kBackward,        // both gradients
    kInputGradient,   // or each
    kWeightGradient,  // by itself
    kPostSend,        // enqueues the send of the output (kSendNext) or of the input's gradient (kSendPrevious) on `link`
  };
  Kind kind = Kind::kForward;
  int32_t chunk = 0;  // of this rank: the one that computes, sends or receives
  int32_t microbatch = 0;
  Link link = Link::kSendNext;  // of messages and waits
  // Of the backward of a chunk's last microbatch, or either part: its data-parallel reduction starts with the gradients of the
  // weights.
  bool reduce_gradients = false;
  bool operator==(const LoweredAction&) const = default;
};

struct LoweredSchedule {
  Placement placement;
  std::vector<std::vector<LoweredAction>> ranks;  // what each rank does, in order
};

// A sound schedule (CheckSchedule), or one of forwards alone, with all waits: nothing is under way when a list ends.
LoweredSchedule Lower(const Schedule& schedule);

// Runs the lists of all ranks against each other under the strictest transport: a send is done only when its receive is posted,
// and a channel carries a rank's messages to and from both neighbours one after the other, in the order of posting, as one NCCL
// communicator would. FailedPrecondition if a message meets another one, if something is computed before its operand arrived, if
// ranks block each other, or if something is left over.
absl::Status CheckLowered(const LoweredSchedule& lowered);

// "F3", "B3!" (reduces), "I3", "W3", "recv_previous 3", "wait recv_previous 3", "send_next 3"; of a list with several chunks
// "2F3", "recv_previous 2:3"; one line per action.
std::string Print(const LoweredAction& action, bool with_chunk = false);
std::string Print(const std::vector<LoweredAction>& actions);

}  // namespace legoai::parallel
