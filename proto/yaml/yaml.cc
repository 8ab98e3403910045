#include "proto/yaml/yaml.h"

#include <cctype>
#include <cmath>
#include <set>

namespace legoai {
namespace {

std::string Quoted(const std::string& text) { return Tree(text).dump(-1, ' ', false, Tree::error_handler_t::replace); }

std::string Number(double value) {
  if (std::isnan(value)) return ".nan";
  if (std::isinf(value)) return value < 0 ? "-.inf" : ".inf";
  std::string text = Tree(value).dump();
  const size_t exponent = text.find('e');
  if (exponent != std::string::npos && text.find('.') == std::string::npos) text.insert(exponent, ".0");
  return text;
}

std::string Key(const std::string& key) {
  static const std::set<std::string> kWords = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"};
  bool plain = !key.empty() && (std::isalpha(key[0]) || key[0] == '_');
  std::string lower;
  for (const unsigned char c : key) {
    plain = plain && (std::isalnum(c) || c == '_' || c == '-') && c < 128;
    lower += std::tolower(c);
  }
  return plain && !kWords.count(lower) ? key : Quoted(key);
}

bool IsBlock(const Tree& tree) { return tree.is_structured() && !tree.empty(); }

std::string Scalar(const Tree& tree) {
  if (tree.is_object()) return "{}";
  if (tree.is_array()) return "[]";
  if (tree.is_number_float()) return Number(tree.get<double>());
  return tree.is_string() ? Quoted(tree.get<std::string>()) : tree.dump();
}

// Appends the lines of a block. `first` says that the cursor already stands where the first line's text begins ("- " was
// written).
void AppendBlock(const Tree& tree, int indent, bool first, std::string* out) {
  for (auto it = tree.begin(); it != tree.end(); ++it) {
    if (!first) out->append(indent, ' ');
    first = false;
    *out += tree.is_array() ? "-" : Key(it.key()) + ":";
    if (!IsBlock(*it)) {
      *out += " " + Scalar(*it) + "\n";
    } else if (tree.is_array()) {
      *out += " ";
      AppendBlock(*it, indent + 2, true, out);
    } else {
      *out += "\n";
      AppendBlock(*it, indent + 2, false, out);
    }
  }
}

}  // namespace

std::string ToYaml(const Tree& tree) {
  if (!IsBlock(tree)) return Scalar(tree) + "\n";
  std::string out;
  AppendBlock(tree, 0, false, &out);
  return out;
}

std::string ToYaml(const google::protobuf::Message& message) { return ToYaml(ToTree(message)); }

}  // namespace legoai
