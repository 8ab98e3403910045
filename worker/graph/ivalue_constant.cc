#include "worker/graph/ivalue_constant.h"

#include <ATen/ScalarOps.h>
#include <c10/util/Exception.h>

#include <utility>

namespace legoai::graph {
namespace {

// Scalar[]: all doubles, or all integers.
Constant ScalarList(const c10::IValue& value) {
  std::vector<double> reals;
  std::vector<int64_t> integers;
  for (const c10::IValue& element : value.toListRef()) {
    if (element.isDouble()) reals.push_back(element.toDouble());
    if (element.isInt()) integers.push_back(element.toInt());
  }
  const size_t size = value.toListRef().size();
  if (reals.size() == size) return reals;
  TORCH_CHECK(integers.size() == size, "a list of type ", value.tagKind(), " as an argument is not supported in a Trace");
  return integers;
}

bool IsScalarList(const c10::Type& type) {
  const auto* list = type.castRaw<c10::ListType>();
  return list != nullptr && list->getElementType()->kind() == c10::TypeKind::NumberType;
}

template <class Values>
c10::IValue ToScalarList(const Values& values) {
  c10::impl::GenericList list(c10::NumberType::get());
  for (auto value : values) list.push_back(c10::IValue(value));
  return list;
}

struct IValueMaker {
  const c10::Type& type;
  c10::Device device;

  c10::IValue operator()(std::monostate) const { return {}; }
  c10::IValue operator()(bool value) const { return value; }
  c10::IValue operator()(int64_t value) const { return value; }
  c10::IValue operator()(double value) const { return value; }
  c10::IValue operator()(const std::string& value) const { return value; }
  c10::IValue operator()(DeviceConstant) const { return device; }
  template <class T>
  c10::IValue operator()(const std::vector<T>& values) const {
    if constexpr (!std::is_same_v<T, bool>) {
      if (IsScalarList(type)) return ToScalarList(values);
    }
    c10::List<T> list;
    for (T value : values) list.push_back(value);
    return list;
  }
};

constexpr std::pair<v1::DType, c10::ScalarType> kTypes[] = {
    {v1::FLOAT32, c10::ScalarType::Float},  {v1::BFLOAT16, c10::ScalarType::BFloat16}, {v1::FLOAT16, c10::ScalarType::Half},
    {v1::FLOAT64, c10::ScalarType::Double}, {v1::INT64, c10::ScalarType::Long},        {v1::INT32, c10::ScalarType::Int},
    {v1::UINT8, c10::ScalarType::Byte},     {v1::BOOL, c10::ScalarType::Bool},         {v1::INT8, c10::ScalarType::Char},
    {v1::INT16, c10::ScalarType::Short},
};

}  // namespace

Constant ToConstant(const c10::IValue& value) {
  if (value.isNone()) return std::monostate();
  if (value.isBool()) return value.toBool();
  if (value.isInt()) return value.toInt();
  if (value.isDouble()) return value.toDouble();
  if (value.isDevice()) return DeviceConstant();
  if (value.isString()) return value.toStringRef();
  if (value.isIntList()) return value.toIntVector();
  if (value.isDoubleList()) return value.toDoubleVector();
  if (value.isBoolList()) {
    std::vector<bool> values;
    for (bool element : value.toBoolList()) values.push_back(element);
    return values;
  }
  TORCH_CHECK(!value.isGenerator(),
              "a random generator as an argument is not supported in a Trace: randomness is counter-based, "
              "draw it from (seed, step, index)");
  TORCH_CHECK(value.isList(), "an argument of type ", value.tagKind(), " is not supported in a Trace");
  return ScalarList(value);
}

c10::IValue ToIValue(const Constant& constant, const c10::Type& type, c10::Device device) {
  const auto* optional = type.castRaw<c10::OptionalType>();
  return std::visit(IValueMaker{optional == nullptr ? type : *optional->getElementType(), device}, constant);
}

Constant WrappedNumber(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case c10::ScalarType::Double: return *tensor.const_data_ptr<double>();
    case c10::ScalarType::Long: return *tensor.const_data_ptr<int64_t>();
    case c10::ScalarType::Bool: return *tensor.const_data_ptr<bool>();
    default: TORCH_CHECK(false, "a number of type ", tensor.scalar_type(), " in place of a tensor is not supported in a Trace");
  }
}

at::Tensor ToWrappedNumber(const Constant& constant) {
  c10::Scalar scalar;
  if (const auto* real = std::get_if<double>(&constant)) scalar = *real;
  if (const auto* integer = std::get_if<int64_t>(&constant)) scalar = *integer;
  if (const auto* boolean = std::get_if<bool>(&constant)) scalar = *boolean;
  at::Tensor tensor = c10::scalar_to_tensor(scalar);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

v1::DType ToDType(c10::ScalarType type) {
  for (const auto& [ours, theirs] : kTypes) {
    if (theirs == type) return ours;
  }
  TORCH_CHECK(false, "tensors of type ", type, " are not supported in a Trace");
}

c10::ScalarType ToScalarType(v1::DType dtype) {
  for (const auto& [ours, theirs] : kTypes) {
    if (ours == dtype) return theirs;
  }
  TORCH_CHECK(false, "no tensor type is called ", v1::DType_Name(dtype));
}

}  // namespace legoai::graph
