// Programs of operators that may be fused, and what they give on numbers that follow from a seed.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/trace/fused_kernel.h"
#include "core/trace/testing/trace_builder.h"
#include "worker/graph/executor.h"
#include "worker/graph/ivalue_constant.h"

namespace legoai::graph::testing_programs {

using Tensor = TraceBuilder::Tensor;
using Arg = TraceBuilder::Arg;

// A program of operators that may be fused, and some that may not.
class RandomProgram {
 public:
  RandomProgram(unsigned seed, v1::DType dtype) : random_(seed), dtype_(dtype) {
    shape_ = {Below(4) + 2, Below(6) + 2, 2 * (Below(40) + 1)};
    for (const char* const name : {"a", "b", "c"}) full_.push_back(Input(name, Layout()));
    for (const char* const name : {"row", "column"}) {
      const bool is_row = name[0] == 'r';
      broadcast_.push_back(Bind(name, is_row ? std::vector<int64_t>{shape_[2]} : std::vector<int64_t>{shape_[0], shape_[1], 1},
                                is_row ? std::vector<int64_t>{1} : std::vector<int64_t>{shape_[1], 1, 1}));
    }
    inputs_ = full_.size();
    const int64_t operators = 6 + Below(8);
    for (int64_t i = 0; i < operators; ++i) AddOne();
    Finish();
  }
  Trace trace;

 private:
  int64_t Below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(random_); }
  // Dense, with the first two dimensions in either order.
  std::vector<int64_t> Layout() {
    if (Below(3) == 0) return {shape_[2], shape_[0] * shape_[2], 1};
    return {shape_[1] * shape_[2], shape_[2], 1};
  }
  Tensor Bind(const std::string& name, std::vector<int64_t> sizes, std::vector<int64_t> strides) {
    int64_t elements = 1;
    for (const int64_t size : sizes) elements *= size;
    const uint32_t storage = b_.AddStorage(elements * ElementBytes(dtype_), StorageKind::kExternal, Category::kInput, name);
    const Tensor tensor = b_.View(storage, dtype_, std::move(sizes), std::move(strides));
    bound_[name] = tensor;
    return tensor;
  }
  Tensor Input(const std::string& name, std::vector<int64_t> strides) { return Bind(name, shape_, std::move(strides)); }

  Tensor Any() { return full_[Below(static_cast<int64_t>(full_.size()))]; }
  // Laid out as torch's kernels do it: like the first tensor of the full shape.
  Tensor Like(Tensor of) {
    const Geometry& geometry = Of(of);
    int64_t elements = 1;
    for (const int64_t size : shape_) elements *= size;
    return b_.View(b_.AddStorage(elements * ElementBytes(dtype_)), dtype_, shape_, geometry.strides);
  }
  const Geometry& Of(Tensor tensor) { return b_.trace().geometries[b_.trace().values[tensor.value].geometry]; }
  bool IsContiguous(Tensor tensor) { return Of(tensor).strides == std::vector<int64_t>{shape_[1] * shape_[2], shape_[2], 1}; }
  // Another one of the same layout, whose results have it, too.
  Tensor Peer(Tensor of) {
    std::vector<Tensor> peers;
    for (const Tensor tensor : full_) {
      if (Of(tensor).strides == Of(of).strides) peers.push_back(tensor);
    }
    return peers[Below(static_cast<int64_t>(peers.size()))];
  }

  Tensor Make(const std::string& name, Tensor like, std::vector<Arg> arguments) {
    const Tensor made = Like(like);
    b_.Op(name, std::move(arguments), {made});
    full_.push_back(made);
    return made;
  }

