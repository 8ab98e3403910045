#include "core/checkpoint/directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "core/checkpoint/chunks.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/testing/small_file_system.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::checkpoint {
namespace {

namespace fs = std::filesystem;

class DirectoryTest : public testing::Test {
 protected:
  DirectoryTest()
      : root_(testing::TempDir() + "/" + testing::UnitTest::GetInstance()->current_test_info()->name() + "/checkpoints") {
    fs::remove_all(root_);
  }

  absl::Status WriteChunks(int64_t step) {
    ASSIGN_OR_RETURN(auto writer, ChunkWriter::Create(StepDirectory(root_, step), 0));
    const std::vector<float> values(1 << 16, 1.5f);
    RETURN_IF_ERROR(writer.Append("w", v1::FLOAT32, {1 << 16}, WholeOf({1 << 16}), values.data()));
    return writer.Finish();
  }

  // `bytes`: as the save announces them.
  absl::Status Prepare(int64_t step, int64_t bytes = 1 << 18) {
    RETURN_IF_ERROR(BeginCheckpoint(root_, step, bytes));
    RETURN_IF_ERROR(WriteChunks(step));
    v1::CheckpointManifest manifest;
    manifest.set_step(step);
    RETURN_IF_ERROR(CollectChunks(StepDirectory(root_, step), 1, manifest));
    return PrepareManifest(root_, manifest).status();
  }
  absl::Status Save(int64_t step, int64_t bytes = 1 << 18) {
    RETURN_IF_ERROR(Prepare(step, bytes));
    return CommitManifest(root_, step);
  }

  std::vector<int64_t> Steps() { return ListCheckpoints(root_).value(); }

