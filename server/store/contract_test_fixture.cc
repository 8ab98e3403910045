#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/store/contract_test.h"

namespace legoai::store {

void StoreContract::SetUp() {
  folder_ = absl::StrCat(testing::TempDir(), "/store-", getpid(), "-", testing::UnitTest::GetInstance()->random_seed());
  std::filesystem::remove_all(folder_);
  std::filesystem::create_directories(folder_);
  Reopen();
}

void StoreContract::TearDown() {
  store_.reset();
  std::filesystem::remove_all(folder_);
}

void StoreContract::Reopen() {
  store_.reset();
  absl::StatusOr<std::unique_ptr<Store>> opened = GetParam().open(folder_);
  ASSERT_TRUE(opened.ok()) << opened.status();
  store_ = *std::move(opened);
}

std::string JobId(int64_t number) { return absl::StrFormat("%026d", number); }
std::string JobName(int64_t number, const std::string& project) { return absl::StrCat(project, "/jobs/", JobId(number)); }
int64_t CreateTime(int64_t number) { return 1'700'000'000'000'000 + number * 1'000'000; }

v1::Job MakeJob(int64_t number, v1::JobState state, const std::string& project) {
  v1::Job job;
  job.set_name(JobName(number, project));
  job.mutable_spec()->set_display_name(absl::StrCat("job ", number));
  job.set_state(state);
  job.set_version(1);
  job.set_create_time_us(CreateTime(number));
  return job;
}

v1::Job Next(v1::Job job, v1::JobState state) {
  job.set_state(state);
  job.set_version(job.version() + 1);
  return job;
}

}  // namespace legoai::store
