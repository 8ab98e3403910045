#include "core/trace/collective_digest.h"

#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/trace/annotation.h"
#include "core/trace/effects.h"

namespace legoai::graph {
namespace {

constexpr uint64_t kOffset = 14695981039346656037ull, kPrime = 1099511628211ull;

// FNV-1a (Fowler, Noll and Vo 1991).
void Add(const std::string& text, uint64_t* digest) {
  for (const unsigned char byte : text) *digest = (*digest ^ byte) * kPrime;
}

// The tensor as dtype and number of elements: each rank has its own part of what is gathered, at an offset of its own.
std::string Signature(const InstructionView& op, const EffectRow& effect) {
  std::string text = absl::StrCat(op.name(), ";");
  if (const Value* tensor = op.Input(effect.tensor)) {
    const Geometry& geometry = op.GeometryOf(*tensor);
    absl::StrAppend(&text, geometry.dtype, ",", Elements(geometry), ";");
  }
  for (int i = 0; i < op.argument_count(); ++i) {
    const auto number = op.Constant<int64_t>(i);  // reduction, root
    if (number && i != effect.group) absl::StrAppend(&text, i, "=", *number, ";");
  }
  return text;
}

}  // namespace

std::vector<uint64_t> CollectiveDigests(const Trace& trace) {
  std::vector<std::array<uint64_t, comm::kStreamCount>> by_stream(trace.groups.size());
  for (auto& digests : by_stream) digests.fill(kOffset);
  for (const Instruction& instruction : trace.instructions) {
    if (instruction.kind != Instruction::Kind::kOperator) continue;
    const InstructionView op(trace, instruction);
    const EffectRow* effect = FindEffect(op.name());
    if (effect == nullptr || !effect->IsCommunication() || effect->IsMessage()) continue;
    const auto group = op.Constant<int64_t>(effect->group);
    if (group) Add(Signature(op, *effect), &by_stream.at(static_cast<size_t>(*group)).at(instruction.stream));
  }
  std::vector<uint64_t> digests;
  for (const auto& streams : by_stream) {
    digests.push_back(kOffset);
    for (const uint64_t stream : streams) Add(absl::StrCat(stream, ";"), &digests.back());
  }
  return digests;
}

}  // namespace legoai::graph
