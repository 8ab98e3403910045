#include "proto/json/reflect.h"

#include <google/protobuf/descriptor.h>

#include <limits>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/enum_text.h"
#include "proto/errors.h"
#include "proto/legoai/v1/options.pb.h"
#include "proto/text.h"

namespace legoai {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Faults = std::vector<absl::Status>;

std::string Join(const std::string& path, const std::string& key) { return path.empty() ? key : path + "." + key; }

// A value as the user sees it in an error: text without quotes.
std::string Shown(const Tree& value) {
  return CutText(value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, Tree::error_handler_t::replace));
}

template <typename T>
std::string OutOfRange(bool too_small) {
  return OutOfRangeText(too_small, std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
}

// A whole number that 64 bits do not hold, by its sign: JSON's parser makes a floating-point number of it, and from the command
// line it comes as text.
std::optional<bool> NegativeBeyondIntegers(const Tree& value) {
  if (value.is_number_float()) {
    const double real = value.get<double>();
    return real >= 0x1p64 || real <= -0x1p63 ? std::optional(real < 0) : std::nullopt;
  }
  if (!value.is_string()) return std::nullopt;
  const std::string& text = value.get_ref<const std::string&>();
  int64_t integer;
  uint64_t natural;
  const bool fits = absl::SimpleAtoi(text, &integer) || absl::SimpleAtoi(text, &natural);
  return IsWholeNumber(text) && !fits ? std::optional(text[0] == '-') : std::nullopt;
}

// The only field of messages that are written as a list; null of others.
const FieldDescriptor* OnlyList(const Descriptor* type) {
  return type != nullptr && type->options().GetExtension(v1::written_as_list) ? type->field(0) : nullptr;
}

// ---- Messages to trees ----

Tree EnumTree(const FieldDescriptor* field, int number) {
  std::string text = EnumText(field->enum_type(), number);
  return text.empty() ? Tree(nullptr) : Tree(std::move(text));
}

Tree TextTree(const FieldDescriptor* field, const std::string& text) {
  return field->type() == FieldDescriptor::TYPE_BYTES ? absl::Base64Escape(text) : text;
}

// The value of a singular field that is set, or its default; `index` >= 0 is an element of a repeated field.
Tree FieldTree(const Message& message, const FieldDescriptor* field, int index) {
  const Reflection* r = message.GetReflection();
  const bool one = index < 0;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: return one ? r->GetInt32(message, field) : r->GetRepeatedInt32(message, field, index);
    case FieldDescriptor::CPPTYPE_INT64: return one ? r->GetInt64(message, field) : r->GetRepeatedInt64(message, field, index);
    case FieldDescriptor::CPPTYPE_UINT32: return one ? r->GetUInt32(message, field) : r->GetRepeatedUInt32(message, field, index);
    case FieldDescriptor::CPPTYPE_UINT64: return one ? r->GetUInt64(message, field) : r->GetRepeatedUInt64(message, field, index);
    case FieldDescriptor::CPPTYPE_DOUBLE: return one ? r->GetDouble(message, field) : r->GetRepeatedDouble(message, field, index);
    case FieldDescriptor::CPPTYPE_FLOAT: return one ? r->GetFloat(message, field) : r->GetRepeatedFloat(message, field, index);
    case FieldDescriptor::CPPTYPE_BOOL: return one ? r->GetBool(message, field) : r->GetRepeatedBool(message, field, index);
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumTree(field, one ? r->GetEnumValue(message, field) : r->GetRepeatedEnumValue(message, field, index));
    case FieldDescriptor::CPPTYPE_STRING:
      return TextTree(field, one ? r->GetString(message, field) : r->GetRepeatedString(message, field, index));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return ToTree(one ? r->GetMessage(message, field) : r->GetRepeatedMessage(message, field, index));
  }
  return nullptr;
}

Tree MapTree(const Message& message, const FieldDescriptor* field) {
  const Reflection* r = message.GetReflection();
  std::map<std::string, Tree> sorted;
  for (int i = 0; i < r->FieldSize(message, field); ++i) {
    const Message& entry = r->GetRepeatedMessage(message, field, i);
    const Tree key = FieldTree(entry, field->message_type()->map_key(), -1);
    sorted[key.is_string() ? key.get<std::string>() : key.dump()] = FieldTree(entry, field->message_type()->map_value(), -1);
  }
  Tree tree = Tree::object();
  for (auto& [key, value] : sorted) tree[key] = std::move(value);
  return tree;
}