  std::string root_;
};

TEST_F(DirectoryTest, OnlyCommittedStepsAreListedInOrder) {
  EXPECT_EQ(Steps(), std::vector<int64_t>());
  for (int64_t step : {100, 20, 3}) ASSERT_TRUE(Save(step).ok());
  ASSERT_TRUE(BeginCheckpoint(root_, 200, 0).ok());
  ASSERT_TRUE(WriteChunks(200).ok());
  fs::create_directories(root_ + "/step-x");
  fs::create_directories(root_ + "/step-0300");
  fs::copy(StepDirectory(root_, 3) + "/manifest.pb", root_ + "/step-0300/manifest.pb");
  EXPECT_EQ(Steps(), (std::vector<int64_t>{3, 20, 100}));
}

TEST_F(DirectoryTest, LeftoverIsClearedAndCommittedIsNot) {
  ASSERT_TRUE(BeginCheckpoint(root_, 5, 0).ok());
  ASSERT_TRUE(WriteChunks(5).ok());
  ASSERT_TRUE(BeginCheckpoint(root_, 5, 0).ok());
  EXPECT_TRUE(fs::is_empty(StepDirectory(root_, 5)));
  ASSERT_TRUE(Save(5).ok());
  EXPECT_EQ(BeginCheckpoint(root_, 5, 0).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(AbandonCheckpoint(root_, 5).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Steps(), std::vector<int64_t>{5});
}

TEST_F(DirectoryTest, AbandonRemovesEverything) {
  ASSERT_TRUE(BeginCheckpoint(root_, 5, 0).ok());
  ASSERT_TRUE(WriteChunks(5).ok());
  ASSERT_TRUE(AbandonCheckpoint(root_, 5).ok());
  EXPECT_FALSE(fs::exists(StepDirectory(root_, 5)));
  EXPECT_TRUE(AbandonCheckpoint(root_, 5).ok());
}

TEST_F(DirectoryTest, KeepsTheLatest) {
  for (int64_t step : {1, 2, 3, 4, 10}) ASSERT_TRUE(Save(step).ok());
  ASSERT_TRUE(KeepLatest(root_, 0).ok());
  EXPECT_EQ(Steps().size(), 5u);
  ASSERT_TRUE(KeepLatest(root_, 7).ok());
  EXPECT_EQ(Steps().size(), 5u);
  ASSERT_TRUE(KeepLatest(root_, 2).ok());
  EXPECT_EQ(Steps(), (std::vector<int64_t>{4, 10}));
  EXPECT_FALSE(fs::exists(StepDirectory(root_, 1)));
}

// Those that wait for the word of whoever decides are no committed ones: they take no place of these, and are not theirs to go.
TEST_F(DirectoryTest, WhatIsPreparedNeitherCountsNorGoes) {
  for (int64_t step : {1, 2, 3}) ASSERT_TRUE(Save(step).ok());
  for (int64_t step : {4, 5}) ASSERT_TRUE(Prepare(step).ok());
  EXPECT_TRUE(IsPrepared(root_, 4) && IsPrepared(root_, 5));
  EXPECT_FALSE(IsPrepared(root_, 3) || IsPrepared(root_, 6));
  ASSERT_TRUE(KeepLatest(root_, 1).ok());
  EXPECT_EQ(Steps(), std::vector<int64_t>{3});
  EXPECT_TRUE(IsPrepared(root_, 4) && IsPrepared(root_, 5));
}

// Of an attempt that is gone: what is before the last that was committed was committed too.
TEST_F(DirectoryTest, CommitsWhatIsPrepared) {
  for (int64_t step : {1, 4}) ASSERT_TRUE(Save(step).ok());
  for (int64_t step : {2, 3, 5}) ASSERT_TRUE(Prepare(step).ok());
  fs::create_directories(StepDirectory(root_, 0));  // a save that was interrupted before it was prepared
  ASSERT_TRUE(CommitPreparedUpTo(root_, 3).ok());
  EXPECT_EQ(Steps(), (std::vector<int64_t>{1, 2, 3, 4}));
  for (int64_t step : {2, 3}) EXPECT_TRUE(ReadManifest(root_, step, "").ok());
  EXPECT_TRUE(IsPrepared(root_, 5)) << "nothing is known of it";
  EXPECT_TRUE(CommitPreparedUpTo(root_ + "/nowhere", 5).ok());
}

TEST_F(DirectoryTest, SpaceIsCheckedBeforeAnythingIsWritten) {
  const FreeBytes thousand = [](const std::string&) { return 1000; };
  ASSERT_TRUE(BeginCheckpoint(root_, 5, 1000, thousand).ok());
  const absl::Status status = BeginCheckpoint(root_, 6, 1001, thousand);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("needs 1001 bytes and 1000 are free"), std::string::npos) << status;
  EXPECT_EQ(GetFieldViolation(status)->field(), "job.dump_folder");
  EXPECT_FALSE(fs::exists(StepDirectory(root_, 6)));
  EXPECT_GT(FreeBytesOnDisk(root_).value(), 0);
}

// A disk that fills up while a rank writes: the device that is always full in place of the rank's file.
TEST_F(DirectoryTest, FullDiskLeavesThePreviousCheckpoint) {
  ASSERT_TRUE(Save(1).ok());
  ASSERT_TRUE(BeginCheckpoint(root_, 2, 0).ok());
  fs::create_symlink("/dev/full", StepDirectory(root_, 2) + "/rank-00000.bin");
  const absl::Status status = WriteChunks(2);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_NE(status.message().find("step-2/rank-00000.bin"), std::string::npos) << status;
  EXPECT_NE(status.message().find("free some space"), std::string::npos) << status;
  EXPECT_EQ(Steps(), std::vector<int64_t>{1});
  ASSERT_TRUE(AbandonCheckpoint(root_, 2).ok());
  EXPECT_TRUE(ReadManifest(root_, 1, "").ok());
  ASSERT_TRUE(Save(2).ok());
  EXPECT_EQ(Steps(), (std::vector<int64_t>{1, 2}));
}

// The same by a limit on the size of files, which stops a write half way.
TEST_F(DirectoryTest, LimitOnFileSizeLeavesThePreviousCheckpoint) {
  ASSERT_TRUE(Save(1).ok());
  auto limit = std::make_optional<FileSizeLimit>(100'000);
  const absl::Status status = Save(2);
  limit.reset();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << status;
  EXPECT_GT(fs::file_size(StepDirectory(root_, 2) + "/rank-00000.bin"), 0u);
  EXPECT_EQ(Steps(), std::vector<int64_t>{1});
  EXPECT_TRUE(ReadManifest(root_, 1, "").ok());
  ASSERT_TRUE(Save(2).ok());
}

// The same on a file system that is really full.
TEST_F(DirectoryTest, FullFileSystemLeavesThePreviousCheckpoint) {
  fs::create_directories(root_);
  EXPECT_TRUE(PassesInChild([&] {
    ASSERT_EQ(MountSmallFileSystem(root_, 640 << 10), absl::OkStatus());
    EXPECT_TRUE(Save(1).ok());  // 256 KiB
    const absl::Status refused = Save(2, int64_t{1} << 30);
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
    EXPECT_NE(refused.message().find("a checkpoint needs 1073741824 bytes"), std::string::npos) << refused;
    EXPECT_FALSE(fs::exists(StepDirectory(root_, 2)));
    EXPECT_TRUE(WriteFile(root_ + "/other", std::string(200'000, 'x')).ok());
    const absl::Status full = Save(2, 0);
    EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
    EXPECT_EQ(Steps(), std::vector<int64_t>{1});
    EXPECT_TRUE(ReadManifest(root_, 1, "").ok());
    EXPECT_TRUE(AbandonCheckpoint(root_, 2).ok());
    fs::remove(root_ + "/other");
    EXPECT_TRUE(Save(2).ok());
  }));
}

// The file system that does not say whether a step is committed: nothing is removed, and no earlier step passes for the last.
TEST_F(DirectoryTest, AStepThatCannotBeLookedAtIsNotTakenForALeftover) {
  for (int64_t step : {1, 2}) ASSERT_TRUE(Save(step).ok());
  const std::string manifest = StepDirectory(root_, 2) + "/manifest.pb";
  fs::rename(manifest, manifest + ".kept");
  fs::create_symlink("manifest.pb", manifest);  // leads to itself
  for (const absl::Status& status : {IsCommitted(root_, 2).status(), ListCheckpoints(root_).status(), RemoveUncommitted(root_),
                                     BeginCheckpoint(root_, 2, 0), AbandonCheckpoint(root_, 2), KeepLatest(root_, 1)}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(status.message().find(manifest), std::string::npos) << status;
  }
  fs::rename(manifest + ".kept", manifest);
  EXPECT_EQ(Steps(), (std::vector<int64_t>{1, 2}));
  for (int64_t step : {1, 2}) EXPECT_TRUE(ReadManifest(root_, step, "").ok());
}

TEST_F(DirectoryTest, TellsOfEachEntryThatItRemoves) {
  for (int64_t step : {1, 2, 3}) ASSERT_TRUE(Save(step).ok());
  int64_t calls = 0;
  ASSERT_TRUE(KeepLatest(root_, 1, [&](int64_t bytes) { calls += bytes == 0; }).ok());
  EXPECT_GE(calls, 4) << "of two steps at least the rank's file and the folder";
}

TEST_F(DirectoryTest, RemovesWhatWasNotCommitted) {
  ASSERT_TRUE(Save(1).ok());
  ASSERT_TRUE(BeginCheckpoint(root_, 2, 0).ok());
  ASSERT_TRUE(WriteChunks(2).ok());
  fs::create_directories(root_ + "/notes");
  ASSERT_TRUE(RemoveUncommitted(root_).ok());
  EXPECT_FALSE(fs::exists(StepDirectory(root_, 2)));
  EXPECT_TRUE(fs::exists(root_ + "/notes"));
  EXPECT_TRUE(ReadManifest(root_, 1, "").ok());
  EXPECT_TRUE(RemoveUncommitted(root_ + "/none").ok());
}

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class DamageTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::remove_all(root_); }
  // Without a tensor, which makes it no less a checkpoint.
  void Save(int64_t step) {
    ASSERT_TRUE(BeginCheckpoint(root_, step, 0).ok());
    v1::CheckpointManifest manifest;
    manifest.set_step(step);
    ASSERT_TRUE(PrepareManifest(root_, manifest).ok());
    ASSERT_TRUE(CommitManifest(root_, step).ok());
  }
  v1::CheckpointDamage Damage(int64_t step) const { return *GetDamage(NoteDamage(absl::DataLossError("torn"), root_, step)); }
  std::string Manifest(int64_t step) const { return StepDirectory(root_, step) + "/manifest.pb"; }

  const std::string root_ = ::testing::TempDir() + "/damage/checkpoints";
};

TEST_F(DamageTest, IsWhatIsLostOnTheDiskAndNothingElse) {
  const auto damage = GetDamage(NoteDamage(absl::DataLossError("rank-00000.bin: torn"), "/runs", 8));
  ASSERT_TRUE(damage.has_value());
  EXPECT_EQ(damage->step(), 8);
  EXPECT_EQ(damage->directory(), "/runs");
  EXPECT_EQ(DamageText(*damage), "the checkpoint of step 8 is damaged (rank-00000.bin: torn)");
  for (const absl::Status& other : {absl::OkStatus(), absl::NotFoundError("x"), absl::PermissionDeniedError("x"),
                                    absl::UnavailableError("x"), absl::ResourceExhaustedError("x")}) {
    EXPECT_EQ(NoteDamage(other, "/runs", 8), other);
    EXPECT_FALSE(GetDamage(NoteDamage(other, "/runs", 8)).has_value());
  }
}

// What a disk says of a file: lost is lost, and what may be otherwise the next time is none.
TEST_F(DamageTest, ErrorsOfReading) {
  for (const int lost : {EIO, EUCLEAN, EBADMSG}) EXPECT_TRUE(absl::IsDataLoss(ReadError("f", "cannot read", lost))) << lost;
  for (const int other : {EACCES, EMFILE, ENFILE, ENOMEM, EINTR, ESTALE, ELOOP})
    EXPECT_FALSE(absl::IsDataLoss(ReadError("f", "cannot read", other))) << other;
}

TEST_F(DamageTest, APutAsideOneIsKeptAndNoCheckpointAnyMore) {
  for (const int64_t step : {4, 8}) Save(step);
  EXPECT_EQ(*PutAside(Damage(8)), root_ + "/step-8.damaged");
  EXPECT_EQ(*PutAside(Damage(8)), "") << "there is none any more";
  EXPECT_THAT(*ListCheckpoints(root_), ElementsAre(4));
  Save(8);
  EXPECT_EQ(*PutAside(Damage(8)), root_ + "/step-8.damaged-2");
  Save(8);
  EXPECT_EQ(*PutAside(Damage(8)), root_ + "/step-8.damaged-3");
  Save(9);
  const auto aside = ElementsAre("step-8.damaged", "step-8.damaged-2", "step-8.damaged-3");
  EXPECT_THAT(*ListPutAside(root_), aside);
  ASSERT_TRUE(KeepLatest(root_, 1).ok());
  ASSERT_TRUE(RemoveUncommitted(root_).ok());
  EXPECT_THAT(*ListPutAside(root_), aside);
  EXPECT_TRUE(fs::exists(root_ + "/step-8.damaged/manifest.pb"));
  ASSERT_TRUE(RemoveAllButPutAside(root_).ok());
  EXPECT_THAT(*ListPutAside(root_), aside);
  EXPECT_THAT(*ListCheckpoints(root_), IsEmpty());
}

TEST_F(DamageTest, TheOneThatWasPutAsideLastGetsItsPlaceAgain) {
  EXPECT_FALSE(*TakeBack(root_, 8)) << "there is none";
  Save(8);
  ASSERT_TRUE(WriteFile(root_ + "/step-8/of", "the first").ok());
  ASSERT_TRUE(PutAside(Damage(8)).ok());
  Save(8);
  ASSERT_TRUE(WriteFile(root_ + "/step-8/of", "the second").ok());
  EXPECT_FALSE(*TakeBack(root_, 8)) << "its place is taken";
  ASSERT_TRUE(PutAside(Damage(8)).ok());
  EXPECT_TRUE(*TakeBack(root_, 8));
  EXPECT_EQ(*ReadFile(root_ + "/step-8/of"), "the second");
  EXPECT_THAT(*ListPutAside(root_), ElementsAre("step-8.damaged"));
  EXPECT_THAT(*ListCheckpoints(root_), ElementsAre(8));
}

TEST_F(DamageTest, WhereNothingWasPutAsideNothingIsLeft) {
  EXPECT_THAT(*ListPutAside(root_), IsEmpty());
  EXPECT_TRUE(RemoveAllButPutAside(root_).ok());
  Save(4);
  ASSERT_TRUE(RemoveAllButPutAside(root_).ok());
  EXPECT_FALSE(fs::exists(root_));
}

// A commit leaves a mark: a manifest that is lost afterwards makes no interrupted save of the step, which would be removed.
TEST_F(DamageTest, ALostManifestIsNoInterruptedSave) {
  for (const int64_t step : {4, 8}) Save(step);
  fs::remove(Manifest(8));
  ASSERT_TRUE(BeginCheckpoint(root_, 9, 0).ok());  // interrupted
  EXPECT_THAT(*ListCheckpoints(root_), ElementsAre(4, 8));
  ASSERT_TRUE(RemoveUncommitted(root_).ok());
  EXPECT_FALSE(fs::exists(StepDirectory(root_, 9)));
  EXPECT_TRUE(fs::exists(StepDirectory(root_, 8)));
  EXPECT_TRUE(absl::IsDataLoss(ReadManifest(root_, 8, "").status()));
  EXPECT_TRUE(absl::IsDataLoss(FinishCommit(root_, 8)));
  EXPECT_TRUE(absl::IsDataLoss(FinishCommit(root_, 77))) << "that was never there";
  ASSERT_TRUE(KeepLatest(root_, 1).ok());
  EXPECT_THAT(*ListCheckpoints(root_), ElementsAre(8));
}

TEST_F(DamageTest, ACommitThatWasCutShortIsFinished) {
  Save(8);
  fs::rename(Manifest(8), Manifest(8) + ".tmp");
  EXPECT_TRUE(absl::IsDataLoss(ReadManifest(root_, 8, "").status()));
  EXPECT_TRUE(FinishCommit(root_, 8).ok());
  EXPECT_TRUE(FinishCommit(root_, 8).ok());
  EXPECT_TRUE(ReadManifest(root_, 8, "").ok());
}

}  // namespace
}  // namespace legoai::checkpoint
