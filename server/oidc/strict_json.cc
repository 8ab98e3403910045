#include "server/oidc/strict_json.h"

#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace legoai::oidc {
namespace {

using Json = nlohmann::json;

// Is told of each part as it is read. After a fault all that follows is dropped, so that nothing deep is ever built.
class Reader {
 public:
  explicit Reader(int most_depth) : most_depth_(most_depth) {}

  // `depth`: how many objects and lists are open around this part.
  bool Keep(int depth, Json::parse_event_t event, const Json& parsed) {
    if (!fault_.empty()) return false;
    switch (event) {
      case Json::parse_event_t::object_start:
        names_.emplace_back();
        [[fallthrough]];
      case Json::parse_event_t::array_start:
        if (depth >= most_depth_) fault_ = absl::StrCat("is nested deeper than ", most_depth_, " levels");
        break;
      case Json::parse_event_t::object_end: names_.pop_back(); break;
      case Json::parse_event_t::key:
        if (!names_.back().insert(parsed.get<std::string>()).second) fault_ = "has a name twice in one object";
        break;
      default: break;
    }
    return fault_.empty();
  }

  const std::string& fault() const { return fault_; }

 private:
  const int most_depth_;
  std::vector<std::set<std::string>> names_;  // of the objects that are open
  std::string fault_;
};

}  // namespace

absl::StatusOr<Json> ParseObject(std::string_view text, int most_depth) {
  Reader reader(most_depth);
  const auto keep = [&](int depth, Json::parse_event_t event, Json& parsed) { return reader.Keep(depth, event, parsed); };
  Json json = Json::parse(text.begin(), text.end(), keep, /*allow_exceptions=*/false);
  if (!reader.fault().empty()) return absl::InvalidArgumentError(reader.fault());
  if (json.is_discarded()) return absl::InvalidArgumentError("is no JSON in UTF-8");
  if (!json.is_object()) return absl::InvalidArgumentError("is no JSON object");
  return json;
}

std::string TextOf(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace legoai::oidc
