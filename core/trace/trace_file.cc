#include "core/trace/trace_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "core/trace/annotation.h"
#include "core/trace/effects.h"

namespace legoai::graph {
namespace {

constexpr int64_t kMostRanks = int64_t{1} << 30;
constexpr uint32_t kKindShift = 28, kIndexMask = (1u << kKindShift) - 1;

struct ConstantWriter {
  v1::TraceConstant* out;
  void operator()(std::monostate) const { out->set_none(true); }
  void operator()(bool value) const { out->set_boolean(value); }
  void operator()(int64_t value) const { out->set_integer(value); }
  void operator()(double value) const { out->set_real(value); }
  void operator()(const std::string& value) const { out->set_text(value); }
  void operator()(DeviceConstant) const { out->set_device(0); }
  void operator()(const std::vector<int64_t>& values) const { Fill(out->mutable_integers()->mutable_values(), values); }
  void operator()(const std::vector<double>& values) const { Fill(out->mutable_reals()->mutable_values(), values); }
  void operator()(const std::vector<bool>& values) const { Fill(out->mutable_booleans()->mutable_values(), values); }

 private:
  template <class Field, class Values>
  static void Fill(Field* field, const Values& values) {
    for (auto value : values) field->Add(value);
  }
};

Constant FromProto(const v1::TraceConstant& proto) {
  switch (proto.value_case()) {
    case v1::TraceConstant::kBoolean: return proto.boolean();
    case v1::TraceConstant::kInteger: return proto.integer();
    case v1::TraceConstant::kReal: return proto.real();
    case v1::TraceConstant::kText: return proto.text();
    case v1::TraceConstant::kIntegers:
      return std::vector<int64_t>(proto.integers().values().begin(), proto.integers().values().end());
    case v1::TraceConstant::kReals: return std::vector<double>(proto.reals().values().begin(), proto.reals().values().end());
    case v1::TraceConstant::kBooleans:
      return std::vector<bool>(proto.booleans().values().begin(), proto.booleans().values().end());
    case v1::TraceConstant::kDevice: return DeviceConstant();
    case v1::TraceConstant::kNone:
    case v1::TraceConstant::VALUE_NOT_SET: break;
  }
  return std::monostate();
}

uint32_t Pack(const Argument& argument) { return static_cast<uint32_t>(argument.kind) << kKindShift | argument.index; }
Argument Unpack(uint32_t packed) { return {static_cast<Argument::Kind>(packed >> kKindShift), packed & kIndexMask}; }

void WriteTables(const Trace& trace, v1::Trace* out) {
  for (const auto& op : trace.operators) {
    out->add_operators(op.name);
    out->add_operator_writes(op.writes);
  }
  for (const auto& geometry : trace.geometries) {
    auto* to = out->add_geometries();
    to->set_dtype(geometry.dtype);
    to->set_offset(geometry.offset);
    for (int64_t size : geometry.sizes) to->add_sizes(size);
    for (int64_t stride : geometry.strides) to->add_strides(stride);
  }
  for (const auto& value : trace.values) {
    out->add_value_storages(value.storage);
    out->add_value_geometries(value.geometry);
  }
  for (const auto& storage : trace.storages) {
    auto* to = out->add_storages();
    to->set_bytes(storage.bytes);
    to->set_kind(static_cast<int32_t>(storage.kind));
    to->set_name(storage.name);
    to->set_constant(storage.contents);
    to->set_category(static_cast<int32_t>(storage.category));
  }
  for (const auto& constant : trace.constants) std::visit(ConstantWriter{out->add_constants()}, constant);
  for (const auto& list : trace.lists) {
    for (int64_t value : list) out->add_list_values(value);
    out->add_list_ends(out->list_values_size());
  }
  for (const auto& module : trace.modules) out->add_modules(module);
}

// Arguments and results are written instruction by instruction, so that counts are enough to find them.
void WriteInstruction(const Trace& trace, const Instruction& instruction, v1::Trace* out) {
  for (uint32_t i = 0; i < instruction.argument_count; ++i) {
    out->add_arguments(Pack(trace.arguments[instruction.first_argument + i]));
  }
  for (uint32_t i = 0; i < instruction.result_count; ++i) {
    out->add_results(Pack(trace.results[instruction.first_result + i]));
  }
  out->add_instruction_kinds(static_cast<uint32_t>(instruction.kind));
  out->add_instruction_operators(instruction.operator_index);
  out->add_instruction_argument_counts(instruction.argument_count);
  out->add_instruction_result_counts(instruction.result_count);
  out->add_instruction_streams(instruction.stream);
  out->add_instruction_phases(static_cast<uint32_t>(instruction.phase));
  out->add_instruction_modules(instruction.module);
  out->add_instruction_actions(instruction.action);
  out->add_instruction_microbatches(instruction.microbatch);
  out->add_instruction_immediates(instruction.immediate);
}

// Fills a Trace from a message, refusing what points outside a column.
class Reader {
 public:
  explicit Reader(const v1::Trace& proto) : proto_(proto) {}

