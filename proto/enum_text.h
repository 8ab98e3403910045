// The texts that users write for enum values: the option `(text)` of proto/legoai/v1/options.proto ("1F1B", "full").
// Thread-safety: pure functions.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/generated_enum_reflection.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace legoai {

// The value's `(text)`; its name in the proto file if it has none; the number as text if the enum has no such value. The zero
// value without `(text)` (X_UNSPECIFIED) has empty text, as users never write it.
std::string EnumText(const google::protobuf::EnumDescriptor* type, int number);

// The number whose EnumText is `text`; nothing if there is none. Empty text is never a value.
std::optional<int> EnumNumber(const google::protobuf::EnumDescriptor* type, std::string_view text);

// All texts that can be written, in the order of the proto file.
std::vector<std::string> EnumTexts(const google::protobuf::EnumDescriptor* type);

template <typename Enum>
std::string EnumText(Enum value) {
  return EnumText(google::protobuf::GetEnumDescriptor<Enum>(), value);
}

template <typename Enum>
std::optional<Enum> EnumFromText(std::string_view text) {
  const auto number = EnumNumber(google::protobuf::GetEnumDescriptor<Enum>(), text);
  return number ? std::optional<Enum>(static_cast<Enum>(*number)) : std::nullopt;
}

}  // namespace legoai