  void AddOne() {
    const Tensor x = Any(), y = Peer(x), z = Peer(x);
    switch (Below(16)) {
      case 0: Make("aten::add.Tensor", x, {x, y, 0.5}); return;
      case 1: Make("aten::sub.Tensor", x, {x, y, int64_t{1}}); return;
      case 2: Make("aten::mul.Tensor", x, {x, broadcast_[Below(2)]}); return;
      case 3: Make("aten::mul.Tensor", x, {x, y}); return;
      case 4: Make("aten::neg", x, {x}); return;
      case 5: Make("aten::addcmul", x, {x, y, z, int64_t{1}}); return;
      case 6: Make("aten::silu", x, {x}); return;
      case 7: Make("aten::silu_backward", x, {x, y}); return;
      case 8: Make("aten::gelu", x, {x, std::string("tanh")}); return;
      case 9: Make("aten::gelu_backward", x, {x, y, std::string("tanh")}); return;
      case 10:
        if (IsContiguous(x)) return Roll(x);
        return static_cast<void>(Make("aten::abs", x, {x}));  // not fused
      case 11:
        if (IsContiguous(x)) return Norm(x);
        return;
      case 12:
        if (IsContiguous(x)) return LayerNorm(x);
        return;
      case 13: return NormGradient();
      case 14: b_.Op("aten::add_.Tensor", {x, y, int64_t{1}}, {x}, 1); return;
      default:
        b_.Op("aten::add_.Tensor", {full_[0], Peer(full_[0]), int64_t{1}}, {full_[0]}, 1);  // of an input
    }
  }
  void Roll(Tensor x) {
    Make("aten::roll", x, {x, std::vector<int64_t>{Below(shape_[2])}, std::vector<int64_t>{2}});
  }
  void Norm(Tensor x) {
    const Tensor out = Like(x), rstd = b_.New(v1::FLOAT32, {shape_[0], shape_[1]});
    b_.Op("lego::rms_norm", {x, broadcast_[0], 0.1}, {out, rstd});
    full_.push_back(out);
    kept_.push_back(rstd);
    norms_.push_back({x, rstd, rstd, false});
  }
  void LayerNorm(Tensor x) {
    const std::vector<int64_t> numbers = {shape_[0], shape_[1], 1};
    const Tensor out = Like(x), mean = b_.New(dtype_, numbers), rstd = b_.New(dtype_, numbers);
    b_.Op("aten::native_layer_norm", {x, Row(), broadcast_[0], broadcast_[0], 0.1}, {out, mean, rstd});
    full_.push_back(out);
    kept_.insert(kept_.end(), {mean, rstd});
    norms_.push_back({x, mean, rstd, true});
  }
  void NormGradient() {
    if (norms_.empty()) return;
    const auto [x, mean, rstd, is_layer_norm] = norms_[Below(static_cast<int64_t>(norms_.size()))];
    const Tensor grad = Peer(x), of_x = Like(x), of_weight = b_.New(dtype_, Row()), row = broadcast_[0];
    kept_.push_back(of_weight);
    full_.push_back(of_x);
    if (!is_layer_norm) {
      b_.Op("lego::rms_norm_backward", {grad, x, row, rstd}, {of_x, of_weight});
      return;
    }
    const Tensor of_bias = b_.New(dtype_, Row());
    kept_.push_back(of_bias);
    b_.Op("aten::native_layer_norm_backward", {grad, x, Row(), mean, rstd, row, row, std::vector<bool>{true, true, true}},
          {of_x, of_weight, of_bias});
  }
  std::vector<int64_t> Row() const { return {shape_[2]}; }

  // Some results stay; the others are freed at the end of their use.
  void Finish() {
    Trace made = b_.trace();
    for (const auto& [name, tensor] : bound_) made.inputs[name] = tensor.value;
    for (size_t i = 0; i < kept_.size(); ++i) made.outputs["kept" + std::to_string(i)] = kept_[i].value;
    std::vector<std::vector<uint32_t>> frees(made.instructions.size());
    for (size_t i = inputs_; i < full_.size(); ++i) {
      if (i + 1 == full_.size() || Below(3) == 0) {
        made.outputs["out" + std::to_string(i)] = full_[i].value;
        continue;
      }
      const uint32_t storage = made.values[full_[i].value].storage;
      size_t last = 0;
      for (size_t k = 0; k < made.instructions.size(); ++k) {
        const InstructionView op(made, made.instructions[k]);
        const auto look = [&](int, uint32_t value) { last = made.values[value].storage == storage ? k : last; };
        op.ForEachInput(look);
        op.ForEachResult(look);
      }
      frees[last].push_back(storage);
    }
    std::vector<Instruction> list;
    for (size_t k = 0; k < made.instructions.size(); ++k) {
      list.push_back(made.instructions[k]);
      for (const uint32_t storage : frees[k]) {
        Instruction free = list.back();
        free.kind = Instruction::Kind::kFree, free.immediate = storage;
        free.argument_count = free.result_count = 0;
        list.push_back(free);
      }
    }
    made.instructions = std::move(list);
    trace = std::move(made);
  }

  std::mt19937 random_;
  const v1::DType dtype_;
  std::vector<int64_t> shape_;
  TraceBuilder b_;
  struct Normed {
    Tensor x, mean, rstd;
    bool is_layer_norm;
  };
  std::vector<Tensor> full_, broadcast_, kept_;
  std::vector<Normed> norms_;
  std::map<std::string, Tensor> bound_;
  size_t inputs_ = 0;
};

using Tensors = std::map<std::string, at::Tensor>;