// ---- Trees to messages ----

// Sets singular fields and appends to repeated ones, with the field's path for errors.
struct Setter {
  const FieldDescriptor* field;
  Message* message;
  const std::string& path;
  const Descriptor* root;  // of the whole tree, where unknown keys are looked for
  Faults* faults = nullptr;

  const Reflection* reflection() const { return message->GetReflection(); }
  absl::Status Error(const Tree& value, const std::string& remedy) const { return FieldError(path, Shown(value), remedy); }
  absl::Status Set(const Tree& value) const;

 private:
  template <typename T, typename SetOne, typename Add>
  absl::Status Store(T value, SetOne set, Add add) const {
    const Reflection* r = reflection();
    field->is_repeated() ? (r->*add)(message, field, std::move(value)) : (r->*set)(message, field, std::move(value));
    return absl::OkStatus();
  }
  template <typename T, typename SetOne, typename Add>
  absl::Status StoreInteger(const Tree& value, SetOne set, Add add) const {
    if (const auto negative = NegativeBeyondIntegers(value)) return Error(value, OutOfRange<T>(*negative));
    if (!value.is_number_integer()) return Error(value, "must be a whole number");
    const bool too_small = !value.is_number_unsigned() && value.get<int64_t>() < 0 &&
                           (!std::numeric_limits<T>::is_signed || value.get<int64_t>() < int64_t(std::numeric_limits<T>::min()));
    const bool too_big = (value.is_number_unsigned() || value.get<int64_t>() >= 0) &&
                         value.get<uint64_t>() > uint64_t(std::numeric_limits<T>::max());
    if (!too_small && !too_big) return Store<T>(value.get<T>(), set, add);
    return Error(value, OutOfRange<T>(too_small));
  }
  absl::Status SetEnum(const Tree& value) const;
  absl::Status SetText(const Tree& value) const;
  absl::Status SetMessage(const Tree& value) const;
};

// With `faults`: keys of `message`, and of messages in it, that are at fault are left out and told there.
absl::Status MergeAt(const Tree& tree, const std::string& path, const Descriptor* root, Message* message, Faults* faults);

absl::Status Setter::SetEnum(const Tree& value) const {
  const auto number = value.is_string() ? EnumNumber(field->enum_type(), value.get_ref<const std::string&>()) : std::nullopt;
  if (number) return Store(*number, &Reflection::SetEnumValue, &Reflection::AddEnumValue);
  return Error(value, "must be one of \"" + absl::StrJoin(EnumTexts(field->enum_type()), "\", \"") + "\"");
}

absl::Status Setter::SetText(const Tree& value) const {
  if (!value.is_string()) return Error(value, "must be text, in quotes");
  std::string text = value.get<std::string>();
  if (field->type() == FieldDescriptor::TYPE_BYTES && !absl::Base64Unescape(value.get_ref<const std::string&>(), &text)) {
    return Error(value, "must be base64");
  }
  if (field->type() == FieldDescriptor::TYPE_STRING && !IsUtf8(text)) return Error(value, "must be text in UTF-8");
  return Store(std::move(text), &Reflection::SetString, &Reflection::AddString);
}

absl::Status Setter::SetMessage(const Tree& value) const {
  const Reflection* r = reflection();
  Message* child = field->is_repeated() ? r->AddMessage(message, field) : r->MutableMessage(message, field);
  return MergeAt(value, path, root, child, field->is_repeated() ? nullptr : faults);
}

absl::Status Setter::Set(const Tree& value) const {
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: return StoreInteger<int32_t>(value, &Reflection::SetInt32, &Reflection::AddInt32);
    case FieldDescriptor::CPPTYPE_INT64: return StoreInteger<int64_t>(value, &Reflection::SetInt64, &Reflection::AddInt64);
    case FieldDescriptor::CPPTYPE_UINT32: return StoreInteger<uint32_t>(value, &Reflection::SetUInt32, &Reflection::AddUInt32);
    case FieldDescriptor::CPPTYPE_UINT64: return StoreInteger<uint64_t>(value, &Reflection::SetUInt64, &Reflection::AddUInt64);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      if (!value.is_number()) return Error(value, "must be a number");
      return Store(value.get<double>(), &Reflection::SetDouble, &Reflection::AddDouble);
    case FieldDescriptor::CPPTYPE_FLOAT:
      if (!value.is_number()) return Error(value, "must be a number");
      return Store(value.get<float>(), &Reflection::SetFloat, &Reflection::AddFloat);
    case FieldDescriptor::CPPTYPE_BOOL:
      if (!value.is_boolean()) return Error(value, "must be true or false");
      return Store(value.get<bool>(), &Reflection::SetBool, &Reflection::AddBool);
    case FieldDescriptor::CPPTYPE_ENUM: return SetEnum(value);
    case FieldDescriptor::CPPTYPE_STRING: return SetText(value);
    case FieldDescriptor::CPPTYPE_MESSAGE: return SetMessage(value);
  }
  return absl::OkStatus();
}

