#include "server/cli/passes_text.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/plan_facts.h"
#include "proto/enum_text.h"
#include "server/cli/output.h"

namespace legoai::cli {

Tree BucketingTree(const std::vector<v1::Estimate>& estimates) {
  Tree list = Tree::array();
  for (const v1::Estimate& estimate : estimates) {
    const v1::CompileSection& compile = estimate.recipe().compile();
    Tree one;
    one["fsdp_bucketing"] = EnumText(compile.fsdp_bucketing());
    one["buckets"] = compile.fsdp_buckets_size();
    if (compile.fsdp_backward_buckets_size() > 0) one["backward_buckets"] = compile.fsdp_backward_buckets_size();
    one["step_time_seconds"] = estimate.step_time_seconds();
    one["exposed_communication_seconds"] = estimate.breakdown().exposed_communication_seconds();
    one["peak_allocated_bytes"] = planner::FullestStage(estimate).peak_allocated_bytes();
    list.push_back(std::move(one));
  }
  return list;
}

std::string BucketingText(const Tree& bucketing) {
  Table table({"<FSDP's collectives", "step time", "exposed communication", "peak memory"});
  for (const Tree& one : bucketing) {
    const std::string kind = one["fsdp_bucketing"].get<std::string>();
    const std::string backward =
        one.contains("backward_buckets") ? absl::StrCat(", ", one["backward_buckets"].get<int64_t>(), " in backward") : "";
    const std::string name = kind == "manual"  ? absl::StrCat("in ", one["buckets"].get<int64_t>(), " planned buckets", backward)
                             : kind == "block" ? "of each layer"
                                               : "of each parameter";
    table.Add({name, SecondsText(one["step_time_seconds"].get<double>()),
               SecondsText(one["exposed_communication_seconds"].get<double>()),
               BytesText(one["peak_allocated_bytes"].get<int64_t>())});
  }
  return table.Text() + "\n";
}

std::string PassesText(const Tree& passes) {
  Table table({"<after pass", "operators", "collectives", "their bytes", "storages", "their bytes", "exposed communication",
               "step time", "peak memory", "took"});
  const auto bytes = [](const Tree& row, const char* key) { return BytesText(row[key].get<int64_t>()); };
  const auto seconds = [](const Tree& row, const char* key) { return SecondsText(row[key].get<double>()); };
  const auto count = [](const Tree& row, const char* key) { return WithCommas(row[key].get<int64_t>()); };
  for (const Tree& row : passes) {
    table.Add({row["pass"].get<std::string>(), count(row, "operators"), count(row, "collectives"), bytes(row, "collective_bytes"),
               count(row, "storages"), bytes(row, "storage_bytes"), seconds(row, "exposed_communication_seconds"),
               seconds(row, "step_time_seconds"), bytes(row, "peak_allocated_bytes"), seconds(row, "pass_seconds")});
  }
  return table.Text() + "\n";
}

}  // namespace legoai::cli
