#include "core/schedule/lowering.h"

#include <algorithm>
#include <array>
#include <compare>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/trace/annotation.h"

namespace legoai::parallel {
namespace {

using Kind = LoweredAction::Kind;

bool IsForward(const Action& action) { return action.kind == Action::Kind::kForward; }
bool NeedsNobody(const Action& action) { return action.kind == Action::Kind::kWeightGradient; }  // and nobody needs it

Kind KindOf(const Action& action) {
  switch (action.kind) {
    case Action::Kind::kForward: return Kind::kForward;
    case Action::Kind::kBackward: return Kind::kBackward;
    case Action::Kind::kInputGradient: return Kind::kInputGradient;
    case Action::Kind::kWeightGradient: break;
  }
  return Kind::kWeightGradient;
}
Link ReceiveLink(bool forward) { return forward ? Link::kReceivePrevious : Link::kReceiveNext; }
Link SendLink(bool forward) { return forward ? Link::kSendNext : Link::kSendPrevious; }

// The channel of activations is 0, that of their gradients 1. kSendNext meets the neighbour's kReceivePrevious on one,
// kSendPrevious and kReceiveNext on the other.
int ChannelOf(bool forward) { return forward ? 0 : 1; }
int ChannelOf(Link link) { return link == Link::kSendNext || link == Link::kReceivePrevious ? 0 : 1; }

// Where a message stands in the order of all. It is named by the action that makes it.
struct Place {
  int64_t time = 0;
  int channel = 0;
  int64_t downstream = 0;  // how far along its direction
  int32_t microbatch = 0;
  auto operator<=>(const Place&) const = default;
};

Place PlaceOf(const Action& action, int64_t time) {
  return {time, ChannelOf(IsForward(action)), IsForward(action) ? action.chunk : -int64_t{action.chunk}, action.microbatch};
}

// One message that a rank receives: the chunk of this rank that it is for.
struct Incoming {
  Place place;
  int32_t chunk = 0, microbatch = 0;
};

// Lowers the actions of one rank.
class RankLowering {
 public:
  RankLowering(const Schedule& schedule, const std::vector<std::vector<int64_t>>& times, int64_t rank)
      : schedule_(schedule), actions_(schedule.ranks[rank]), times_(times[rank]) {
    for (const Action& action : actions_) last_microbatch_ = std::max(last_microbatch_, action.microbatch);
    const int64_t ranks = schedule.placement.ranks;
    const std::set<int64_t> neighbours = {(rank + 1) % ranks, (rank + ranks - 1) % ranks};
    for (const int64_t source : neighbours) {
      for (size_t i = 0; i < schedule.ranks[source].size(); ++i) {
        const Action& action = schedule.ranks[source][i];
        if (Sends(action) && schedule.placement.RankOf(ReaderOf(action)) == rank) Expect(action, times[source][i]);
      }
    }
    for (auto& messages : incoming_) {
      std::sort(messages.begin(), messages.end(), [](const Incoming& a, const Incoming& b) { return a.place < b.place; });
    }
  }

  std::vector<LoweredAction> Run() {
    for (size_t i = 0; i < actions_.size(); ++i) {
      const Action& action = actions_[i];
      if (Receives(action)) {
        const Place operand = OperandOf(action);
        PostBefore(operand);
        PostThrough(operand);
        Add(Kind::kWait, action.chunk, action.microbatch, ReceiveLink(IsForward(action)));
      }
      const Place made = PlaceOf(action, times_[i]);
      PostBefore(made);
      if (i + 1 < actions_.size()) PostAhead(actions_[i + 1], action, made);
      Compute(i);
    }
    for (const Link link : {Link::kSendNext, Link::kSendPrevious}) WaitForSend(link);
    return std::move(lowered_);
  }

 private:
  // The chunks that give an action its operand and that read its result, if there are any.
  static int32_t GiverOf(const Action& action) { return action.chunk + (IsForward(action) ? -1 : 1); }
  static int32_t ReaderOf(const Action& action) { return action.chunk + (IsForward(action) ? 1 : -1); }
  bool Receives(const Action& action) const {
    return !NeedsNobody(action) && schedule_.placement.Talk(action.chunk, GiverOf(action));
  }
  bool Sends(const Action& action) const {
    return !NeedsNobody(action) && schedule_.placement.Talk(action.chunk, ReaderOf(action));
  }
  void Expect(const Action& action, int64_t time) {
    const int channel = ChannelOf(IsForward(action));
    incoming_[channel].push_back({PlaceOf(action, time), ReaderOf(action), action.microbatch});
    operands_[{channel, ReaderOf(action), action.microbatch}] = incoming_[channel].back().place;
  }

