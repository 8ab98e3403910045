// Exact conversion between torch's boxed arguments and a Trace's constants: a round trip gives the same value of the same type.
// Pure functions. Errors: c10::Error naming the refused type.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include "core/trace/trace.h"

namespace legoai::graph {

// ScalarType, Layout and MemoryFormat are integers in an IValue; a Scalar is a bool, an integer or a double. Generators are
// refused, because randomness is counter-based here.
Constant ToConstant(const c10::IValue& value);

// `type` is the argument's type in the schema; `device` takes the place of a DeviceConstant.
c10::IValue ToIValue(const Constant& constant, const c10::Type& type, c10::Device device);

// A scalar wrapped as a tensor, kept as its number: bool, int64 or double.
Constant WrappedNumber(const at::Tensor& tensor);
at::Tensor ToWrappedNumber(const Constant& constant);

v1::DType ToDType(c10::ScalarType type);
c10::ScalarType ToScalarType(v1::DType dtype);

}  // namespace legoai::graph
