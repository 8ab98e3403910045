#include "worker/comm/runtime.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "worker/comm/communicator.h"
#include "worker/comm/streams.h"

namespace legoai::comm {
namespace {

// Rank 0's factory serves the place where all ranks meet. A rank that is connected early must not close it to the others.
TEST(Runtime, TheMeetingPlaceStaysAsLongAsTheRuntime) {
  auto place = std::make_shared<int>(0);
  const std::weak_ptr<int> seen = place;
  CommunicatorFactory factory = [place](const mesh::Group&, int64_t, int64_t) -> absl::StatusOr<std::unique_ptr<Communicator>> {
    return MakeLocalCommunicator();
  };
  place.reset();
  auto runtime = Runtime::Create(0, {{mesh::Dim::kWorld, {0, 1, 2}}}, MakeThreadStreams(), std::exchange(factory, nullptr));
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  EXPECT_FALSE(seen.expired());
  runtime->reset();
  EXPECT_TRUE(seen.expired());
}

// A device whose work is lost: its Drain asks how the communicators are, and gives what it hears.
class LostDevice : public Streams {
 public:
  absl::Status Post(int64_t, std::function<absl::Status()> work) override { return work(); }
  absl::Status Record(int64_t, int64_t) override { return absl::OkStatus(); }
  absl::Status Wait(int64_t, int64_t) override { return absl::OkStatus(); }
  absl::Status Drain() override { return health_ ? health_() : absl::OkStatus(); }
  void SetHealth(std::function<absl::Status()> health) override { health_ = std::move(health); }
  absl::Status Copy(void* out, const void* in, int64_t bytes) override {
    ++copies;
    return Streams::Copy(out, in, bytes);
  }
  int copies = 0;

 private:
  std::function<absl::Status()> health_;
};

class SickCommunicator : public Communicator {
 public:
  SickCommunicator(const absl::Status* health, int* aborts) : health_(health), aborts_(aborts) {}
  int64_t rank() const override { return 0; }
  int64_t size() const override { return 2; }
  absl::Status AllGather(void*, const void*, int64_t) override { return absl::OkStatus(); }
  absl::Status ReduceScatter(void*, const void*, int64_t, c10::ScalarType, ReduceOp) override { return absl::OkStatus(); }
  absl::Status AllReduce(void*, int64_t, c10::ScalarType, ReduceOp) override { return absl::OkStatus(); }
  absl::Status AllToAll(void*, const void*, int64_t) override { return absl::OkStatus(); }
  absl::Status Rotate(void*, const void*, int64_t) override { return absl::OkStatus(); }
  absl::Status Broadcast(void*, int64_t, int64_t) override { return absl::OkStatus(); }
  absl::Status Send(const void*, int64_t, int64_t) override { return absl::OkStatus(); }
  absl::Status Recv(void*, int64_t, int64_t) override { return absl::OkStatus(); }
  absl::Status Health() override { return *health_; }
  void Abort() override { ++*aborts_; }

 private:
  const absl::Status* health_;
  int* aborts_;
};

TEST(Runtime, ALostPeerEndsTheWaitAndAllCommunicators) {
  absl::Status health;
  int aborts = 0, made = 0;
  const CommunicatorFactory factory = [&](const mesh::Group&, int64_t, int64_t) -> absl::StatusOr<std::unique_ptr<Communicator>> {
    ++made;
    return std::make_unique<SickCommunicator>(&health, &aborts);
  };
  auto runtime = Runtime::Create(0, {{mesh::Dim::kWorld, {0, 1, 2}}, {mesh::Dim::kDpShard, {0, 1, 2}}},
                                 std::make_unique<LostDevice>(), factory);
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  EXPECT_GT(made, 1);
  EXPECT_TRUE((*runtime)->Drain().ok());
  EXPECT_EQ(aborts, 0);
  health = absl::UnavailableError("rank 1 is gone");
  EXPECT_EQ((*runtime)->Drain(), health);
  EXPECT_EQ(aborts, made);
}

// The communicators that a rank of `mesh` opens, "dp_shard over 2" each.
std::multiset<std::string> Opened(const mesh::Mesh& mesh, std::unique_ptr<Runtime>* runtime) {
  std::multiset<std::string> opened;
  static const absl::Status health;  // communicators ask as long as they live
  static int aborts = 0;
  const CommunicatorFactory factory = [&](const mesh::Group& group, int64_t,
                                          int64_t) -> absl::StatusOr<std::unique_ptr<Communicator>> {
    opened.insert(std::string(mesh::NameOf(group.dim)) + " over " + std::to_string(group.ranks.size));
    return std::make_unique<SickCommunicator>(&health, &aborts);
  };
  auto made = Runtime::Create(0, mesh.Groups(0), std::make_unique<LostDevice>(), factory);
  EXPECT_TRUE(made.ok()) << made.status();
  *runtime = *std::move(made);
  return opened;
}

TEST(Runtime, OpensNoSecondCommunicatorsWhereTheSequenceIsWhole) {
  std::unique_ptr<Runtime> runtime;
  const std::string shard = "dp_shard over 2", whole = "dp_shard_cp over 4";
  EXPECT_EQ(Opened({.dp_shard = 2}, &runtime), (std::multiset<std::string>{"world over 2", shard, shard, shard, "dp over 2"}));
  EXPECT_EQ(runtime->GroupId(mesh::Dim::kDpShardCp), runtime->GroupId(mesh::Dim::kDpShard));
  EXPECT_EQ(runtime->GroupId(mesh::Dim::kDpCp), runtime->GroupId(mesh::Dim::kDp));
  EXPECT_EQ(Opened({.dp_shard = 2, .cp = 2}, &runtime),
            (std::multiset<std::string>{"world over 4", "cp over 2", "dp_cp over 4", whole, whole, whole}));
  EXPECT_EQ(runtime->GroupSize(runtime->GroupId(mesh::Dim::kDpShardCp)), 4);
}

TEST(Runtime, OpensWhatARecipeAsksFor) {
  std::unique_ptr<Runtime> runtime;
  const std::string shard = "dp_shard over 4";
  EXPECT_EQ(Opened({.dp_shard = 4, .reshard = 2}, &runtime),
            (std::multiset<std::string>{"world over 4", shard, shard, shard, "dp over 4", "reshard over 2"}));
  EXPECT_EQ(Opened({.tp = 2}, &runtime), (std::multiset<std::string>{"world over 2", "tp over 2"}));
  EXPECT_EQ(Opened({.tp = 2, .gathers_beside = true}, &runtime),
            (std::multiset<std::string>{"world over 2", "tp over 2", "tp_gather over 2"}));
}

TEST(Runtime, AGroupOfOneCopiesAsItsStreamsCan) {
  auto owned = std::make_unique<LostDevice>();
  const LostDevice* streams = owned.get();
  auto runtime = Runtime::Create(0, {{mesh::Dim::kWorld, {}}}, std::move(owned), NoCommunicator);
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  const int in = 7;
  int out = 0;
  CommObserver::Call call;
  call.kind = "all_gather";
  EXPECT_TRUE((*runtime)->Communicate(call, {}, [&](Communicator& c) { return c.AllGather(&out, &in, sizeof in); }).ok());
  EXPECT_EQ(out, in);
  EXPECT_EQ(streams->copies, 1);
}

}  // namespace
}  // namespace legoai::comm