  absl::StatusOr<Trace> Read() {
    if (proto_.version() != kTraceVersion) {
      return absl::InvalidArgumentError(absl::StrCat("trace of version ", proto_.version(), "; this build reads version ",
                                                     kTraceVersion, ": capture it again with this build"));
    }
    Tables();
    Lists();
    Bindings();
    Instructions();
    if (broken_ != nullptr) return absl::InvalidArgumentError(absl::StrCat("not a well-formed trace: ", broken_));
    return std::move(trace_);
  }

 private:
  void Require(bool condition, const char* what) {
    if (!condition && broken_ == nullptr) broken_ = what;
  }

  void Tables() {
    Require(proto_.operators_size() == proto_.operator_writes_size(), "operators and their writes differ in number");
    Require(proto_.value_storages_size() == proto_.value_geometries_size(), "columns of values differ in length");
    Require(proto_.modules_size() > 0, "no root module");
    if (broken_ != nullptr) return;
    for (int i = 0; i < proto_.operators_size(); ++i)
      trace_.operators.push_back({proto_.operators(i), proto_.operator_writes(i)});
    for (const auto& geometry : proto_.geometries()) {
      Require(geometry.sizes_size() == geometry.strides_size(), "a geometry with unequal sizes and strides");
      Require(v1::DType_IsValid(geometry.dtype()), "a geometry of unknown dtype");
      trace_.geometries.push_back({static_cast<v1::DType>(geometry.dtype()),
                                   geometry.offset(),
                                   {geometry.sizes().begin(), geometry.sizes().end()},
                                   {geometry.strides().begin(), geometry.strides().end()}});
    }
    for (int i = 0; i < proto_.value_storages_size(); ++i) {
      Require(proto_.value_storages(i) < static_cast<uint32_t>(proto_.storages_size()), "a value of an unknown storage");
      Require(proto_.value_geometries(i) < trace_.geometries.size(), "a value of an unknown geometry");
      trace_.values.push_back({proto_.value_storages(i), proto_.value_geometries(i)});
    }
    for (const auto& storage : proto_.storages()) {
      Require(storage.kind() >= 0 && storage.kind() <= static_cast<int>(StorageKind::kConstant), "a storage of unknown kind");
      Require(storage.category() >= 0 && storage.category() <= static_cast<int>(Category::kReduceScatterBuffer),
              "a storage of unknown category");
      trace_.storages.push_back({storage.bytes(), static_cast<StorageKind>(storage.kind()),
                                 static_cast<Category>(storage.category()), storage.name(), storage.constant()});
    }
    for (const auto& constant : proto_.constants()) trace_.constants.push_back(FromProto(constant));
    trace_.modules.assign(proto_.modules().begin(), proto_.modules().end());
    for (const auto& group : proto_.groups()) {
      mesh::Group read{mesh::Dim::kWorld, {group.first(), group.stride(), group.size()}};
      Require(mesh::DimFromName(group.name(), &read.dim), "a group of unknown name");
      Require(group.first() >= 0 && group.stride() >= 1 && group.size() >= 1 && group.size() <= kMostRanks &&
                  group.first() <= kMostRanks && group.stride() <= kMostRanks,
              "a group without ranks, or beyond all clusters");
      trace_.groups.push_back(read);
    }
    trace_.warnings.assign(proto_.warnings().begin(), proto_.warnings().end());
  }

