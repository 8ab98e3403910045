#include "core/objectstore/s3_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace legoai::objectstore {
namespace {

// A page with one object.
absl::StatusOr<S3Listing> ListingOf(const std::string& key) {
  return ParseListing(absl::StrCat("<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>", key,
                                   "</Key><Size>3</Size></Contents></ListBucketResult>"));
}

// As a store reads it, \r is a line end of the document unless it is written by its number: another key would be removed.
TEST(S3Text, ACarriageReturnInAKeyStaysOne) {
  const auto listing = ListingOf("a&#13;b");
  ASSERT_TRUE(listing.ok()) << listing.status();
  EXPECT_EQ(listing->objects, std::vector<S3Object>({{"a\rb", 3}}));
  EXPECT_EQ(DeletionOf({"a\rb", "c\nd"}),
            "<?xml version=\"1.0\"?><Delete><Quiet>true</Quiet><Object><Key>a&#13;b</Key></Object>"
            "<Object><Key>c\nd</Key></Object></Delete>");
}

// The first piece of a key is the key of another object, which would be read, moved and removed.
TEST(S3Text, ATextInPiecesIsNotTakenForItsFirst) {
  for (const char* key : {"a<![CDATA[b]]>", "a<!-- b -->c", "a<b/>", "<b/>a", "<![CDATA[a]]>\n"}) {
    EXPECT_TRUE(absl::IsUnavailable(ListingOf(key).status())) << key;
  }
  EXPECT_EQ(ListingOf("<![CDATA[a<b]]>")->objects, std::vector<S3Object>({{"a<b", 3}}));
  EXPECT_EQ(ListingOf(" ")->objects, std::vector<S3Object>({{" ", 3}}));
  const auto uploads = [](const std::string& id) {
    const std::string goes_on = "<IsTruncated>true</IsTruncated><NextKeyMarker>a</NextKeyMarker>";
    return ParseUploads(absl::StrCat("<ListMultipartUploadsResult>", goes_on, id, "</ListMultipartUploadsResult>"));
  };
  const std::string pieces = "<NextUploadIdMarker>1<!-- -->2</NextUploadIdMarker>";
  EXPECT_TRUE(absl::IsUnavailable(uploads(pieces).status())) << "would go on before the second piece";
  for (const char* none : {"", "<NextUploadIdMarker/>"}) EXPECT_EQ(uploads(none)->next_id, "") << none;
}

}  // namespace
}  // namespace legoai::objectstore
