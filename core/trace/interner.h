// Deduplicates geometries, values, constants and module paths of a Trace under construction: equal ones share an index.
//
// Keys are exact: a constant's key is its type and its bits, so 2, 2.0 and true differ, as do 0.0 and -0.0. Not thread-safe. The
// Trace is not owned, and only the interner may write these columns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "core/trace/trace.h"

namespace legoai::graph {

struct GeometryView {
  v1::DType dtype = v1::FLOAT32;
  int64_t offset = 0;  // elements
  absl::Span<const int64_t> sizes, strides;
};

class Interner {
 public:
  explicit Interner(Trace* trace);

  uint32_t Geometry(const GeometryView& geometry);
  uint32_t Value(uint32_t storage, uint32_t geometry);
  // As Value(storage, Geometry(geometry)), but looks at the storage's newest value first: most often it is that.
  uint32_t Value(uint32_t storage, const GeometryView& geometry);
  uint32_t Constant(const graph::Constant& constant);
  uint32_t Module(const std::string& path);

 private:
  struct GeometryHash {
    using is_transparent = void;
    const Trace* trace;
    size_t operator()(const GeometryView& geometry) const;
    size_t operator()(uint32_t index) const;
  };
  struct GeometryEqual {
    using is_transparent = void;
    const Trace* trace;
    GeometryView View(uint32_t index) const;
    bool operator()(uint32_t a, uint32_t b) const { return a == b; }
    bool operator()(uint32_t a, const GeometryView& b) const;
    bool operator()(const GeometryView& a, uint32_t b) const { return (*this)(b, a); }
  };

  Trace* trace_;
  absl::flat_hash_set<uint32_t, GeometryHash, GeometryEqual> geometries_;
  // A storage has few geometries: its values are a chain, the newest first.
  std::vector<uint32_t> last_value_;      // by storage
  std::vector<uint32_t> previous_value_;  // by value: of the same storage
  absl::flat_hash_map<std::string, uint32_t> constants_, modules_;
  std::string key_;  // of the last constant: its memory is used again
  uint32_t none_;    // the constant without a value, which operators are given most; UINT32_MAX before there is one
  uint32_t last_module_ = 0;
};

}  // namespace legoai::graph
