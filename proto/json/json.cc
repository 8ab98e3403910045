#include "proto/json/json.h"

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

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

// Follows the parser through the text and keeps the path of the first key that an object has twice: a tree has no place for the
// second one.
class DuplicateKeys {
 public:
  // Called by the parser for every event; `value` is the key where the event is one. Keeps all.
  bool Visit(Tree::parse_event_t event, const Tree& value) {
    switch (event) {
      case Tree::parse_event_t::object_start: open_.push_back({false, 0, "", {}}); break;
      case Tree::parse_event_t::array_start: open_.push_back({true, 0, "", {}}); break;
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

  const std::optional<std::string>& first() const { return first_; }

 private:
  // An object or a list that has begun, with the place in it.
  struct Open {
    bool is_list;
    int64_t index;
    std::string key;
    std::set<std::string> keys;
  };

  void AddKey(std::string key) {
    Open& object = open_.back();
    object.key = std::move(key);
    if (!object.keys.insert(object.key).second && !first_) first_ = Path();
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
  std::optional<std::string> first_;
};

}  // namespace

std::string ToJson(const google::protobuf::Message& message, int indent) {
  return ToTree(message).dump(indent, ' ', false, Tree::error_handler_t::replace);
}

absl::StatusOr<Tree> ParseJsonTree(std::string_view text) {
  DuplicateKeys duplicates;
  Tree tree;
  try {
    tree = Tree::parse(text, [&](int, Tree::parse_event_t event, const Tree& value) { return duplicates.Visit(event, value); });
  } catch (const Tree::exception& error) {
    return FieldError("JSON", "", "is not valid: " + Reason(error));
  }
  if (duplicates.first()) return FieldError(*duplicates.first(), "", "is given twice: keep one of them");
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
