// Asynchronous tensor parallel on a Trace written by hand: what it leaves gives the same numbers on all ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/trace/annotation.h"
#include "core/trace/effects.h"
#include "core/trace/passes/pass_check.h"
#include "core/trace/passes/passes.h"
#include "core/trace/passes/pipeline.h"
#include "core/trace/passes/testing/lockstep.h"
#include "core/trace/testing/trace_builder.h"

namespace legoai::graph {
namespace {

using ::testing::IsEmpty;

// A region of one rank, as worker/parallel/tensor_parallel.cc records it: tokens are gathered, two products read them, a product
// of each is summed and scattered over the tokens, and so is a product alone; then the gradient of a weight reads all tokens.
class Region {
 public:
  using Tensor = TraceBuilder::Tensor;
  static constexpr int64_t kTokens = 3, kWidth = 4, kInner = 5;

  Region(int64_t rank, int64_t ranks, int64_t batch, bool keeps_tokens) : ranks_(ranks), batch_(batch), keeps_(keeps_tokens) {
    b_.AddGroup(mesh::Dim::kPp, {rank, 1, 1});
    group_ = b_.AddGroup(mesh::Dim::kTp, {0, 1, ranks});
  }

  Trace Make() {
    const Tensor local = b_.Input("local", {batch_, kTokens, kWidth});
    const Tensor whole = Gather(local);
    const Tensor a = Product(Flat(whole, kWidth), Weight("gate", kWidth, kInner), kInner);
    const Tensor c = Product(Flat(whole, kWidth), Weight("up", kWidth, kInner), kInner);
    outputs_["scattered"] = Scatter(Product(Flat(a, kInner), Weight("down", kInner, kWidth), kWidth));
    const Tensor sum = Product(Flat(c, kInner), Weight("other", kInner, kWidth), kWidth);
    const Tensor last = Product(Flat(a, kInner), Weight("last", kInner, kWidth), kWidth);
    if (keeps_) outputs_["gradient"] = Transposed(whole, a);
    b_.Op("aten::add_.Tensor", {sum, last, int64_t{1}}, {sum}, 1);
    b_.Free(b_.StorageOf(last));
    if (!keeps_) b_.Free(b_.StorageOf(whole));
    outputs_["sum"] = Scatter(sum);
    b_.Free(b_.StorageOf(a));
    Trace trace = b_.trace();
    for (const auto& [name, tensor] : outputs_) trace.outputs[name] = tensor.value;
    return trace;
  }

 private:
  Tensor Weight(const std::string& name, int64_t k, int64_t n) { return b_.Input(name, {k, n}); }
  Tensor Empty(std::vector<int64_t> sizes) {
    const Tensor made = b_.New(v1::FLOAT32, sizes);
    b_.Op("aten::empty.memory_format", {sizes}, {made});
    return made;
  }
  Tensor View(const char* name, Tensor of, std::vector<int64_t> sizes, std::vector<int64_t> strides) {
    const Tensor view = b_.View(b_.StorageOf(of), v1::FLOAT32, sizes, strides);
    b_.Op(name, {of}, {view});
    return view;
  }
  Tensor Flat(Tensor of, int64_t width) { return View("aten::view", of, {ranks_ * batch_ * kTokens, width}, {width, 1}); }

  Tensor Gather(Tensor local) {
    if (batch_ == 1) {
      const Tensor all = Empty({1, ranks_ * kTokens, kWidth});
      b_.Op("lego::all_gather_into", {all, local, group_}, {}, 1);
      return all;
    }
    const Tensor by_rank = Empty({ranks_, batch_, kTokens, kWidth});
    b_.Op("lego::all_gather_into", {by_rank, local, group_}, {}, 1);
    const int64_t block = kTokens * kWidth;
    const Tensor turned =
        View("aten::transpose.int", by_rank, {batch_, ranks_, kTokens, kWidth}, {block, batch_ * block, kWidth, 1});
    const Tensor copy = b_.New(v1::FLOAT32, {batch_, ranks_, kTokens, kWidth});
    b_.Op("aten::clone", {turned, int64_t{0}}, {copy});
    b_.Free(b_.StorageOf(by_rank));
    return View("aten::_unsafe_view", copy, {batch_, ranks_ * kTokens, kWidth}, {ranks_ * block, kWidth, 1});
  }
  Tensor Product(Tensor rows, Tensor weight, int64_t width) {
    const Tensor result = b_.New(v1::FLOAT32, {ranks_ * batch_ * kTokens, width});
    b_.Op("aten::mm", {rows, weight}, {result});
    return View("aten::view", result, {batch_, ranks_ * kTokens, width}, {ranks_ * kTokens * width, width, 1});
  }
  Tensor Scatter(Tensor partial) {
    const Tensor out = Empty({batch_, kTokens, kWidth});
    if (batch_ == 1) {
      b_.Op("lego::reduce_scatter_into", {out, partial, group_}, {}, 1);
    } else {
      const int64_t block = kTokens * kWidth;
      const Tensor turned =
          View("aten::transpose.int", partial, {ranks_, batch_, kTokens, kWidth}, {block, ranks_ * block, kWidth, 1});
      const Tensor copy = b_.New(v1::FLOAT32, {ranks_, batch_, kTokens, kWidth});
      b_.Op("aten::clone", {turned, int64_t{0}}, {copy});
      b_.Op("lego::reduce_scatter_into", {out, copy, group_}, {}, 1);
      b_.Free(b_.StorageOf(copy));
    }
    b_.Free(b_.StorageOf(partial));
    return out;
  }
  // Of all tokens' features with all tokens' activations.
  Tensor Transposed(Tensor whole, Tensor activation) {
    const Tensor turned = View("aten::t", Flat(whole, kWidth), {kWidth, ranks_ * batch_ * kTokens}, {1, kWidth});
    const Tensor result = b_.New(v1::FLOAT32, {kWidth, kInner});
    b_.Op("aten::mm", {turned, Flat(activation, kInner)}, {result});
    return result;
  }

