#include "worker/comm/ops.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "core/trace/effects.h"
#include "worker/comm/testing/process_group_test_util.h"

namespace legoai::comm {
namespace {

using mesh::Mesh;
using testing::RunRanks;

float At(const at::Tensor& tensor, int64_t i) { return tensor.to(at::kFloat).const_data_ptr<float>()[i]; }

TEST(Collectives, GiveWhatTheirNamesSay) {
  for (int64_t world : {1, 2, 3, 4}) {
    RunRanks({.dp_shard = world}, [world](int64_t rank, Runtime& runtime) {
      const int64_t group = runtime.GroupId(mesh::Dim::kDpShard);
      for (auto dtype : {at::kFloat, at::kBFloat16}) {
        auto gathered = at::empty({world * 3}, dtype);
        AllGatherInto(gathered, at::full({3}, double(rank), dtype), group);
        for (int64_t i = 0; i < world * 3; ++i) EXPECT_EQ(At(gathered, i), i / 3);

        const int64_t ranks = world * (world + 1) / 2;
        for (int64_t count : {2, 5, 1}) {  // what a communicator keeps from one call does not matter to the next
          auto part = at::empty({count}, dtype);
          const auto parts = at::arange(world * count, dtype) * (rank + 1), before = parts.clone();
          ReduceScatterInto(part, parts, group);
          for (int64_t i = 0; i < count; ++i) EXPECT_EQ(At(part, i), (rank * count + i) * ranks);
          for (int64_t i = 0; i < world * count; ++i) EXPECT_EQ(At(parts, i), At(before, i));
        }

        auto sum = at::full({5}, double(rank + 1), dtype);
        AllReduce(sum, group);
        EXPECT_EQ(At(sum, 4), ranks);
        auto largest = at::full({1}, double(rank), dtype);
        AllReduce(largest, group, ReduceOp::kMax);
        EXPECT_EQ(At(largest, 0), world - 1);
      }
      auto in = at::arange(world, at::kFloat) + 10 * rank;
      auto out = at::empty({world});
      AllToAllInto(out, in, group);
      for (int64_t i = 0; i < world; ++i) EXPECT_EQ(At(out, i), 10 * i + rank);
      auto from_previous = at::empty({1000});
      for (int64_t round = 0; round < 3; ++round) {
        RotateInto(from_previous, at::full({1000}, double(10 * rank + round)), group);
        EXPECT_EQ(At(from_previous, 999), 10 * ((rank + world - 1) % world) + round);
      }
      auto from_root = at::full({2}, double(rank));
      Broadcast(from_root, group, world - 1);
      EXPECT_EQ(At(from_root, 1), world - 1);
    });
  }
}

TEST(Collectives, SideStreamsAreOrderedByEvents) {
  RunRanks({.dp_shard = 2}, [](int64_t rank, Runtime& runtime) {
    const int64_t group = runtime.GroupId(mesh::Dim::kDpShard), fork = runtime.NewEvent(), done = runtime.NewEvent();
    auto out = at::empty({1 << 20});
    for (int round = 0; round < 20; ++round) {
      auto in = at::full({1 << 19}, double(round + rank));
      RecordEvent(kCompute, fork);
      WaitEvent(kAllGather, fork);
      {
        StreamScope stream(kAllGather);
        AllGatherInto(out, in, group);
        RecordEvent(kAllGather, done);
      }
      WaitEvent(kCompute, done);
      EXPECT_EQ(At(out, 0), round);
      EXPECT_EQ(At(out, (1 << 20) - 1), round + 1);
    }
  });
}

TEST(Messages, ArriveInOrderOnBothDirections) {
  RunRanks({.pp = 3}, [](int64_t rank, Runtime& runtime) {
    const int64_t group = runtime.GroupId(mesh::Dim::kPp), sent = runtime.NewEvent(), got = runtime.NewEvent();
    for (int i = 0; i < 10; ++i) {
      auto from_previous = at::zeros({100}), payload = at::full({100}, 1000.0 * rank + i);
      if (rank > 0) {
        StreamScope stream(kRecvPrevious);
        Recv(from_previous, group, rank - 1);
        RecordEvent(kRecvPrevious, got);
      }
      if (rank < 2) {
        StreamScope stream(kSendNext);
        Send(payload, group, rank + 1);
        RecordEvent(kSendNext, sent);
      }
      if (rank > 0) {
        WaitEvent(kCompute, got);
        EXPECT_EQ(At(from_previous, 99), 1000 * (rank - 1) + i);
      }
      if (rank < 2) WaitEvent(kCompute, sent);
    }
  });
}

TEST(Lifetimes, StoragesAreHeldUntilTheComputeStreamWaits) {
  auto runtime = Runtime::Create(0, Mesh{.dp_replicate = 2, .dp_shard = 2}.Groups(0), MakeFakeStreams(), nullptr);
  ASSERT_TRUE(runtime.ok());
  RuntimeScope scope(runtime->get());
  const int64_t group = (*runtime)->GroupId(mesh::Dim::kDpShard);
  auto tensor = at::zeros({4}), out = at::zeros({2});
  auto uses = [&] { return tensor.storage().use_count(); };
  const auto before = uses();
  RecordEvent(kCompute, 1);
  WaitEvent(kReduceScatter, 1);
  {
    StreamScope stream(kReduceScatter);
    ReduceScatterInto(out, tensor, group);
    RecordEvent(kReduceScatter, 2);
  }
  EXPECT_GT(uses(), before);
  WaitEvent(kCompute, 1);  // an event of another stream, recorded earlier: says nothing of the reduction
  EXPECT_GT(uses(), before);
  WaitEvent(kReplicate, 2);
  RecordEvent(kReplicate, 3);
  EXPECT_GT(uses(), before);
  WaitEvent(kCompute, 3);  // through another stream
  EXPECT_EQ(uses(), before);
}

TEST(Resize, ViewsSeeTheNewMemory) {
  auto tensor = at::full({8}, 3.0);
  auto view = tensor.narrow(0, 4, 4);
  ResizeStorage(tensor, 0);
  EXPECT_EQ(view.storage().nbytes(), 0u);
  auto runtime = Runtime::Create(0, Mesh{}.Groups(0), MakeThreadStreams(), NoCommunicator);
  RuntimeScope scope(runtime->get());
  EXPECT_THROW(AllReduce(tensor, 0), c10::Error);  // resized away
  ResizeStorage(tensor, 32);
  tensor.fill_(2.0);
  EXPECT_EQ(At(view, 3), 2.0);
}

TEST(Errors, ALostPeerIsAnErrorNotAHang) {
  RunRanks({.dp_shard = 2}, [](int64_t rank, Runtime& runtime) {
    auto tensor = at::zeros({4});
    AllReduce(tensor, runtime.GroupId(mesh::Dim::kDpShard));  // the other has connected all its groups
    if (rank == 1) _exit(0);
    EXPECT_THROW(AllReduce(tensor, runtime.GroupId(mesh::Dim::kDpShard)), c10::Error);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  });
}

// The places of core/trace/effects.h are those of the schemas with which the operators are registered.
std::map<std::string, int> PlacesOf(const c10::FunctionSchema& schema) {
  std::map<std::string, int> places;
  for (size_t i = 0; i < schema.arguments().size(); ++i) places[schema.arguments()[i].name()] = static_cast<int>(i);
  return places;
}

TEST(EffectsSchema, PlacesAreThoseOfTheSchemas) {
  for (const graph::EffectRow& row : graph::EffectRows()) {
    SCOPED_TRACE(row.name);
    const auto op = c10::Dispatcher::singleton().findSchema({std::string(row.name), ""});
    ASSERT_TRUE(op.has_value());
    const auto places = PlacesOf(op->schema());
    const auto at = [&](const char* name) { return places.count(name) > 0 ? places.at(name) : -1; };
    EXPECT_EQ(row.group, at("group"));
    EXPECT_EQ(row.peer, at("peer"));
    EXPECT_EQ(row.stream, at("stream"));
    EXPECT_EQ(row.event, at("event"));
    EXPECT_EQ(row.bytes, at("nbytes"));
    if (row.tensor >= 0) {
      EXPECT_EQ(op->schema().arguments()[row.tensor].type()->kind(), c10::TypeKind::TensorType);
    }
  }
}

TEST(EffectsSchema, NoOperatorWithAGroupOrAStreamIsLeftOut) {
  int found = 0;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind("lego::", 0) != 0) continue;
    const auto places = PlacesOf(c10::Dispatcher::singleton().findSchemaOrThrow(name.name.c_str(), "").schema());
    if (places.count("group") + places.count("stream") + places.count("nbytes") == 0) continue;
    EXPECT_NE(graph::FindEffect(name.name), nullptr) << name.name;
    ++found;
  }
  EXPECT_EQ(found, static_cast<int>(graph::EffectRows().size()));
}

}  // namespace
}  // namespace legoai::comm