  void Lists() {
    uint32_t begin = 0;
    for (uint32_t end : proto_.list_ends()) {
      Require(end >= begin && end <= static_cast<uint32_t>(proto_.list_values_size()), "a list that ends outside");
      if (broken_ != nullptr) return;
      trace_.lists.emplace_back(proto_.list_values().begin() + begin, proto_.list_values().begin() + end);
      begin = end;
    }
    for (int64_t value : proto_.list_values()) {
      Require(value >= -2 && value < static_cast<int64_t>(trace_.values.size()), "a list with an unknown value");
    }
  }

  void Bindings() {
    for (const auto* bindings : {&proto_.inputs(), &proto_.outputs()}) {
      auto& to = bindings == &proto_.inputs() ? trace_.inputs : trace_.outputs;
      for (const auto& binding : *bindings) {
        Require(binding.value() < trace_.values.size(), "a binding of an unknown value");
        to[binding.name()] = binding.value();
      }
    }
  }

  void CheckArgument(const Argument& argument) {
    switch (argument.kind) {
      case Argument::Kind::kConstant:
      case Argument::Kind::kWrappedNumber: return Require(argument.index < trace_.constants.size(), "an unknown constant");
      case Argument::Kind::kValue: return Require(argument.index < trace_.values.size(), "an unknown value");
      case Argument::Kind::kList:
      case Argument::Kind::kOptionalList: return Require(argument.index < trace_.lists.size(), "an unknown list");
      case Argument::Kind::kUndefined: return;
    }
    Require(false, "an argument of unknown kind");
  }

  void Instructions() {
    for (uint32_t packed : proto_.arguments()) CheckArgument(trace_.arguments.emplace_back(Unpack(packed)));
    for (uint32_t packed : proto_.results()) CheckArgument(trace_.results.emplace_back(Unpack(packed)));
    const int count = proto_.instruction_kinds_size();
    for (int length :
         {proto_.instruction_operators_size(), proto_.instruction_argument_counts_size(), proto_.instruction_result_counts_size(),
          proto_.instruction_streams_size(), proto_.instruction_phases_size(), proto_.instruction_modules_size(),
          proto_.instruction_actions_size(), proto_.instruction_microbatches_size(), proto_.instruction_immediates_size()}) {
      Require(length == count, "columns of instructions differ in length");
    }
    if (broken_ != nullptr) return;
    for (int i = 0; i < count; ++i) AddInstruction(i);
    Require(next_argument_ == trace_.arguments.size() && next_result_ == trace_.results.size(), "operands left over");
  }

  void CheckEffect(const Instruction& instruction) {
    const char* const missing = MissingOperand(trace_, instruction);
    Require(missing == nullptr, missing);
  }

