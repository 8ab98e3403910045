#include "core/data/dataset_facts.h"

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::data {
namespace {

constexpr char kField[] = "training.dataset_path";

// Length of the file; an error where there is nothing to train on.
absl::StatusOr<int64_t> LengthOf(const std::string& uri, const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    return FieldError(kField, uri, "no such file; give the path of a text file", absl::StatusCode::kNotFound);
  }
  if (!std::filesystem::is_regular_file(status))
    return FieldError(kField, uri, "not a regular file; give the path of a text file");
  const auto bytes = std::filesystem::file_size(path, error);
  if (error) return FieldError(kField, uri, absl::StrCat("cannot be read: ", error.message()), absl::StatusCode::kUnavailable);
  if (bytes == 0) return FieldError(kField, uri, "the file is empty; give a text of at least one sequence");
  return static_cast<int64_t>(bytes);
}

}  // namespace

absl::StatusOr<std::string> DatasetPath(const std::string& uri) {
  constexpr char kFile[] = "file://";
  if (uri.empty()) return FieldError(kField, "", "not set; give the path of a text file");
  if (absl::StartsWith(uri, kFile)) {
    const std::string path = uri.substr(sizeof(kFile) - 1);
    if (!absl::StartsWith(path, "/")) return FieldError(kField, uri, "names a host; write file:///absolute/path");
    return path;
  }
  const size_t scheme = uri.find("://");
  if (scheme != std::string::npos)
    return FieldError(kField, uri,
                      absl::StrCat("scheme '", uri.substr(0, scheme), "' is not supported; give a path or file:///path"));
  return uri;
}

absl::StatusOr<v1::Dataset> DatasetFacts(const std::string& uri, const checkpoint::Cancel& cancel) {
  ASSIGN_OR_RETURN(std::string path, DatasetPath(uri));
  ASSIGN_OR_RETURN(int64_t bytes, LengthOf(uri, path));
  absl::StatusOr<std::string> digest = checkpoint::Sha256OfFile(path, cancel);
  if (!digest.ok()) return Annotate(digest.status(), kField);
  v1::Dataset facts;
  facts.set_uri(uri);
  facts.set_bytes(bytes);
  facts.set_sha256(*digest);
  return facts;
}

}  // namespace legoai::data
