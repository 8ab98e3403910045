// What one pipeline rank really does in a step: its schedule's actions with the messages, waits and the flag for gradient
// reduction put in. Trainer (stage_runner.h) and simulator consume the same list. Torch-free, pure functions.
//
// - A receive is posted one action ahead of the one that needs it, so that it overlaps with the action in between; a link has
//   one receive under way at a time.
// - A link also has one send under way: before the next one, compute waits for the last one, which lets go of its memory. In
//   GPipe and 1F1B the peer has posted that receive long before.
// - Messages of a direction travel in microbatch order on a stream of their own (stream_ids.h), so they match without tags.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/schedule/schedule.h"

namespace legoai::parallel {

// One of the four kinds of messages of a stage; each has a stream.
enum class Link : uint8_t { kSendNext, kReceivePrevious, kSendPrevious, kReceiveNext };
inline constexpr int kLinkCount = 4;

// The stream of a link: comm::kSendNext and so on.
int64_t StreamOfLink(Link link);

struct LoweredAction {
  enum class Kind : uint8_t {
    kPostReceive,  // allocates the receive buffer of `microbatch` and enqueues the receive on `link`
    kWait,         // compute waits for the message of `microbatch` on `link`
    kForward,
    kBackward,
    kPostSend,  // enqueues the send of the output (kSendNext) or of the input's gradient (kSendPrevious) on `link`
  };
  Kind kind = Kind::kForward;
  int32_t stage = 0;
  int32_t microbatch = 0;
  Link link = Link::kSendNext;    // of messages and waits
  bool reduce_gradients = false;  // of the last backward of the step: data-parallel reduction starts in it
  bool operator==(const LoweredAction&) const = default;
};

// `rank`'s part of a schedule made by schedule.h, with all waits: nothing is under way when the list ends.
std::vector<LoweredAction> Lower(const Schedule& schedule, int64_t rank);

// Runs the lists of all ranks against each other under the strictest transport: a send is done only when its receive is posted,
// and a channel (activations, or their gradients) carries a rank's messages to and from both neighbours one after the other, in
// the order of posting, as one NCCL communicator would. FailedPrecondition if a message meets one of another microbatch, if
// something is computed before its operand arrived, if ranks block each other, or if something is left over.
absl::Status CheckLowered(const std::vector<std::vector<LoweredAction>>& ranks);

// "F3", "B3!" (reduces), "recv_previous 3", "wait recv_previous 3", "send_next 3"; one line per action.
std::string Print(const LoweredAction& action);
std::string Print(const std::vector<LoweredAction>& actions);

}  // namespace legoai::parallel