  void AddInstruction(int i) {
    Instruction to;
    Require(proto_.instruction_streams(i) < comm::kStreamCount, "an unknown stream");
    Require(proto_.instruction_argument_counts(i) <= UINT16_MAX && proto_.instruction_result_counts(i) <= UINT16_MAX,
            "an instruction with too many operands");
    to.kind = static_cast<Instruction::Kind>(proto_.instruction_kinds(i));
    to.phase = static_cast<Phase>(proto_.instruction_phases(i));
    to.stream = proto_.instruction_streams(i);
    to.argument_count = proto_.instruction_argument_counts(i);
    to.result_count = proto_.instruction_result_counts(i);
    to.operator_index = proto_.instruction_operators(i);
    to.first_argument = next_argument_;
    to.first_result = next_result_;
    to.module = proto_.instruction_modules(i);
    to.action = proto_.instruction_actions(i);
    to.microbatch = proto_.instruction_microbatches(i);
    to.immediate = proto_.instruction_immediates(i);
    next_argument_ += to.argument_count;
    next_result_ += to.result_count;
    Require(next_argument_ <= trace_.arguments.size() && next_result_ <= trace_.results.size(), "operands are missing");
    Require(proto_.instruction_phases(i) <= static_cast<uint32_t>(Phase::kOptimizer), "an unknown phase");
    Require(to.module < trace_.modules.size(), "an unknown module");
    if (broken_ != nullptr) return;
    const auto storages = static_cast<int64_t>(trace_.storages.size());
    switch (to.kind) {
      case Instruction::Kind::kOperator: Require(to.operator_index < trace_.operators.size(), "an unknown operator"); break;
      case Instruction::Kind::kFree: Require(to.immediate >= 0 && to.immediate < storages, "a free of nothing"); break;
      case Instruction::Kind::kResize: Require(to.operator_index < storages, "a resize of nothing"); break;
      default: Require(false, "an instruction of unknown kind");
    }
    if (broken_ == nullptr && to.kind == Instruction::Kind::kOperator) CheckEffect(to);
    trace_.instructions.push_back(to);
  }

  const v1::Trace& proto_;
  Trace trace_;
  size_t next_argument_ = 0, next_result_ = 0;
  const char* broken_ = nullptr;
};

}  // namespace

v1::Trace ToProto(const Trace& trace, const std::string& build_version) {
  v1::Trace out;
  out.set_version(kTraceVersion);
  out.set_build_version(build_version);
  WriteTables(trace, &out);
  for (const auto& instruction : trace.instructions) WriteInstruction(trace, instruction, &out);
  for (const auto* bindings : {&trace.inputs, &trace.outputs}) {
    for (const auto& [name, value] : *bindings) {
      auto* to = bindings == &trace.inputs ? out.add_inputs() : out.add_outputs();
      to->set_name(name);
      to->set_value(value);
    }
  }
  for (const auto& group : trace.groups) {
    auto* to = out.add_groups();
    to->set_name(mesh::NameOf(group.dim));
    to->set_first(group.ranks.first);
    to->set_stride(group.ranks.stride);
    to->set_size(group.ranks.size);
  }
  for (const auto& warning : trace.warnings) out.add_warnings(warning);
  return out;
}

absl::StatusOr<Trace> FromProto(const v1::Trace& proto) { return Reader(proto).Read(); }

absl::Status WriteTrace(const Trace& trace, const std::string& path, const std::string& build_version) {
  const std::string temporary = absl::StrCat(path, ".tmp");
  {
    std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
    if (!file || !ToProto(trace, build_version).SerializeToOstream(&file) || !file.flush()) {
      std::remove(temporary.c_str());
      return absl::UnavailableError(absl::StrCat(path, ": cannot be written: ", std::strerror(errno)));
    }
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    const std::string reason = std::strerror(errno);
    std::remove(temporary.c_str());
    return absl::UnavailableError(absl::StrCat(path, ": cannot be put in place: ", reason));
  }
  return absl::OkStatus();
}

absl::StatusOr<Trace> ReadTrace(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be read: ", std::strerror(errno)));
  v1::Trace proto;
  if (!proto.ParseFromIstream(&file)) return absl::InvalidArgumentError(absl::StrCat(path, ": not a trace file"));
  absl::StatusOr<Trace> trace = FromProto(proto);
  if (!trace.ok()) return absl::Status(trace.status().code(), absl::StrCat(path, ": ", trace.status().message()));
  return trace;
}

}  // namespace legoai::graph
