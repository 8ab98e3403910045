#include "core/trace/passes/pipeline.h"

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/recipe/fsdp_buckets.h"
#include "core/trace/device_results.h"
#include "core/trace/effects.h"
#include "core/trace/instances.h"
#include "core/trace/passes/pass_check.h"
#include "core/trace/passes/passes.h"
#include "core/trace/passes/trace_dump.h"
#include "core/trace/trace_text.h"
#include "proto/status.h"

namespace legoai::graph {
namespace {

using Clock = std::chrono::steady_clock;

struct Pass {
  std::string name;
  std::function<absl::StatusOr<Trace>(Trace)> run;
};

std::vector<Pass> PassesOf(const parallel::ResolvedRecipe& resolved) {
  std::vector<Pass> passes;
  const v1::Recipe& recipe = resolved.recipe();
  if (recipe.parallelism().enable_async_tensor_parallel() && resolved.mesh().tp > 1)
    passes.push_back({"async_tensor_parallel", AsyncTensorParallel});
  if (parallel::PassesJoinCollectives(recipe)) {
    passes.push_back({"gather_at_use", GatherAtUse});
    if (recipe.compile().fsdp_bucketing() == v1::BUCKET_BY_MODULES) {
      const int64_t layers = resolved.model().num_hidden_layers();
      passes.push_back({"bucket_collectives", [forward = parallel::FsdpBuckets(recipe, layers),
                                               backward = parallel::FsdpBackwardBuckets(recipe, layers)](Trace trace) {
                          return BucketCollectives(std::move(trace), forward, backward);
                        }});
    }
    if (recipe.compile().fsdp_reorder()) passes.push_back({"reorder_collectives", ReorderCollectives});
  }
  if (recipe.compile().fuse()) passes.push_back({"fuse", FuseElementwise});  // last: others look for operators one by one
  return passes;
}

// The Trace after the pass `name`, or before the first.
absl::Status Show(const Trace& trace, const PassOptions& options, size_t number, const std::string& name) {
  if (options.observer) {
    RETURN_IF_ERROR(options.observer(name, trace));
  }
  const std::string& directory = options.dump_directory;
  if (directory.empty()) return absl::OkStatus();
  std::error_code error;
  std::filesystem::create_directories(directory, error);  // what fails is said where the file is opened
  ASSIGN_OR_RETURN(auto file, TraceFile::Create("--dump-passes", absl::StrCat(directory, "/", number, "_", name, ".txt")));
  file->Append(DumpText(trace));
  return file->Close();
}

absl::Status Verdict(const std::string& pass, const std::vector<std::string>& findings) {
  if (findings.empty()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("pass ", pass, ": ", absl::StrJoin(findings, "\n")));
}

absl::StatusOr<Trace> RunPass(const Pass& pass, Trace trace, const PassOptions& options, PassReport* report) {
  const Trace before = options.check ? trace : Trace();
  report->name = pass.name;
  report->before = StatisticsOf(trace);
  const auto start = Clock::now();
  auto after = pass.run(std::move(trace));
  if (!after.ok()) return absl::Status(after.status().code(), absl::StrCat("pass ", pass.name, ": ", after.status().message()));
  report->seconds = std::chrono::duration<double>(Clock::now() - start).count();
  report->after = StatisticsOf(*after);
  if (options.check) {
    RETURN_IF_ERROR(Verdict(pass.name, TraceFindings(*after)));
    RETURN_IF_ERROR(Verdict(pass.name, PassFindings(before, *after)));
  }
  return after;
}

}  // namespace

TraceStatistics StatisticsOf(const Trace& trace) {
  TraceStatistics statistics;
  std::vector<char> made(trace.storages.size());
  for (const Instruction& instruction : trace.instructions) {
    if (instruction.kind != Instruction::Kind::kOperator) continue;
    ++statistics.operators;
    const InstructionView op(trace, instruction);
    op.ForEachResult([&](int, uint32_t value) { made[trace.values[value].storage] = true; });
    const EffectRow* const row = FindEffect(op.name());
    if (row == nullptr || !row->IsCommunication() || op.Input(row->tensor) == nullptr) continue;
    ++statistics.collectives;
    const Geometry& tensor = op.GeometryOf(*op.Input(row->tensor));
    statistics.collective_bytes += Elements(tensor) * ElementBytes(tensor.dtype);
  }
  for (size_t i = 0; i < made.size(); ++i) {
    if (!made[i] || trace.storages[i].kind != StorageKind::kInner) continue;
    ++statistics.storages;
    statistics.storage_bytes += trace.storages[i].bytes;
  }
  return statistics;
}

bool HasPasses(const parallel::ResolvedRecipe& resolved) { return !PassesOf(resolved).empty(); }

absl::StatusOr<Trace> RunPasses(Trace trace, const parallel::ResolvedRecipe& resolved, const PassOptions& options,
                                std::vector<PassReport>* reports) {
  RETURN_IF_ERROR(parallel::CheckBucketsArePlanned(resolved.recipe()));
  const std::vector<Pass> passes = PassesOf(resolved);
  trace = ProgramFor(options.device, std::move(trace));
  RETURN_IF_ERROR(Show(trace, options, 0, kCapturedPass));
  if (passes.empty()) return trace;
  if (options.check) RETURN_IF_ERROR(Verdict(kCapturedPass, TraceFindings(trace)));
  for (size_t i = 0; i < passes.size(); ++i) {
    PassReport report;
    ASSIGN_OR_RETURN(trace, RunPass(passes[i], std::move(trace), options, &report));
    if (reports != nullptr) reports->push_back(std::move(report));
    RETURN_IF_ERROR(Show(trace, options, i + 1, passes[i].name));
  }
  return Flatten(trace, WholeOf(trace));  // without what is no longer used, numbered as a recorder would
}

}  // namespace legoai::graph
