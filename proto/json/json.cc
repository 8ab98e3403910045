#include "proto/json/json.h"

#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "proto/text.h"

namespace legoai {
namespace {

// The library's message without its own prefixes "[json.exception.parse_error.101] " and "parse error ".
std::string Reason(const Tree::exception& error) {
  const std::string text = error.what();
  const size_t line = text.find("at line"), prefix = text.find("] ");
  if (line != std::string::npos) return text.substr(line);
  return prefix == std::string::npos ? text : text.substr(prefix + 2);
}

// Makes the tree from the parser's events, and ends at the first fault: a key that an object has twice, or too many levels. (The
// library's own builder looks through all keys of an object for each.)
class TreeBuilder : public nlohmann::json_sax<Tree> {
 public:
  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const std::string&) override { return Add(value); }
  bool string(std::string& value) override { return Add(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // no JSON has any
  bool start_object(std::size_t) override { return Enter(Tree::object()); }
  bool start_array(std::size_t) override { return Enter(Tree::array()); }
  bool end_object() override { return Leave(); }
  bool end_array() override { return Leave(); }
  bool key(std::string& key) override {
    Open& object = open_.back();
    object.key = std::move(key);
    if (object.keys.insert(object.key).second) return true;
    status_ = FieldError(Path(), "", "is given twice: keep one of them");
    return false;
  }
  bool parse_error(std::size_t, const std::string&, const Tree::exception& error) override {
    status_ = FieldError("JSON", "", "is not valid: " + CutText(Reason(error), kLongestReason));
    return false;
  }

  const absl::Status& status() const { return status_; }
  Tree Take() { return std::move(root_); }

 private:
  static constexpr size_t kLongestReason = 200;  // the parser's, which may have text of megabytes in it

  // An object or a list that has begun, with the place in it.
  struct Open {
    Tree* tree;
    std::string key;
    std::set<std::string> keys;
  };

  bool Add(Tree value) {
    Put(std::move(value));
    return true;
  }
  bool Enter(Tree value) {
    if (open_.size() == kMostNesting) {
      status_ = FieldError(Path(), "", absl::StrCat("is nested deeper than ", kMostNesting, " levels"));
      return false;
    }
    open_.push_back({Put(std::move(value)), "", {}});
    return true;
  }
  bool Leave() {
    open_.pop_back();
    return true;
  }
  Tree* Put(Tree value) {
    if (open_.empty()) return &(root_ = std::move(value));
    Tree& in = *open_.back().tree;
    if (in.is_array()) return &in.get_ref<Tree::array_t&>().emplace_back(std::move(value));
    return &in.get_ref<Tree::object_t&>().emplace_back(open_.back().key, std::move(value)).second;
  }
  std::string Path() const {
    std::string path;
    for (const Open& open : open_) {
      if (open.tree->is_array()) {
        const size_t inside = &open == &open_.back() ? 0 : 1;  // what has begun is in the list already
        path += "[" + std::to_string(open.tree->size() - inside) + "]";
      } else {
        path += (path.empty() ? "" : ".") + CutText(open.key);
      }
    }
    return path;
  }

  Tree root_;
  std::vector<Open> open_;
  absl::Status status_;
};

}  // namespace

std::string ToJson(const google::protobuf::Message& message, int indent) {
  return ToTree(message).dump(indent, ' ', false, Tree::error_handler_t::replace);
}

absl::StatusOr<Tree> ParseJsonTree(std::string_view text) {
  TreeBuilder builder;
  if (!Tree::sax_parse(text, &builder)) return builder.status();
  return builder.Take();
}

absl::Status ParseJson(std::string_view text, google::protobuf::Message* message) {
  ASSIGN_OR_RETURN(const Tree tree, ParseJsonTree(text));
  const std::unique_ptr<google::protobuf::Message> fresh(message->New());
  RETURN_IF_ERROR(MergeTree(tree, fresh.get()));
  message->GetReflection()->Swap(message, fresh.get());
  return absl::OkStatus();
}

}  // namespace legoai
