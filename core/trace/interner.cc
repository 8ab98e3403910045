#include "core/trace/interner.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/hash/hash.h"

namespace legoai::graph {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

// The bits of a constant behind its type's number.
struct KeyWriter {
  std::string* out;
  void operator()(std::monostate) const {}
  void operator()(DeviceConstant) const {}
  void operator()(bool value) const { out->push_back(value ? 1 : 0); }
  void operator()(int64_t value) const { Bits(value); }
  void operator()(double value) const { Bits(value); }
  void operator()(const std::string& value) const { out->append(value); }
  template <class T>
  void operator()(const std::vector<T>& values) const {
    for (T value : values) (*this)(value);
  }
  template <class T>
  void Bits(T value) const {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    out->append(bytes, sizeof(T));
  }
};

}  // namespace

size_t Interner::GeometryHash::operator()(const GeometryView& geometry) const {
  return absl::HashOf(static_cast<int>(geometry.dtype), geometry.offset, geometry.sizes, geometry.strides);
}
size_t Interner::GeometryHash::operator()(uint32_t index) const { return (*this)(GeometryEqual{trace}.View(index)); }

GeometryView Interner::GeometryEqual::View(uint32_t index) const {
  const auto& geometry = trace->geometries[index];
  return {geometry.dtype, geometry.offset, geometry.sizes, geometry.strides};
}
bool Interner::GeometryEqual::operator()(uint32_t a, const GeometryView& b) const {
  const GeometryView view = View(a);
  return view.dtype == b.dtype && view.offset == b.offset && view.sizes == b.sizes && view.strides == b.strides;
}

Interner::Interner(Trace* trace)
    : trace_(trace), geometries_(0, GeometryHash{trace}, GeometryEqual{trace}), modules_{{trace->modules[0], 0}}, none_(kNone) {}

uint32_t Interner::Geometry(const GeometryView& geometry) {
  auto found = geometries_.find(geometry);
  if (found != geometries_.end()) return *found;
  trace_->geometries.push_back({geometry.dtype,
                                geometry.offset,
                                {geometry.sizes.begin(), geometry.sizes.end()},
                                {geometry.strides.begin(), geometry.strides.end()}});
  const uint32_t index = trace_->geometries.size() - 1;
  geometries_.insert(index);
  return index;
}

uint32_t Interner::Value(uint32_t storage, uint32_t geometry) {
  if (storage >= last_value_.size()) last_value_.resize(std::max<size_t>(storage + 1, trace_->storages.size()), kNone);
  for (uint32_t value = last_value_[storage]; value != kNone; value = previous_value_[value]) {
    if (trace_->values[value].geometry == geometry) return value;
  }
  trace_->values.push_back({storage, geometry});
  previous_value_.push_back(last_value_[storage]);
  return last_value_[storage] = trace_->values.size() - 1;
}

uint32_t Interner::Value(uint32_t storage, const GeometryView& geometry) {
  const uint32_t newest = storage < last_value_.size() ? last_value_[storage] : kNone;
  if (newest != kNone && GeometryEqual{trace_}(trace_->values[newest].geometry, geometry)) return newest;
  return Value(storage, Geometry(geometry));
}

uint32_t Interner::Constant(const graph::Constant& constant) {
  const bool is_none = std::holds_alternative<std::monostate>(constant);
  if (is_none && none_ != kNone) return none_;
  key_.assign(1, static_cast<char>(constant.index()));
  std::visit(KeyWriter{&key_}, constant);
  const auto [it, fresh] = constants_.try_emplace(key_, static_cast<uint32_t>(trace_->constants.size()));
  if (fresh) trace_->constants.push_back(constant);
  if (is_none) none_ = it->second;
  return it->second;
}

uint32_t Interner::Module(const std::string& path) {
  if (trace_->modules[last_module_] == path) return last_module_;
  const auto [it, fresh] = modules_.try_emplace(path, static_cast<uint32_t>(trace_->modules.size()));
  if (fresh) trace_->modules.push_back(path);
  return last_module_ = it->second;
}

}  // namespace legoai::graph
