#include "core/objectstore/s3_text.h"

#include <pugixml.hpp>
#include <sstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "proto/status.h"
#include "proto/text.h"

namespace legoai::objectstore {
namespace {

std::string IsNo(const char* root, std::string_view xml) {
  return absl::StrCat("the store's reply is no ", root, ": ", Printable(CutText(xml, 200)));
}

absl::StatusOr<pugi::xml_document> Parse(std::string_view xml, const char* root) {
  pugi::xml_document document;
  // With what is only spaces: it may be a key, or the end of one.
  const pugi::xml_parse_result parsed = document.load_buffer(xml.data(), xml.size(), pugi::parse_default | pugi::parse_ws_pcdata);
  if (parsed && document.child(root)) return document;
  return absl::UnavailableError(IsNo(root, xml));
}

// Of a part of a reply without which the rest is not to be believed.
absl::Status Lacks(const pugi::xml_node& node, const char* what) {
  return absl::UnavailableError(absl::StrCat("the store's ", node.name(), " has no ", what));
}

// In one piece: the parser parts a text at comments and elements, and the first part of a key is another object's.
absl::StatusOr<std::string> TextIn(const pugi::xml_node& node, const char* name) {
  const pugi::xml_node text = node.child(name).first_child();
  if (text.next_sibling() || *text.value() == '\0') return Lacks(node, name);
  return std::string(text.value());
}

// Of a listing: a page that does not say so might be taken for the last one.
absl::StatusOr<bool> IsTruncated(const pugi::xml_node& root) {
  const std::string_view said = root.child_value("IsTruncated");
  if (said == "true" || said == "false") return said == "true";
  return Lacks(root, "IsTruncated");
}

S3Fault FaultOf(const pugi::xml_node& error) {
  return {Printable(CutText(error.child_value("Code"))), Printable(CutText(error.child_value("Message"), 300))};
}

std::string TextOf(const pugi::xml_document& document) {
  std::ostringstream text;
  document.save(text, "", pugi::format_raw);
  return absl::StrReplaceAll(text.str(), {{"\r", "&#13;"}});  // readers of XML make \n of it otherwise
}

}  // namespace

absl::StatusOr<S3Listing> ParseListing(std::string_view xml) {
  constexpr char kRoot[] = "ListBucketResult";
  ASSIGN_OR_RETURN(const auto document, Parse(xml, kRoot));
  const pugi::xml_node root = document.child(kRoot);
  S3Listing listing;
  for (const pugi::xml_node object : root.children("Contents")) {
    int64_t bytes = -1;
    if (!absl::SimpleAtoi(object.child_value("Size"), &bytes) || bytes < 0) return Lacks(object, "Size");
    ASSIGN_OR_RETURN(std::string key, TextIn(object, "Key"));
    listing.objects.push_back({std::move(key), bytes});
  }
  for (const pugi::xml_node folder : root.children("CommonPrefixes")) {
    ASSIGN_OR_RETURN(std::string prefix, TextIn(folder, "Prefix"));
    listing.folders.push_back(std::move(prefix));
  }
  ASSIGN_OR_RETURN(const bool truncated, IsTruncated(root));
  if (!truncated) return listing;
  ASSIGN_OR_RETURN(listing.next, TextIn(root, "NextContinuationToken"));
  return listing;
}

absl::StatusOr<S3Uploads> ParseUploads(std::string_view xml) {
  constexpr char kRoot[] = "ListMultipartUploadsResult";
  ASSIGN_OR_RETURN(const auto document, Parse(xml, kRoot));
  const pugi::xml_node root = document.child(kRoot);
  S3Uploads uploads;
  for (const pugi::xml_node upload : root.children("Upload")) {
    ASSIGN_OR_RETURN(std::string key, TextIn(upload, "Key"));
    ASSIGN_OR_RETURN(std::string id, TextIn(upload, "UploadId"));
    uploads.uploads.push_back({std::move(key), std::move(id)});
  }
  ASSIGN_OR_RETURN(const bool truncated, IsTruncated(root));
  if (!truncated) return uploads;
  ASSIGN_OR_RETURN(uploads.next_key, TextIn(root, "NextKeyMarker"));
  if (root.child("NextUploadIdMarker").first_child()) {
    ASSIGN_OR_RETURN(uploads.next_id, TextIn(root, "NextUploadIdMarker"));
  }
  return uploads;
}

absl::StatusOr<std::string> ParseUploadId(std::string_view xml) {
  constexpr char kRoot[] = "InitiateMultipartUploadResult";
  ASSIGN_OR_RETURN(const auto document, Parse(xml, kRoot));
  return TextIn(document.child(kRoot), "UploadId");
}

S3Fault ParseFault(std::string_view xml) {
  const auto document = Parse(xml, "Error");
  if (!document.ok()) return {};
  return FaultOf(document->child("Error"));
}

S3Fault FaultUnless(std::string_view xml, const char* root) {
  if (Parse(xml, root).ok()) return {};
  S3Fault fault = ParseFault(xml);
  if (fault.code.empty() && fault.message.empty()) fault.message = IsNo(root, xml);
  return fault;
}

std::string DeletionOf(const std::vector<std::string>& keys) {
  pugi::xml_document document;
  pugi::xml_node root = document.append_child("Delete");
  root.append_child("Quiet").text().set(true);
  for (const std::string& key : keys) root.append_child("Object").append_child("Key").text().set(key.c_str());
  return TextOf(document);
}

absl::StatusOr<std::vector<S3Fault>> ParseFaultsOfDeletion(std::string_view xml) {
  constexpr char kRoot[] = "DeleteResult";
  ASSIGN_OR_RETURN(const auto document, Parse(xml, kRoot));
  std::vector<S3Fault> faults;
  for (const pugi::xml_node error : document.child(kRoot).children("Error")) {
    faults.push_back(FaultOf(error));
    if (faults.back().code.empty()) faults.back().code = "an error without a code";
  }
  return faults;
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

std::string DigestOf(std::string_view text, const EVP_MD* kind) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_Digest(text.data(), text.size(), digest, &size, kind, nullptr);
  return std::string(reinterpret_cast<const char*>(digest), size);
}

}  // namespace legoai::objectstore
