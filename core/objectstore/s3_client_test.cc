// Against versitygw, which checks every signature itself, and against a store that says what it is told.
#include "core/objectstore/s3_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <random>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/objectstore/testing/scripted_store.h"
#include "core/objectstore/testing/versitygw.h"
#include "proto/errors.h"

namespace legoai::objectstore {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::string RandomBytes(std::mt19937& random, size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t at = 0; at < bytes; at += 4) {
    const uint32_t word = static_cast<uint32_t>(random());
    text.replace(at, std::min<size_t>(4, bytes - at), reinterpret_cast<const char*>(&word), std::min<size_t>(4, bytes - at));
  }
  return text;
}

std::vector<std::string> KeysOf(const absl::StatusOr<std::vector<S3Object>>& objects) {
  std::vector<std::string> keys;
  if (!objects.ok()) return {std::string(objects.status().message())};
  for (const S3Object& object : *objects) keys.push_back(object.key);
  return keys;
}

class GatewayTest : public testing::Test {
 protected:
  void SetUp() override {
    auto started = Versitygw::Start(testing::TempDir());
    ASSERT_TRUE(started.ok()) << started.status();
    gateway_ = *std::move(started);
  }
  static S3Client Client(const std::string& bucket = "bucket") { return S3Client::Create(bucket).value(); }

  std::unique_ptr<Versitygw> gateway_;
};

TEST_F(GatewayTest, ObjectsAreWhatWasPut) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  S3Client client = Client();
  std::map<std::string, std::string> put;
  for (const char* key : {"a/empty", "a/one", "a/b/c", "a/with space+plus&more=%20", "a/ä/ö~(1)!*'", "z"}) {
    put[key] = RandomBytes(random, put.size() * 50'000);
    ASSERT_EQ(client.Put(key, put[key]), absl::OkStatus()) << key;
  }
  for (const auto& [key, contents] : put) {
    EXPECT_EQ(client.Get(key).value(), contents) << key;
    EXPECT_EQ(client.Bytes(key).value(), std::optional<int64_t>(contents.size())) << key;
    if (contents.empty()) continue;
    const int64_t offset = random() % contents.size(), bytes = 1 + random() % (contents.size() - offset);
    std::string part(bytes, '\0');
    ASSERT_EQ(client.GetRange(key, offset, bytes, part.data()), absl::OkStatus()) << key;
    EXPECT_EQ(part, contents.substr(offset, bytes)) << key << " " << offset;
    EXPECT_TRUE(absl::IsOutOfRange(client.GetRange(key, contents.size(), 1, part.data())));
    std::string more(contents.size() + 1, '\0');
    EXPECT_TRUE(absl::IsOutOfRange(client.GetRange(key, 0, more.size(), more.data())));
  }
  std::vector<std::string> below_a;
  for (const auto& [key, contents] : put)
    if (key[0] == 'a') below_a.push_back(key);
  EXPECT_THAT(KeysOf(client.List("a/")), testing::ElementsAreArray(below_a));
  const S3Listing folder = client.ListFolder("a/").value();
  EXPECT_THAT(folder.folders, ElementsAre("a/b/", "a/ä/"));
  EXPECT_EQ(folder.objects.size(), 3u);
  ASSERT_EQ(client.Put("a/one", "another"), absl::OkStatus());
  EXPECT_EQ(client.Get("a/one").value(), "another");
  EXPECT_EQ(client.Delete("a/one"), absl::OkStatus());
  EXPECT_EQ(client.Delete("a/one"), absl::OkStatus());
  EXPECT_TRUE(absl::IsNotFound(client.Get("a/one").status()));
  EXPECT_EQ(client.Bytes("a/one").value(), std::nullopt);
  EXPECT_FALSE(client.HasAny("a/one").value());
  EXPECT_TRUE(client.HasAny("a/b").value());
}

