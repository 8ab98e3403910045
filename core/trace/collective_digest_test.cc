#include "core/trace/collective_digest.h"

#include <gtest/gtest.h>

#include "core/trace/annotation.h"
#include "core/trace/testing/trace_builder.h"

namespace legoai::graph {
namespace {

// Two all-gathers and a reduction in one group, an all-reduce in another, a message in the first.
struct Calls {
  int64_t offset = 0;  // of what the rank gathers from
  bool swapped = false;
  v1::DType dtype = v1::FLOAT32;
  int64_t elements = 8, reduction = 0, peer = 1;
  uint16_t stream = comm::kAllGather;
};

std::vector<uint64_t> Digests(const Calls& calls) {
  TraceBuilder b;
  const int64_t shard = b.AddGroup(mesh::Dim::kDpShard, {0, 1, 2}), tp = b.AddGroup(mesh::Dim::kTp, {0, 2, 2});
  const auto whole = b.New(calls.dtype, {calls.elements}), other = b.New(v1::FLOAT32, {32});
  const auto part = b.New(calls.dtype, {calls.elements / 2}), sum = b.New(v1::FLOAT32, {3});
  const auto gather = [&](TraceBuilder::Tensor out) {
    b.Op("lego::all_gather_into", {out, part, shard}, {}, 1).stream = calls.stream;
  };
  gather(calls.swapped ? other : whole);
  b.Op("lego::send", {part, shard, calls.peer}, {});
  b.Op("aten::add_", {sum, sum}, {}, 1);
  gather(calls.swapped ? whole : other);
  b.Op("lego::reduce_scatter_into", {part, whole, shard, calls.reduction}, {}, 1);
  b.Op("lego::all_reduce_", {sum, tp, int64_t{0}}, {}, 1);
  Trace trace = b.trace();
  trace.geometries[trace.values[part.value].geometry].offset = calls.offset;
  return CollectiveDigests(trace);
}

TEST(CollectiveDigests, AreOfWhatAllRanksOfAGroupDo) {
  const auto digests = Digests({});
  ASSERT_EQ(digests.size(), 2u);
  EXPECT_NE(digests[0], digests[1]);
  EXPECT_EQ(Digests({}), digests);
  EXPECT_EQ(Digests({.offset = 64}), digests) << "where a rank's part lies is its own";
  EXPECT_EQ(Digests({.peer = 0}), digests) << "the ends of a message differ";
}

TEST(CollectiveDigests, DifferByOrderTypeSizeReductionAndStream) {
  const auto digests = Digests({});
  for (const Calls& calls : {Calls{.swapped = true}, Calls{.dtype = v1::BFLOAT16}, Calls{.elements = 16}, Calls{.reduction = 1},
                             Calls{.stream = comm::kReduceScatter}}) {
    EXPECT_NE(Digests(calls)[0], digests[0]);
    EXPECT_EQ(Digests(calls)[1], digests[1]) << "the other group's are the same";
  }
}

// Other ranks are other processes, perhaps on other machines. The number is from FNV-1a in Python.
TEST(CollectiveDigests, AreTheSameEverywhere) {
  TraceBuilder b;
  b.AddGroup(mesh::Dim::kWorld, {0, 1, 2});
  EXPECT_EQ(CollectiveDigests(b.trace()), std::vector<uint64_t>{9765409363260083169ull});
}

}  // namespace
}  // namespace legoai::graph
