#include "worker/checkpoint/sharded_checkpoint.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <filesystem>
#include <new>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/checkpoint/directory.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/testing/small_file_system.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "worker/comm/testing/process_group_test_util.h"

namespace legoai::checkpoint {
namespace {

using comm::Runtime;
using comm::testing::RunRanks;
using mesh::Dim;
using mesh::Mesh;

// A global tensor, and how tensor parallelism cuts it before FSDP cuts dimension 0.
struct Description {
  std::string name;
  std::vector<int64_t> shape;
  int64_t tp_dimension;  // -1: replicated over tp
  int64_t stage;         // of two halves of the model; -1: on all stages
};
const Description kTensors[] = {
    {"a.weight", {7, 6}, 0, 0},      {"b.weight", {5, 8}, 1, 0}, {"c.weight", {3}, -1, 1},
    {"d.weight", {12, 2, 3}, -1, 1}, {"empty", {0, 3}, -1, 1},   {"step", {}, -1, -1},
};

// Every element has another value, everywhere.
at::Tensor GlobalTensor(const Description& tensor) {
  int64_t elements = 1;
  for (int64_t size : tensor.shape) elements *= size;
  const int64_t first = 1000 * (&tensor - kTensors);
  return at::arange(first, first + elements, at::kFloat).reshape(tensor.shape);
}

// What a rank holds in a layout; its contents are right, or zero.
std::vector<ShardedTensor> Parts(const Runtime& runtime, bool filled) {
  const auto size = [&](Dim dim) { return runtime.GroupSize(runtime.GroupId(dim)); };
  const auto index = [&](Dim dim) { return runtime.GroupRank(runtime.GroupId(dim)); };
  std::vector<ShardedTensor> parts;
  for (const Description& tensor : kTensors) {
    if (tensor.stage >= 0 && tensor.stage * size(Dim::kPp) / 2 != index(Dim::kPp)) continue;
    ShardedTensor part;
    part.name = tensor.name;
    part.on_all_stages = tensor.stage < 0;
    part.spec = parallel::Unsharded(tensor.name, tensor.shape);
    if (tensor.tp_dimension >= 0) parallel::Cut(&part.spec, tensor.tp_dimension, size(Dim::kTp), index(Dim::kTp), Dim::kTp);
    if (!tensor.shape.empty()) parallel::Cut(&part.spec, 0, size(Dim::kDpShardCp), index(Dim::kDpShardCp), Dim::kDpShardCp);
    part.tensor = GlobalTensor(tensor);
    for (size_t d = 0; d < tensor.shape.size(); ++d)
      part.tensor = part.tensor.narrow(d, part.spec.offsets[d], part.spec.sizes[d]);
    part.tensor = part.tensor.contiguous();
    if (!filled) part.tensor = at::zeros(part.spec.sizes, at::kFloat);
    parts.push_back(std::move(part));
  }
  return parts;
}

v1::CheckpointManifest Facts(int64_t step) {
  v1::CheckpointManifest facts;
  facts.set_step(step);
  facts.set_next_sample(16 * step);
  facts.set_build_version("test");
  return facts;
}

std::string FreshRoot() {
  const std::string root = ::testing::TempDir() + "/" + ::testing::UnitTest::GetInstance()->current_test_info()->name();
  std::filesystem::remove_all(root);
  return root;
}

// Saves, and commits at once.
absl::Status Save(const std::string& root, int64_t step, const std::vector<ShardedTensor>& parts, Runtime& runtime,
                  const SaveCallbacks& callbacks = {}) {
  ASSIGN_OR_RETURN(const auto digest, SaveSharded(root, Facts(step), parts, runtime, callbacks));
  EXPECT_EQ(digest.empty(), runtime.rank() != 0);
  return runtime.rank() == 0 ? CommitManifest(root, step) : absl::OkStatus();
}

TEST(ShardedCheckpoint, EveryLayoutLoadsWhatEveryOtherSaved) {
  const Mesh meshes[] = {{},
                         {.dp_shard = 2},
                         {.tp = 2},
                         {.pp = 2, .dp_shard = 2},
                         {.dp_replicate = 2, .dp_shard = 2},
                         {.dp_shard = 2, .tp = 2},
                         {.dp_shard = 4}};
  const std::string root = FreshRoot();
  int64_t step = 0;
  for (const Mesh& saver : meshes) {
    ++step;
    RunRanks(saver, [&](int64_t rank, Runtime& runtime) {
      EXPECT_EQ(Save(root, step, Parts(runtime, true), runtime), absl::OkStatus());
    });
    ASSERT_TRUE(IsCommitted(root, step).value());
  }
  for (const Mesh& loader : meshes) {
    RunRanks(loader, [&](int64_t rank, Runtime& runtime) {
      for (int64_t saved = 1; saved <= step; ++saved) {
        auto reader = CheckpointReader::Open(root, saved, "test");
        EXPECT_TRUE(reader.ok()) << reader.status();
        EXPECT_EQ(reader->manifest().next_sample(), 16 * saved);
        const auto expected = Parts(runtime, true), loaded = Parts(runtime, false);
        EXPECT_EQ(LoadSharded(*reader, loaded), absl::OkStatus());
        for (size_t i = 0; i < loaded.size(); ++i) {
          EXPECT_TRUE(at::equal(loaded[i].tensor, expected[i].tensor)) << loaded[i].name << " of step " << saved;
        }
      }
    });
  }
}

// Whoever decides may take days: until then it is whole, and nobody finds it.
TEST(ShardedCheckpoint, CountsOnceItIsCommitted) {
  const std::string root = FreshRoot();
  RunRanks({.dp_shard = 2}, [&](int64_t rank, Runtime& runtime) {
    for (const int64_t step : {3, 4}) {
      const auto digest = SaveSharded(root, Facts(step), Parts(runtime, true), runtime, {});
      EXPECT_TRUE(digest.ok()) << digest.status();
      EXPECT_EQ(digest.value_or("").size(), rank == 0 ? 64u : 0u);
    }
  });
  EXPECT_TRUE(ListCheckpoints(root)->empty());
  EXPECT_TRUE(IsPrepared(root, 3) && IsPrepared(root, 4));
  ASSERT_EQ(CommitManifest(root, 4), absl::OkStatus());
  EXPECT_FALSE(IsPrepared(root, 4));
  EXPECT_THAT(*ListCheckpoints(root), ::testing::ElementsAre(4));
  RunRanks({}, [&](int64_t rank, Runtime& runtime) {
    auto reader = CheckpointReader::Open(root, 4, "test");
    EXPECT_TRUE(reader.ok()) << reader.status();
    EXPECT_EQ(LoadSharded(*reader, Parts(runtime, false)), absl::OkStatus());
  });
}

// A rank that cannot write (a type that has no place in files) fails with its own reason, the other learns of it, and the
// checkpoint before it is kept.
TEST(ShardedCheckpoint, AFailureOfOneRankReachesAll) {
  const std::string root = FreshRoot();
  RunRanks({.dp_shard = 2}, [&](int64_t rank, Runtime& runtime) {
    EXPECT_EQ(Save(root, 1, Parts(runtime, true), runtime), absl::OkStatus());
    std::vector<ShardedTensor> parts = Parts(runtime, true);
    if (rank == 1) parts.front().tensor = parts.front().tensor.to(at::kShort);
    const absl::Status status = Save(root, 2, parts, runtime);
    EXPECT_EQ(status.code(), rank == 1 ? absl::StatusCode::kUnimplemented : absl::StatusCode::kAborted) << status;
  });
  EXPECT_THAT(*ListCheckpoints(root), ::testing::ElementsAre(1));
  EXPECT_FALSE(std::filesystem::exists(StepDirectory(root, 2)));
}

// One rank's disk is full in the middle of its file (here: a limit on the size of files). The reason is that rank's, nothing of
// the step is left, and the checkpoint before it is whole.
TEST(ShardedCheckpoint, AFullDiskLeavesThePreviousCheckpoint) {
  const std::string root = FreshRoot();
  RunRanks({.dp_shard = 2}, [&](int64_t rank, Runtime& runtime) {
    EXPECT_EQ(Save(root, 1, Parts(runtime, true), runtime), absl::OkStatus());
    std::optional<FileSizeLimit> limit;
    if (rank == 1) limit.emplace(100);
    const absl::Status status = Save(root, 2, Parts(runtime, true), runtime);
    limit.reset();
    EXPECT_EQ(status.code(), rank == 1 ? absl::StatusCode::kOutOfRange : absl::StatusCode::kAborted) << status;
    const std::vector<ShardedTensor> loaded = Parts(runtime, false), expected = Parts(runtime, true);
    auto reader = CheckpointReader::Open(root, 1, "test");
    EXPECT_EQ(LoadSharded(*reader, loaded), absl::OkStatus());
    for (size_t i = 0; i < loaded.size(); ++i) EXPECT_TRUE(at::equal(loaded[i].tensor, expected[i].tensor)) << loaded[i].name;
  });
  EXPECT_THAT(*ListCheckpoints(root), ::testing::ElementsAre(1));
  EXPECT_FALSE(std::filesystem::exists(StepDirectory(root, 2)));
}

// So that they can wait for room together. The device that is always full takes the place of rank 1's file.
TEST(ShardedCheckpoint, AllRanksHearThatTheDiskIsFull) {
  const std::string root = FreshRoot();
  RunRanks({.dp_shard = 2}, [&](int64_t rank, Runtime& runtime) {
    SaveCallbacks callbacks;
    callbacks.meet = [&] {
      std::error_code there;
      if (rank == 0) std::filesystem::create_symlink("/dev/full", StepDirectory(root, 2) + "/rank-00001.bin", there);
      return absl::OkStatus();
    };
    const absl::Status status = SaveSharded(root, Facts(2), Parts(runtime, true), runtime, callbacks).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << rank << ": " << status;
  });
  EXPECT_FALSE(std::filesystem::exists(StepDirectory(root, 2)));
}

// While rank 1 writes, rank 0 waits in `meet` and in no collective: rank 1 does not end its writing before it has seen that.
TEST(ShardedCheckpoint, NoCollectiveWaitsForASlowWriter) {
  struct Shared {
    std::atomic<int64_t> calls[2], saw_waiting;
  };
  void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  Shared& shared = *new (memory) Shared();
  const auto within_a_minute = [](const std::function<bool()>& condition) {
    for (int i = 0; i < 60'000 && !condition(); ++i) absl::SleepFor(absl::Milliseconds(1));
    return condition();
  };
  const std::string root = FreshRoot();
  RunRanks({.dp_shard = 2}, [&](int64_t rank, Runtime& runtime) {
    SaveCallbacks callbacks;
    int64_t mine = 0;
    callbacks.meet = [&] {
      shared.calls[rank] = ++mine;
      return within_a_minute([&] { return shared.calls[1 - rank] >= mine; }) ? absl::OkStatus()
                                                                             : absl::DeadlineExceededError("alone in a meeting");
    };
    callbacks.written = [&](int64_t) {
      if (rank == 1 && within_a_minute([&] { return shared.calls[0] > mine; })) shared.saw_waiting = 1;
    };
    EXPECT_EQ(Save(root, 1, Parts(runtime, true), runtime, callbacks), absl::OkStatus());
  });
  EXPECT_EQ(shared.saw_waiting, 1);
  munmap(memory, sizeof(Shared));
}

TEST(ShardedCheckpoint, AnotherModelIsRefusedByName) {
  const std::string root = FreshRoot();
  RunRanks({}, [&](int64_t rank, Runtime& runtime) {
    EXPECT_EQ(Save(root, 1, Parts(runtime, true), runtime), absl::OkStatus());
    auto reader = CheckpointReader::Open(root, 1, "test");
    std::vector<ShardedTensor> parts = Parts(runtime, false);
    parts[1].name = "e.weight";
    EXPECT_THAT(LoadSharded(*reader, parts).message(), ::testing::HasSubstr("e.weight"));
    parts = Parts(runtime, false);
    parts[0].spec = parallel::Unsharded("a.weight", {7, 7});
    EXPECT_THAT(LoadSharded(*reader, parts).message(), ::testing::HasSubstr("a.weight"));
  });
}

}  // namespace
}  // namespace legoai::checkpoint
