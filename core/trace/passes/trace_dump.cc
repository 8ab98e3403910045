#include "core/trace/passes/trace_dump.h"

#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/trace/annotation.h"
#include "core/trace/argument_text.h"
#include "core/trace/effects.h"

namespace legoai::graph {
namespace {

class Dump {
 public:
  explicit Dump(const Trace& trace) : trace_(trace), names_(trace.storages.size()) {
    for (size_t i = 0; i < names_.size(); ++i) {
      const Storage& storage = trace.storages[i];
      if (storage.kind == StorageKind::kExternal) names_[i] = absl::StrCat("@", storage.name);
      if (storage.kind == StorageKind::kConstant) names_[i] = "@constant";
    }
  }

  std::string Run() {
    Bindings("input", trace_.inputs);
    for (const Instruction& instruction : trace_.instructions) Line(instruction);
    Bindings("output", trace_.outputs);
    return std::move(text_);
  }

 private:
  void Bindings(const char* what, const std::map<std::string, uint32_t>& bindings) {
    for (const auto& [name, value] : bindings) absl::StrAppend(&text_, what, " ", name, " = ", ValueText(value), "\n");
  }

  // After the operator that makes it: "aten::mm.out" is mm.
  void NameNew(const Instruction& instruction, uint32_t storage) {
    if (!names_[storage].empty()) return;
    std::string op = trace_.OperatorName(instruction);
    op = op.substr(op.find("::") + 2);
    op = op.substr(0, op.find('.'));
    const std::string& module = trace_.modules[instruction.module];
    const std::string base = absl::StrCat("%", PhaseName(instruction.phase), Microbatch(instruction), ".", module,
                                          module.empty() ? "" : ".", op);
    names_[storage] = absl::StrCat(base, ".", ++made_[base]);
  }
  static std::string Microbatch(const Instruction& instruction) {
    return instruction.microbatch < 0 ? "" : absl::StrCat(instruction.microbatch);
  }

  std::string ValueText(int64_t value) const {
    if (value == -1) return "undef";
    if (value == -2) return "None";
    const Value& of = trace_.values[value];
    return absl::StrCat(names_[of.storage], ":", TextOf(trace_.geometries[of.geometry]));
  }
  std::string ArgumentText(const Argument& argument) const {
    switch (argument.kind) {
      case Argument::Kind::kConstant: return TextOf(trace_.constants[argument.index]);
      case Argument::Kind::kWrappedNumber: return absl::StrCat("number(", TextOf(trace_.constants[argument.index]), ")");
      case Argument::Kind::kValue: return ValueText(argument.index);
      case Argument::Kind::kUndefined: return "undef";
      case Argument::Kind::kList:
      case Argument::Kind::kOptionalList: break;
    }
    const auto append = [this](std::string* out, int64_t value) { out->append(ValueText(value)); };
    return absl::StrCat("(", absl::StrJoin(trace_.lists[argument.index], ", ", append), ")");
  }
  std::string ArgumentTexts(const std::vector<Argument>& column, uint32_t first, uint32_t count) const {
    std::vector<std::string> texts;
    for (uint32_t i = 0; i < count; ++i) texts.push_back(ArgumentText(column[first + i]));
    return absl::StrJoin(texts, ", ");
  }

  // Groups are numbered alike in all Traces of a recipe; they stay numbers.
  void Line(const Instruction& instruction) {
    absl::StrAppend(&text_, PhaseName(instruction.phase), Microbatch(instruction), " ", comm::StreamName(instruction.stream),
                    " ");
    switch (instruction.kind) {
      case Instruction::Kind::kFree: absl::StrAppend(&text_, "free ", names_[instruction.immediate], "\n"); return;
      case Instruction::Kind::kResize:
        absl::StrAppend(&text_, "resize ", names_[instruction.operator_index], " to ", instruction.immediate, "\n");
        return;
      case Instruction::Kind::kOperator: break;
    }
    InstructionView(trace_, instruction).ForEachResult([&](int, uint32_t value) {
      NameNew(instruction, trace_.values[value].storage);
    });
    const std::string results = ArgumentTexts(trace_.results, instruction.first_result, instruction.result_count);
    absl::StrAppend(&text_, "[", trace_.modules[instruction.module], "] ", results, results.empty() ? "" : " = ",
                    trace_.OperatorName(instruction), "(",
                    ArgumentTexts(trace_.arguments, instruction.first_argument, instruction.argument_count), ")\n");
  }

  const Trace& trace_;
  std::vector<std::string> names_;    // by storage; empty before it is made
  std::map<std::string, int> made_;  // storages by what their names begin with
  std::string text_;
};

}  // namespace

std::string DumpText(const Trace& trace) { return Dump(trace).Run(); }

}  // namespace legoai::graph
