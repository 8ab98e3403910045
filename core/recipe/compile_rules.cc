#include "core/recipe/compile_rules.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/recipe/fsdp_buckets.h"
#include "proto/enum_text.h"
#include "proto/text.h"

namespace legoai::parallel {
namespace {

using Broken = std::optional<Violation>;

constexpr char kBucketing[] = "compile.fsdp_bucketing";
constexpr char kBuckets[] = "compile.fsdp_buckets", kBackwardBuckets[] = "compile.fsdp_backward_buckets";

Broken Refuse(const std::string& field, const std::string& value, const std::string& remedy) {
  return Violation{"", field, value, remedy};
}

// What passes over one collective of each parameter do not go with.
Broken RefusedBeside(const Candidate& c, const std::string& bucketing) {
  const v1::Parallelism& p = c.recipe.parallelism();
  const auto beside = [&](const char* field, int64_t value, const char* use) {
    return Refuse(field, absl::StrCat(value),
                  absl::StrCat("cannot go with compile.fsdp_bucketing = \"", bucketing, "\": use ", use,
                               ", or fsdp_bucketing = \"block\""));
  };
  if (c.layout.mesh.dp_replicate > 1 && c.layout.mesh.dp_shard * c.layout.mesh.cp == 1)
    return beside("parallelism.data_parallel_replicate_degree", c.layout.mesh.dp_replicate,
                  "data_parallel_shard_degree above 1, which leaves something to gather");
  if (const int64_t size = p.fsdp_reshard_after_forward_size(); size > 0)
    return beside("parallelism.fsdp_reshard_after_forward_size", size, "0");
  // Passes gather one bucket ahead, or none.
  if (p.fsdp_prefetch_depth() != 1) return beside("parallelism.fsdp_prefetch_depth", p.fsdp_prefetch_depth(), "1");
  return {};
}

// One name or a part of the other's path.
bool Overlap(const std::string& a, const std::string& b) {
  return a == b || absl::StartsWith(a, absl::StrCat(b, ".")) || absl::StartsWith(b, absl::StrCat(a, "."));
}

Broken NameModules(const char* field, const std::vector<FsdpBucket>& buckets, const v1::Model& model) {
  if (buckets.empty()) return {};
  const std::vector<std::string> known = BucketableModules(model);
  std::vector<std::string> seen;
  for (const FsdpBucket& bucket : buckets) {
    if (bucket.empty()) return Refuse(field, "[]", "has a bucket without modules: leave it out");
    for (const std::string& name : bucket) {
      if (std::find(known.begin(), known.end(), name) == known.end()) {
        return Refuse(field, name, absl::StrCat("is no module of the model; the nearest is ", Nearest(name, known)));
      }
      const auto other = std::find_if(seen.begin(), seen.end(), [&](const std::string& of) { return Overlap(of, name); });
      if (other == seen.end()) {
        seen.push_back(name);
      } else if (*other == name) {
        return Refuse(field, name, "is listed twice: a parameter has one bucket");
      } else {
        return Refuse(field, name, absl::StrCat("shares parameters with ", *other, ": a parameter has one bucket"));
      }
    }
  }
  return {};
}

}  // namespace

Broken FsdpBucketingHasAProgram(const Candidate& c) {
  const v1::CompileSection& compile = c.recipe.compile();
  const std::string bucketing = EnumText(compile.fsdp_bucketing());
  if (compile.fsdp_bucketing() == v1::BUCKET_BY_BLOCK) {
    if (compile.fsdp_reorder()) return {};
    return Refuse("compile.fsdp_reorder", "false",
                  "needs compile.fsdp_bucketing = \"none\" or \"manual\": of blocks, parallelism.fsdp_prefetch_depth says how "
                  "far ahead they are gathered");
  }
  if (!compile.enable()) return Refuse(kBucketing, bucketing, "needs compile.enable = true: a pass joins the collectives");
  if (compile.fsdp_bucketing() == v1::BUCKET_BY_MODULES && compile.fsdp_buckets().empty())
    return Refuse(kBuckets, "",
                  "must list modules for compile.fsdp_bucketing = \"manual\": [[\"layers.*\"]] makes each layer a bucket");
  return RefusedBeside(c, bucketing);
}

Broken FsdpBucketsNameModules(const Candidate& c) {
  const int64_t layers = c.model.num_hidden_layers();
  if (const Broken broken = NameModules(kBuckets, FsdpBuckets(c.recipe, layers), c.model)) return broken;
  if (c.recipe.compile().fsdp_backward_buckets().empty()) return {};
  return NameModules(kBackwardBuckets, FsdpBackwardBuckets(c.recipe, layers), c.model);
}

Broken AsyncTensorParallelHasAProgram(const Candidate& c) {
  const v1::Parallelism& p = c.recipe.parallelism();
  if (!p.enable_async_tensor_parallel()) return {};
  if (!c.recipe.compile().enable())
    return Refuse("parallelism.enable_async_tensor_parallel", "true",
                  "needs compile.enable = true: a pass over the captured step cuts products and collectives");
  if (!p.sequence_parallel())
    return Refuse("parallelism.sequence_parallel", "false",
                  "cannot go with enable_async_tensor_parallel, which cuts the gathers and scatters of sequence parallelism: use "
                  "true, or leave asynchronous tensor parallel out");
  return {};
}

Broken FusingHasAProgram(const Candidate& c) {
  if (!c.recipe.compile().fuse() || c.recipe.compile().enable()) return {};
  return Refuse("compile.fuse", "true", "needs compile.enable = true: a pass over the captured step joins operators");
}

}  // namespace legoai::parallel
