#include "proto/json/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/errors.h"
#include "proto/json/random_message.h"
#include "proto/legoai/v1/estimate.pb.h"
#include "proto/legoai/v1/hardware.pb.h"
#include "proto/legoai/v1/launch.pb.h"
#include "proto/legoai/v1/model.pb.h"
#include "proto/legoai/v1/plan.pb.h"
#include "proto/legoai/v1/recipe.pb.h"
#include "proto/legoai/v1/trace.pb.h"

namespace legoai {
namespace {

TEST(ToJson, PrintsPlainNumbersZerosNullsAndTexts) {
  v1::Device device;
  device.set_kind(v1::CUDA);
  device.set_memory_bytes(85899345920);
  device.set_kernel_launch_seconds(2.5e-6);
  auto* peak = device.add_peak_flops();
  peak->set_dtype(v1::BFLOAT16);
  peak->set_flops_per_second(989e12);
  device.add_sources("a \"quoted\" page");
  EXPECT_THAT(
      ToJson(device, -1),
      testing::StartsWith(R"({"type":"","kind":"cuda","memory_bytes":85899345920,"memory_bandwidth_bytes_per_second":0.0,)"
                          R"("peak_flops":[{"dtype":"bfloat16","flops_per_second":989000000000000.0}],"efficiencies":[],)"
                          R"("kernel_launch_seconds":2.5e-06,"host_dispatch_seconds":0.0,"reserve_bytes":0,"reserve_source":"",)"
                          R"("allocation_rounding_bytes":0,"sources":["a \"quoted\" page"])"));
}

TEST(ToJson, UnsetOptionalIsNullAndSetZeroIsZero) {
  v1::StageEstimate stage;
  EXPECT_NE(ToJson(stage, -1).find(R"("peak_reserved_bytes":null)"), std::string::npos);
  stage.set_peak_reserved_bytes(0);
  EXPECT_NE(ToJson(stage, -1).find(R"("peak_reserved_bytes":0)"), std::string::npos);
}

TEST(ToJson, SortsMapKeys) {
  v1::PlanResult result;
  for (const char* rule : {"tp", "a", "pp", "zz", "b"}) (*result.mutable_pruned())[rule] = rule[0];
  EXPECT_NE(ToJson(result, -1).find(R"("pruned":{"a":97,"b":98,"pp":112,"tp":116,"zz":122})"), std::string::npos);
}

TEST(ToJson, IndentsOnRequest) {
  v1::FieldViolation violation;
  EXPECT_EQ(ToJson(violation), "{\n  \"field\": \"\",\n  \"value\": \"\",\n  \"remedy\": \"\"\n}");
}

TEST(Json, RoundTripsWhateverAMessageHolds) {
  const uint64_t seed = std::random_device()();
  const auto print = [](const auto& message, int i) { return ToJson(message, i % 2 ? -1 : 2); };
  ExpectRoundTrips<v1::Recipe>(seed, print, ParseJson);
  ExpectRoundTrips<v1::Model>(seed, print, ParseJson);
  ExpectRoundTrips<v1::PlanResult>(seed, print, ParseJson);
  ExpectRoundTrips<v1::Estimate>(seed, print, ParseJson);
  ExpectRoundTrips<v1::TraceStorage>(seed, print, ParseJson);
}

v1::FieldViolation Refused(const std::string& text, google::protobuf::Message* message) {
  const std::string before = message->DebugString();
  const absl::Status status = ParseJson(text, message);
  EXPECT_FALSE(status.ok()) << text;
  EXPECT_EQ(message->DebugString(), before) << "half done";
  return GetFieldViolation(status).value_or(v1::FieldViolation());
}

TEST(ParseJson, ReplacesTheMessage) {
  v1::Recipe recipe;
  recipe.mutable_training()->set_steps(7);
  ASSERT_TRUE(ParseJson(R"({"training":{"seq_len":128,"steps":null},"model":null})", &recipe).ok());
  EXPECT_EQ(recipe.training().seq_len(), 128);
  EXPECT_FALSE(recipe.training().has_steps());
  EXPECT_FALSE(recipe.has_model());
}

TEST(ParseJson, UnknownKeyNamesTheNearest) {
  v1::Recipe recipe;
  recipe.mutable_training()->set_steps(7);
  const auto violation = Refused(R"({"training":{"steps":1,"sequence_len":128}})", &recipe);
  EXPECT_EQ(violation.field(), "training.sequence_len");
  EXPECT_EQ(violation.value(), "128");
  EXPECT_EQ(violation.remedy(), "unknown key; the nearest known one is training.seq_len");
}

TEST(ParseJson, KnownKeyInTheWrongSectionNamesTheRightOne) {
  v1::Recipe recipe;
  EXPECT_NE(Refused(R"({"training":{"tensor_parallel_degree":2}})", &recipe).remedy().find("parallelism.tensor_parallel_degree"),
            std::string::npos);
  EXPECT_NE(Refused(R"({"seq_len":2})", &recipe).remedy().find("training.seq_len"), std::string::npos);
}

TEST(ParseJson, RefusesValuesOfOtherTypes) {
  v1::Recipe recipe;
  EXPECT_EQ(Refused(R"({"training":{"steps":"10"}})", &recipe).remedy(), "must be a whole number");
  EXPECT_EQ(Refused(R"({"training":{"steps":10.5}})", &recipe).value(), "10.5");
  EXPECT_EQ(Refused(R"({"training":{"steps":9223372036854775808}})", &recipe).remedy(),
            "is too large: must lie between -9223372036854775808 and 9223372036854775807");
  EXPECT_EQ(Refused(R"({"training":{"max_norm":"1"}})", &recipe).remedy(), "must be a number");
  EXPECT_EQ(Refused(R"({"checkpoint":{"enable_checkpoint":1}})", &recipe).remedy(), "must be true or false");
  EXPECT_EQ(Refused(R"({"model":{"name":1}})", &recipe).remedy(), "must be text, in quotes");
  EXPECT_EQ(Refused(R"({"training":3})", &recipe).field(), "training");
  EXPECT_EQ(Refused(R"({"parallelism":{"pipeline_parallel_schedule":"1f1b"}})", &recipe).remedy(),
            "must be one of \"GPipe\", \"1F1B\", \"Interleaved1F1B\", \"LoopedBFS\", \"InterleavedZeroBubble\", "
            "\"ZBVZeroBubble\", \"DualPipeV\"");
}

TEST(ParseJson, RefusesTwoMembersOfAOneof) {
  v1::ToTrainer message;
  EXPECT_TRUE(ParseJson(R"({"start":null,"stop":{"save":true}})", &message).ok());
  EXPECT_EQ(Refused(R"({"stop":{"save":true},"commit":{"step":1}})", &message).field(), "commit");
}

TEST(ParseJson, SmallerIntegersKeepTheirRange) {
  v1::Exit exit;
  EXPECT_TRUE(ParseJson(R"({"code":-2147483648})", &exit).ok());
  EXPECT_EQ(exit.code(), -2147483648);
  EXPECT_EQ(Refused(R"({"code":2147483648})", &exit).remedy(), "is too large: must lie between -2147483648 and 2147483647");
  v1::Trace trace;
  EXPECT_EQ(Refused(R"({"version":-1})", &trace).remedy(), "is too small: must lie between 0 and 4294967295");
}

// The parser makes a floating-point number of what 64 bits do not hold.
TEST(ParseJson, NumbersBeyondAllIntegersAreToldAsSuch) {
  v1::Recipe recipe;
  const std::string range = "must lie between -9223372036854775808 and 9223372036854775807";
  for (const char* large : {"18446744073709551616", "99999999999999999999", "1e30"}) {
    const auto violation = Refused(std::string(R"({"training":{"steps":)") + large + "}}", &recipe);
    EXPECT_EQ(violation.field(), "training.steps");
    EXPECT_EQ(violation.remedy(), "is too large: " + range);
    EXPECT_FALSE(violation.value().empty());
  }
  for (const char* small : {"-9223372036854775809", "-99999999999999999999"})
    EXPECT_EQ(Refused(std::string(R"({"training":{"steps":)") + small + "}}", &recipe).remedy(), "is too small: " + range);
  EXPECT_EQ(Refused(R"({"training":{"steps":1.5}})", &recipe).remedy(), "must be a whole number");
  EXPECT_TRUE(ParseJson(R"({"training":{"steps":-9223372036854775808,"max_norm":1e30}})", &recipe).ok());
}

// Looking through all keys for each took minutes.
TEST(ParseJsonTree, ReadsManyKeys) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += (i ? ",\"key" : "\"key") + std::to_string(i) + "\":1";
  const auto tree = ParseJsonTree(text + "}");
  ASSERT_TRUE(tree.ok()) << tree.status();
  EXPECT_EQ(tree->size(), 200'000u);
  EXPECT_EQ(GetFieldViolation(ParseJsonTree(text + ",\"key7\":1}").status())->field(), "key7");
}

TEST(ParseJson, BrokenTextNamesTheLine) {
  v1::Recipe recipe;
  const absl::Status status = ParseJson("{\n  \"training\": }", &recipe);
  EXPECT_NE(std::string(status.message()).find("line 2"), std::string::npos) << status;
  EXPECT_EQ(GetFieldViolation(ParseJson(R"({"training":{"max_norm":1e999}})", &recipe))->remedy(),
            "is not valid: number overflow parsing '1e999'");
  EXPECT_FALSE(ParseJson("", &recipe).ok());
  EXPECT_FALSE(ParseJson("[]", &recipe).ok());
}

TEST(ParseJson, AKeyThatIsThereTwiceIsNamed) {
  v1::Recipe recipe;
  recipe.mutable_training()->set_steps(7);
  const auto violation = Refused(R"({"model":{"name":"a"},"training":{"steps":1,"seq_len":2,"steps":3}})", &recipe);
  EXPECT_EQ(violation.field(), "training.steps");
  EXPECT_EQ(violation.remedy(), "is given twice: keep one of them");
  EXPECT_EQ(Refused(R"({"training":{},"training":{"steps":1}})", &recipe).field(), "training");
  v1::Device device;
  EXPECT_EQ(Refused(R"({"sources":["dtype"],"peak_flops":[{"dtype":"float32"},{"dtype":"float32","dtype":"float32"}]})", &device)
                .field(),
            "peak_flops[1].dtype");
  EXPECT_TRUE(ParseJson(R"({"training":{"steps":1},"validation":{"steps":1}})", &recipe).ok()) << "a key of two objects";
}

TEST(ParseJsonTree, GivesTheTreeOfAnyText) {
  const auto tree = ParseJsonTree(R"({"a":[{"b":1},{"b":[]}],"b":null})");
  ASSERT_TRUE(tree.ok()) << tree.status();
  EXPECT_EQ(*tree, Tree::parse(R"({"a":[{"b":1},{"b":[]}],"b":null})"));
  EXPECT_EQ(GetFieldViolation(ParseJsonTree(R"({"a":[{"b":1},[{"b":2,"c":3,"b":2}]]})").status())->field(), "a[1][0].b");
  EXPECT_EQ(GetFieldViolation(ParseJsonTree(R"([[],{"a":[7,{"b":[],"b":2}]}])").status())->field(), "[1].a[1].b");
  EXPECT_FALSE(ParseJsonTree("{\"a\":\"\xff\"}").ok()) << "no UTF-8";
}

// A million levels would end the process of whoever goes through the tree.
TEST(ParseJsonTree, RefusesWhatIsNestedTooDeep) {
  const auto nested = [](int levels, const std::string& open, const std::string& close) {
    std::string text;
    for (int i = 0; i < levels; ++i) text += open;
    text += "1";
    for (int i = 0; i < levels; ++i) text += close;
    return text;
  };
  EXPECT_TRUE(ParseJsonTree(nested(kMostNesting, "[", "]")).ok());
  for (const int levels : {kMostNesting + 1, kMostNesting + 2, 1'000'000}) {
    EXPECT_EQ(GetFieldViolation(ParseJsonTree(nested(levels, "[", "]")).status())->remedy(), "is nested deeper than 100 levels");
    EXPECT_FALSE(ParseJsonTree(nested(levels, R"({"a":)", "}")).ok());
  }
  v1::Recipe recipe;
  const auto violation = Refused(R"({"training":{"steps":[{"a":)" + nested(1'000'000, "[", "]") + "}]}}", &recipe);
  EXPECT_EQ(violation.field().substr(0, 20), "training.steps[0].a[");
  EXPECT_EQ(Refused(R"({"unknown":)" + nested(1'000'000, "[", "]") + "}", &recipe).field().substr(0, 8), "unknown[");
}

TEST(ParseJson, LongKeysAndValuesAreCutInErrors) {
  v1::Recipe recipe;
  const std::string megabytes(4 << 20, 'x');
  const auto violation = Refused("{\"" + megabytes + "\":\"" + megabytes + "\"}", &recipe);
  EXPECT_EQ(violation.field(), std::string(77, 'x') + "...");
  EXPECT_EQ(violation.value(), violation.field());
  std::string accents;
  for (int i = 0; i < 100; ++i) accents += "é";
  EXPECT_EQ(Refused(R"({"training":{"steps":")" + accents + R"("}})", &recipe).value(), accents.substr(0, 76) + "...");
  v1::PlanResult plan;
  EXPECT_EQ(Refused("{\"pruned\":{\"" + megabytes + "\":0.5}}", &plan).field(), "pruned." + violation.field()) << "of a map";
}

TEST(ParseJson, WhatIsNoObjectIsNamedByItsMessage) {
  v1::Recipe recipe;
  EXPECT_EQ(ParseJson("[]", &recipe).message(), "Recipe = []: must be a table of keys and values");
}

TEST(ParseJson, ListsNameTheElement) {
  v1::Device device;
  EXPECT_EQ(Refused(R"({"peak_flops":[{"dtype":"float32"},{"dtype":"fp32"}]})", &device).field(), "peak_flops[1].dtype");
  EXPECT_EQ(Refused(R"({"sources":"x"})", &device).remedy(), "must be a list");
}

}  // namespace
}  // namespace legoai
