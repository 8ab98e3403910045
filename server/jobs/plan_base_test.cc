#include "server/jobs/plan_base.h"

#include <gtest/gtest.h>

#include <fstream>

#include "proto/errors.h"

namespace legoai::server {
namespace {

TEST(PlanBase, KeysThatNobodyNamedStayOpen) {
  const auto base = LoadBase("", {{"training.max_norm", "2"}, {"compile.enable", "false"}});
  ASSERT_TRUE(base.ok()) << base.status();
  EXPECT_TRUE(base->compile().has_enable());
  EXPECT_FALSE(base->compile().has_fsdp_bucketing());
  EXPECT_FALSE(base->parallelism().has_enable_async_tensor_parallel());
  EXPECT_EQ(base->training().max_norm(), 2);
  EXPECT_FALSE(base->compile().has_fuse());
  EXPECT_FALSE(base->compile().has_fall_back_to_eager());
  EXPECT_TRUE(base->compile().has_fsdp_reorder()) << "of all other keys the default";
}

TEST(PlanBase, AFileNamesWhatItSays) {
  const std::string path = testing::TempDir() + "/base.toml";
  std::ofstream(path) << "[parallelism]\nenable_async_tensor_parallel = false\n[compile]\nfsdp_bucketing = \"block\"\n";
  const auto base = LoadBase(path, {});
  ASSERT_TRUE(base.ok()) << base.status();
  EXPECT_FALSE(base->compile().has_enable());
  EXPECT_TRUE(base->compile().has_fsdp_bucketing());
  EXPECT_TRUE(base->parallelism().has_enable_async_tensor_parallel());
  std::ofstream(path) << "[compile]\nenalbe = true\n";
  EXPECT_EQ(GetFieldViolation(LoadBase(path, {}).status())->field(), "compile.enalbe");
  EXPECT_TRUE(absl::IsNotFound(LoadBase(path + ".none", {}).status()));
}

}  // namespace
}  // namespace legoai::server