  const Place& OperandOf(const Action& action) const {
    return operands_.at({ChannelOf(IsForward(action)), action.chunk, action.microbatch});
  }

  void Add(Kind kind, int32_t chunk, int32_t microbatch, Link link) {
    lowered_.push_back({kind, chunk, microbatch, link, false});
  }
  void PostNext(int channel) {
    const Incoming& message = incoming_[channel][posted_[channel]++];
    Add(Kind::kPostReceive, message.chunk, message.microbatch, ReceiveLink(channel == 0));
  }
  // The receives of both channels that come before a place.
  void PostBefore(const Place& place) {
    for (const int channel : {0, 1}) {
      while (posted_[channel] < incoming_[channel].size() && incoming_[channel][posted_[channel]].place < place)
        PostNext(channel);
    }
  }
  // Those of its channel up to a place.
  void PostThrough(const Place& place) {
    const auto& incoming = incoming_[place.channel];
    while (posted_[place.channel] < incoming.size() && incoming[posted_[place.channel]].place <= place) PostNext(place.channel);
  }
  // What `next` needs, while `action` computes; not past the message that `action` makes for the same channel.
  void PostAhead(const Action& next, const Action& action, const Place& made) {
    if (!Receives(next)) return;
    const Place operand = OperandOf(next);
    if (!Sends(action) || made.channel != operand.channel || operand < made) PostThrough(operand);
  }
  void WaitForSend(Link link) {
    std::optional<Action>& under_way = under_way_[static_cast<int>(link)];
    if (under_way) Add(Kind::kWait, under_way->chunk, under_way->microbatch, link);
    under_way.reset();
  }
  void Compute(size_t i) {
    const Action& action = actions_[i];
    Add(KindOf(action), action.chunk, action.microbatch, Link::kSendNext);
    lowered_.back().reduce_gradients = !IsForward(action) && action.microbatch == last_microbatch_;
    if (!Sends(action)) return;
    const Link link = SendLink(IsForward(action));
    WaitForSend(link);
    Add(Kind::kPostSend, action.chunk, action.microbatch, link);
    under_way_[static_cast<int>(link)] = action;
  }

  const Schedule& schedule_;
  const std::vector<Action>& actions_;
  const std::vector<int64_t>& times_;
  int32_t last_microbatch_ = 0;
  std::array<std::vector<Incoming>, 2> incoming_;                // by channel, in the order of all messages
  std::map<std::tuple<int, int32_t, int32_t>, Place> operands_;  // by channel, chunk and microbatch
  std::array<size_t, 2> posted_ = {0, 0};                        // of incoming_
  std::array<std::optional<Action>, kLinkCount> under_way_;
  std::vector<LoweredAction> lowered_;
};

// The ranks of a pipeline as little machines: a program counter and two channels, each with its messages in the order of posting.
class Machine {
 public:
  explicit Machine(const LoweredSchedule& lowered)
      : placement_(lowered.placement), ranks_(lowered.ranks), loops_(placement_.locals() > 1), states_(ranks_.size()) {}

  absl::Status Run() {
    for (bool moved = true; moved && error_.ok();) {
      moved = false;
      for (size_t rank = 0; rank < ranks_.size(); ++rank) {
        while (Step(rank)) moved = true;
      }
      while (Deliver()) moved = true;
    }
    return error_.ok() ? AllDone() : error_;
  }

 private:
  using Piece = std::pair<int32_t, int32_t>;  // chunk and microbatch
  struct Message {
    Link link;
    Piece piece;
  };
  struct State {
    size_t position = 0;
    std::array<std::deque<Message>, 2> channels;
    std::array<std::set<Piece>, kLinkCount> done, waited;
    std::set<Piece> forwards, backwards, weights;
  };
  struct End {
    size_t rank;
    Link link;
  };

