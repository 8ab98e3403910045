#include "core/objectstore/s3_text.h"

#include <pugixml.hpp>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "proto/status.h"
#include "proto/text.h"

namespace legoai::objectstore {
namespace {

absl::StatusOr<pugi::xml_document> Parse(std::string_view xml, const char* root) {
  pugi::xml_document document;
  const pugi::xml_parse_result parsed = document.load_buffer(xml.data(), xml.size());
  if (parsed && document.child(root)) return document;
  return absl::UnavailableError(absl::StrCat("the store's reply is no ", root, ": ", Printable(CutText(xml, 200))));
}

S3Fault FaultOf(const pugi::xml_node& error) {
  return {Printable(CutText(error.child_value("Code"))), Printable(CutText(error.child_value("Message"), 300))};
}

std::string TextOf(const pugi::xml_document& document) {
  std::ostringstream text;
  document.save(text, "", pugi::format_raw);
  return text.str();
}

}  // namespace

absl::StatusOr<S3Listing> ParseListing(std::string_view xml) {
  constexpr char kRoot[] = "ListBucketResult";
  ASSIGN_OR_RETURN(const auto document, Parse(xml, kRoot));
  const pugi::xml_node root = document.child(kRoot);
  S3Listing listing;
  for (const pugi::xml_node object : root.children("Contents"))
    listing.objects.push_back({object.child_value("Key"), object.child("Size").text().as_llong(-1)});
  for (const pugi::xml_node folder : root.children("CommonPrefixes")) listing.folders.push_back(folder.child_value("Prefix"));
  if (root.child("IsTruncated").text().as_bool()) listing.next = root.child_value("NextContinuationToken");
  return listing;
}

absl::StatusOr<S3Uploads> ParseUploads(std::string_view xml) {
  constexpr char kRoot[] = "ListMultipartUploadsResult";
  ASSIGN_OR_RETURN(const auto document, Parse(xml, kRoot));
  const pugi::xml_node root = document.child(kRoot);
  S3Uploads uploads;
  for (const pugi::xml_node upload : root.children("Upload"))
    uploads.uploads.push_back({upload.child_value("Key"), upload.child_value("UploadId")});
  if (!root.child("IsTruncated").text().as_bool()) return uploads;
  uploads.next_key = root.child_value("NextKeyMarker");
  uploads.next_id = root.child_value("NextUploadIdMarker");
  return uploads;
}

absl::StatusOr<std::string> ParseUploadId(std::string_view xml) {
  ASSIGN_OR_RETURN(const auto document, Parse(xml, "InitiateMultipartUploadResult"));
  return std::string(document.child("InitiateMultipartUploadResult").child_value("UploadId"));
}

S3Fault ParseFault(std::string_view xml) {
  const auto document = Parse(xml, "Error");
  if (!document.ok()) return {};
  return FaultOf(document->child("Error"));
}

std::string DeletionOf(const std::vector<std::string>& keys) {
  pugi::xml_document document;
  pugi::xml_node root = document.append_child("Delete");
  root.append_child("Quiet").text().set(true);
  for (const std::string& key : keys) root.append_child("Object").append_child("Key").text().set(key.c_str());
  return TextOf(document);
}

absl::StatusOr<S3Fault> ParseFirstOfDeletion(std::string_view xml) {
  ASSIGN_OR_RETURN(const auto document, Parse(xml, "DeleteResult"));
  return FaultOf(document.child("DeleteResult").child("Error"));
}

std::string CompletionOf(const std::vector<std::string>& etags) {
  pugi::xml_document document;
  pugi::xml_node root = document.append_child("CompleteMultipartUpload");
  for (size_t i = 0; i < etags.size(); ++i) {
    pugi::xml_node part = root.append_child("Part");
    part.append_child("PartNumber").text().set(static_cast<unsigned long long>(i + 1));
    part.append_child("ETag").text().set(etags[i].c_str());
  }
  return TextOf(document);
}

}  // namespace legoai::objectstore