TEST_F(GatewayTest, AListingOfSeveralPagesIsWhole) {
  S3Client client = Client();
  for (int i = 0; i < 1'005; ++i) ASSERT_EQ(client.Put(absl::StrCat("many/", 10'000 + i), ""), absl::OkStatus());
  EXPECT_EQ(client.List("many/")->size(), 1'005u);
  EXPECT_EQ(client.ListFolder("many/")->objects.size(), 1'005u);
  ASSERT_EQ(client.Put("many more/&<>\"'ä", ""), absl::OkStatus());
  std::vector<std::string> keys = KeysOf(client.List("many"));
  ASSERT_EQ(keys.size(), 1'006u);
  keys.push_back("many/that is not there");
  int requests = 0;
  EXPECT_EQ(client.DeleteAll(keys, [&] { ++requests; }), absl::OkStatus());
  EXPECT_EQ(requests, 2);
  EXPECT_FALSE(client.HasAny("many").value());
}

TEST_F(GatewayTest, AnUploadOfPartsIsOneObjectOrNone) {
  std::mt19937 random(7);
  S3Client client = Client();
  const std::string first = RandomBytes(random, kPartBytes), second = RandomBytes(random, 1'000);
  const S3Upload upload = {"a/large", client.BeginUpload("a/large").value()};
  std::vector<std::string> etags;
  for (const std::string& part : {first, second}) etags.push_back(client.UploadPart(upload, etags.size() + 1, part).value());
  EXPECT_EQ(client.Bytes("a/large").value(), std::nullopt);
  EXPECT_THAT(KeysOf(client.List("a/")), IsEmpty());
  ASSERT_EQ(client.ListUploads("a/")->size(), 1u);
  EXPECT_EQ(client.ListUploads("a/")->front().id, upload.id);
  EXPECT_THAT(*client.ListUploads("b/"), IsEmpty());
  const int64_t bytes = first.size() + second.size();
  ASSERT_EQ(client.CompleteUpload(upload, etags, bytes), absl::OkStatus());
  EXPECT_EQ(client.Get("a/large").value(), first + second);
  EXPECT_EQ(client.CompleteUpload(upload, etags, bytes), absl::OkStatus()) << "the answer was lost";
  EXPECT_FALSE(client.CompleteUpload(upload, etags, bytes + 1).ok());
  const S3Upload other = {"a/other", client.BeginUpload("a/other").value()};
  ASSERT_EQ(client.AbortUpload(other), absl::OkStatus());
  EXPECT_EQ(client.AbortUpload(other), absl::OkStatus());
  EXPECT_THAT(*client.ListUploads(""), IsEmpty());

  ASSERT_EQ(client.Copy({"a/large", bytes}, "b/at once"), absl::OkStatus());
  EXPECT_EQ(client.Get("b/at once").value(), first + second);
  ASSERT_EQ(client.Copy({"a/large", bytes}, "b/in parts", 1 << 20), absl::OkStatus());
  EXPECT_EQ(client.Get("b/in parts").value(), first + second);
  EXPECT_TRUE(absl::IsNotFound(client.Copy({"a/none", bytes}, "b/none", 1 << 20)));
  EXPECT_THAT(*client.ListUploads(""), IsEmpty());
  EXPECT_TRUE(absl::IsNotFound(client.Copy({"a/none", 1}, "b/none")));
}

TEST_F(GatewayTest, WrongKeysAndBucketsAreRefusedByName) {
  const auto expect = [](const absl::Status& status, absl::StatusCode code, const std::string& said) {
    EXPECT_EQ(status.code(), code) << status;
    const auto fault = GetFieldViolation(status);
    ASSERT_TRUE(fault) << status;
    EXPECT_EQ(fault->field(), "checkpoint.folder");
    EXPECT_THAT(fault->remedy(), HasSubstr(said));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr(kTestSecret)));
  };
  S3Client none = Client("no-such-bucket");
  expect(none.Put("a", "b"), absl::StatusCode::kFailedPrecondition, "make the bucket at ");
  expect(none.Bytes("a").status(), absl::StatusCode::kFailedPrecondition, "NoSuchBucket");
  expect(none.Get("a").status(), absl::StatusCode::kFailedPrecondition, "NoSuchBucket");
  UseKeys(kTestAccess, "another");
  expect(Client().Get("a").status(), absl::StatusCode::kPermissionDenied, "SignatureDoesNotMatch");
  UseKeys("nobody", kTestSecret);
  expect(Client().Put("a", "b"), absl::StatusCode::kPermissionDenied, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
}

// What an upload goes on with once the store is back.
TEST_F(GatewayTest, AStoreThatComesBackIsWaitedFor) {
  setenv("AWS_MAX_ATTEMPTS", "20", 1);
  std::atomic<int> alive = 0;
  S3Client client = Client();
  gateway_->End();
  std::thread later([&] {
    absl::SleepFor(absl::Seconds(2));
    const absl::Status started = gateway_->StartAgain();
    EXPECT_EQ(started, absl::OkStatus());
    while (alive >= 0) absl::SleepFor(absl::Milliseconds(10));  // the gateway ends with the thread that has started it
  });
  {
    const AliveDuring during([&] { ++alive; });
    EXPECT_EQ(client.Put("a", "b"), absl::OkStatus());
  }
  EXPECT_GE(alive, 2);
  EXPECT_EQ(client.Get("a").value(), "b");
  alive = -1;
  later.join();
  setenv("AWS_MAX_ATTEMPTS", "2", 1);
  gateway_->End();
  const absl::Status gone = Client().Put("a", "b");
  EXPECT_TRUE(absl::IsUnavailable(gone)) << gone;
  EXPECT_THAT(std::string(gone.message()),
              HasSubstr(absl::StrCat("writing s3://bucket/a failed 2 times at ", gateway_->endpoint())));
  unsetenv("AWS_MAX_ATTEMPTS");
}

class ScriptTest : public testing::Test {
 protected:
  void SetUp() override { setenv("AWS_MAX_ATTEMPTS", "4", 1); }
  void TearDown() override {
    for (const char* name : {"AWS_MAX_ATTEMPTS", "AWS_SESSION_TOKEN", "http_proxy"}) unsetenv(name);
  }
};

TEST_F(ScriptTest, WhatMayPassIsTriedAgain) {
  ScriptedStore store({Refusal(503, "SlowDown", "Please reduce your request rate"), Refusal(500, "InternalError", ""), "",
                       Answer(200, "")});
  EXPECT_EQ(S3Client::Create("bucket")->Put("a", "hello"), absl::OkStatus());
  ASSERT_EQ(store.requests().size(), 4u);
  for (const std::string& request : store.requests()) {
    EXPECT_THAT(request, testing::StartsWith("PUT /bucket/a HTTP/1.1\r\n"));
    EXPECT_THAT(request, testing::EndsWith("\r\n\r\nhello"));
  }
}

TEST_F(ScriptTest, ItIsGivenUpAfterAsManyAttemptsAsAreAllowed) {
  ScriptedStore store(std::vector<std::string>(4, Refusal(503, "SlowDown", "Please reduce your request rate")));
  const absl::Status status = S3Client::Create("bucket")->Get("a").status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_FALSE(GetFieldViolation(status)) << "it may pass";
  EXPECT_THAT(std::string(status.message()), HasSubstr("failed 4 times"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("status 503, SlowDown: Please reduce your request rate"));
}

TEST_F(ScriptTest, RefusalsAreNotTriedAgain) {
  const auto first = [](const std::string& answer) {
    ScriptedStore store({answer, Answer(200, "")});
    const absl::Status status = S3Client::Create("bucket")->Put("a", "b");
    EXPECT_EQ(store.requests().size(), 1u);
    return status;
  };
  EXPECT_TRUE(absl::IsPermissionDenied(first(Refusal(403, "AccessDenied", ""))));
  EXPECT_TRUE(absl::IsResourceExhausted(first(Refusal(507, "InsufficientStorage", ""))));
  EXPECT_TRUE(absl::IsInvalidArgument(first(Refusal(501, "NotImplemented", ""))));
  const absl::Status elsewhere = first(Refusal(301, "PermanentRedirect", "another endpoint"));
  EXPECT_TRUE(absl::IsFailedPrecondition(elsewhere));
  EXPECT_THAT(std::string(elsewhere.message()), HasSubstr("set AWS_REGION to the bucket's region (it is us-east-1 now)"));
}

// Amazon's completion sends 200 before it knows.
TEST_F(ScriptTest, AnErrorInAGoodAnswerIsOne) {
  ScriptedStore store({Refusal(200, "InternalError", ""), Answer(200, "<CompleteMultipartUploadResult/>")});
  EXPECT_EQ(S3Client::Create("bucket")->CompleteUpload({"a", "id"}, {"\"tag\""}, 1), absl::OkStatus());
  ASSERT_EQ(store.requests().size(), 2u);
  EXPECT_THAT(store.requests()[0], HasSubstr("<Part><PartNumber>1</PartNumber><ETag>\"tag\"</ETag></Part>"));
}

TEST_F(ScriptTest, ARemovalThatIsRefusedInPartIsAnError) {
  ScriptedStore store({Answer(200, "<DeleteResult><Error><Key>a</Key><Code>AccessDenied</Code></Error></DeleteResult>")});
  EXPECT_TRUE(absl::IsPermissionDenied(S3Client::Create("bucket")->DeleteAll({"a", "b"}, nullptr)));
  EXPECT_THAT(store.requests()[0], HasSubstr("<Delete><Quiet>true</Quiet><Object><Key>a</Key></Object><Object><Key>b</Key>"));
}

TEST_F(ScriptTest, AnswersThatAreNoneAreErrors) {
  for (const std::string& answer : {Answer(200, "no XML"), Answer(200, "<Other/>"), Answer(200, std::string("<\0>", 3))}) {
    ScriptedStore store({answer});
    EXPECT_TRUE(absl::IsUnavailable(S3Client::Create("bucket")->List("a").status()));
  }
  ScriptedStore more({Answer(206, "12345")});
  char four[4];
  EXPECT_FALSE(S3Client::Create("bucket")->GetRange("a", 0, 4, four).ok());
  ScriptedStore whole({Answer(200, "123")});
  EXPECT_TRUE(absl::IsUnimplemented(S3Client::Create("bucket")->GetRange("a", 8, 4, four)));
}

// Keys are signed with, not sent; a session's token is.
TEST_F(ScriptTest, TheSecretIsNotSentAndNoProxyIsAsked) {
  setenv("AWS_SESSION_TOKEN", "a-session", 1);
  setenv("http_proxy", "http://127.0.0.1:1", 1);
  ScriptedStore store({Answer(200, "")});
  ASSERT_EQ(S3Client::Create("bucket")->Put("a", "b"), absl::OkStatus());
  const std::string request = store.requests()[0];
  EXPECT_THAT(request, HasSubstr("Authorization: AWS4-HMAC-SHA256 Credential=AKTESTER/"));
  EXPECT_THAT(request, HasSubstr("x-amz-security-token: a-session\r\n"));
  // Of "b", as sha256sum gives it.
  EXPECT_THAT(absl::AsciiStrToLower(request),
              HasSubstr("x-amz-content-sha256: 3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d\r\n"));
  EXPECT_THAT(request, Not(HasSubstr(kTestSecret)));
}

TEST(S3OptionsTest, BadEnvironmentsAreRefusedByVariable) {
  const auto fault = [](const char* name, const char* value) {
    for (const char* other : {"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_MAX_ATTEMPTS"})
      unsetenv(other);
    UseKeys("key", "secret");
    value == nullptr ? unsetenv(name) : setenv(name, value, 1);
    const auto violation = GetFieldViolation(OptionsFromEnvironment().status());
    return violation ? violation->field() : "";
  };
  EXPECT_EQ(fault("AWS_REGION", "eu-central-1"), "");
  for (const char* bad :
       {"localhost:80", "ftp://a", "http://", "https://a/b", "https://key:secret@a", "https://a?b", "http://a b"})
    EXPECT_EQ(fault("AWS_ENDPOINT_URL_S3", bad), "AWS_ENDPOINT_URL_S3") << bad;
  EXPECT_EQ(fault("AWS_ENDPOINT_URL", "x"), "AWS_ENDPOINT_URL");
  EXPECT_EQ(fault("AWS_REGION", "eu:s3"), "AWS_REGION");
  EXPECT_EQ(fault("AWS_ACCESS_KEY_ID", nullptr), "AWS_ACCESS_KEY_ID");
  EXPECT_EQ(fault("AWS_SECRET_ACCESS_KEY", ""), "AWS_SECRET_ACCESS_KEY");
  EXPECT_EQ(fault("AWS_SECRET_ACCESS_KEY", "a\nb"), "AWS_SECRET_ACCESS_KEY");
  for (const char* bad : {"0", "-1", "x", "1001"}) EXPECT_EQ(fault("AWS_MAX_ATTEMPTS", bad), "AWS_MAX_ATTEMPTS") << bad;
  EXPECT_EQ(fault("AWS_ENDPOINT_URL", "https://a:9000/"), "");
  EXPECT_EQ(OptionsFromEnvironment()->endpoint, "https://a:9000");
}

TEST(S3OptionsTest, BucketsHaveAddresses) {
  S3Options options;
  options.region = "eu-central-1";
  EXPECT_EQ(BucketAddress(options, "runs"), "https://runs.s3.eu-central-1.amazonaws.com");
  EXPECT_EQ(BucketAddress(options, "runs.a"), "https://s3.eu-central-1.amazonaws.com/runs.a");
  options.endpoint = "http://127.0.0.1:7070";
  EXPECT_EQ(BucketAddress(options, "runs"), "http://127.0.0.1:7070/runs");
}

}  // namespace
}  // namespace legoai::objectstore