  TraceBuilder b_;
  const int64_t ranks_, batch_;
  const bool keeps_;
  int64_t group_ = 0;
  std::map<std::string, Tensor> outputs_;
};

int64_t Count(const Trace& trace, const std::string& name) {
  return std::count_if(trace.instructions.begin(), trace.instructions.end(), [&](const Instruction& instruction) {
    return instruction.kind == Instruction::Kind::kOperator && trace.OperatorName(instruction) == name;
  });
}

TEST(AsyncTensorParallel, GivesTheNumbersOfAllRanks) {
  for (const int64_t ranks : {2, 3, 4}) {
    for (const int64_t batch : {1, 2}) {
      for (const bool keeps : {true, false}) {
        SCOPED_TRACE(absl::StrCat(ranks, " ranks, batch ", batch, keeps ? ", tokens kept" : ""));
        std::vector<Trace> before, after;
        for (int64_t rank = 0; rank < ranks; ++rank) {
          before.push_back(Region(rank, ranks, batch, keeps).Make());
          ASSERT_THAT(TraceFindings(before.back()), IsEmpty());
          const auto rewritten = AsyncTensorParallel(before.back());
          ASSERT_TRUE(rewritten.ok()) << rewritten.status();
          EXPECT_THAT(TraceFindings(*rewritten), IsEmpty());
          EXPECT_THAT(PassFindings(before.back(), *rewritten), IsEmpty());
          after.push_back(*rewritten);
        }
        Lockstep due(before, /*whole=*/true), got(after, /*whole=*/true);
        due.Run();
        got.Run();
        for (int64_t rank = 0; rank < ranks; ++rank) EXPECT_EQ(got.Results(rank), due.Results(rank)) << "rank " << rank;
        EXPECT_EQ(Count(after[0], "lego::all_gather_into") + Count(after[0], "lego::reduce_scatter_into"), 0);
        EXPECT_EQ(Count(after[0], "lego::rotate_into"), 3 * (ranks - 1));
        EXPECT_EQ(Count(after[0], "aten::mm.out"), 4 * ranks * batch) << "both products of what is gathered, and two scattered";
        // A copy of the tokens stays for the gradient of the weight, and none of what is scattered.
        EXPECT_EQ(Count(after[0], "aten::clone"), batch > 1 && keeps ? 1 : 0);
      }
    }
  }
}

// Each hop is under way while a product is computed.
TEST(AsyncTensorParallel, HasAProductBesideEachHop) {
  const Trace trace = *AsyncTensorParallel(Region(1, 4, 1, true).Make());
  int64_t hops = 0, covered = 0, products = 0;
  std::map<int64_t, int64_t> begun;  // event of a hop -> products before it
  for (const Instruction& instruction : trace.instructions) {
    if (instruction.kind != Instruction::Kind::kOperator) continue;
    products += trace.OperatorName(instruction) == "aten::mm.out" || trace.OperatorName(instruction) == "aten::mm";
    const auto event = EventOf(trace, instruction);
    if (!event) continue;
    if (event->is_record && event->stream == comm::kRotate) begun[event->event] = products, ++hops;
    if (!event->is_record && event->stream == comm::kCompute) covered += products > begun.at(event->event);
  }
  EXPECT_EQ(hops, 9);
  EXPECT_EQ(covered, hops);
}

// A product whose weight comes only after the first one is computed as a whole, where it was.
TEST(AsyncTensorParallel, LeavesProductsWhoseOperandsComeLater) {
  TraceBuilder b;
  b.AddGroup(mesh::Dim::kPp, {0, 1, 1});
  const int64_t group = b.AddGroup(mesh::Dim::kTp, {0, 1, 2});
  const auto local = b.Input("local", {1, 3, 4}), weight = b.Input("weight", {4, 5}), later = b.Input("later", {4, 5});
  const auto all = b.New(v1::FLOAT32, {1, 6, 4});
  b.Op("aten::empty.memory_format", {std::vector<int64_t>{1, 6, 4}}, {all});
  b.Op("lego::all_gather_into", {all, local, group}, {}, 1);
  const auto flat = b.View(b.StorageOf(all), v1::FLOAT32, {6, 4}, {4, 1});
  const auto first = b.New(v1::FLOAT32, {6, 5}), second = b.New(v1::FLOAT32, {6, 5}), third = b.New(v1::FLOAT32, {6, 5});
  b.Op("aten::view", {all}, {flat});
  b.Op("aten::mm", {flat, weight}, {first});
  b.Op("aten::copy_", {later, weight}, {}, 1);
  b.Op("aten::mm", {flat, later}, {second});
  b.Op("aten::mm", {flat, weight}, {third});
  const Trace after = *AsyncTensorParallel(b.trace());
  EXPECT_THAT(TraceFindings(after), IsEmpty());
  EXPECT_EQ(Count(after, "aten::mm"), 1);
  EXPECT_EQ(Count(after, "aten::mm.out"), 2 * 2);
}

// A product whose weight another stream brings, and whose wait comes only after the first product.
TEST(AsyncTensorParallel, LeavesProductsWhoseOperandsAreWaitedForLater) {
  for (const bool waits_first : {true, false}) {
    TraceBuilder b;
    b.AddGroup(mesh::Dim::kPp, {0, 1, 1});
    const int64_t group = b.AddGroup(mesh::Dim::kTp, {0, 1, 2});
    const auto local = b.Input("local", {1, 3, 4}), weight = b.Input("weight", {4, 5}), other = b.Input("other", {4, 5});
    b.Op("test::fill", {other}, {}, 1).stream = comm::kAllGather;
    b.RecordEvent(comm::kAllGather, 1);
    const auto all = b.New(v1::FLOAT32, {1, 6, 4});
    b.Op("aten::empty.memory_format", {std::vector<int64_t>{1, 6, 4}}, {all});
    b.Op("lego::all_gather_into", {all, local, group}, {}, 1);
    const auto flat = b.View(b.StorageOf(all), v1::FLOAT32, {6, 4}, {4, 1});
    const auto first = b.New(v1::FLOAT32, {6, 5}), second = b.New(v1::FLOAT32, {6, 5}), third = b.New(v1::FLOAT32, {6, 5});
    b.Op("aten::view", {all}, {flat});
    if (waits_first) b.WaitEvent(comm::kCompute, 1);
    b.Op("aten::mm", {flat, weight}, {first});
    if (!waits_first) b.WaitEvent(comm::kCompute, 1);
    b.Op("aten::mm", {flat, other}, {second});
    b.Op("aten::mm", {flat, weight}, {third});
    ASSERT_THAT(TraceFindings(b.trace()), IsEmpty());
    const Trace after = *AsyncTensorParallel(b.trace());
    EXPECT_THAT(TraceFindings(after), IsEmpty());
    EXPECT_EQ(Count(after, "aten::mm"), waits_first ? 0 : 1);
    EXPECT_EQ(Count(after, "aten::mm.out"), waits_first ? 3 * 2 : 2 * 2);
  }
}

// What another operator reads first stays as it is, and so do groups of one rank.
TEST(AsyncTensorParallel, LeavesWhatNoProductReads) {
  TraceBuilder b;
  const int64_t group = b.AddGroup(mesh::Dim::kTp, {0, 1, 2});
  const auto local = b.Input("local", {1, 3, 4}), all = b.New(v1::FLOAT32, {1, 6, 4}), out = b.New(v1::FLOAT32, {1, 6, 4});
  b.Op("aten::empty.memory_format", {std::vector<int64_t>{1, 6, 4}}, {all});
  b.Op("lego::all_gather_into", {all, local, group}, {}, 1);
  b.Op("aten::silu", {all}, {out});
  EXPECT_EQ(AsyncTensorParallel(b.trace())->Dump(false), b.trace().Dump(false));
}

}  // namespace
}  // namespace legoai::graph
