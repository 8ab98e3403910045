#include "proto/json/json.h"

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"

namespace legoai {
namespace {

// The library's message without its own prefixes "[json.exception.parse_error.101] " and "parse error ".
std::string Reason(const Tree::exception& error) {
  const std::string text = error.what();
  const size_t line = text.find("at line"), prefix = text.find("] ");
  if (line != std::string::npos) return text.substr(line);
  return prefix == std::string::npos ? text : text.substr(prefix + 2);
}

// Follows the parser through the text and keeps the first fault that the tree would not show: a key that an object has twice, or
// too many levels.
class Follower {
 public:
  // Called by the parser for every event; `value` is the key where the event is one. What is too deep is left out of the tree.
  bool Visit(Tree::parse_event_t event, const Tree& value) {
    switch (event) {
      case Tree::parse_event_t::object_start: return Enter(false);
      case Tree::parse_event_t::array_start: return Enter(true);
      case Tree::parse_event_t::key: AddKey(value.get<std::string>()); break;
      case Tree::parse_event_t::value: EndElement(); break;
      case Tree::parse_event_t::object_end:
      case Tree::parse_event_t::array_end:
        open_.pop_back();
        EndElement();
        break;
    }
    return true;
  }

  const absl::Status& status() const { return status_; }

 private:
  // An object or a list that has begun, with the place in it.
  struct Open {
    bool is_list;
    int64_t index;
    std::string key;
    std::set<std::string> keys;
  };

  bool Enter(bool is_list) {
    if (open_.size() == kMostNesting) {
      if (status_.ok()) status_ = FieldError(Path(), "", absl::StrCat("is nested deeper than ", kMostNesting, " levels"));
      return false;
    }
    open_.push_back({is_list, 0, "", {}});
    return true;
  }
  void AddKey(std::string key) {
    Open& object = open_.back();
    object.key = std::move(key);
    const bool fresh = object.keys.insert(object.key).second;
    if (!fresh && status_.ok()) status_ = FieldError(Path(), "", "is given twice: keep one of them");
  }
  void EndElement() {
    if (!open_.empty() && open_.back().is_list) ++open_.back().index;
  }
  std::string Path() const {
    std::string path;
    for (const Open& open : open_) {
      if (open.is_list) {
        path += "[" + std::to_string(open.index) + "]";
      } else {
        path += (path.empty() ? "" : ".") + open.key;
      }
    }
    return path;
  }

  std::vector<Open> open_;
  absl::Status status_;
};

}  // namespace

std::string ToJson(const google::protobuf::Message& message, int indent) {
  return ToTree(message).dump(indent, ' ', false, Tree::error_handler_t::replace);
}

absl::StatusOr<Tree> ParseJsonTree(std::string_view text) {
  Follower follower;
  Tree tree;
  try {
    tree = Tree::parse(text, [&](int, Tree::parse_event_t event, const Tree& value) { return follower.Visit(event, value); });
  } catch (const Tree::exception& error) {
    return FieldError("JSON", "", "is not valid: " + Reason(error));
  }
  if (!follower.status().ok()) return follower.status();
  return tree;
}

absl::Status ParseJson(std::string_view text, google::protobuf::Message* message) {
  const absl::StatusOr<Tree> tree = ParseJsonTree(text);
  if (!tree.ok()) return tree.status();
  const std::unique_ptr<google::protobuf::Message> fresh(message->New());
  if (absl::Status status = MergeTree(*tree, fresh.get()); !status.ok()) return status;
  message->GetReflection()->Swap(message, fresh.get());
  return absl::OkStatus();
}

}  // namespace legoai
