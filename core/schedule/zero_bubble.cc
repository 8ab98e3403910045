#include "core/schedule/zero_bubble.h"

#include <algorithm>
#include <array>
#include <deque>

namespace legoai::parallel {
namespace {

using Kind = Action::Kind;

// The actions of a rank with two chunks in a V, each chunk's microbatches in order.
class VOrder {
 public:
  VOrder(int64_t ranks, int64_t rank) : chunks_{rank, 2 * ranks - 1 - rank} {}

  void Forward(int leg) { Add(Kind::kForward, leg, forwards_[leg]++); }
  void Backward(int leg) { Add(Kind::kBackward, leg, gradients_[leg]++); }
  // Its weight gradients wait until they are asked for, first come, first served.
  void InputGradient(int leg) {
    waiting_.push_back({Kind::kWeightGradient, static_cast<int32_t>(chunks_[leg]), gradients_[leg]});
    Add(Kind::kInputGradient, leg, gradients_[leg]++);
  }
  void WeightGradient() {
    actions_.push_back(waiting_.front());
    waiting_.pop_front();
  }
  // The first one of a leg.
  void WeightGradientOf(int leg) {
    const auto first = std::find_if(waiting_.begin(), waiting_.end(), [&](const Action& a) { return a.chunk == chunks_[leg]; });
    actions_.push_back(*first);
    waiting_.erase(first);
  }
  bool Waits(int leg) const {
    return std::any_of(waiting_.begin(), waiting_.end(), [&](const Action& a) { return a.chunk == chunks_[leg]; });
  }
  int32_t forwards(int leg) const { return forwards_[leg]; }

  // Without microbatches that the step does not have.
  std::vector<Action> Take(int64_t microbatches) {
    std::erase_if(actions_, [&](const Action& action) { return action.microbatch >= microbatches; });
    return std::move(actions_);
  }

 private:
  void Add(Kind kind, int leg, int32_t microbatch) { actions_.push_back({kind, static_cast<int32_t>(chunks_[leg]), microbatch}); }

  std::array<int64_t, 2> chunks_;  // on the way down, and back up
  std::array<int32_t, 2> forwards_ = {0, 0}, gradients_ = {0, 0};
  std::deque<Action> waiting_;
  std::vector<Action> actions_;
};

}  // namespace

std::vector<Action> InterleavedZeroBubble(const std::vector<Action>& forwards, const std::vector<Action>& gradients,
                                          int64_t ahead, int64_t rank) {
  const int64_t count = forwards.size();
  std::vector<Action> actions(forwards.begin(), forwards.begin() + std::min(ahead, count));
  const auto weights_of = [&](int64_t i) {
    actions.push_back({Kind::kWeightGradient, gradients[i].chunk, gradients[i].microbatch});
  };
  for (int64_t i = 0; i < count; ++i) {
    if (i + ahead < count) actions.push_back(forwards[i + ahead]);
    actions.push_back({Kind::kInputGradient, gradients[i].chunk, gradients[i].microbatch});
    if (i >= rank) weights_of(i - rank);
  }
  for (int64_t i = std::max<int64_t>(0, count - rank); i < count; ++i) weights_of(i);
  return actions;
}

std::vector<Action> ZbvZeroBubble(int64_t ranks, int64_t microbatches, int64_t rank) {
  const int64_t full = std::max(2 * ranks - 1, microbatches);  // what fills the V; those beyond the step's are left out
  VOrder order(ranks, rank);
  const auto both_gradients = [&](int leg) {
    order.InputGradient(leg);
    order.WeightGradientOf(leg);
  };
  for (int64_t i = 0; i < 2 * (ranks - rank) - 1; ++i) order.Forward(0);
  for (int64_t i = 0; i < rank; ++i) order.Forward(1), order.Forward(0);
  for (int64_t i = 0; i < ranks - rank; ++i) order.Forward(1), both_gradients(1);
  while (order.forwards(1) < order.forwards(0) || order.forwards(0) < full) {
    if (order.forwards(0) < full) order.Forward(0);
    both_gradients(0);
    order.Forward(1);
    both_gradients(1);
  }
  for (int64_t i = 0; i < rank; ++i) order.InputGradient(0), order.InputGradient(1);
  for (int64_t i = 0; i < ranks - rank; ++i) order.InputGradient(0), order.WeightGradientOf(0);
  for (const int leg : {1, 0}) {
    while (order.Waits(leg)) order.WeightGradientOf(leg);
  }
  return order.Take(microbatches);
}

std::vector<Action> DualPipeV(int64_t ranks, int64_t microbatches, int64_t rank) {
  VOrder order(ranks, rank);
  const int64_t after = ranks - rank - 1;  // ranks below this one
  for (int64_t i = 0; i < 2 * after; ++i) order.Forward(0);
  for (int64_t i = 0; i <= rank; ++i) order.Forward(0), order.Forward(1);
  for (int64_t i = 0; i < after; ++i) order.InputGradient(1), order.WeightGradient(), order.Forward(1);
  for (int64_t i = 0; i < microbatches - 2 * ranks + rank + 1; ++i) {
    order.Forward(0), order.Backward(1);
    order.Forward(1), order.Backward(0);
  }
  for (int64_t i = 0; i < after; ++i) order.Backward(1), order.Forward(1), order.Backward(0);
  // From the middle on the weight gradients are kept for the end; odd ranks begin with the way back up.
  const int64_t middle = (rank + 1) / 2;
  bool part = false;
  const auto backward = [&](int leg) { part ? order.InputGradient(leg) : order.Backward(leg); };
  for (int64_t i = 0; i <= rank; ++i) {
    part = part || (i == middle && rank % 2 == 1);
    backward(1);
    part = part || (i == middle && rank % 2 == 0);
    backward(0);
  }
  for (int64_t i = 0; i < after; ++i) order.WeightGradient(), order.InputGradient(0);
  for (int64_t i = 0; i <= rank; ++i) order.WeightGradient();
  return order.Take(microbatches);
}

std::vector<Action> InV(v1::PipelineSchedule kind, int64_t ranks, int64_t microbatches, int64_t rank) {
  return (kind == v1::DUALPIPE_V ? DualPipeV : ZbvZeroBubble)(ranks, microbatches, rank);
}

}  // namespace legoai::parallel
