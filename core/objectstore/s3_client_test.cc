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
  ASSERT_EQ(client.Copy({"a/large", bytes}, "b/in parts", nullptr, 1 << 20), absl::OkStatus());
  EXPECT_EQ(client.Get("b/in parts").value(), first + second);
  int asked = 0;
  EXPECT_TRUE(absl::IsCancelled(client.Copy({"a/large", bytes}, "b/cut short", [&] { return ++asked == 2; }, 1 << 20)));
  EXPECT_EQ(client.Bytes("b/cut short").value(), std::nullopt);
  EXPECT_TRUE(absl::IsNotFound(client.Copy({"a/none", bytes}, "b/none", nullptr, 1 << 20)));
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

// A page of a listing: what is in it, and what it says of its end.
std::string Page(const std::string& contents, const std::string& end = "<IsTruncated>false</IsTruncated>") {
  return Answer(200, absl::StrCat("<ListBucketResult>", end, contents, "</ListBucketResult>"));
}

std::string GoesOnAt(const std::string& token) {
  return absl::StrCat("<IsTruncated>true</IsTruncated><NextContinuationToken>", token, "</NextContinuationToken>");
}

std::string Object(const std::string& key, const std::string& bytes = "1") {
  return absl::StrCat("<Contents><Key>", key, "</Key><Size>", bytes, "</Size></Contents>");
}

// As something before the store may send it.
std::string WithoutTag(const std::string& body) {
  return absl::StrCat("HTTP/1.1 200 X\r\nContent-Length: ", body.size(), "\r\nConnection: close\r\n\r\n", body);
}

class ScriptTest : public testing::Test {
 protected:
  // What a client says who makes each request once.
  template <typename Work>
  static absl::Status Once(const std::string& answer, const Work& work) {
    setenv("AWS_MAX_ATTEMPTS", "1", 1);
    ScriptedStore store({answer});
    S3Client client = S3Client::Create("bucket").value();
    const absl::Status status = work(client);
    setenv("AWS_MAX_ATTEMPTS", "4", 1);
    EXPECT_EQ(store.requests().size(), 1u);
    return status;
  }
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

// A sound checkpoint is put aside where its files are said to be gone.
TEST_F(ScriptTest, OnlyAStoreSaysThatAnObjectIsGone) {
  const auto get = [](S3Client& client) { return client.Get("a").status(); };
  EXPECT_TRUE(absl::IsNotFound(Once(Refusal(404, "NoSuchKey", ""), get)));
  const absl::Status page = Once(Answer(404, "<html>no such page</html>"), get);
  EXPECT_TRUE(absl::IsUnavailable(page)) << page;
  EXPECT_THAT(std::string(page.message()), HasSubstr("status 404, without an error of S3"));
  EXPECT_TRUE(absl::IsUnavailable(Once(Answer(404, ""), get)));
  EXPECT_TRUE(absl::IsFailedPrecondition(Once(Refusal(404, "NoSuchBucket", ""), get)));
  EXPECT_TRUE(absl::IsInvalidArgument(Once(Refusal(404, "NoSuchVersion", ""), get)));
  EXPECT_TRUE(absl::IsUnavailable(Once(Answer(404, ""), [](S3Client& client) { return client.Delete("a"); })));
  char byte;
  const auto range = [&](S3Client& client) { return client.GetRange("a", 0, 1, &byte); };
  EXPECT_TRUE(absl::IsOutOfRange(Once(Refusal(416, "InvalidRange", ""), range)));
  EXPECT_TRUE(absl::IsInvalidArgument(Once(Answer(416, ""), range)));
  // Of an upload it says nothing of an object.
  const auto part = [](S3Client& client) { return client.UploadPart({"a", "id"}, 1, "x").status(); };
  EXPECT_TRUE(absl::IsUnavailable(Once(Refusal(404, "NoSuchUpload", ""), part)));
  ScriptedStore back({Answer(404, ""), Answer(200, "x")});
  EXPECT_EQ(S3Client::Create("bucket")->Get("a").value(), "x");
}

TEST_F(ScriptTest, AListingThatMayNotBeWholeIsRefused) {
  const auto list = [](S3Client& client) { return client.List("a/").status(); };
  EXPECT_EQ(Once(Page(Object("a/b", "0")), list), absl::OkStatus());
  for (const std::string& page :
       {Page(Object("a/b"), ""), Page(Object("a/b"), "<IsTruncated>true</IsTruncated>"),
        Page(Object("a/b"), "<IsTruncated>perhaps</IsTruncated>"), Page(Object("a/b"), GoesOnAt("")), Page(Object("a/b", "")),
        Page(Object("a/b", "-1")), Page(Object("a/b", "many")), Page("<Contents><Key>a/b</Key></Contents>"), Page(Object(""))}) {
    EXPECT_TRUE(absl::IsUnavailable(Once(page, list))) << page;
  }
  const auto uploads = [](S3Client& client) { return client.ListUploads("a/").status(); };
  const auto of = [](const std::string& text) {
    return Answer(200, absl::StrCat("<ListMultipartUploadsResult>", text, "</ListMultipartUploadsResult>"));
  };
  EXPECT_EQ(Once(of("<IsTruncated>false</IsTruncated>"), uploads), absl::OkStatus());
  for (const std::string text : {"", "<IsTruncated>true</IsTruncated>",
                                 "<IsTruncated>false</IsTruncated><Upload><Key>a/b</Key></Upload>"})
    EXPECT_TRUE(absl::IsUnavailable(Once(of(text), uploads))) << text;
  const std::string again = "<IsTruncated>true</IsTruncated><NextKeyMarker>a/b</NextKeyMarker>";
  ScriptedStore endless({of(again), of(again), of(again)});
  EXPECT_TRUE(absl::IsFailedPrecondition(S3Client::Create("bucket")->ListUploads("a/").status()));
  EXPECT_EQ(endless.requests().size(), 2u);
}

TEST_F(ScriptTest, AListingGoesOnThroughEmptyPagesAndNotForEver) {
  {
    ScriptedStore store({Page("", GoesOnAt("one")), Page(Object("a/bc"), GoesOnAt("two")), Page(Object("a/b", "7"))});
    EXPECT_EQ(S3Client::Create("bucket")->Bytes("a/b").value(), std::optional<int64_t>(7)) << "in whatever order";
    EXPECT_THAT(store.requests()[1], HasSubstr("GET /bucket?continuation-token=one&delimiter=%2F&list-type=2&prefix=a%2Fb HTTP"));
  }
  {
    ScriptedStore store({Page("", GoesOnAt("one")), Page(Object("a/c"))});
    EXPECT_TRUE(S3Client::Create("bucket")->HasAny("a/").value());
  }
  ScriptedStore store({Page("", GoesOnAt("one")), Page("", GoesOnAt("two")), Page("", GoesOnAt("one")), Page("")});
  const absl::Status round = S3Client::Create("bucket")->List("a/").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(round)) << round;
  EXPECT_THAT(std::string(round.message()), HasSubstr("without an end"));
  EXPECT_EQ(store.requests().size(), 3u);
}