  absl::Status Failed(size_t rank, const LoweredAction& action, const char* why) const {
    return absl::FailedPreconditionError(absl::StrCat("pipeline rank ", rank, ", \"", Print(action, loops_), "\": ", why));
  }
  // The chunk at the other end of a message, which may be none.
  static int32_t Partner(Link link, int32_t chunk) {
    return link == Link::kSendNext || link == Link::kReceiveNext ? chunk + 1 : chunk - 1;
  }
  bool HasPartner(Link link, int32_t chunk) const { return placement_.Talk(chunk, Partner(link, chunk)); }
  // The other end of a message of this chunk.
  End Peer(Link link, int32_t chunk) const {
    static constexpr Link kOther[kLinkCount] = {Link::kReceivePrevious, Link::kSendNext, Link::kReceiveNext, Link::kSendPrevious};
    return {static_cast<size_t>(placement_.RankOf(Partner(link, chunk))), kOther[static_cast<int>(link)]};
  }
  // Runs the action at the rank's counter; false if it has to wait, is wrong, or there is none.
  bool Step(size_t rank) {
    State& state = states_[rank];
    if (!error_.ok() || state.position == ranks_[rank].size()) return false;
    const LoweredAction& action = ranks_[rank][state.position];
    if (action.kind == Kind::kWait) {
      if (!Wait(rank, action)) return false;
    } else if (action.kind == Kind::kPostReceive || action.kind == Kind::kPostSend) {
      Post(rank, action);
    } else if (action.kind == Kind::kWeightGradient) {
      ComputeWeights(rank, action);
    } else {
      Compute(rank, action);
    }
    if (!error_.ok()) return false;
    ++state.position;
    return true;
  }
  void Compute(size_t rank, const LoweredAction& action) {
    State& state = states_[rank];
    const bool forward = action.kind == Kind::kForward;
    const Piece piece{action.chunk, action.microbatch};
    const Link link = ReceiveLink(forward);
    const bool arrived = !HasPartner(link, action.chunk) || state.waited[static_cast<int>(link)].count(piece) != 0;
    if (!arrived) error_ = Failed(rank, action, "its operand was not waited for");
    const Piece given{Partner(link, action.chunk), action.microbatch};
    const bool meets = placement_.Meet(action.chunk, given.first);
    if (meets && !(forward ? state.forwards : state.backwards).count(given))
      error_ = Failed(rank, action, "its operand was not computed yet");
    if (!forward && !state.forwards.count(piece)) error_ = Failed(rank, action, "before its forward");
    if (!(forward ? state.forwards : state.backwards).insert(piece).second) error_ = Failed(rank, action, "twice");
    if (action.kind == Kind::kBackward) state.weights.insert(piece);
  }
  void ComputeWeights(size_t rank, const LoweredAction& action) {
    State& state = states_[rank];
    const Piece piece{action.chunk, action.microbatch};
    if (!state.backwards.count(piece)) error_ = Failed(rank, action, "before the gradient of its input");
    if (!state.weights.insert(piece).second) error_ = Failed(rank, action, "twice");
  }
  void Post(size_t rank, const LoweredAction& action) {
    State& state = states_[rank];
    const Piece piece{action.chunk, action.microbatch};
    if (!HasPartner(action.link, action.chunk)) {
      error_ = Failed(rank, action, "there is no such neighbour");
    } else if (action.kind == Kind::kPostSend &&
               !(action.link == Link::kSendNext ? state.forwards : state.backwards).count(piece)) {
      error_ = Failed(rank, action, "it was not computed yet");
    } else {
      state.channels[ChannelOf(action.link)].push_back({action.link, piece});
    }
  }
  bool Wait(size_t rank, const LoweredAction& action) {
    const int link = static_cast<int>(action.link);
    const Piece piece{action.chunk, action.microbatch};
    if (!states_[rank].done[link].count(piece)) return false;
    states_[rank].waited[link].insert(piece);
    return true;
  }
  // Lets one message through: both ends have it at the head of their channel. False if there is none.
  bool Deliver() {
    for (size_t rank = 0; rank < ranks_.size() && error_.ok(); ++rank) {
      for (const int channel : {0, 1}) {
        auto& mine = states_[rank].channels[channel];
        if (mine.empty()) continue;
        const End end = Peer(mine.front().link, mine.front().piece.first);
        auto& theirs = states_[end.rank].channels[channel];
        if (theirs.empty() || theirs.front().link != end.link) continue;
        if (Peer(end.link, theirs.front().piece.first).rank != rank) continue;
        if (!Meet(rank, mine.front(), theirs.front())) return false;
        states_[rank].done[static_cast<int>(mine.front().link)].insert(mine.front().piece);
        states_[end.rank].done[static_cast<int>(end.link)].insert(theirs.front().piece);
        mine.pop_front();
        theirs.pop_front();
        return true;
      }
    }
    return false;
  }
  // Whether two messages are the two ends of one.
  bool Meet(size_t rank, const Message& mine, const Message& theirs) {
    const Piece met{Partner(mine.link, mine.piece.first), mine.piece.second};
    if (met == theirs.piece) return true;
    const auto name = [&](const Piece& piece) {
      return loops_ ? absl::StrCat(piece.second, " of chunk ", piece.first) : absl::StrCat(piece.second);
    };
    error_ = absl::FailedPreconditionError(absl::StrCat("pipeline rank ", rank, ", ", comm::StreamName(StreamOfLink(mine.link)),
                                                        ": microbatch ", name(met), " meets microbatch ", name(theirs.piece)));
    return false;
  }
  absl::Status AllDone() const {
    std::string blocked;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      const State& state = states_[rank];
      if (state.position < ranks_[rank].size()) {
        absl::StrAppend(&blocked, blocked.empty() ? "" : "; ", "rank ", rank, " at \"",
                        Print(ranks_[rank][state.position], loops_), "\"");
      } else if (!state.channels[0].empty() || !state.channels[1].empty()) {
        absl::StrAppend(&blocked, blocked.empty() ? "" : "; ", "rank ", rank, " ends with a message under way");
      } else if (state.weights != state.backwards) {
        absl::StrAppend(&blocked, blocked.empty() ? "" : "; ", "rank ", rank, " leaves gradients of weights undone");
      } else if (!state.backwards.empty() && state.forwards != state.backwards) {
        absl::StrAppend(&blocked, blocked.empty() ? "" : "; ", "rank ", rank, " leaves a forward without backward");
      }
    }
    if (blocked.empty()) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat("pipeline does not end: ", blocked));
  }

