#include "proto/enum_text.h"

#include "proto/legoai/v1/options.pb.h"

namespace legoai {
namespace {

std::string Text(const google::protobuf::EnumValueDescriptor& value) {
  if (value.options().HasExtension(v1::text)) return value.options().GetExtension(v1::text);
  return value.number() == 0 ? "" : value.name();
}

}  // namespace

std::string EnumText(const google::protobuf::EnumDescriptor* type, int number) {
  const auto* value = type->FindValueByNumber(number);
  return value ? Text(*value) : std::to_string(number);
}

std::optional<int> EnumNumber(const google::protobuf::EnumDescriptor* type, std::string_view text) {
  for (int i = 0; i < type->value_count() && !text.empty(); ++i) {
    if (Text(*type->value(i)) == text) return type->value(i)->number();
  }
  return std::nullopt;
}

std::vector<std::string> EnumTexts(const google::protobuf::EnumDescriptor* type) {
  std::vector<std::string> texts;
  for (int i = 0; i < type->value_count(); ++i) {
    if (std::string text = Text(*type->value(i)); !text.empty()) texts.push_back(std::move(text));
  }
  return texts;
}

}  // namespace legoai
