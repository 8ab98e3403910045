// Paths of google.api.http: "/v1/{name=projects/*/jobs/*}:watch" matches "/v1/projects/a/jobs/b:watch" and says name =
// "projects/a/jobs/b". Literals, `*` (one segment) and variables over them; `**` is refused by name. Thread-safety: immutable.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace legoai::server {

class PathTemplate {
 public:
  // Errors: InvalidArgument with the template and what is wrong with it.
  static absl::StatusOr<PathTemplate> Parse(std::string_view text);

  // The decoded values of the variables by field path; nothing if `path` (as in the request line, without the query) does not
  // match. A segment that is empty, or that holds a slash or a control character once decoded, never matches.
  std::optional<std::map<std::string, std::string>> Match(std::string_view path) const;

 private:
  struct Segment {
    std::string literal;  // empty: any
    int variable = -1;    // index in variables_
  };

  absl::Status AddVariable(std::string_view inside);
  absl::Status AddSegment(std::string_view text, int variable);

  std::vector<Segment> segments_;
  std::vector<std::string> variables_;
  std::string verb_;  // after the colon; may be empty
};

// "%2F" -> "/" and so on; nothing for a broken escape. A plus stays a plus unless `plus_is_space`, as it is in queries.
std::optional<std::string> DecodePercent(std::string_view text, bool plus_is_space = false);

}  // namespace legoai::server