// Outputs, and what was bound, on the CPU after a run on numbers that follow from `seed`.
inline Tensors RunOn(const Trace& trace, unsigned seed, c10::Device device = c10::kCPU) {
  auto executor = Executor::Create(trace, device).value();
  Tensors tensors;
  std::mt19937 random(seed);
  for (const auto& [name, value] : trace.inputs) {
    const Geometry& geometry = trace.geometries[trace.values[value].geometry];
    at::Tensor memory = at::empty({trace.storages[trace.values[value].storage].bytes / ElementBytes(geometry.dtype)}, at::kFloat);
    float* const numbers = memory.mutable_data_ptr<float>();
    std::generate(numbers, numbers + memory.numel(), [&] { return std::uniform_real_distribution<float>(-2, 2)(random); });
    // The same numbers in all types.
    memory = memory.to(at::kBFloat16).to(ToScalarType(geometry.dtype)).to(device);
    const at::Tensor tensor = memory.as_strided(geometry.sizes, geometry.strides);
    EXPECT_TRUE(executor->Bind(name, tensor).ok()) << name;
    tensors[name] = tensor;
  }
  const absl::Status ran = executor->Run();
  EXPECT_TRUE(ran.ok()) << ran;
  for (auto& [_, tensor] : tensors) tensor = tensor.cpu();
  for (const auto& [name, _] : trace.outputs) tensors[name] = executor->Output(name).value().clone().cpu();
  return tensors;
}

inline int64_t FusedCount(const Trace& trace) {
  return std::count_if(trace.instructions.begin(), trace.instructions.end(),
                       [&](const Instruction& i) { return FusedKernelText(trace, i) != nullptr; });
}

inline double Largest(const at::Tensor& tensor) { return tensor.to(at::kDouble).abs().max().item<double>(); }
inline double Difference(const at::Tensor& a, const at::Tensor& b) { return Largest(a.to(at::kDouble) - b.to(at::kDouble)); }

// Gradients of two branches are summed in place, go through the gradient of a norm, and are added to that of the residual.
// `statistics`: the type of layer norm's mean and rstd, of a CPU that of the rest.
inline Trace Residual(bool is_layer_norm, v1::DType dtype, std::vector<int64_t> shape, v1::DType statistics) {
  TraceBuilder b;
  std::map<std::string, TraceBuilder::Tensor> bound;
  const auto bind = [&](const std::string& name, std::vector<int64_t> sizes, v1::DType type) {
    std::vector<int64_t> strides(sizes.size(), 1);
    int64_t elements = 1;
    for (size_t i = sizes.size(); i-- > 0;) strides[i] = elements, elements *= sizes[i];
    const uint32_t storage = b.AddStorage(elements * ElementBytes(type), StorageKind::kExternal, Category::kInput, name);
    return bound[name] = b.View(storage, type, std::move(sizes), std::move(strides));
  };
  const std::vector<int64_t> row = {shape.back()};
  std::vector<int64_t> rows(shape.begin(), shape.end() - 1);
  const Tensor up = bind("up", shape, dtype), gate = bind("gate", shape, dtype), residual = bind("residual", shape, dtype);
  const Tensor x = bind("x", shape, dtype), weight = bind("weight", row, dtype), of_x = b.New(dtype, shape);
  const Tensor of_weight = b.New(dtype, row), of_bias = b.New(dtype, row);
  b.Op("aten::add_.Tensor", {up, gate, int64_t{1}}, {up}, 1);
  if (is_layer_norm) {
    rows.push_back(1);
    const Tensor mean = bind("mean", rows, statistics), rstd = bind("rstd", rows, statistics);
    b.Op("aten::native_layer_norm_backward", {up, x, row, mean, rstd, weight, weight, std::vector<bool>{true, true, true}},
         {of_x, of_weight, of_bias});
  } else {
    b.Op("lego::rms_norm_backward", {up, x, weight, bind("rstd", rows, v1::FLOAT32)}, {of_x, of_weight});
  }
  b.Op("aten::add_.Tensor", {residual, of_x, int64_t{1}}, {residual}, 1);
  b.Free(b.StorageOf(of_x));
  Trace trace = b.trace();
  for (const auto& [name, tensor] : bound) trace.inputs[name] = tensor.value;
  trace.outputs["of_weight"] = of_weight.value;
  if (is_layer_norm) trace.outputs["of_bias"] = of_bias.value;
  return trace;
}
inline Trace Residual(bool is_layer_norm, v1::DType dtype, std::vector<int64_t> shape) {
  return Residual(is_layer_norm, dtype, std::move(shape), dtype);
}

}  // namespace legoai::graph::testing_programs
