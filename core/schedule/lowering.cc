#include "core/schedule/lowering.h"

#include <array>
#include <deque>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/trace/stream_ids.h"

namespace legoai::parallel {
namespace {

using Kind = LoweredAction::Kind;

// Appends lowered actions of one rank.
class Lowering {
 public:
  Lowering(const std::vector<Action>& actions, int64_t rank, int64_t ranks)
      : actions_(actions), first_(rank == 0), last_(rank + 1 == ranks) {}

  std::vector<LoweredAction> Run() {
    if (!actions_.empty()) PostReceive(actions_[0]);
    for (size_t i = 0; i < actions_.size(); ++i) {
      if (Receives(actions_[i])) Add(Kind::kWait, actions_[i], ReceiveLink(actions_[i]));
      if (i + 1 < actions_.size()) PostReceive(actions_[i + 1]);
      // The last action of a training step is a backward: every forward has one after it.
      Compute(actions_[i], i + 1 == actions_.size());
    }
    for (Link link : {Link::kSendNext, Link::kSendPrevious}) WaitForSend(link);
    return std::move(lowered_);
  }

 private:
  static bool IsForward(const Action& action) { return action.kind == Action::Kind::kForward; }
  bool Receives(const Action& action) const { return IsForward(action) ? !first_ : !last_; }
  bool Sends(const Action& action) const { return IsForward(action) ? !last_ : !first_; }
  static Link ReceiveLink(const Action& action) { return IsForward(action) ? Link::kReceivePrevious : Link::kReceiveNext; }
  static Link SendLink(const Action& action) { return IsForward(action) ? Link::kSendNext : Link::kSendPrevious; }

  void Add(Kind kind, const Action& action, Link link) {
    lowered_.push_back({kind, action.stage, action.microbatch, link, false});
  }
  void PostReceive(const Action& action) {
    if (Receives(action)) Add(Kind::kPostReceive, action, ReceiveLink(action));
  }
  void WaitForSend(Link link) {
    std::optional<Action>& under_way = under_way_[static_cast<int>(link)];
    if (under_way) Add(Kind::kWait, *under_way, link);
    under_way.reset();
  }
  void Compute(const Action& action, bool is_last) {
    Add(IsForward(action) ? Kind::kForward : Kind::kBackward, action, Link::kSendNext);
    lowered_.back().reduce_gradients = is_last && !IsForward(action);
    if (!Sends(action)) return;
    WaitForSend(SendLink(action));
    Add(Kind::kPostSend, action, SendLink(action));
    under_way_[static_cast<int>(SendLink(action))] = action;
  }

  const std::vector<Action>& actions_;
  const bool first_, last_;
  std::array<std::optional<Action>, kLinkCount> under_way_;
  std::vector<LoweredAction> lowered_;
};

// The ranks of a pipeline as little machines: a program counter and two channels, each with its messages in the order of posting.
class Machine {
 public:
  explicit Machine(const std::vector<std::vector<LoweredAction>>& ranks) : ranks_(ranks), states_(ranks.size()) {}

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
  struct Message {
    Link link;
    int32_t microbatch;
  };
  struct State {
    size_t position = 0;
    std::array<std::deque<Message>, 2> channels;
    std::array<std::set<int32_t>, kLinkCount> done, waited;
    std::set<int32_t> forwards, backwards;
  };
  // kSendNext meets the neighbour's kReceivePrevious on one channel, kSendPrevious and kReceiveNext on the other.
  static int ChannelOf(Link link) { return link == Link::kSendNext || link == Link::kReceivePrevious ? 0 : 1; }

