// What an object store answers, or whatever stands in its place: pages of objects and of uploads, and the name of an upload. What
// is accepted is whole: it is found again in a document that is written of it, and what was listed is removed under the same
// names. What is refused may be asked for again.
#include <gtest/gtest.h>

#include <pugixml.hpp>
#include <sstream>

#include "absl/strings/str_replace.h"
#include "core/objectstore/s3_text.h"
#include "proto/text.h"
#include "tests/fuzz/fuzz.h"

namespace legoai::fuzz {
namespace {

constexpr size_t kMostErrorBytes = 2000;

// A broken answer of a moment: the client tries again, and says what there was.
absl::Status ExpectTold(const absl::Status& status) {
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_TRUE(IsPrintable(std::string(status.message()))) << status;
  EXPECT_LE(status.message().size(), kMostErrorBytes);
  return status;
}

void Add(pugi::xml_node to, const char* name, const std::string& text) { to.append_child(name).text().set(text.c_str()); }

// As a store writes it that keeps \r apart from the ends of lines.
std::string TextOf(const pugi::xml_document& document) {
  std::ostringstream text;
  document.save(text, "", pugi::format_raw | pugi::format_no_declaration);
  return absl::StrReplaceAll(text.str(), {{"\r", "&#13;"}});
}

// All text in a node, whatever comments and elements part it.
std::string AllText(const pugi::xml_node& node) {
  std::string text = node.value();
  for (const pugi::xml_node inner : node) text += AllText(inner);
  return text;
}

// As a reader sees them who keeps spaces and puts pieces together.
std::vector<std::string> KeysIn(const std::string& xml, const char* root, const char* objects) {
  pugi::xml_document document;
  EXPECT_TRUE(document.load_buffer(xml.data(), xml.size(), pugi::parse_default | pugi::parse_ws_pcdata)) << xml;
  std::vector<std::string> keys;
  for (const pugi::xml_node object : document.child(root).children(objects)) keys.push_back(AllText(object.child("Key")));
  return keys;
}

// Where the text goes on, or that it ends.
void AddEnd(pugi::xml_node to, const char* name, const std::string& next) {
  Add(to, "IsTruncated", next.empty() ? "false" : "true");
  if (!next.empty()) Add(to, name, next);
}

std::string Written(const objectstore::S3Listing& listing) {
  pugi::xml_document document;
  pugi::xml_node root = document.append_child("ListBucketResult");
  for (const objectstore::S3Object& object : listing.objects) {
    pugi::xml_node contents = root.append_child("Contents");
    Add(contents, "Key", object.key);
    Add(contents, "Size", std::to_string(object.bytes));
  }
  for (const std::string& folder : listing.folders) Add(root.append_child("CommonPrefixes"), "Prefix", folder);
  AddEnd(root, "NextContinuationToken", listing.next);
  return TextOf(document);
}

absl::Status ParseListing(const std::string& xml) {
  const auto listing = objectstore::ParseListing(xml);
  const objectstore::S3Fault fault = objectstore::FaultUnless(xml, "ListBucketResult");
  EXPECT_TRUE(IsPrintable(fault.code) && IsPrintable(fault.message)) << fault.message;
  if (!listing.ok()) return ExpectTold(listing.status());
  EXPECT_TRUE(fault.code.empty() && fault.message.empty()) << fault.message;
  std::vector<std::string> keys;
  for (const objectstore::S3Object& object : listing->objects) {
    EXPECT_FALSE(object.key.empty());
    EXPECT_GE(object.bytes, 0);
    keys.push_back(object.key);
  }
  EXPECT_EQ(KeysIn(xml, "ListBucketResult", "Contents"), keys);
  EXPECT_EQ(KeysIn(objectstore::DeletionOf(keys), "Delete", "Object"), keys) << "others would be removed";
  const auto again = objectstore::ParseListing(Written(*listing));
  EXPECT_TRUE(again.ok()) << again.status();
  if (!again.ok()) return absl::OkStatus();
  EXPECT_EQ(again->objects, listing->objects);
  EXPECT_EQ(again->folders, listing->folders);
  EXPECT_EQ(again->next, listing->next);
  return absl::OkStatus();
}

TEST(Fuzz, S3TextListing) {
  Fuzz({"s3_text_listing",
        Words("<|>|</|/>|<?|<!--|-->|<![CDATA[|]]>|<Key>|</Key>|<Size>|</Size>|<Contents>|</Contents>|<CommonPrefixes>|<Prefix>|"
              "<IsTruncated>|true|false|<NextContinuationToken>|<Error>|ListBucketResult|&amp;|&lt;|&#0;|&#13;|&#xd;|&#x1F600;|"
              "&#xd800;|&x;| |\r\n|\r|\n|\xff|\xef\xbb\xbf|a"),
        ParseListing});
}

absl::Status ParseUploads(const std::string& xml) {
  const auto uploads = objectstore::ParseUploads(xml);
  if (!uploads.ok()) return ExpectTold(uploads.status());
  pugi::xml_document document;
  pugi::xml_node root = document.append_child("ListMultipartUploadsResult");
  for (const objectstore::S3Upload& upload : uploads->uploads) {
    EXPECT_FALSE(upload.key.empty() || upload.id.empty());
    pugi::xml_node node = root.append_child("Upload");
    Add(node, "Key", upload.key);
    Add(node, "UploadId", upload.id);
  }
  EXPECT_TRUE(uploads->next_id.empty() || !uploads->next_key.empty()) << "goes on in no upload";
  AddEnd(root, "NextKeyMarker", uploads->next_key);
  Add(root, "NextUploadIdMarker", uploads->next_id);
  const auto again = objectstore::ParseUploads(TextOf(document));
  EXPECT_TRUE(again.ok()) << again.status();
  if (!again.ok()) return absl::OkStatus();
  EXPECT_EQ(again->next_key, uploads->next_key);
  EXPECT_EQ(again->next_id, uploads->next_id);
  EXPECT_EQ(again->uploads.size(), uploads->uploads.size());
  for (size_t i = 0; i < again->uploads.size(); ++i) {
    EXPECT_EQ(again->uploads[i].key, uploads->uploads[i].key);
    EXPECT_EQ(again->uploads[i].id, uploads->uploads[i].id);
  }
  return absl::OkStatus();
}

TEST(Fuzz, S3TextUploads) {
  Fuzz({"s3_text_uploads",
        Words("<|>|</|<Upload>|</Upload>|<Key>|</Key>|<UploadId>|</UploadId>|<IsTruncated>|true|false|<NextKeyMarker>|"
              "<NextUploadIdMarker>|ListMultipartUploadsResult|&amp;|&#0;|&#13;| |\r|\xff"),
        ParseUploads});
}

absl::Status ParseUploadId(const std::string& xml) {
  const auto id = objectstore::ParseUploadId(xml);
  if (!id.ok()) return ExpectTold(id.status());
  EXPECT_FALSE(id->empty());
  return absl::OkStatus();
}

TEST(Fuzz, S3TextUploadId) {
  Fuzz({"s3_text_upload_id", Words("<|>|</|/>|<UploadId>|</UploadId>|<Error>|InitiateMultipartUploadResult|&#0;| |\xff"),
        ParseUploadId});
}

}  // namespace
}  // namespace legoai::fuzz
