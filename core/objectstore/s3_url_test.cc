#include "core/objectstore/s3_url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/errors.h"
#include "proto/text.h"

namespace legoai::objectstore {
namespace {

TEST(S3Url, IsABucketAndAPrefix) {
  const auto url = ParseS3Url("checkpoint.folder", "s3://my-bucket.eu/runs/llama 3/ä");
  ASSERT_TRUE(url.ok()) << url.status();
  EXPECT_EQ(url->bucket, "my-bucket.eu");
  EXPECT_EQ(url->key, "runs/llama 3/ä");
}

TEST(S3Url, OthersAreRefusedWithFieldValueAndRemedy) {
  for (const std::string bad :
       {"", "checkpoint", "/runs", "./s3:/a/b", "gs://bucket/a", "hdfs://host/a", "file:///runs", "S3://bucket/a", "s3:/bucket/a",
        "s3://", "s3://bucket", "s3://bucket/", "s3:///a", "s3://ab/a", "s3://Bucket/a", "s3://-bucket/a", "s3://bucket-/a",
        "s3://buc_ket/a", "s3://bucket/a/", "s3://bucket//a", "s3://bucket/a//b", "s3://bucket/../a", "s3://bucket/a/.",
        "s3://user:secret@bucket/a", "s3://bucket/a\nb"}) {
    const auto url = ParseS3Url("checkpoint.folder", bad);
    const auto fault = GetFieldViolation(url.status());
    ASSERT_TRUE(fault.has_value()) << bad;
    EXPECT_EQ(fault->field(), "checkpoint.folder");
    EXPECT_EQ(fault->value(), Printable(bad));
    EXPECT_THAT(fault->remedy(), testing::HasSubstr("write s3://BUCKET/PREFIX")) << bad;
  }
  EXPECT_FALSE(ParseS3Url("f", "s3://bucket/" + std::string(701, 'a')).ok());
  EXPECT_TRUE(ParseS3Url("f", "s3://bucket/" + std::string(700, 'a')).ok());
  EXPECT_TRUE(ParseS3Url("f", "s3://bucket/" + std::string(1024, 'a'), kMostKeyBytes).ok()) << "with what a run adds";
  EXPECT_FALSE(ParseS3Url("f", "s3://bucket/" + std::string(1025, 'a'), kMostKeyBytes).ok());
}

TEST(S3Url, APathIsNone) {
  for (const char* path : {"", "runs", "/runs", "./a:b", "C:/a", "s3:/a"}) EXPECT_FALSE(IsUrl(path)) << path;
  for (const char* url : {"s3://a/b", "gs://a", "x://"}) EXPECT_TRUE(IsUrl(url)) << url;
}

}  // namespace
}  // namespace legoai::objectstore
