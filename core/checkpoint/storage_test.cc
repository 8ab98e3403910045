// One suite over both storages: whatever happens to checkpoints in a folder happens alike to those in an S3 store (versitygw).
#include "core/checkpoint/storage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/checkpoint/chunks.h"
#include "core/checkpoint/directory.h"
#include "core/checkpoint/manifest.h"
#include "core/objectstore/s3_client.h"
#include "core/objectstore/testing/scripted_store.h"
#include "core/objectstore/testing/versitygw.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::checkpoint {
namespace {

namespace fs = std::filesystem;
using objectstore::S3Client;
using objectstore::Versitygw;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kUrl[] = "s3://bucket/runs/a run";

std::vector<int32_t> ContentsOf(int64_t step, int64_t elements) {
  std::vector<int32_t> values(static_cast<size_t>(elements));
  std::iota(values.begin(), values.end(), static_cast<int32_t>(1000 * step));
  return values;
}

// Of two ranks, each with a half of one tensor of `elements`.
absl::Status WriteChunks(const std::string& root, int64_t step, int64_t elements) {
  const std::vector<int32_t> values = ContentsOf(step, elements);
  for (const int64_t rank : {0, 1}) {
    ASSIGN_OR_RETURN(auto writer, ChunkWriter::Create(StepDirectory(root, step), rank));
    const int64_t first = rank * elements / 2, size = elements / 2;
    RETURN_IF_ERROR(writer.Append("w", v1::INT32, {elements}, {{first}, {size}}, values.data() + first));
    RETURN_IF_ERROR(writer.Finish());
  }
  return absl::OkStatus();
}

absl::Status Prepare(const std::string& root, int64_t step, int64_t elements = 1000) {
  RETURN_IF_ERROR(BeginCheckpoint(root, step, 4 * elements));
  RETURN_IF_ERROR(WriteChunks(root, step, elements));
  v1::CheckpointManifest manifest;
  manifest.set_step(step);
  RETURN_IF_ERROR(CollectChunks(StepDirectory(root, step), 2, manifest));
  return PrepareManifest(root, manifest).status();
}

absl::Status Save(const std::string& root, int64_t step, int64_t elements = 1000) {
  RETURN_IF_ERROR(Prepare(root, step, elements));
  return CommitManifest(root, step);
}

absl::StatusOr<std::vector<int32_t>> Load(const std::string& root, int64_t step, Rectangle part) {
  ASSIGN_OR_RETURN(auto reader, CheckpointReader::Open(root, step, ""));
  const v1::CheckpointChunk& first = reader.manifest().chunks(0);
  std::vector<int32_t> values(static_cast<size_t>(Volume(part.sizes)));
  RETURN_IF_ERROR(reader.ReadRectangle("w", v1::INT32, {first.global_shape(0)}, part, values.data()));
  return values;
}

class StorageTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    root_ = testing::TempDir() + "/" + std::string(name.substr(0, name.find('/'))) + "/checkpoints";
    fs::remove_all(root_);
    if (!GetParam()) return;
    auto started = Versitygw::Start(testing::TempDir());
    ASSERT_TRUE(started.ok()) << started.status();
    gateway_ = *std::move(started);
    root_ = kUrl;
  }

  // The file that has what is kept under this name.
  std::string FileOf(const std::string& path) const {
    return GetParam() ? gateway_->PathOf(path.substr(sizeof("s3://bucket/") - 1)) : path;
  }

  std::vector<int64_t> Steps() const {
    const auto steps = ListCheckpoints(root_);
    EXPECT_TRUE(steps.ok()) << steps.status();
    return steps.value_or(std::vector<int64_t>{-1});
  }

  std::unique_ptr<Versitygw> gateway_;
  std::string root_;
};

std::string NameOf(const testing::TestParamInfo<bool>& info) { return info.param ? "S3" : "Folder"; }
INSTANTIATE_TEST_SUITE_P(Both, StorageTest, testing::Bool(), NameOf);

