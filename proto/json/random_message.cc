#include "proto/json/random_message.h"

#include <google/protobuf/descriptor.h>

#include <cmath>
#include <limits>

#include "proto/enum_text.h"

namespace legoai {
namespace {

using google::protobuf::FieldDescriptor;

int64_t RandomInteger(std::mt19937_64& random) {
  switch (random() % 5) {
    case 0: return 0;
    case 1: return std::numeric_limits<int64_t>::max() - random() % 3;
    case 2: return std::numeric_limits<int64_t>::min() + random() % 3;
    default: return int64_t(random()) >> (random() % 60);
  }
}

double RandomReal(std::mt19937_64& random) {
  const double mantissa = int64_t(random()) / 9.3e18;
  return random() % 4 == 0 ? std::round(mantissa * 10) : mantissa * std::pow(10.0, int(random() % 80) - 40);
}

std::string RandomText(std::mt19937_64& random) {
  static const char* const kParts[] = {"a", "1F1B", "\"", "\\", "\n", "\t",   "\x7f", "\x01",
                                       "é", "日本", " ",  "#",  "'",  "null", ".",    "="};
  std::string text;
  for (int n = random() % 6; n > 0; --n) text += kParts[random() % std::size(kParts)];
  return text;
}

int RandomEnum(std::mt19937_64& random, const FieldDescriptor* field) {
  const auto texts = EnumTexts(field->enum_type());
  return *EnumNumber(field->enum_type(), texts[random() % texts.size()]);
}

// Through the one path that sets and adds alike: `set` and `add` are the reflection's functions for the field's type.
template <typename T, typename SetOne, typename Add>
void Store(google::protobuf::Message* message, const FieldDescriptor* field, T value, SetOne set, Add add) {
  const auto* r = message->GetReflection();
  field->is_repeated() ? (r->*add)(message, field, value) : (r->*set)(message, field, value);
}

void FillField(std::mt19937_64& random, google::protobuf::Message* message, const FieldDescriptor* field, int depth) {
  using R = google::protobuf::Reflection;
  const R* r = message->GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: return Store(message, field, int32_t(RandomInteger(random)), &R::SetInt32, &R::AddInt32);
    case FieldDescriptor::CPPTYPE_INT64: return Store(message, field, RandomInteger(random), &R::SetInt64, &R::AddInt64);
    case FieldDescriptor::CPPTYPE_UINT32: return Store(message, field, uint32_t(random()), &R::SetUInt32, &R::AddUInt32);
    case FieldDescriptor::CPPTYPE_UINT64: return Store(message, field, uint64_t(random()), &R::SetUInt64, &R::AddUInt64);
    case FieldDescriptor::CPPTYPE_DOUBLE: return Store(message, field, RandomReal(random), &R::SetDouble, &R::AddDouble);
    case FieldDescriptor::CPPTYPE_FLOAT: return Store(message, field, float(RandomReal(random)), &R::SetFloat, &R::AddFloat);
    case FieldDescriptor::CPPTYPE_BOOL: return Store(message, field, random() % 2 == 0, &R::SetBool, &R::AddBool);
    case FieldDescriptor::CPPTYPE_ENUM:
      return Store(message, field, RandomEnum(random, field), &R::SetEnumValue, &R::AddEnumValue);
    case FieldDescriptor::CPPTYPE_STRING: return Store(message, field, RandomText(random), &R::SetString, &R::AddString);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      FillRandomly(random, field->is_repeated() ? r->AddMessage(message, field) : r->MutableMessage(message, field), depth + 1);
  }
}

}  // namespace

void FillRandomly(std::mt19937_64& random, google::protobuf::Message* message, int depth) {
  const auto* type = message->GetDescriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    const int most = field->is_map() ? 1 : depth > 2 ? 0 : 2;  // two entries of a map might share a key
    const int times = field->is_repeated() ? random() % (most + 1) : random() % 4 != 0;
    for (int n = 0; n < times; ++n) FillField(random, message, field, depth);
  }
}

}  // namespace legoai
