#include "proto/toml/toml.h"

// The parser is linked, not compiled into every user.
#define TOML_HEADER_ONLY 0
#include <toml++/toml.h>

#include <cctype>
#include <cmath>
#include <memory>
#include <sstream>

#include "absl/status/statusor.h"
#include "proto/errors.h"
#include "proto/json/reflect.h"
#include "proto/status.h"
#include "proto/text.h"
#include "proto/toml/scan.h"

namespace legoai {
namespace {

// ---- Writing ----

// JSON's escapes are TOML's, except that TOML wants DEL escaped too.
std::string Quoted(const std::string& text) {
  std::string out;
  for (const char c : Tree(text).dump(-1, ' ', false, Tree::error_handler_t::replace)) {
    c == '\x7f' ? out.append("\\u007F") : out.append(1, c);
  }
  return out;
}

std::string Key(const std::string& key) {
  bool bare = !key.empty();
  for (const unsigned char c : key) bare = bare && c < 128 && (std::isalnum(c) || c == '_' || c == '-');
  return bare ? key : Quoted(key);
}

bool IsTable(const Tree& tree) { return tree.is_object(); }
bool IsTables(const Tree& tree) { return tree.is_array() && !tree.empty() && tree[0].is_object(); }

std::string Value(const Tree& tree) {
  if (tree.is_string()) return Quoted(tree.get<std::string>());
  if (tree.is_array()) {
    std::string out;
    for (const Tree& element : tree) out += (out.empty() ? "" : ", ") + Value(element);
    return "[" + out + "]";
  }
  if (tree.is_number_float() && std::isnan(tree.get<double>())) return "nan";
  if (tree.is_number_float() && std::isinf(tree.get<double>())) return tree.get<double>() < 0 ? "-inf" : "inf";
  return tree.dump();
}

void Append(const Tree& table, const std::string& path, std::string* out) {
  for (const auto& [key, value] : table.items()) {
    const bool unset = value.is_null() || (value.is_array() && value.empty());
    if (!unset && !IsTable(value) && !IsTables(value)) *out += Key(key) + " = " + Value(value) + "\n";
  }
  for (const auto& [key, value] : table.items()) {
    const std::string header = path + Key(key);
    if (IsTable(value)) {
      *out += (out->empty() ? "[" : "\n[") + header + "]\n";
      Append(value, header + ".", out);
    }
    for (size_t i = 0; IsTables(value) && i < value.size(); ++i) {
      *out += (out->empty() ? "[[" : "\n[[") + header + "]]\n";
      Append(value[i], header + ".", out);
    }
  }
}

// ---- Reading ----

constexpr size_t kLongestReason = 200;  // the parser's, which may have a key of megabytes in it

absl::StatusOr<Tree> FromToml(const toml::node& node, const std::string& path);

absl::StatusOr<Tree> FromTable(const toml::table& table, const std::string& path) {
  Tree tree = Tree::object();
  auto& entries = tree.get_ref<Tree::object_t&>();
  for (const auto& [key, value] : table) {
    const std::string name(key.str());
    ASSIGN_OR_RETURN(auto child, FromToml(value, path.empty() ? name : path + "." + name));
    entries.emplace_back(name, std::move(child));  // the table has no key twice; to look takes as long as there are keys
  }
  return tree;
}

absl::StatusOr<Tree> FromArray(const toml::array& array, const std::string& path) {
  Tree tree = Tree::array();
  for (const toml::node& element : array) {
    ASSIGN_OR_RETURN(auto child, FromToml(element, path + "[" + std::to_string(tree.size()) + "]"));
    tree.push_back(std::move(child));
  }
  return tree;
}

absl::StatusOr<Tree> FromToml(const toml::node& node, const std::string& path) {
  if (const auto* table = node.as_table()) return FromTable(*table, path);
  if (const auto* array = node.as_array()) return FromArray(*array, path);
  if (const auto* text = node.as_string()) return Tree(text->get());
  if (const auto* integer = node.as_integer()) return Tree(integer->get());
  if (const auto* real = node.as_floating_point()) return Tree(real->get());
  if (const auto* boolean = node.as_boolean()) return Tree(boolean->get());
  std::ostringstream text;
  node.visit([&text](const auto& value) { text << value; });
  return FieldError(path, text.str(), "is a date or time, which no key takes: write text in quotes");
}

absl::Status ParserError(std::string_view text, const toml::parse_error& error) {
  const auto& at = error.source().begin;
  const std::string reason(error.description());
  if (reason.find("is not representable in 64 bits") != std::string::npos) {
    const TomlPlace place = FindTomlPlace(text, at.line, at.column);
    const bool negative = place.value.rfind("-", 0) == 0;
    return FieldError(CutText(place.key), CutText(place.value), OutOfRangeText(negative, INT64_MIN, INT64_MAX));
  }
  return FieldError("line " + std::to_string(at.line) + ", column " + std::to_string(at.column), "",
                    "is not valid TOML: " + CutText(reason, kLongestReason));
}

absl::StatusOr<Tree> ParseTree(std::string_view text) {
  if (const auto line = FindDeepNesting(text, kMostNesting))
    return FieldError("line " + std::to_string(*line), "", "is nested deeper than " + std::to_string(kMostNesting) + " levels");
  try {
    return FromTable(toml::parse(text), "");
  } catch (const toml::parse_error& error) {
    return ParserError(text, error);
  }
}

}  // namespace

std::string ToToml(const google::protobuf::Message& message) {
  std::string out;
  Append(ToTree(message), "", &out);
  return out;
}

absl::Status ParseToml(std::string_view text, google::protobuf::Message* message) {
  ASSIGN_OR_RETURN(const auto tree, ParseTree(text));
  const std::unique_ptr<google::protobuf::Message> fresh(message->New());
  RETURN_IF_ERROR(MergeTree(tree, fresh.get()));
  message->GetReflection()->Swap(message, fresh.get());
  return absl::OkStatus();
}

std::vector<absl::Status> ReadToml(std::string_view text, google::protobuf::Message* message) {
  const auto tree = ParseTree(text);
  if (!tree.ok()) return {tree.status()};
  const std::unique_ptr<google::protobuf::Message> fresh(message->New());
  std::vector<absl::Status> faults = MergeTreeApartFromFaults(*tree, fresh.get());
  message->GetReflection()->Swap(message, fresh.get());
  return faults;
}

absl::Status ApplyOverride(google::protobuf::Message* message, const std::string& path, const std::string& value) {
  const std::unique_ptr<google::protobuf::Message> copy(message->New());
  copy->CopyFrom(*message);
  RETURN_IF_ERROR(MergeText(path, value, copy.get()));
  message->GetReflection()->Swap(message, copy.get());
  return absl::OkStatus();
}

}  // namespace legoai
