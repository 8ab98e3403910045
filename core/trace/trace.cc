#include "core/trace/trace.h"

#include "absl/strings/str_cat.h"
#include "core/trace/argument_text.h"

namespace legoai::graph {
namespace {

class LineWriter {
 public:
  LineWriter(const Trace& trace, bool with_ids) : trace_(trace), with_ids_(with_ids) {}

  void Value(int64_t id) {
    if (id == -1) return Append("undef");
    if (id == -2) return Append("None");
    const auto& value = trace_.values[id];
    const auto& storage = trace_.storages[value.storage];
    if (with_ids_) Append("v", id, "=s", value.storage, ":");
    if (storage.kind != StorageKind::kInner) Append("@", storage.name, " ");
    Append(TextOf(trace_.geometries[value.geometry]), "/", storage.bytes);
  }
  void Write(const Argument& argument) {
    switch (argument.kind) {
      case Argument::Kind::kConstant: return Append(TextOf(trace_.constants[argument.index]));
      case Argument::Kind::kWrappedNumber:
        return Append("number(", TextOf(trace_.constants[argument.index]), ")");
      case Argument::Kind::kValue: return Value(argument.index);
      case Argument::Kind::kUndefined: return Append("undef");
      case Argument::Kind::kList:
      case Argument::Kind::kOptionalList: break;
    }
    Append("(");
    const auto& list = trace_.lists[argument.index];
    for (size_t i = 0; i < list.size(); ++i) {
      if (i) Append(" ");
      Value(list[i]);
    }
    Append(")");
  }
  void Write(const std::vector<Argument>& column, uint32_t first, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      if (i) Append(", ");
      Write(column[first + i]);
    }
  }
  template <class... T>
  void Append(const T&... parts) {
    absl::StrAppend(&text_, parts...);
  }
  std::string Take() { return std::move(text_); }

 private:
  const Trace& trace_;
  bool with_ids_;
  std::string text_;
};

}  // namespace

const char* PhaseName(Phase phase) {
  static const char* const kNames[] = {"init", "forward", "backward", "recompute", "optimizer"};
  return kNames[static_cast<int>(phase)];
}

std::string Trace::Line(const Instruction& instruction, bool with_ids) const {
  LineWriter out(*this, with_ids);
  out.Append(PhaseName(instruction.phase), " q", instruction.stream, " ");
  if (instruction.action >= 0) out.Append("a", instruction.action, " ");
  switch (instruction.kind) {
    case Instruction::Kind::kFree:
      out.Append("free ");
      if (with_ids) out.Append("s", instruction.immediate, " ");
      out.Append(storages[instruction.immediate].bytes);
      return out.Take();
    case Instruction::Kind::kResize:
      out.Append("resize ");
      if (with_ids) out.Append("s", instruction.operator_index, " ");
      out.Append(instruction.immediate);
      return out.Take();
    case Instruction::Kind::kOperator: break;
  }
  out.Append(OperatorName(instruction), "(");
  out.Write(arguments, instruction.first_argument, instruction.argument_count);
  out.Append(") -> ");
  out.Write(results, instruction.first_result, instruction.result_count);
  return out.Take();
}

std::string Trace::Dump(bool with_ids) const {
  std::string text;
  for (const auto& instruction : instructions) absl::StrAppend(&text, Line(instruction, with_ids), "\n");
  return text;
}

int64_t Trace::OperatorCount() const {
  int64_t count = 0;
  for (const auto& instruction : instructions) count += instruction.kind == Instruction::Kind::kOperator;
  return count;
}

int64_t Trace::ResidentBytes() const {
  auto column = [](const auto& values) { return static_cast<int64_t>(values.capacity() * sizeof(values[0])); };
  int64_t bytes = column(operators) + column(geometries) + column(values) + column(storages) + column(constants) + column(lists) +
                  column(arguments) + column(results) + column(instructions);
  for (const auto& geometry : geometries) bytes += column(geometry.sizes) + column(geometry.strides);
  for (const auto& list : lists) bytes += column(list);
  for (const auto& storage : storages) bytes += storage.contents.capacity();
  return bytes;
}

int64_t ElementBytes(v1::DType dtype) {
  switch (dtype) {
    case v1::FLOAT64:
    case v1::INT64: return 8;
    case v1::FLOAT32:
    case v1::INT32: return 4;
    case v1::BFLOAT16:
    case v1::FLOAT16:
    case v1::INT16: return 2;
    default: return 1;
  }
}

int64_t Elements(const Geometry& geometry) {
  int64_t count = 1;
  for (int64_t size : geometry.sizes) count *= size;
  return count;
}

int64_t ExtentBytes(const Geometry& geometry) {
  int64_t last = geometry.offset;
  for (size_t i = 0; i < geometry.sizes.size(); ++i) {
    if (geometry.sizes[i] == 0) return 0;
    last += (geometry.sizes[i] - 1) * geometry.strides[i];
  }
  return (last + 1) * ElementBytes(geometry.dtype);
}

}  // namespace legoai::graph
