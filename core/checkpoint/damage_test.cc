#include "core/checkpoint/damage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>

#include "core/checkpoint/directory.h"
#include "core/checkpoint/files.h"
#include "core/checkpoint/manifest.h"

namespace legoai::checkpoint {
namespace {

namespace fs = std::filesystem;
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