  absl::Status Failed(size_t rank, const LoweredAction& action, const char* why) const {
    return absl::FailedPreconditionError(absl::StrCat("pipeline rank ", rank, ", \"", Print(action), "\": ", why));
  }
  struct End {
    size_t rank;
    Link link;
  };
  // The other end of a link.
  std::optional<End> Peer(size_t rank, Link link) const {
    switch (link) {
      case Link::kSendNext:
        return rank + 1 < ranks_.size() ? std::optional<End>({rank + 1, Link::kReceivePrevious}) : std::nullopt;
      case Link::kReceiveNext:
        return rank + 1 < ranks_.size() ? std::optional<End>({rank + 1, Link::kSendPrevious}) : std::nullopt;
      case Link::kSendPrevious: return rank > 0 ? std::optional<End>({rank - 1, Link::kReceiveNext}) : std::nullopt;
      case Link::kReceivePrevious: return rank > 0 ? std::optional<End>({rank - 1, Link::kSendNext}) : std::nullopt;
    }
    return std::nullopt;
  }
  // Runs the action at the rank's counter; false if it has to wait, is wrong, or there is none.
  bool Step(size_t rank) {
    State& state = states_[rank];
    if (!error_.ok() || state.position == ranks_[rank].size()) return false;
    const LoweredAction& action = ranks_[rank][state.position];
    if (action.kind == Kind::kWait) {
      if (!Wait(rank, action)) return false;
    } else if (action.kind == Kind::kForward || action.kind == Kind::kBackward) {
      Compute(rank, action);
    } else {
      Post(rank, action);
    }
    if (!error_.ok()) return false;
    ++state.position;
    return true;
  }
  void Compute(size_t rank, const LoweredAction& action) {
    State& state = states_[rank];
    const bool forward = action.kind == Kind::kForward;
    const bool receives = forward ? rank > 0 : rank + 1 < ranks_.size();
    const auto& arrived = state.waited[static_cast<int>(forward ? Link::kReceivePrevious : Link::kReceiveNext)];
    if (receives && !arrived.count(action.microbatch)) error_ = Failed(rank, action, "its operand was not waited for");
    if (!forward && !state.forwards.count(action.microbatch)) error_ = Failed(rank, action, "before its forward");
    if (!(forward ? state.forwards : state.backwards).insert(action.microbatch).second) error_ = Failed(rank, action, "twice");
  }
  void Post(size_t rank, const LoweredAction& action) {
    State& state = states_[rank];
    if (!Peer(rank, action.link)) {
      error_ = Failed(rank, action, "there is no such neighbour");
    } else if (action.kind == Kind::kPostSend &&
               !(action.link == Link::kSendNext ? state.forwards : state.backwards).count(action.microbatch)) {
      error_ = Failed(rank, action, "it was not computed yet");
    } else {
      state.channels[ChannelOf(action.link)].push_back({action.link, action.microbatch});
    }
  }
  bool Wait(size_t rank, const LoweredAction& action) {
    const int link = static_cast<int>(action.link);
    if (!states_[rank].done[link].count(action.microbatch)) return false;
    states_[rank].waited[link].insert(action.microbatch);
    return true;
  }
  // Lets one message through: both ends have it at the head of their channel. False if there is none.
  bool Deliver() {
    for (size_t rank = 0; rank < ranks_.size() && error_.ok(); ++rank) {
      for (int channel : {0, 1}) {
        auto& mine = states_[rank].channels[channel];
        const std::optional<End> end = mine.empty() ? std::nullopt : Peer(rank, mine.front().link);
        if (!end) continue;
        auto& theirs = states_[end->rank].channels[channel];
        if (theirs.empty() || theirs.front().link != end->link) continue;
        const int32_t microbatch = mine.front().microbatch;
        if (microbatch != theirs.front().microbatch) {
          error_ = absl::FailedPreconditionError(absl::StrCat("pipeline rank ", rank, ", ",
                                                              comm::StreamName(StreamOfLink(mine.front().link)), ": microbatch ",
                                                              microbatch, " meets microbatch ", theirs.front().microbatch));
          return false;
        }
        states_[rank].done[static_cast<int>(mine.front().link)].insert(microbatch);
        states_[end->rank].done[static_cast<int>(end->link)].insert(microbatch);
        mine.pop_front();
        theirs.pop_front();
        return true;
      }
    }
    return false;
  }
  absl::Status AllDone() const {
    std::string blocked;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      const State& state = states_[rank];
      if (state.position < ranks_[rank].size()) {
        absl::StrAppend(&blocked, blocked.empty() ? "" : "; ", "rank ", rank, " at \"", Print(ranks_[rank][state.position]),
                        "\"");
      } else if (!state.channels[0].empty() || !state.channels[1].empty()) {
        absl::StrAppend(&blocked, blocked.empty() ? "" : "; ", "rank ", rank, " ends with a message under way");
      } else if (!state.backwards.empty() && state.forwards != state.backwards) {
        absl::StrAppend(&blocked, blocked.empty() ? "" : "; ", "rank ", rank, " leaves a forward without backward");
      }
    }
    if (blocked.empty()) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat("pipeline does not end: ", blocked));
  }

  const std::vector<std::vector<LoweredAction>>& ranks_;
  std::vector<State> states_;
  absl::Status error_;
};

}  // namespace

int64_t StreamOfLink(Link link) {
  static constexpr int64_t kStreams[kLinkCount] = {comm::kSendNext, comm::kRecvPrevious, comm::kSendPrevious, comm::kRecvNext};
  return kStreams[static_cast<int>(link)];
}

std::vector<LoweredAction> Lower(const Schedule& schedule, int64_t rank) {
  return Lowering(schedule[rank], rank, schedule.size()).Run();
}

absl::Status CheckLowered(const std::vector<std::vector<LoweredAction>>& ranks) { return Machine(ranks).Run(); }

std::string Print(const LoweredAction& action) {
  const char* const link = comm::StreamName(StreamOfLink(action.link));
  switch (action.kind) {
    case Kind::kPostReceive:
    case Kind::kPostSend: return absl::StrCat(link, " ", action.microbatch);
    case Kind::kWait: return absl::StrCat("wait ", link, " ", action.microbatch);
    case Kind::kForward: return absl::StrCat("F", action.microbatch);
    case Kind::kBackward: return absl::StrCat("B", action.microbatch, action.reduce_gradients ? "!" : "");
  }
  return "unknown";
}

std::string Print(const std::vector<LoweredAction>& actions) {
  return absl::StrJoin(actions, "\n", [](std::string* out, const LoweredAction& action) { absl::StrAppend(out, Print(action)); });
}

}  // namespace legoai::parallel
