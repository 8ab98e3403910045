#include "server/fleet/plan_cache.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/files.h"
#include "core/hardware/host.h"
#include "core/process/build_version.h"
#include "core/recipe/resolved_recipe.h"
#include "planner/ranking.h"
#include "proto/status.h"
#include "server/jobs/submission.h"

namespace legoai::server {
namespace {

std::string DigestOf(const v1::CachedPlan& cached) {
  return checkpoint::Sha256(absl::StrCat("cached plan\n", cached.key(), "\n", cached.result()));
}

}  // namespace

std::string PlannedBy() {
  const char* const instructions = std::getenv("ONEDNN_MAX_CPU_ISA");
  return absl::StrCat(std::string(launch::BuildVersion()), " on ", sim::HostProcessor(), " ",
                      instructions == nullptr ? "" : instructions);
}

std::string PlanKey(const v1::PlanRequest& request, std::string_view planned_by) {
  v1::PlanRequest asked = request;
  asked.clear_budget_seconds();
  return absl::StrCat("plan:", checkpoint::Sha256(absl::StrCat(std::string(planned_by), "\n", DeterministicBytes(asked))));
}

bool IsCacheable(const v1::PlanResult& result) {
  const bool is_cut_short = result.stopped_early() || (!planner::HasRecipe(result) && result.not_reached() > 0);
  return !is_cut_short && result.failed() == 0;
}

v1::CachedPlan MakeCachedPlan(std::string_view key, const v1::PlanResult& result, int64_t now_us) {
  v1::CachedPlan cached;
  cached.set_key(std::string(key));
  cached.set_result(DeterministicBytes(result));
  cached.set_sha256(DigestOf(cached));
  cached.set_time_us(now_us);
  return cached;
}

absl::StatusOr<v1::PlanResult> OpenCachedPlan(const v1::CachedPlan& cached, std::string_view key,
                                              const v1::PlanRequest& request) {
  if (cached.key() != key) return absl::DataLossError("it is another request's");
  if (cached.sha256() != DigestOf(cached)) return absl::DataLossError("it was changed since it was stored");
  v1::PlanResult result;
  if (!result.ParseFromString(cached.result())) return absl::DataLossError("it cannot be read");
  if (result.cluster() != request.cluster().name() || result.global_batch() != request.global_batch() ||
      result.seq_len() != request.seq_len())
    return absl::DataLossError("it is no answer to the request");
  if (!IsCacheable(result)) return absl::DataLossError("it was cut short");
  if (!planner::HasRecipe(result)) return result;
  const int64_t world = request.cluster().nodes() * request.cluster().devices_per_node();
  const auto legal = parallel::ResolvedRecipe::Create(result.ranked(0).recipe(), request.model(), world);
  if (!legal.ok()) return absl::DataLossError(absl::StrCat("its recipe is not legal: ", std::string(legal.status().message())));
  return result;
}

std::string RefusedPlanText(const absl::Status& error) {
  return absl::StrCat("a plan that was made before is refused, and made anew: ", error.message());
}

}  // namespace legoai::server