// What is listed is removed.
TEST_F(ScriptTest, AListingOfOthersIsRefused) {
  const auto list = [](S3Client& client) { return client.List("runs/a/").status(); };
  const auto folder = [](S3Client& client) { return client.ListFolder("runs/a/").status(); };
  for (const char* key : {"runs/b/c", "runs/a", "x", "runs/A/b"}) {
    const absl::Status all = Once(Page(Object("runs/a/b") + Object(key)), list);
    EXPECT_TRUE(absl::IsFailedPrecondition(all)) << key << all;
    EXPECT_THAT(std::string(all.message()), HasSubstr(absl::StrCat("s3://bucket/runs/a/ with ", key)));
    EXPECT_TRUE(absl::IsFailedPrecondition(Once(Page(Object(key)), folder))) << key;
    const std::string below = absl::StrCat("<CommonPrefixes><Prefix>", key, "/</Prefix></CommonPrefixes>");
    if (std::string(key) != "runs/a") {
      EXPECT_TRUE(absl::IsFailedPrecondition(Once(Page(below), folder))) << key;
    }
  }
}

TEST_F(ScriptTest, SuccessIsProven) {
  const auto complete = [](S3Client& client) { return client.CompleteUpload({"a", "id"}, {"\"tag\""}, 1); };
  const auto copy = [](S3Client& client) { return client.Copy({"a", 1}, "b"); };
  for (const std::string& answer : {Answer(200, ""), Answer(200, "<html/>"), Refusal(200, "InternalError", ""),
                                    Answer(200, "<Error xmlns=\"http://s3/\"><Code>InternalError</Code></Error>"),
                                    Answer(200, "<Error/>")}) {
    EXPECT_TRUE(absl::IsUnavailable(Once(answer, complete))) << answer;
    EXPECT_TRUE(absl::IsUnavailable(Once(answer, copy))) << answer;
  }
  EXPECT_TRUE(absl::IsPermissionDenied(Once(Refusal(200, "AccessDenied", ""), complete)));
  EXPECT_EQ(Once(Answer(200, "<CopyObjectResult/>"), copy), absl::OkStatus());
  const auto begin = [](S3Client& client) { return client.BeginUpload("a").status(); };
  EXPECT_TRUE(absl::IsUnavailable(Once(Answer(200, "<InitiateMultipartUploadResult/>"), begin)));
  EXPECT_TRUE(absl::IsUnavailable(Once(Answer(200, ""), begin)));
  EXPECT_TRUE(absl::IsUnavailable(
      Once(WithoutTag(""), [](S3Client& client) { return client.UploadPart({"a", "id"}, 1, "x").status(); })));
  EXPECT_TRUE(absl::IsUnavailable(Once(WithoutTag(""), [](S3Client& client) { return client.Put("a", "x"); })));
  EXPECT_TRUE(absl::IsUnavailable(Once(WithoutTag("x"), [](S3Client& client) { return client.Get("a").status(); })));
  EXPECT_TRUE(absl::IsUnavailable(
      Once(Answer(200, "<html/>"), [](S3Client& client) { return client.DeleteAll({"a"}, nullptr); })));
}

