#include "worker/launch/gang_agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "proto/errors.h"

namespace legoai::launch {
namespace {

using ::testing::HasSubstr;

v1::HostHello Hello() {
  v1::HostHello hello;
  hello.set_build_version("0.2.0+abc");
  hello.set_hosts(3);
  hello.set_ranks(2);
  hello.set_device("NVIDIA H100 80GB HBM3");
  hello.mutable_recipe()->mutable_training()->set_seed(7);
  hello.mutable_recipe()->mutable_metrics()->add_trace_steps(3);
  hello.mutable_model()->set_name("tiny");
  hello.mutable_dataset()->set_uri("/data/a");
  hello.mutable_dataset()->set_bytes(100);
  hello.mutable_dataset()->set_sha256("aa");
  hello.set_tokenizer_identity("byte");
  return hello;
}

TEST(GangAgreement, HostsThatHaveTheSameAgreeWhicheverTheyAreAndWhereverTheirTextLies) {
  v1::HostHello other = Hello();
  other.set_host(2);
  other.mutable_dataset()->set_uri("/mnt/a");
  EXPECT_EQ(CheckAgrees(Hello(), other, "host 2 at 10.0.0.3"), absl::OkStatus());
}

TEST(GangAgreement, WhatMakesItAHostOfAnotherRunIsNamedBeforeAnythingElse) {
  const auto field = [](const absl::Status& status) { return GetFieldViolation(status)->field(); };
  v1::HostHello other = Hello();
  other.set_build_version("0.2.0+def");
  EXPECT_EQ(CheckIsOfRun(Hello(), other, "host 2 at 10.0.0.3"), absl::OkStatus()) << "of this run, and does not agree";
  EXPECT_EQ(field(CheckAgrees(Hello(), other, "host 2 at 10.0.0.3")), "build_version");
  other.mutable_recipe()->mutable_job()->set_dump_folder("/runs/b");
  EXPECT_EQ(field(CheckIsOfRun(Hello(), other, "host 2 at 10.0.0.3")), "job.dump_folder");
  EXPECT_EQ(field(CheckAgrees(Hello(), other, "host 2 at 10.0.0.3")), "job.dump_folder");
  other.set_hosts(2);
  EXPECT_EQ(field(CheckIsOfRun(Hello(), other, "host 2 at 10.0.0.3")), "--nnodes");
}

// Each is told by its name, with both values.
TEST(GangAgreement, WhatAHostHasOtherwiseIsNamedWithBothValues) {
  struct Case {
    std::function<void(v1::HostHello*)> change;
    const char *field, *other, *first;
  };
  const Case cases[] = {
      {[](auto* hello) { hello->set_build_version("0.2.0+def"); }, "build_version", "0.2.0+def", "0.2.0+abc"},
      {[](auto* hello) { hello->set_hosts(2); }, "--nnodes", "2", "3"},
      {[](auto* hello) { hello->set_ranks(4); }, "--nproc", "4", "2"},
      {[](auto* hello) { hello->set_device("NVIDIA A100-SXM4-80GB"); }, "--device", "NVIDIA A100-SXM4-80GB", "NVIDIA H100"},
      {[](auto* hello) { hello->set_fresh(true); }, "--fresh", "given", "not given"},
      {[](auto* hello) { hello->mutable_recipe()->mutable_training()->set_seed(8); }, "training.seed", "8", "7"},
      {[](auto* hello) { hello->mutable_recipe()->mutable_training()->clear_seed(); }, "training.seed", "unset", "7"},
      {[](auto* hello) { hello->mutable_recipe()->mutable_metrics()->add_trace_steps(5); },
       "metrics.trace_steps",
       "[3, 5]",
       "[3]"},
      {[](auto* hello) { hello->mutable_model()->set_name("other"); }, "model: name", "other", "tiny"},
      {[](auto* hello) { hello->mutable_dataset()->set_bytes(101); }, "training.dataset_path", "101 bytes", "100 bytes"},
      {[](auto* hello) { hello->mutable_dataset()->set_sha256("bb"); }, "training.dataset_path", "SHA-256 bb", "SHA-256 aa"},
      {[](auto* hello) { hello->set_tokenizer_identity("cc"); }, "model.tokenizer_path", "cc", "byte"},
  };
  for (const Case& one : cases) {
    v1::HostHello other = Hello();
    one.change(&other);
    const absl::Status refused = CheckAgrees(Hello(), other, "host 2 at 10.0.0.3");
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << one.field;
    ASSERT_TRUE(GetFieldViolation(refused).has_value()) << refused;
    EXPECT_THAT(GetFieldViolation(refused)->field(), HasSubstr(one.field));
    EXPECT_THAT(GetFieldViolation(refused)->value(), HasSubstr(one.other));
    EXPECT_THAT(refused.message(), HasSubstr("on host 2 at 10.0.0.3, and "));
    EXPECT_THAT(refused.message(), HasSubstr(one.first));
  }
}

}  // namespace
}  // namespace legoai::launch
