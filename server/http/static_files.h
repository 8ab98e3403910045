// The files of the page. All are read when the server starts, so that no path of a request ever reaches the file system. Symbolic
// links are not followed. Thread-safety: immutable.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace legoai::server {

struct StaticFile {
  std::string content;
  std::string type;           // "text/html; charset=utf-8"
  std::string etag;           // "\"9f86d081...\"", of the content
  std::string cache_control;  // names under assets/ contain a hash and are cached forever; others are revalidated
};

class StaticFiles {
 public:
  StaticFiles() = default;  // no page

  // `directory` must contain an index.html. Errors: FieldError of `flag` with what is wrong and what to do.
  static absl::StatusOr<StaticFiles> Load(const std::string& directory, std::string_view flag = "--web");

  // The file for a request's path; index.html for "/" and for routes of the page ("/jobs/01J"), that is, paths without a dot in
  // the last segment. Null: there is none.
  const StaticFile* Find(std::string_view path) const;
  bool empty() const { return files_.empty(); }

 private:
  std::map<std::string, StaticFile, std::less<>> files_;  // by path: "/index.html"
};

}  // namespace legoai::server
