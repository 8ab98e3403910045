#include "proto/json/json.h"

#include <memory>

#include "proto/errors.h"
#include "proto/json/reflect.h"

namespace legoai {
namespace {

// The library's message without its own prefix "[json.exception.parse_error.101] parse error ".
std::string Reason(const Tree::parse_error& error) {
  const std::string text = error.what();
  const size_t at = text.find("at line");
  return at == std::string::npos ? text : text.substr(at);
}

}  // namespace

std::string ToJson(const google::protobuf::Message& message, int indent) {
  return ToTree(message).dump(indent, ' ', false, Tree::error_handler_t::replace);
}

absl::Status ParseJson(std::string_view text, google::protobuf::Message* message) {
  Tree tree;
  try {
    tree = Tree::parse(text);
  } catch (const Tree::parse_error& error) {
    return FieldError("JSON", "", "is not valid " + Reason(error));
  }
  const std::unique_ptr<google::protobuf::Message> fresh(message->New());
  if (absl::Status status = MergeTree(tree, fresh.get()); !status.ok()) return status;
  message->GetReflection()->Swap(message, fresh.get());
  return absl::OkStatus();
}

}  // namespace legoai
