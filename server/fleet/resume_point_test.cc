#include "server/fleet/resume_point.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/store/testing/oracle.h"

namespace legoai::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kFirst[] = "projects/default/jobs/01J00000000000000000000001";
constexpr char kSecond[] = "projects/default/jobs/01J00000000000000000000002";
constexpr char kThird[] = "projects/default/jobs/01J00000000000000000000003";

class ResumePointTest : public testing::Test {
 protected:
  v1::Job Insert(const std::string& name, const std::optional<v1::Checkpoint>& starts_from = std::nullopt) {
    v1::Job job;
    job.set_name(name);
    job.set_version(1);
    if (starts_from) *job.mutable_starts_from() = *starts_from;
    EXPECT_TRUE(store_.InsertJob(job, std::nullopt).ok());
    return job;
  }
  v1::Checkpoint Save(const std::string& job, int64_t epoch, int64_t step, const std::string& damage = "", bool gone = false) {
    v1::Checkpoint checkpoint;
    checkpoint.set_name(absl::StrCat(job, "/checkpoints/", step));
    checkpoint.set_step(step);
    checkpoint.set_epoch(epoch);
    checkpoint.set_attempt(epoch);
    checkpoint.set_directory(absl::StrCat("/runs/", job.substr(job.rfind('/') + 1), "/epoch-", epoch, "/checkpoints"));
    checkpoint.set_damage(damage);
    if (gone) checkpoint.set_remove_time_us(1);
    EXPECT_TRUE(store_.PutCheckpoint(job, checkpoint).ok());
    return checkpoint;
  }
  void Ran(const std::string& job, int64_t attempt, const std::string& model) {
    v1::Attempt ran;
    ran.set_attempt(attempt);
    ran.mutable_recipe()->mutable_model()->set_name(model);
    EXPECT_TRUE(store_.PutAttempt(job, ran).ok());
  }
  ResumePoint Find(const v1::Job& job) {
    auto point = FindResumePoint(store_, job);
    EXPECT_TRUE(point.ok()) << point.status();
    return *std::move(point);
  }
  // "epoch:step of J", or "anew".
  std::string Found(const v1::Job& job) {
    const ResumePoint point = Find(job);
    if (!point.checkpoint) return point.NoneIsWhole() ? "none is whole" : "anew";
    const std::string& name = point.checkpoint->name();
    return absl::StrCat(point.checkpoint->epoch(), ":", point.checkpoint->step(), " of ",
                        name.substr(name.find("/checkpoints/") - 1, 1));
  }

  store::Oracle store_;
};

TEST_F(ResumePointTest, TheLatestOfItsOwnThatIsKeptAndWhole) {
  const v1::Job job = Insert(kFirst);
  EXPECT_EQ(Found(job), "anew");
  EXPECT_FALSE(Find(job).NoneIsWhole());
  Save(kFirst, 1, 100);
  Save(kFirst, 1, 300);
  EXPECT_EQ(Found(job), "1:300 of 1");
  Save(kFirst, 1, 300, "a bit is flipped");
  Save(kFirst, 1, 200, "", /*gone=*/true);
  EXPECT_EQ(Found(job), "1:100 of 1");
  ASSERT_EQ(Find(job).damaged.size(), 1u);
  EXPECT_EQ(Find(job).damaged[0].step(), 300);
  // It was done again from there.
  Save(kFirst, 2, 300);
  EXPECT_EQ(Found(job), "2:300 of 1");
  EXPECT_THAT(Find(job).damaged, IsEmpty());
}

TEST_F(ResumePointTest, WhereAllAreDamagedItSaysSoAndDoesNotBeginAnew) {
  const v1::Job job = Insert(kFirst);
  Save(kFirst, 1, 100, "no manifest");
  Save(kFirst, 1, 200, "a bit is flipped");
  EXPECT_EQ(Found(job), "none is whole");
  EXPECT_THAT(NoneIsWholeText(Find(job)),
              HasSubstr("none of its checkpoints is whole (step 200: a bit is flipped; step 100: no manifest)"));
}

TEST_F(ResumePointTest, ARetryGoesOnFromWhatItWasMadeForUntilItHasItsOwn) {
  Insert(kFirst);
  Save(kFirst, 1, 100);
  const v1::Checkpoint start = Save(kFirst, 1, 200);
  Save(kFirst, 1, 300);
  const v1::Job job = Insert(kSecond, start);
  EXPECT_EQ(Found(job), "1:200 of 1") << "what comes after it belongs to the training that was given up";
  Save(kSecond, 1, 210);
  EXPECT_EQ(Found(job), "1:210 of 2");
  Save(kSecond, 1, 210, "torn");
  EXPECT_EQ(Found(job), "1:200 of 1");
  Save(kFirst, 1, 200, "torn, too");
  EXPECT_EQ(Found(job), "1:100 of 1");
  Save(kFirst, 1, 100, "gone");
  EXPECT_EQ(Found(job), "none is whole");
}

TEST_F(ResumePointTest, ARetryOfARetryFollowsTheLineOfThem) {
  Insert(kFirst);
  for (const int64_t step : {100, 200, 300}) Save(kFirst, 1, step);
  Insert(kSecond, Save(kFirst, 1, 200));
  const v1::Job job = Insert(kThird, Save(kSecond, 1, 250));
  Save(kSecond, 1, 260);
  std::vector<std::string> all;
  const auto resumable = ResumableCheckpoints(store_, job);
  ASSERT_TRUE(resumable.ok());
  for (const v1::Checkpoint& one : *resumable) all.push_back(one.name());
  EXPECT_THAT(all, ElementsAre(absl::StrCat(kSecond, "/checkpoints/250"), absl::StrCat(kFirst, "/checkpoints/200"),
                               absl::StrCat(kFirst, "/checkpoints/100")));
  Save(kSecond, 1, 250, "torn");
  EXPECT_EQ(Found(job), "1:200 of 1");
}

TEST_F(ResumePointTest, AnEarlierJobThatTheStoreHasForgottenStillHasWhatTheRetryWasMadeFor) {
  v1::Checkpoint start;
  start.set_name(absl::StrCat(kFirst, "/checkpoints/200"));
  start.set_step(200);
  start.set_epoch(1);
  EXPECT_EQ(Found(Insert(kSecond, start)), "1:200 of 1");
}

TEST_F(ResumePointTest, ItIsSaidWithTheJobWhereThatIsAnother) {
  const v1::Job job = Insert(kFirst), other = Insert(kSecond);
  const v1::Checkpoint checkpoint = Save(kFirst, 1, 200);
  EXPECT_EQ(GoesOnText(job, checkpoint), "goes on from step 200");
  EXPECT_EQ(GoesOnText(other, checkpoint), absl::StrCat("goes on from step 200 of ", kFirst));
  EXPECT_EQ(GoesOnText(job, std::nullopt), "begins anew");
}

TEST_F(ResumePointTest, TheRecipeToKeepIsThatOfTheAttemptThatWroteIt) {
  Insert(kFirst);
  Ran(kFirst, 1, "first");
  Ran(kFirst, 2, "second");
  const v1::Job job = Insert(kSecond, Save(kFirst, 2, 200));
  const auto recipe = RecipeToKeep(store_, job);
  ASSERT_TRUE(recipe.ok() && recipe->has_value());
  EXPECT_EQ((*recipe)->model().name(), "second");
  EXPECT_FALSE(RecipeToKeep(store_, Insert(kThird))->has_value());
}

}  // namespace
}  // namespace legoai::server
