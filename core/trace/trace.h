// The Trace: one training step as a program.
//
// Columns of plain data without torch. A value is (storage, geometry), never a tensor's identity, so aliasing needs no special
// rules; what an operator writes follows from its schema, per storage. The recorder (recorder.h) makes a Trace, the executor
// (executor.h) runs it on real tensors, simulator/ times it and replays its storages.
//
// Ownership: a plain value type; copying copies everything. Thread-safety: const access from several threads is safe.
// Units: bytes, and elements where a name says so.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "core/mesh/mesh.h"
#include "proto/legoai/v1/dtype.pb.h"

namespace legoai::graph {

// What a storage holds: the fields of legoai.v1.MemoryByCategory.
enum class Category : uint8_t {
  kOther,
  kShardedParameter,
  kUnshardedParameter,
  kBuffer,
  kShardedGradient,
  kUnshardedGradient,
  kActivation,
  kActivationGradient,
  kOptimizerState,
  kInput,
  kAllGatherBuffer,
  kReduceScatterBuffer,
};

enum class Phase : uint8_t { kInit, kForward, kBackward, kRecompute, kOptimizer };
const char* PhaseName(Phase phase);

struct Geometry {
  v1::DType dtype = v1::FLOAT32;
  int64_t offset = 0;  // elements
  std::vector<int64_t> sizes, strides;
  bool operator==(const Geometry&) const = default;
};

struct Value {
  uint32_t storage = 0, geometry = 0;
};

enum class StorageKind : uint8_t {
  kInner,     // created inside the step
  kExternal,  // named, bound at execution: parameters, optimizer state, batch, learning rate
  kConstant,  // contents kept in the Trace
};

struct Storage {
  int64_t bytes = 0;  // at first sight
  StorageKind kind = StorageKind::kInner;
  Category category = Category::kOther;
  std::string name;      // of external storages
  std::string contents;  // of constants
};

// An argument that is not a tensor. Types are distinguished: the integer 2 and the double 2.0 differ.
struct DeviceConstant {  // the device is bound at execution
  bool operator==(const DeviceConstant&) const = default;
};
using Constant = std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                              std::vector<bool>, DeviceConstant>;

struct Argument {
  enum class Kind : uint8_t {
    kConstant,       // index into constants
    kValue,          // index into values
    kUndefined,      // an undefined tensor
    kList,           // index into lists: values, -1 for undefined
    kOptionalList,   // the same, -2 for None
    kWrappedNumber,  // index into constants: a scalar wrapped as a tensor
  };
  Kind kind = Kind::kConstant;
  uint32_t index = 0;
};

struct Operator {
  std::string name;     // "aten::add.Tensor": schema name and overload
  uint64_t writes = 0;  // bit i: argument i is written in place
};

struct Instruction {
  enum class Kind : uint8_t {
    kOperator,
    kFree,    // storage `immediate` is freed here
    kResize,  // an operator grew storage `operator_index` to `immediate` bytes (out=, resize_)
  };
  Kind kind = Kind::kOperator;
  Phase phase = Phase::kInit;
  uint16_t stream = 0;  // core/trace/annotation.h
  uint16_t argument_count = 0, result_count = 0;
  uint32_t operator_index = 0, first_argument = 0, first_result = 0;
  uint32_t module = 0;      // index into modules; 0 is the root
  int32_t action = -1;      // index of the pipeline action; -1 outside
  int32_t microbatch = -1;  // -1 outside
  int64_t immediate = 0;
};

struct Trace {
  std::vector<Operator> operators;
  std::vector<Geometry> geometries;
  std::vector<Value> values;
  std::vector<Storage> storages;
  std::vector<Constant> constants;
  std::vector<std::vector<int64_t>> lists;
  std::vector<Argument> arguments, results;
  std::vector<std::string> modules{""};  // full module paths, "" is the root
  std::vector<Instruction> instructions;
  std::vector<mesh::Group> groups;
  std::map<std::string, uint32_t> inputs, outputs;  // name -> value
  std::vector<std::string> warnings;                // unbound tensors, host values, storages that outlive the step

  const std::string& OperatorName(const Instruction& instruction) const { return operators[instruction.operator_index].name; }
  // One readable line. Without ids: a signature that can be compared between diverging Traces.
  std::string Line(const Instruction& instruction, bool with_ids) const;
  std::string Dump(bool with_ids) const;
  int64_t OperatorCount() const;
  int64_t ResidentBytes() const;  // memory that this Trace takes
};

// Bytes of one element.
int64_t ElementBytes(v1::DType dtype);
// Bytes spanned by a geometry from the start of its storage; 0 if it has no elements.
int64_t ExtentBytes(const Geometry& geometry);
// Elements of a geometry.
int64_t Elements(const Geometry& geometry);

}  // namespace legoai::graph