absl::Status MergeMap(const Tree& tree, const FieldDescriptor* field, const std::string& path, const Descriptor* root,
                      Message* message) {
  if (!tree.is_object()) return FieldError(path, Shown(tree), "must be a table of keys and values");
  for (const auto& [key, value] : tree.items()) {
    Message* entry = message->GetReflection()->AddMessage(message, field);
    const std::string entry_path = Join(path, CutText(key));
    absl::Status status = Setter{field->message_type()->map_key(), entry, entry_path, root}.Set(key);
    if (status.ok()) status = Setter{field->message_type()->map_value(), entry, entry_path, root}.Set(value);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status MergeList(const Tree& tree, const FieldDescriptor* field, const std::string& path, const Descriptor* root,
                       Message* message) {
  if (!tree.is_array()) return FieldError(path, Shown(tree), "must be a list");
  for (size_t i = 0; i < tree.size(); ++i) {
    const std::string element_path = path + "[" + std::to_string(i) + "]";
    if (absl::Status status = Setter{field, message, element_path, root}.Set(tree[i]); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status MergeField(const Tree& tree, const FieldDescriptor* field, const std::string& path, const Descriptor* root,
                        Message* message, Faults* faults = nullptr) {
  const Reflection* r = message->GetReflection();
  if (tree.is_null()) return absl::OkStatus();
  if (field->is_repeated()) {
    r->ClearField(message, field);
    return field->is_map() ? MergeMap(tree, field, path, root, message) : MergeList(tree, field, path, root, message);
  }
  const auto* oneof = field->real_containing_oneof();
  if (oneof && r->HasOneof(*message, oneof) && !r->HasField(*message, field)) {
    const std::string other = r->GetOneofFieldDescriptor(*message, oneof)->name();
    return FieldError(path, Shown(tree), "cannot be set together with " + other + ": set one of them");
  }
  return Setter{field, message, path, root, faults}.Set(tree);
}

// ---- Unknown keys ----

// Paths below `type` whose last key is `key`: someone wrote a known key in the wrong section. Two levels, as recipes have.
std::vector<std::string> PathsEndingIn(const std::string& key, const Descriptor* type) {
  std::vector<std::string> found;
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* section = type->field(i);
    if (section->name() == key) found.push_back(key);
    const bool is_section = section->message_type() && !section->is_repeated();
    if (is_section && section->message_type()->FindFieldByName(key)) found.push_back(section->name() + "." + key);
  }
  return found;
}

absl::Status UnknownKey(const std::string& key, const std::string& path, const Tree& value, const Descriptor* type,
                        const Descriptor* root) {
  std::vector<std::string> keys;
  for (int i = 0; i < type->field_count(); ++i) keys.push_back(type->field(i)->name());
  const std::vector<std::string> elsewhere = PathsEndingIn(key, root);
  const std::string nearest = elsewhere.empty() ? Join(path, Nearest(key, keys)) : elsewhere.front();
  return FieldError(Join(path, CutText(key)), Shown(value), "unknown key; the nearest known one is " + nearest);
}

absl::Status MergeAt(const Tree& tree, const std::string& path, const Descriptor* root, Message* message, Faults* faults) {
  const Descriptor* type = message->GetDescriptor();
  if (const auto* list = OnlyList(type)) return MergeList(tree, list, path, root, message);
  if (!tree.is_object()) return FieldError(path.empty() ? type->name() : path, Shown(tree), "must be a table of keys and values");
  for (const auto& [key, value] : tree.items()) {
    const FieldDescriptor* field = type->FindFieldByName(key);
    const absl::Status status =
        field ? MergeField(value, field, Join(path, key), root, message, faults) : UnknownKey(key, path, value, type, root);
    if (status.ok()) continue;
    if (!faults) return status;
    if (faults->size() >= kMostFaults) return absl::OkStatus();
    faults->push_back(status);
    if (field) message->GetReflection()->ClearField(message, field);
  }
  return absl::OkStatus();
}

// ---- Single fields from text ----

// The text of one value as a tree of the field's type; what cannot be read stays text, which the field then refuses.
Tree ScalarFromText(const std::string& text, const FieldDescriptor* field) {
  int64_t integer;
  uint64_t natural;
  double real;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_INT64:
    case FieldDescriptor::CPPTYPE_UINT32:
    case FieldDescriptor::CPPTYPE_UINT64:
      if (absl::SimpleAtoi(text, &integer)) return integer;
      return absl::SimpleAtoi(text, &natural) ? Tree(natural) : Tree(text);
    case FieldDescriptor::CPPTYPE_DOUBLE:
    case FieldDescriptor::CPPTYPE_FLOAT: return absl::SimpleAtod(text, &real) ? Tree(real) : Tree(text);
    case FieldDescriptor::CPPTYPE_BOOL: return text == "true" ? Tree(true) : text == "false" ? Tree(false) : Tree(text);
    default: return text;
  }
}

Tree FromText(const std::string& text, const FieldDescriptor* field) {
  if (!field->is_repeated()) return ScalarFromText(text, field);
  const FieldDescriptor* const inner = OnlyList(field->message_type());
  Tree list = Tree::array();
  for (const auto part : absl::StrSplit(text, inner == nullptr ? ',' : ';', absl::SkipEmpty())) {
    list.push_back(inner == nullptr ? ScalarFromText(std::string(part), field) : FromText(std::string(part), inner));
  }
  return list;
}

}  // namespace

Tree ToTree(const Message& message, const FieldDescriptor* field) {
  const Reflection* r = message.GetReflection();
  if (field->is_map()) return MapTree(message, field);
  if (!field->is_repeated())
    return !field->has_presence() || r->HasField(message, field) ? FieldTree(message, field, -1) : Tree();
  Tree list = Tree::array();
  for (int i = 0; i < r->FieldSize(message, field); ++i) list.push_back(FieldTree(message, field, i));
  return list;
}

Tree ToTree(const Message& message) {
  const Descriptor* type = message.GetDescriptor();
  if (const FieldDescriptor* const list = OnlyList(type)) return ToTree(message, list);
  Tree tree = Tree::object();
  for (int i = 0; i < type->field_count(); ++i) tree[type->field(i)->name()] = ToTree(message, type->field(i));
  return tree;
}

absl::Status MergeTree(const Tree& tree, Message* message) {
  return MergeAt(tree, "", message->GetDescriptor(), message, nullptr);
}

std::vector<absl::Status> MergeTreeApartFromFaults(const Tree& tree, Message* message) {
  Faults faults;
  const absl::Status whole = MergeAt(tree, "", message->GetDescriptor(), message, &faults);
  if (!whole.ok()) faults.push_back(whole);
  return faults;
}

absl::Status MergeText(const std::string& path, const std::string& text, Message* message) {
  const Descriptor* root = message->GetDescriptor();
  const std::vector<std::string> keys = absl::StrSplit(path, '.');
  std::string done;
  for (size_t i = 0; i < keys.size(); ++i) {
    const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(keys[i]);
    if (!field) return UnknownKey(keys[i], done, text, message->GetDescriptor(), root);
    done = Join(done, keys[i]);
    const bool is_section = field->message_type() && !field->is_repeated();
    const bool is_last = i + 1 == keys.size();
    if (!is_last && !is_section) return FieldError(path, text, done + " has no keys below it");
    if (is_last && field->message_type() && OnlyList(field->message_type()) == nullptr)
      return FieldError(path, text, "is a section: set one of its keys");
    if (is_last) return MergeField(FromText(text, field), field, path, root, message);
    message = message->GetReflection()->MutableMessage(message, field);
  }
  return absl::OkStatus();
}

bool IsWholeNumber(std::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

std::string OutOfRangeText(bool too_small, int64_t least, uint64_t most) {
  return std::string(too_small ? "is too small" : "is too large") + ": must lie between " + std::to_string(least) + " and " +
         std::to_string(most);
}

}  // namespace legoai