TEST_P(StorageTest, WhatIsCommittedIsThereWholeAndInAnyPart) {
  EXPECT_THAT(Steps(), IsEmpty());
  ASSERT_EQ(Prepare(root_, 5), absl::OkStatus());
  EXPECT_THAT(Steps(), IsEmpty());
  EXPECT_TRUE(IsPrepared(root_, 5));
  ASSERT_EQ(CommitManifest(root_, 5), absl::OkStatus());
  EXPECT_FALSE(IsPrepared(root_, 5));
  EXPECT_THAT(Steps(), ElementsAre(5));
  EXPECT_EQ(FinishCommit(root_, 5), absl::OkStatus());
  EXPECT_EQ(ManifestDigest(root_, 5)->size(), 64u);
  const std::vector<int32_t> all = ContentsOf(5, 1000);
  EXPECT_EQ(Load(root_, 5, WholeOf({1000})).value(), all);
  EXPECT_EQ(Load(root_, 5, {{400}, {200}}).value(), std::vector<int32_t>(all.begin() + 400, all.begin() + 600));
  EXPECT_EQ(BeginCheckpoint(root_, 5, 0).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(CheckWritable(root_), absl::OkStatus());
  EXPECT_THAT(*StorageOf(root_).value()->Names(root_), ElementsAre("step-5"));
}

// A commit that was approved and interrupted between any two of its writes is finished.
TEST_P(StorageTest, AnInterruptedCommitIsFinished) {
  ASSERT_EQ(Prepare(root_, 1), absl::OkStatus());
  const auto storage = StorageOf(root_).value();
  ASSERT_EQ(storage->Write(StepDirectory(root_, 1) + "/committed", ""), absl::OkStatus());
  EXPECT_THAT(Steps(), ElementsAre(1));
  ASSERT_EQ(FinishCommit(root_, 1), absl::OkStatus());
  EXPECT_EQ(Load(root_, 1, WholeOf({1000})).value(), ContentsOf(1, 1000));
  EXPECT_TRUE(absl::IsDataLoss(FinishCommit(root_, 7))) << "that was never there";
}

TEST_P(StorageTest, DamageIsFoundAndPutAsideAndTakenBack) {
  for (const int64_t step : {1, 2}) ASSERT_EQ(Save(root_, step), absl::OkStatus());
  const std::string file = StepDirectory(root_, 2) + "/rank-00001.bin";
  std::fstream bytes(FileOf(file), std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekp(100);
  bytes.put('\x7f');
  bytes.close();
  const absl::Status torn = Load(root_, 2, WholeOf({1000})).status();
  EXPECT_TRUE(absl::IsDataLoss(torn)) << torn;
  EXPECT_THAT(std::string(torn.message()), HasSubstr(file + ": w"));
  EXPECT_THAT(std::string(torn.message()), HasSubstr("the checksum of the chunk at byte 0 does not match"));
  EXPECT_EQ(Load(root_, 2, {{0}, {500}}).value(), std::vector<int32_t>(ContentsOf(2, 500))) << "the other file is whole";

  const auto damage = GetDamage(NoteDamage(torn, root_, 2));
  ASSERT_TRUE(damage);
  EXPECT_EQ(PutAside(*damage).value(), StepDirectory(root_, 2) + ".damaged");
  EXPECT_EQ(PutAside(*damage).value(), "") << "it is gone";
  EXPECT_THAT(Steps(), ElementsAre(1));
  EXPECT_THAT(*ListPutAside(root_), ElementsAre("step-2.damaged"));
  ASSERT_EQ(Save(root_, 2), absl::OkStatus());
  EXPECT_FALSE(TakeBack(root_, 2).value()) << "its place is taken";
  EXPECT_EQ(PutAside(*damage).value(), StepDirectory(root_, 2) + ".damaged-2");
  EXPECT_TRUE(TakeBack(root_, 2).value());
  EXPECT_EQ(Load(root_, 2, WholeOf({1000})).value(), ContentsOf(2, 1000)) << "the one that was put aside last";
  ASSERT_EQ(RemoveAllButPutAside(root_), absl::OkStatus());
  EXPECT_THAT(Steps(), IsEmpty());
  EXPECT_THAT(*ListPutAside(root_), ElementsAre("step-2.damaged"));
}

// What was cut short in the place of a checkpoint that was put aside, the move back among it, does not keep that away.
TEST_P(StorageTest, APlaceWithoutACommitIsNotTaken) {
  ASSERT_EQ(Save(root_, 2), absl::OkStatus());
  v1::CheckpointDamage damage;
  damage.set_directory(root_);
  damage.set_step(2);
  ASSERT_TRUE(PutAside(damage).ok());
  ASSERT_EQ(BeginCheckpoint(root_, 2, 0), absl::OkStatus());
  ASSERT_EQ(WriteChunks(root_, 2, 100), absl::OkStatus());
  EXPECT_TRUE(TakeBack(root_, 2).value());
  EXPECT_EQ(Load(root_, 2, WholeOf({1000})).value(), ContentsOf(2, 1000));
  ASSERT_TRUE(PutAside(damage).ok());
  ASSERT_EQ(Prepare(root_, 2, 100), absl::OkStatus());
  EXPECT_FALSE(TakeBack(root_, 2).value()) << "it may be committed at any time";
  ASSERT_EQ(CommitManifest(root_, 2), absl::OkStatus());
  EXPECT_EQ(Load(root_, 2, WholeOf({100})).value(), ContentsOf(2, 100));
}

TEST_P(StorageTest, ACutOrLostFileIsDamage) {
  for (const int64_t step : {1, 2, 3}) ASSERT_EQ(Save(root_, step), absl::OkStatus());
  fs::resize_file(FileOf(StepDirectory(root_, 1) + "/rank-00000.bin"), 1000);
  EXPECT_TRUE(absl::IsDataLoss(Load(root_, 1, WholeOf({1000})).status()));
  fs::remove(FileOf(StepDirectory(root_, 2) + "/rank-00001.bin"));
  const absl::Status lost = Load(root_, 2, WholeOf({1000})).status();
  EXPECT_TRUE(absl::IsDataLoss(lost)) << lost;
  EXPECT_THAT(std::string(lost.message()), HasSubstr("missing, though it holds a part of w"));
  fs::remove(FileOf(StepDirectory(root_, 3) + "/manifest.pb"));
  EXPECT_THAT(Steps(), ElementsAre(1, 2, 3)) << "the mark of the commit is there";
  EXPECT_TRUE(absl::IsDataLoss(ReadManifest(root_, 3, "").status()));
}

TEST_P(StorageTest, AllIsPutAsideForANewBeginning) {
  for (const int64_t step : {1, 2}) ASSERT_EQ(Save(root_, step), absl::OkStatus());
  const std::string aside = root_ + (GetParam() ? "/" : ".") + "before-attempt-2";
  EXPECT_EQ(PutAllAside(root_, 2).value(), aside);
  EXPECT_THAT(Steps(), IsEmpty());
  EXPECT_EQ(PutAllAside(root_, 2).value(), "");
  EXPECT_THAT(*ListCheckpoints(aside), ElementsAre(1, 2));
  EXPECT_EQ(Load(aside, 2, WholeOf({1000})).value(), ContentsOf(2, 1000));
  ASSERT_EQ(Save(root_, 1), absl::OkStatus());
  EXPECT_EQ(PutAllAside(root_, 2).value(), aside + "-2");
  EXPECT_THAT(*ListCheckpoints(aside), ElementsAre(1, 2));
  EXPECT_THAT(*ListCheckpoints(aside + "-2"), ElementsAre(1));
  ASSERT_EQ(RemoveUncommitted(root_), absl::OkStatus());
  EXPECT_EQ(Load(aside, 2, WholeOf({1000})).value(), ContentsOf(2, 1000)) << "nothing removes it";
}

// A save whose process is killed while its large file is on the way. What it left is no checkpoint, and is removed.
TEST_P(StorageTest, AKilledSaveLeavesNothingThatCounts) {
  ASSERT_EQ(Save(root_, 1), absl::OkStatus());
  int started[2];
  ASSERT_EQ(pipe(started), 0);
  const pid_t child = fork();
  if (child == 0) {
    BeginCheckpoint(root_, 2, 0).IgnoreError();
    auto writer = ChunkWriter::Create(StepDirectory(root_, 2), 0, [&](int64_t bytes) {
      if (bytes > 0 && write(started[1], "x", 1) != 1) _exit(1);
    });
    const std::vector<int32_t> values(24 << 20);
    for (int i = 0; i < 1'000; ++i)
      writer->Append(absl::StrCat("w", i), v1::INT32, {24 << 20}, WholeOf({24 << 20}), values.data()).IgnoreError();
    _exit(0);
  }
  char byte;
  ASSERT_EQ(read(started[0], &byte, 1), 1);
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  close(started[0]);
  close(started[1]);
  EXPECT_THAT(Steps(), ElementsAre(1));
  EXPECT_THAT(*StorageOf(root_).value()->Names(root_), ElementsAre("step-1", "step-2"));
  ASSERT_EQ(RemoveUncommitted(root_), absl::OkStatus());
  EXPECT_THAT(*StorageOf(root_).value()->Names(root_), ElementsAre("step-1"));
  if (GetParam()) {
    // Of a file of which there is another, since the answer that began this one was lost.
    ASSERT_TRUE(S3Client::Create("bucket")->BeginUpload("runs/a run/step-1/rank-00000.bin").ok());
    ASSERT_EQ(RemoveUncommitted(root_), absl::OkStatus());
    EXPECT_THAT(*S3Client::Create("bucket")->ListUploads(""), IsEmpty());
  }
  EXPECT_EQ(Load(root_, 1, WholeOf({1000})).value(), ContentsOf(1, 1000));
}

// A prefix may be that of a run and of others below it: their checkpoints and uploads are not the run's.
TEST_P(StorageTest, WhatOthersHaveBelowAPrefixStays) {
  if (!GetParam()) return;  // a run's folder of checkpoints is its own
  const std::string other = root_ + "/llama";
  ASSERT_EQ(Save(root_, 1), absl::OkStatus());
  ASSERT_EQ(Save(other, 1), absl::OkStatus());
  ASSERT_TRUE(S3Client::Create("bucket")->BeginUpload("runs/a run/llama/step-2/rank-00000.bin").ok());
  ASSERT_EQ(RemoveUncommitted(root_), absl::OkStatus());
  EXPECT_EQ(S3Client::Create("bucket")->ListUploads("")->size(), 1u);
  EXPECT_EQ(PutAllAside(root_, 2).value(), root_ + "/before-attempt-2");
  EXPECT_THAT(Steps(), IsEmpty());
  EXPECT_THAT(*ListCheckpoints(other), ElementsAre(1));
  EXPECT_EQ(PutAllAside(root_, 3).value(), "");
}

// Chunks around the size of a part, and a file of several.
TEST_P(StorageTest, LargeFilesAreWhatWasWritten) {
  const int64_t part = objectstore::kPartBytes / 4;  // elements
  for (const int64_t half : {part - 1, part, part + 1, 2 * part + 5}) {
    SCOPED_TRACE(half);
    ASSERT_EQ(Save(root_, half, 2 * half), absl::OkStatus());
    EXPECT_TRUE(Load(root_, half, WholeOf({2 * half})).value() == ContentsOf(half, 2 * half));
    ASSERT_EQ(KeepLatest(root_, 1), absl::OkStatus());
  }
  if (GetParam()) {
    EXPECT_THAT(*S3Client::Create("bucket")->ListUploads(""), IsEmpty());
  }
}

// Random histories against what they should leave.
class Model {
 public:
  void Remove(int64_t step) { committed.erase(step), prepared.erase(step); }
  std::set<int64_t> committed, prepared;
  std::map<int64_t, int> aside;  // how often a step was put aside and not taken back
};

TEST_P(StorageTest, RandomHistoriesLeaveWhatTheyShould) {
  const char* given = std::getenv("TEST_RANDOM_SEED");
  const uint32_t seed = given != nullptr ? static_cast<uint32_t>(std::atoi(given)) : std::random_device()();
  SCOPED_TRACE(absl::StrCat("TEST_RANDOM_SEED=", seed));
  std::mt19937 random(seed);
  Model model;
  for (int i = 0; i < 60; ++i) {
    const int64_t step = 1 + random() % 6;
    const bool there = model.committed.count(step) > 0;
    switch (random() % 8) {
      case 0:
      case 1:  // prepared anew, unless it is committed
        EXPECT_EQ(Prepare(root_, step).ok(), !there);
        if (!there) model.prepared.insert(step);
        break;
      case 2:  // a save that was interrupted
        if (there) break;
        ASSERT_EQ(BeginCheckpoint(root_, step, 0), absl::OkStatus());
        ASSERT_EQ(WriteChunks(root_, step, 100), absl::OkStatus());
        model.prepared.erase(step);
        break;
      case 3:
        ASSERT_EQ(CommitPreparedUpTo(root_, step), absl::OkStatus());
        for (int64_t one = 1; one <= step; ++one)
          if (model.prepared.erase(one) > 0) model.committed.insert(one);
        break;
      case 4:
        EXPECT_EQ(AbandonCheckpoint(root_, step).ok(), !there);
        if (!there) model.Remove(step);
        break;
      case 5:
        ASSERT_EQ(KeepLatest(root_, 3), absl::OkStatus());
        while (model.committed.size() > 3) model.committed.erase(model.committed.begin());
        break;
      case 6: {
        if (!there) break;
        v1::CheckpointDamage damage;
        damage.set_directory(root_);
        damage.set_step(step);
        ASSERT_TRUE(PutAside(damage).ok());
        model.Remove(step);
        ++model.aside[step];
        break;
      }
      default:
        ASSERT_EQ(RemoveUncommitted(root_), absl::OkStatus());
        model.prepared.clear();
        if (!there) {
          EXPECT_EQ(TakeBack(root_, step).value(), model.aside[step] > 0);
        }
        if (!there && model.aside[step] > 0) --model.aside[step], model.committed.insert(step);
    }
    ASSERT_THAT(Steps(), testing::ElementsAreArray(model.committed)) << "after " << i;
    for (int64_t one = 1; one <= 6; ++one) ASSERT_EQ(IsPrepared(root_, one), model.prepared.count(one) > 0) << one;
  }
  for (const int64_t step : model.committed) EXPECT_EQ(Load(root_, step, WholeOf({1000})).value(), ContentsOf(step, 1000));
  size_t aside = 0;
  for (const auto& [step, count] : model.aside) aside += count;
  EXPECT_EQ(ListPutAside(root_)->size(), aside);
}

// A store, or what stands before it, that says what it is told.
class ScriptedStorageTest : public testing::Test {
 protected:
  void SetUp() override { setenv("AWS_MAX_ATTEMPTS", "1", 1); }
  void TearDown() override { unsetenv("AWS_MAX_ATTEMPTS"); }

  static std::string List(const std::string& contents) {
    return objectstore::Answer(
        200, absl::StrCat("<ListBucketResult><IsTruncated>false</IsTruncated>", contents, "</ListBucketResult>"));
  }
  static std::string Object(const std::string& key) {
    return absl::StrCat("<Contents><Key>", key, "</Key><Size>1</Size></Contents>");
  }
  static inline const std::string kNoUploads = objectstore::Answer(
      200, "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated></ListMultipartUploadsResult>");
};

TEST_F(ScriptedStorageTest, WhatAStoreDoesNotSayIsNoDamage) {
  using objectstore::Answer;
  using objectstore::Refusal;
  for (const std::string& answer : {Answer(404, ""), Answer(404, "<html/>"), Answer(404, "<Error/>"),
                                    Refusal(404, "NoSuchBucket", ""), Refusal(403, "AccessDenied", "")}) {
    objectstore::ScriptedStore store({answer});
    const absl::Status read = ReadManifest(kUrl, 1, "").status();
    EXPECT_FALSE(read.ok());
    EXPECT_FALSE(absl::IsDataLoss(read)) << read;
    EXPECT_FALSE(absl::IsNotFound(read)) << read;
  }
  objectstore::ScriptedStore gone({objectstore::Refusal(404, "NoSuchKey", "")});
  EXPECT_TRUE(absl::IsDataLoss(ReadManifest(kUrl, 1, "").status()));
}

// Neither manifest nor what was prepared is there; then the store refuses to say whether the manifest came meanwhile.
TEST_F(ScriptedStorageTest, ACommitIsNotLostBecauseTheStoreRefuses) {
  const std::string gone = objectstore::Refusal(404, "NoSuchKey", ""), refused = objectstore::Refusal(403, "AccessDenied", "");
  {
    objectstore::ScriptedStore store({List(""), List(""), gone, refused});
    const absl::Status finished = FinishCommit(kUrl, 1);
    EXPECT_TRUE(absl::IsPermissionDenied(finished)) << finished;
    EXPECT_EQ(store.requests().size(), 4u);
  }
  objectstore::ScriptedStore store({List(""), List(""), gone, List("")});
  EXPECT_TRUE(absl::IsDataLoss(FinishCommit(kUrl, 1)));
}

TEST_F(ScriptedStorageTest, NothingOutsideIsRemovedOrMoved) {
  for (const char* key : {"runs/another run/step-1/rank-00000.bin", "runs/a run", "x"}) {
    objectstore::ScriptedStore removal(
        {List(""), kNoUploads, List(Object(key)), objectstore::Answer(200, "<DeleteResult/>")});
    EXPECT_FALSE(StorageOf(kUrl).value()->Remove(kUrl, nullptr).ok()) << key;
    EXPECT_EQ(removal.requests().size(), 3u) << key;
    objectstore::ScriptedStore move({List(Object(key)), objectstore::Answer(200, "<CopyObjectResult/>")});
    EXPECT_FALSE(StorageOf(kUrl).value()->MoveFolder(kUrl, absl::StrCat(kUrl, ".aside"), nullptr).ok()) << key;
    EXPECT_EQ(move.requests().size(), 1u) << key;
    for (const bool names : {true, false}) {
      objectstore::ScriptedStore listing({List(Object(key)), kNoUploads});
      const auto store = StorageOf(kUrl).value();
      EXPECT_FALSE(names ? store->Names(kUrl).ok() : store->SizesIn(kUrl).ok()) << key;
    }
  }
}

// Commits come in order: one that is seen after an older one was looked at says nothing of that.
TEST_F(ScriptedStorageTest, TheNewestCheckpointIsAskedForFirst) {
  std::string folders;
  for (const int step : {16, 8})
    absl::StrAppend(&folders, "<CommonPrefixes><Prefix>runs/a run/step-", step, "/</Prefix></CommonPrefixes>");
  const std::string refused = objectstore::Refusal(403, "AccessDenied", "");
  objectstore::ScriptedStore store({List(folders), kNoUploads, refused});
  EXPECT_TRUE(absl::IsPermissionDenied(ListCheckpoints(kUrl).status()));
  ASSERT_EQ(store.requests().size(), 3u);
  EXPECT_THAT(store.requests()[2], HasSubstr("step-16"));
}

// A part of a checkpoint that is prepared or committed would be taken for all of it.
TEST_F(ScriptedStorageTest, WhatMakesACheckpointIsMovedLast) {
  std::string objects;
  for (const char* name : {"committed", "manifest.pb", "manifest.pb.tmp", "rank-00000.bin"})
    absl::StrAppend(&objects, Object(absl::StrCat("runs/a run/step-1/", name)));
  const std::string copied = objectstore::Answer(200, "<CopyObjectResult/>"), removed = objectstore::Answer(204, "");
  objectstore::ScriptedStore store({List(objects), copied, copied, copied, copied, removed, removed, removed,
                                    objectstore::Answer(200, "<DeleteResult/>")});
  const std::string from = absl::StrCat(kUrl, "/step-1");
  ASSERT_EQ(StorageOf(from).value()->MoveFolder(from, from + ".damaged", nullptr), absl::OkStatus());
  std::vector<std::string> did;
  for (const std::string& request : store.requests()) {
    const std::string line = request.substr(0, request.find(" HTTP"));
    did.push_back(absl::StrCat(line.substr(0, line.find(' ')), " ", line.substr(line.rfind('/') + 1)));
  }
  EXPECT_THAT(did, ElementsAre(HasSubstr("GET"), "PUT rank-00000.bin", "PUT manifest.pb", "PUT manifest.pb.tmp", "PUT committed",
                               "DELETE committed", "DELETE manifest.pb.tmp", "DELETE manifest.pb", "POST bucket?delete="));

  objectstore::ScriptedStore changed({List(objects), objectstore::Refusal(404, "NoSuchKey", "")});
  EXPECT_TRUE(absl::IsUnavailable(StorageOf(from).value()->MoveFolder(from, from + ".damaged", nullptr))) << "it was there";

  // Cut short before the third object: what was copied goes, and nothing else.
  objectstore::ScriptedStore cut({List(objects), copied, copied, objectstore::Answer(200, "<DeleteResult/>")});
  int asked = 0;
  EXPECT_TRUE(
      absl::IsCancelled(StorageOf(from).value()->MoveFolder(from, from + ".damaged", [&] { return ++asked == 3; })));
  ASSERT_EQ(cut.requests().size(), 4u);
  EXPECT_THAT(cut.requests()[3], HasSubstr("step-1.damaged/rank-00000.bin"));
  EXPECT_THAT(cut.requests()[3], HasSubstr("step-1.damaged/manifest.pb"));
  EXPECT_THAT(cut.requests()[3], ::testing::Not(HasSubstr("committed")));
}

TEST(StorageOf, TakesNoUrlForAPath) {
  for (const char* url : {"gs://bucket/a", "file:///runs", "s3://bucket", "s3://Bucket/a"}) {
    EXPECT_TRUE(IsInObjectStore(url));
    const auto fault = GetFieldViolation(StorageOf(url).status());
    ASSERT_TRUE(fault) << url;
    EXPECT_EQ(fault->field(), "checkpoint.folder");
    EXPECT_FALSE(BeginCheckpoint(url, 1, 0).ok());
    EXPECT_FALSE(fs::exists(std::string(url).substr(0, std::string(url).find('/'))));
  }
  EXPECT_FALSE(IsInObjectStore("runs/s3:/a"));
}

}  // namespace
}  // namespace legoai::checkpoint