  const Placement& placement_;
  const std::vector<std::vector<LoweredAction>>& ranks_;
  const bool loops_;
  std::vector<State> states_;
  absl::Status error_;
};

}  // namespace

int64_t StreamOfLink(Link link) {
  static constexpr int64_t kStreams[kLinkCount] = {comm::kSendNext, comm::kRecvPrevious, comm::kSendPrevious, comm::kRecvNext};
  return kStreams[static_cast<int>(link)];
}

std::vector<LoweredAction> Lowering::Rank(int64_t rank) const { return RankLowering(schedule_, times_, rank).Run(); }

LoweredSchedule Lower(const Schedule& schedule) {
  const Lowering lowering(schedule);
  LoweredSchedule lowered{schedule.placement, {}};
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) lowered.ranks.push_back(lowering.Rank(static_cast<int64_t>(rank)));
  return lowered;
}

absl::Status CheckLowered(const LoweredSchedule& lowered) { return Machine(lowered).Run(); }

std::string Print(const LoweredAction& action, bool with_chunk) {
  const std::string chunk = with_chunk ? absl::StrCat(action.chunk) : "";
  const std::string message = with_chunk ? absl::StrCat(chunk, ":", action.microbatch) : absl::StrCat(action.microbatch);
  const char* const link = comm::StreamName(StreamOfLink(action.link));
  switch (action.kind) {
    case Kind::kPostReceive:
    case Kind::kPostSend: return absl::StrCat(link, " ", message);
    case Kind::kWait: return absl::StrCat("wait ", link, " ", message);
    case Kind::kForward: return absl::StrCat(chunk, "F", action.microbatch);
    case Kind::kBackward: return absl::StrCat(chunk, "B", action.microbatch, action.reduce_gradients ? "!" : "");
    case Kind::kInputGradient: return absl::StrCat(chunk, "I", action.microbatch, action.reduce_gradients ? "!" : "");
    case Kind::kWeightGradient: return absl::StrCat(chunk, "W", action.microbatch, action.reduce_gradients ? "!" : "");
  }
  return "unknown";
}

std::string Print(const std::vector<LoweredAction>& actions) {
  const bool loops = std::any_of(actions.begin(), actions.end(), [&](const auto& a) { return a.chunk != actions[0].chunk; });
  return absl::StrJoin(actions, "\n", [&](std::string* out, const LoweredAction& action) { *out += Print(action, loops); });
}

}  // namespace legoai::parallel
