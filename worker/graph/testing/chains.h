// Chains of operators in models that one kernel computes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/trace/testing/trace_builder.h"

namespace legoai::graph::testing_programs {

using Tensor = TraceBuilder::Tensor;

// A program of tensors that are bound by their names.
struct BoundProgram : TraceBuilder {
  Tensor Bind(const std::string& name, std::vector<int64_t> sizes, v1::DType dtype) {
    const Tensor tensor = New(dtype, std::move(sizes), StorageKind::kExternal, Category::kInput);
    bound.emplace_back(name, tensor);
    return tensor;
  }
  Trace Ending(const std::vector<std::pair<std::string, Tensor>>& outputs) const {
    Trace made = trace();
    for (const auto& [name, tensor] : bound) made.inputs[name] = tensor.value;
    for (const auto& [name, tensor] : outputs) made.outputs[name] = tensor.value;
    return made;
  }
  std::vector<std::pair<std::string, Tensor>> bound;
};

// A residual with the norm behind it, whose parts all are read later.
inline Trace ResidualAndNorm(int64_t rows, int64_t width, v1::DType dtype) {
  BoundProgram b;
  const Tensor x = b.Bind("x", {rows, width}, dtype), y = b.Bind("y", {rows, width}, dtype), w = b.Bind("w", {width}, dtype);
  const Tensor sum = b.New(dtype, {rows, width}), out = b.New(dtype, {rows, width}), rstd = b.New(v1::FLOAT32, {rows});
  b.Op("aten::add.Tensor", {x, y, int64_t{1}}, {sum});
  b.Op("lego::rms_norm", {sum, w, 1e-5}, {out, rstd});
  return b.Ending({{"sum", sum}, {"out", out}, {"rstd", rstd}});
}

inline Trace SwiGlu(int64_t rows, int64_t width, v1::DType dtype) {
  BoundProgram b;
  const Tensor gate = b.Bind("gate", {rows, width}, dtype), up = b.Bind("up", {rows, width}, dtype);
  const Tensor open = b.New(dtype, {rows, width}), out = b.New(dtype, {rows, width});
  b.Op("aten::silu", {gate}, {open});
  b.Op("aten::mul.Tensor", {open, up}, {out});
  b.Free(b.StorageOf(open));
  return b.Ending({{"out", out}});
}

// Of heads of 128: q cos + roll(q) sin.
inline Trace Rope(int64_t tokens, int64_t width, v1::DType dtype) {
  BoundProgram b;
  const int64_t dim = 128, heads = width / dim;
  const Tensor q = b.Bind("q", {tokens, heads, dim}, dtype);
  const Tensor cos = b.Bind("cos", {tokens, 1, dim}, dtype), sin = b.Bind("sin", {tokens, 1, dim}, dtype);
  const auto make = [&] { return b.New(dtype, {tokens, heads, dim}); };
  const Tensor kept = make(), rolled = make(), out = make();
  b.Op("aten::mul.Tensor", {q, cos}, {kept});
  b.Op("aten::roll", {q, std::vector<int64_t>{dim / 2}, std::vector<int64_t>{-1}}, {rolled});
  b.Op("aten::addcmul", {kept, rolled, sin, int64_t{1}}, {out});
  b.Free(b.StorageOf(kept));
  b.Free(b.StorageOf(rolled));
  return b.Ending({{"out", out}});
}

struct Chain {
  const char* name;
  Trace (*make)(int64_t rows, int64_t width, v1::DType dtype);
  int tensors;  // of rows x width, that the fused chain reads and writes
};
inline constexpr Chain kChains[] = {{"residual and RMS norm", ResidualAndNorm, 4}, {"SwiGLU", SwiGlu, 3}, {"RoPE", Rope, 2}};

}  // namespace legoai::graph::testing_programs
