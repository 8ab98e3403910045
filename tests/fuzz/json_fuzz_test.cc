// JSON as the bodies of calls have it, and as answers and records are written. What is accepted is what any reader of JSON sees
// in it, and says the same when it is written and read again; what is refused changes nothing and can be told to who sent it.
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "proto/errors.h"
#include "proto/json/json.h"
#include "proto/legoai/v1/control_plane.pb.h"
#include "proto/legoai/v1/plan.pb.h"
#include "proto/text.h"
#include "tests/fuzz/fuzz.h"

namespace legoai::fuzz {
namespace {

using google::protobuf::util::MessageDifferencer;
using Json = nlohmann::json;

constexpr size_t kMostErrorBytes = 16 << 10;  // a path of a hundred levels, and a part of the value

// One that a client can be told: of a field, in text that crosses a wire, and not as long as the body.
void ExpectTold(const absl::Status& status) {
  EXPECT_TRUE(IsUtf8(std::string(status.message()))) << status;
  EXPECT_LE(status.message().size(), kMostErrorBytes);
  const auto violation = GetFieldViolation(status);
  EXPECT_TRUE(violation) << status;
  if (violation) {
    EXPECT_FALSE(violation->remedy().empty());
  }
}

int Depth(const Tree& tree) {
  if (!tree.is_structured()) return 0;  // which the library takes for a list of itself
  int deepest = 0;
  for (const Tree& inner : tree) deepest = std::max(deepest, Depth(inner));
  return 1 + deepest;
}

// The library's own reader knows no limits: ours refuses what it refuses, and besides keys that are there twice and what nests
// too deep.
void ExpectAsOthersRead(const std::string& text, const absl::StatusOr<Tree>& tree) {
  if (!tree.ok()) {
    ExpectTold(tree.status());
    const std::string why(tree.status().message());
    const bool ours = why.find("is given twice") != std::string::npos || why.find("is nested deeper") != std::string::npos;
    EXPECT_TRUE(ours || !Json::accept(text)) << why;
    return;
  }
  EXPECT_LE(Depth(*tree), kMostNesting);
  const Json others = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  EXPECT_EQ(Json::parse(tree->dump(), nullptr, false), others) << text;
}

// Over a message that says `was`.
template <typename Message>
absl::Status ParseAs(const std::string& text, const std::string& was) {
  const auto tree = ParseJsonTree(text);
  ExpectAsOthersRead(text, tree);
  Message before, merged;
  EXPECT_TRUE(ParseJson(was, &before).ok());
  Message message = before;
  const absl::Status status = ParseJson(text, &message);
  if (!tree.ok()) {
    EXPECT_EQ(status, tree.status());
  } else {
    // All that is wrong is found exactly where the first of it is.
    const std::vector<absl::Status> faults = MergeTreeApartFromFaults(*tree, &merged);
    EXPECT_EQ(status.ok(), faults.empty());
    EXPECT_LE(faults.size(), kMostFaults + 1);
    for (const absl::Status& fault : faults) ExpectTold(fault);
  }
  if (!status.ok()) {
    ExpectTold(status);
    EXPECT_TRUE(MessageDifferencer::Equals(message, before)) << "half done";
    return status;
  }
  EXPECT_TRUE(MessageDifferencer::Equals(message, merged)) << "not replaced";
  Message sent;
  EXPECT_TRUE(sent.ParseFromString(message.SerializeAsString())) << "cannot be sent";
  for (const int indent : {-1, 2}) {
    Message again;
    const std::string written = ToJson(message, indent);
    EXPECT_TRUE(ParseJson(written, &again).ok()) << written;
    EXPECT_TRUE(MessageDifferencer::Equals(message, again)) << written;
    EXPECT_EQ(ToJson(again, indent), written);
  }
  return absl::OkStatus();
}

absl::Status ParseCall(const std::string& text) {
  return ParseAs<v1::CreateJobRequest>(text, R"({"parent": "projects/before", "spec": {"planning": {"top": 7}}})");
}

// Maps, lists of messages, and what may be null.
absl::Status ParsePlan(const std::string& text) {
  return ParseAs<v1::PlanResult>(text, R"({"model": "before", "pruned": {"rule": 7}, "ranked": [{"rank": 7}]})");
}

TEST(Fuzz, JsonOfACall) {
  Fuzz({"json_call",
        JsonWords("parent|spec|request_id|validate_only|model|config_json|recipe|training|steps|max_norm|metrics|trace_steps|"
                  "mixed_precision_param|bfloat16|parallelism|module_fqns_per_model_part|planning|objective|constraints|Steps",
                  R"(\u00e9|\ud83d\ude00|\|\\|1e400|-0|[[]]|["a"]|//)"
                  "|\xef\xbb\xbf|\n"),
        ParseCall});
}

TEST(Fuzz, JsonOfAPlan) {
  Fuzz({"json_plan",
        JsonWords("model|space|pruned|memory|ranked|rank|recipe|recipe_toml|mfu|estimated|rejected|reason|peak_memory_bytes",
                  R"(1e308|4.9e-324|0.1|1.0|-0.0|[null]|{"":1}|[[]]|\u0000)"
                  "|\xc2|\x7f"),
        ParsePlan});
}

}  // namespace
}  // namespace legoai::fuzz