TEST_F(ScriptTest, CodesCountWhateverTheStatus) {
  const auto put = [](S3Client& client) { return client.Put("a", "b"); };
  for (const char* code : {"ExpiredToken", "InvalidToken", "TokenRefreshRequired"})
    EXPECT_TRUE(absl::IsPermissionDenied(Once(Refusal(400, code, ""), put))) << code;
  EXPECT_TRUE(absl::IsResourceExhausted(Once(Refusal(400, "XMinioAdminBucketQuotaExceeded", ""), put)));
  EXPECT_TRUE(absl::IsResourceExhausted(Once(Refusal(503, "XMinioStorageFull", ""), put)));
  EXPECT_TRUE(absl::IsInvalidArgument(Once(Refusal(400, "MalformedXML", ""), put)));
  for (const char* code : {"RequestTimeout", "BadDigest", "XAmzContentSHA256Mismatch", "Throttling"})
    EXPECT_TRUE(absl::IsUnavailable(Once(Refusal(400, code, ""), put))) << code;
}

// An old libcurl that knows no signatures would send what it is given without one.
TEST_F(ScriptTest, AnOptionThatLibcurlDoesNotTakeEndsTheRequest) {
  ScriptedStore store({Answer(200, "")});
  S3Options options = OptionsFromEnvironment().value();
  options.region = std::string(9'000'000, 'a');  // longer than libcurl takes
  S3Request request;
  request.url = BucketAddress(options, "bucket");
  const S3Reply reply = Send(options, request);
  EXPECT_THAT(reply.failure, HasSubstr("does not take the option AWS_SIGV4"));
  EXPECT_FALSE(reply.may_pass);
  EXPECT_THAT(store.requests(), IsEmpty());
}

TEST_F(ScriptTest, WhatPassesOfARemovalIsTriedAgain) {
  const auto fault = [](const std::string& code) { return absl::StrCat("<Error><Key>a</Key><Code>", code, "</Code></Error>"); };
  const auto answer = [](const std::string& faults) {
    return Answer(200, absl::StrCat("<DeleteResult>", faults, "</DeleteResult>"));
  };
  ScriptedStore store({answer(fault("InternalError") + fault("NoSuchKey")), answer(fault("SlowDown")),
                       answer(fault("NoSuchKey"))});
  EXPECT_EQ(S3Client::Create("bucket")->DeleteAll({"a", "b"}, nullptr), absl::OkStatus());
  EXPECT_EQ(store.requests().size(), 3u);
  const auto remove = [](S3Client& client) { return client.DeleteAll({"a", "b"}, nullptr); };
  EXPECT_TRUE(absl::IsUnavailable(Once(answer(fault("InternalError")), remove)));
  EXPECT_TRUE(absl::IsPermissionDenied(Once(answer(fault("InternalError") + fault("AccessDenied")), remove)));
  EXPECT_TRUE(absl::IsInvalidArgument(Once(answer(fault("InvalidArgument")), remove)));
  EXPECT_FALSE(Once(answer("<Error/>"), remove).ok());
}

TEST_F(ScriptTest, ARemovalThatIsRefusedInPartIsAnError) {
  ScriptedStore store({Answer(200, "<DeleteResult><Error><Key>a</Key><Code>AccessDenied</Code></Error></DeleteResult>")});
  EXPECT_TRUE(absl::IsPermissionDenied(S3Client::Create("bucket")->DeleteAll({"a", "b"}, nullptr)));
  EXPECT_THAT(store.requests()[0], HasSubstr("<Delete><Quiet>true</Quiet><Object><Key>a</Key></Object><Object><Key>b</Key>"));
}

TEST_F(ScriptTest, AnswersThatAreNoneAreErrors) {
  setenv("AWS_MAX_ATTEMPTS", "1", 1);
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
