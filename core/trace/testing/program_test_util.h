// A terse TraceBuilder for tests of orders and lifetimes: every value is a one-dimensional fp32 tensor that spans its storage.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/trace/testing/trace_builder.h"

namespace legoai::graph {

class Program {
 public:
  using Tensor = TraceBuilder::Tensor;

  Tensor Inner(int64_t bytes) { return builder_.New(v1::FLOAT32, {bytes / 4}); }
  Tensor External(const std::string& name, int64_t bytes) {
    const uint32_t storage = builder_.AddStorage(bytes, StorageKind::kExternal, Category::kOther, name);
    return builder_.View(storage, v1::FLOAT32, {bytes / 4}, {1});
  }
  // Elements [first, first + count) of a tensor.
  Tensor Part(Tensor of, int64_t first, int64_t count) {
    return builder_.View(builder_.StorageOf(of), v1::FLOAT32, {count}, {1}, first);
  }
  // `written`: how many of the arguments, from the first, are written in place.
  Program& Op(const std::string& name, const std::vector<Tensor>& arguments, const std::vector<Tensor>& results, int written = 0,
              uint16_t stream = 0) {
    builder_.Op(name, {arguments.begin(), arguments.end()}, results, (uint64_t{1} << written) - 1).stream = stream;
    return *this;
  }
  Program& Record(int64_t stream, int64_t event) {
    builder_.RecordEvent(stream, event);
    return *this;
  }
  Program& Wait(int64_t stream, int64_t event) {
    builder_.WaitEvent(stream, event);
    return *this;
  }
  Program& ResizeStorage(Tensor tensor, int64_t bytes) {
    builder_.Op("lego::resize_storage_", {tensor, bytes}, {}, 1);
    return *this;
  }
  Program& Free(Tensor tensor) {
    builder_.Free(builder_.StorageOf(tensor));
    return *this;
  }
  const Trace& trace() const { return builder_.trace(); }

 private:
  TraceBuilder builder_;
};

}  // namespace legoai::graph
