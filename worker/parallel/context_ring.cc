#include "worker/parallel/context_ring.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

#include <utility>
#include <vector>

#include "core/trace/annotation.h"
#include "worker/comm/ops.h"
#include "worker/comm/runtime.h"

namespace legoai::parallel {
namespace {

using at::Tensor;

// Keys and values travel as one tensor, and so do their gradients: [2, batch, seq / cp, kv_heads, head_dim], without a copy where
// attention takes them: each lies by token.
Tensor Pack(const Tensor& k, const Tensor& v) { return at::stack({k.transpose(1, 2), v.transpose(1, 2)}); }
Tensor KeysOf(const Tensor& packed) { return packed.select(0, 0).transpose(1, 2); }
Tensor ValuesOf(const Tensor& packed) { return packed.select(0, 1).transpose(1, 2); }

// Hops round the ring, on a stream of their own. What a hop sends is ready where the compute stream stands when it is asked for.
class Ring {
 public:
  explicit Ring(const ContextPlace& place) : place_(place) {}

  enum What : int64_t { kKeysAndValues = 1, kGradients = 2 };  // added to ContextPlace::events

  // `sent` to the next rank; the result is what comes from the one before, after Await(what). One hop of each kind at a time.
  Tensor Pass(const Tensor& sent, What what) {
    const Tensor received = at::empty_like(sent);
    comm::RecordEvent(comm::kCompute, place_.events);
    comm::WaitEvent(comm::kRotate, place_.events);
    const comm::StreamScope stream(comm::kRotate);
    comm::RotateInto(received, sent, place_.group);
    comm::RecordEvent(comm::kRotate, place_.events + what);
    return received;
  }
  void Await(What what) { comm::WaitEvent(comm::kCompute, place_.events + what); }

 private:
  const ContextPlace& place_;
};

// One step of a ring: whose keys and values are here, and which blocks of them this rank's queries see.
class Step {
 public:
  Step(const ContextPlace& place, int64_t step, int64_t tokens)
      : place_(place), owner_((place.index - step + place.size) % place.size), length_(tokens / place.parts) {}

  // A part of a rank's tokens [batch, heads, seq / cp, ...].
  Tensor Cut(const Tensor& tensor, int64_t part) const { return tensor.narrow(2, part * length_, length_); }

  // Calls visit(part of the queries, part of the keys, whether causal). Of two whole parts the later sees all of the earlier, and
  // the earlier nothing of the later. All ranks have as many blocks with head-tail balance, and all of one size.
  template <class Visit>
  void ForEachBlock(Visit visit) const {
    for (int64_t mine = 0; mine < place_.parts; ++mine) {
      for (int64_t theirs = 0; theirs < place_.parts; ++theirs) {
        const int64_t queries = PartOf(place_, place_.index, mine), keys = PartOf(place_, owner_, theirs);
        if (keys <= queries) visit(mine, theirs, keys == queries);
      }
    }
  }

 private:
  const ContextPlace& place_;
  const int64_t owner_, length_;
};

// The gradients of one block of keys and values.
struct OfBlock {
  int64_t part;
  Tensor k, v;
};

}  // namespace

Attended RingForward(const Tensor& q, const Tensor& k, const Tensor& v, const ContextPlace& place) {
  Ring ring(place);
  std::vector<Attended> merged(place.parts);
  Tensor here = Pack(k, v), next;
  for (int64_t i = 0; i < place.size; ++i) {
    if (i > 0) ring.Await(Ring::kKeysAndValues), here = std::move(next);
    if (i + 1 < place.size) next = ring.Pass(here, Ring::kKeysAndValues);
    const Step step(place, i, q.size(2));
    const Tensor keys = KeysOf(here), values = ValuesOf(here);
    step.ForEachBlock([&](int64_t mine, int64_t theirs, bool causal) {
      const Attended block = Attend(step.Cut(q, mine), step.Cut(keys, theirs), step.Cut(values, theirs), causal);
      merged[mine] = merged[mine].out.defined() ? Merge(merged[mine], block) : block;
    });
  }
  return JoinAttended(merged, q.scalar_type());
}

// The sum of the gradients of a rank's keys and values begins at the next rank and goes round behind them, so it comes home one
// hop after the last of the others has added its part; there the rank's own part waits. A sum comes while gradients are computed
// that are added to it, so these wait, too.
AttentionGradients RingBackward(const Tensor& gradient, const Tensor& q, const Tensor& k, const Tensor& v,
                                const Attended& attended, const ContextPlace& place) {
  Ring ring(place);
  std::vector<Tensor> of_queries(place.parts);
  Tensor here = Pack(k, v), next, own, sum;
  for (int64_t i = 0; i < place.size; ++i) {
    if (i > 0) ring.Await(Ring::kKeysAndValues), here = std::move(next);
    if (i + 1 < place.size) next = ring.Pass(here, Ring::kKeysAndValues);
    const Step step(place, i, q.size(2));
    const Tensor keys = KeysOf(here), values = ValuesOf(here);
    std::vector<OfBlock> blocks;
    step.ForEachBlock([&](int64_t mine, int64_t theirs, bool causal) {
      const Attended of_part{step.Cut(attended.out, mine), step.Cut(attended.lse, mine)};
      const AttentionGradients block = AttendBackward(step.Cut(gradient, mine), step.Cut(q, mine), step.Cut(keys, theirs),
                                                      step.Cut(values, theirs), of_part, causal);
      of_queries[mine] = of_queries[mine].defined() ? of_queries[mine].add_(block.q) : block.q;
      blocks.push_back({theirs, block.k, block.v});
    });
    if (i > 1) ring.Await(Ring::kGradients);
    if (i < 2) sum = at::zeros_like(here);
    for (const OfBlock& block : blocks) {
      step.Cut(KeysOf(sum), block.part).add_(block.k);
      step.Cut(ValuesOf(sum), block.part).add_(block.v);
    }
    if (i == 0) {
      own = std::move(sum);
    } else {
      sum = ring.Pass(sum, Ring::kGradients);
    }
  }
  ring.Await(Ring::kGradients);
  own.add_(sum);
  return {Join(of_queries), KeysOf(own), ValuesOf(own)};
}

}  // namespace legoai::parallel
