// Every call of a user passes one place: what it does for each of them.
#include "server/rpc/admission.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "proto/errors.h"
#include "proto/legoai/v1/control_plane.pb.h"
#include "server/metrics/log.h"

namespace legoai::server {
namespace {

using google::protobuf::MessageFactory;
using Json = nlohmann::json;

class AdmissionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SetLogSink([this](std::string_view line) { lines_.push_back(Json::parse(line)); });
  }
  void TearDown() override { SetLogSink(nullptr); }

  std::vector<Json> lines_;
};

TEST_F(AdmissionTest, WhoChangesSomethingIsInTheLog) {
  v1::CancelJobRequest request;
  request.set_name("projects/default/jobs/01ARZ3NDEKTSV4RRFFQ69G5FAV");
  request.set_reason("a secret");
  ASSERT_TRUE(AdmitCall({"grpc", "ipv4:127.0.0.1:5", access::Anybody()}, "CancelJob", request).ok());
  ASSERT_EQ(lines_.size(), 1u);
  lines_[0].erase("time");
  EXPECT_EQ(lines_[0], (Json{{"level", "info"},
                             {"message", "call"},
                             {"job", request.name()},
                             {"method", "CancelJob"},
                             {"resource", request.name()},
                             {"way", "grpc"},
                             {"remote", "ipv4:127.0.0.1:5"}}));
}

TEST_F(AdmissionTest, OfNamesWithoutEndTheBeginningIsInTheLog) {
  v1::DrainWorkerRequest request;
  request.set_name("workers/" + std::string(1'000'000, 'x'));
  ASSERT_TRUE(AdmitCall({"http", "[::1]:5", access::Anybody()}, "DrainWorker", request).ok());
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_EQ(lines_[0]["resource"], request.name().substr(0, 200));
  EXPECT_FALSE(lines_[0].contains("job"));
}

TEST_F(AdmissionTest, ControlCharactersAreRefusedAndNotLogged) {
  v1::ListJobsRequest list;
  list.set_filter(std::string("state = running\0", 16));
  EXPECT_EQ(GetFieldViolation(AdmitCall({"http", "[::1]:5", access::Anybody()}, "ListJobs", list))->field(), "filter");
  v1::CancelJobRequest cancel;
  cancel.set_name("projects/default/jobs/\x1b[2J");
  const absl::Status status = AdmitCall({"grpc", "[::1]:5", access::Anybody()}, "CancelJob", cancel);
  EXPECT_EQ(GetFieldViolation(status)->field(), "name");
  EXPECT_EQ(GetFieldViolation(status)->value(), "projects/default/jobs/\\u001b[2J");
  EXPECT_TRUE(lines_.empty());
}

TEST_F(AdmissionTest, AllMethodsAreKnownAndLooksAreNotLogged) {
  const auto* service = v1::GetJobRequest::descriptor()->file()->FindServiceByName("ControlPlane");
  ASSERT_GT(service->method_count(), 10);
  for (int i = 0; i < service->method_count(); ++i) {
    const auto* method = service->method(i);
    const std::unique_ptr<google::protobuf::Message> request(
        MessageFactory::generated_factory()->GetPrototype(method->input_type())->New());
    EXPECT_TRUE(AdmitCall({"grpc", "x", access::Anybody()}, method->name(), *request).ok()) << method->name();
    request->GetReflection()->MutableUnknownFields(request.get())->AddVarint(99, 1);
    const absl::Status status = AdmitCall({"grpc", "x", access::Anybody()}, method->name(), *request);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << method->name() << ": " << status;
  }
  std::multiset<std::string> logged;
  for (const Json& line : lines_) logged.insert(line["method"]);
  EXPECT_EQ(logged, (std::multiset<std::string>{"CancelJob", "CheckWorker", "CreateJob", "DrainWorker", "Plan", "RetryJob",
                                                "Simulate"}));
  EXPECT_TRUE(absl::IsInternal(AdmitCall({"grpc", "x", access::Anybody()}, "NoSuchCall", v1::GetJobRequest())));
}

TEST(ClientQuota, AClientIsAnAddressHoweverItIsWritten) {
  for (const char* peer : {"127.0.0.1:4711", "ipv4:127.0.0.1:4712", "::ffff:127.0.0.1:80", "ipv6:%5B::ffff:127.0.0.1%5D:80"})
    EXPECT_EQ(ClientOf(peer), "127.0.0.1") << peer;
  for (const char* peer : {"::1:4711", "[::1]:4711", "ipv6:[::1]:4711", "ipv6:%5B::1%5D:4711"}) EXPECT_EQ(ClientOf(peer), "::1");
  EXPECT_NE(ClientOf("127.0.0.2:4711"), ClientOf("127.0.0.1:4711"));
  EXPECT_EQ(ClientOf("ipv6:%5B2001:db8:1:2:aaaa::1%5D:80"), "2001:db8:1:2::/64");
  EXPECT_EQ(ClientOf("2001:db8:1:2:bbbb::2:4711"), "2001:db8:1:2::/64");  // a host may use any of its 2^64 addresses
  EXPECT_NE(ClientOf("2001:db8:1:3::1:80"), ClientOf("2001:db8:1:2::1:80"));
  EXPECT_EQ(ClientOf("unix:/tmp/socket"), "unix:/tmp/socket");
  EXPECT_EQ(ClientOf(""), "");
}

TEST(ClientQuota, BoundsAllAndEach) {
  using Answer = ClientQuota::Answer;
  ClientQuota quota(3, 2, "watches");
  EXPECT_EQ(quota.Take("a"), Answer::kTaken);
  EXPECT_EQ(quota.Take("a"), Answer::kTaken);
  EXPECT_EQ(quota.Take("a"), Answer::kClientIsFull);
  EXPECT_EQ(quota.Take("b"), Answer::kTaken);
  EXPECT_EQ(quota.Take("c"), Answer::kFull);
  EXPECT_EQ(quota.Refusal(Answer::kFull, "c"), "the server has 3 watches open, as many as it takes");
  EXPECT_EQ(quota.Refusal(Answer::kClientIsFull, "a"),
            "your address (a) has 2 watches open, as many as one client may have: close some");
  quota.GiveBack("a");
  EXPECT_EQ(quota.Take("c"), Answer::kTaken);
  EXPECT_EQ(quota.Take("a"), Answer::kFull);
  quota.GiveBack("c");
  EXPECT_EQ(quota.Take("a"), Answer::kTaken);
}

}  // namespace
}  // namespace legoai::server
