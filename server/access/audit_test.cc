#include "server/access/audit.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/testing/assert_ok.h"
#include "server/metrics/log.h"

namespace legoai::access {
namespace {

namespace fs = std::filesystem;

class AuditTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = absl::StrCat(::testing::TempDir(), "/audit-", getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    path_ = folder_ + "/audit.jsonl";
  }
  void TearDown() override { fs::remove_all(folder_); }

  static v1::AuditRecord Record(int64_t number) {
    v1::AuditRecord record;
    record.set_time_us(number);
    record.set_token(absl::StrCat("tokens/t", number % 3));
    record.set_role(v1::EDITOR);
    record.set_call("legoai.v1.ControlPlane/CancelJob");
    record.set_resource(absl::StrCat("projects/p/jobs/", number, "\n\"\\"));
    record.set_outcome("OK");
    return record;
  }
  static std::vector<int64_t> Times(const absl::StatusOr<std::vector<v1::AuditRecord>>& records) {
    EXPECT_TRUE(records.ok()) << records.status();
    std::vector<int64_t> times;
    for (const v1::AuditRecord& record : *records) times.push_back(record.time_us());
    return times;
  }

  std::string folder_, path_;
};

using Numbers = std::vector<int64_t>;

TEST_F(AuditTest, TheLatestComeFirstAlsoAfterANewStart) {
  {
    ASSERT_OK_AND_ASSIGN(const auto log, AuditLog::Open(path_));
    EXPECT_TRUE(Times(log->Latest(10, "")).empty());
    for (int64_t i = 1; i <= 4; ++i) log->Append(Record(i));
  }
  ASSERT_OK_AND_ASSIGN(const auto log, AuditLog::Open(path_));
  log->Append(Record(5));
  EXPECT_EQ(Times(log->Latest(3, "")), (Numbers{5, 4, 3}));
  EXPECT_EQ(Times(log->Latest(100, "")), (Numbers{5, 4, 3, 2, 1}));
  EXPECT_EQ(Times(log->Latest(100, "tokens/t1")), (Numbers{4, 1}));
  EXPECT_TRUE(Times(log->Latest(100, "editor")).empty()) << "a role is no text of the record";
  EXPECT_EQ(log->Latest(1, "")->front().ShortDebugString(), Record(5).ShortDebugString());
  struct stat facts {};
  ASSERT_EQ(stat(path_.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0600u);
}

TEST_F(AuditTest, AFileThatOthersCouldReadIsClosedToThem) {
  std::ofstream(path_).close();
  fs::permissions(path_, fs::perms(0644));
  ASSERT_OK_AND_ASSIGN(const auto log, AuditLog::Open(path_));
  EXPECT_EQ(fs::status(path_).permissions(), fs::perms(0600));
}

TEST_F(AuditTest, OldFilesAreNumberedAndTheOldestGoes) {
  ASSERT_OK_AND_ASSIGN(const auto log, AuditLog::Open(path_, {.file_bytes = 2000, .files = 3}));
  for (int64_t i = 1; i <= 200; ++i) {
    log->Append(Record(i));
    EXPECT_LE(fs::file_size(path_), 2000u);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 3);
  const Numbers times = Times(log->Latest(1000, ""));
  ASSERT_GT(times.size(), 10u);
  for (size_t i = 0; i < times.size(); ++i) EXPECT_EQ(times[i], 200 - static_cast<int64_t>(i));
}

TEST_F(AuditTest, ALineThatACrashCutShortSpoilsNoOther) {
  {
    ASSERT_OK_AND_ASSIGN(const auto log, AuditLog::Open(path_));
    log->Append(Record(1));
    log->Append(Record(2));
  }
  fs::resize_file(path_, fs::file_size(path_) - 10);
  ASSERT_OK_AND_ASSIGN(const auto log, AuditLog::Open(path_));
  log->Append(Record(3));
  EXPECT_EQ(Times(log->Latest(10, "")), (Numbers{3, 1}));
}

TEST_F(AuditTest, ManyThreadsWriteWholeLines) {
  ASSERT_OK_AND_ASSIGN(const auto log, AuditLog::Open(path_, {.file_bytes = 5000, .files = 1000}));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int64_t i = 1; i <= 100; ++i) log->Append(Record(i));
    });
  }
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(log->Latest(1000, "").ok());
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(Times(log->Latest(1000, "")).size(), 400u);
}

TEST_F(AuditTest, APlaceThatCannotBeWrittenIsRefusedAndALinkNotFollowed) {
  const auto field = [](const std::string& path) {
    const auto violation = GetFieldViolation(AuditLog::Open(path).status());
    return violation ? violation->field() : "";
  };
  EXPECT_EQ(field(folder_ + "/no/such/place"), "--audit_log");
  EXPECT_EQ(field(folder_), "--audit_log");
  fs::create_symlink(folder_ + "/other", folder_ + "/link");
  EXPECT_EQ(field(folder_ + "/link"), "--audit_log");
}

TEST_F(AuditTest, OnAFullDiskTheRecordIsInTheServersLog) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "this system has no /dev/full";
  std::vector<std::string> lines;
  server::SetLogSink([&](std::string_view line) { lines.emplace_back(line); });
  ASSERT_OK_AND_ASSIGN(const auto log, AuditLog::Open("/dev/full"));
  log->Append(Record(7));
  server::SetLogSink(nullptr);
  ASSERT_EQ(lines.size(), 1u);
  for (const char* part : {"\"level\":\"error\"", "audit", "projects/p/jobs/7", "tokens/t1", "CancelJob"})
    EXPECT_TRUE(absl::StrContains(lines[0], part)) << part << " in " << lines[0];
}

}  // namespace
}  // namespace legoai::access
