#include "server/jobs/plan_base.h"

#include "proto/read_file.h"
#include "proto/status.h"

namespace legoai::server {
namespace {

// Clears in `filled` what `given` leaves open.
void LeaveOpen(const v1::Recipe& given, v1::Recipe* filled) {
  if (!given.compile().has_enable()) filled->mutable_compile()->clear_enable();
  if (!given.compile().has_fuse()) filled->mutable_compile()->clear_fuse();
  if (!given.compile().has_fall_back_to_eager()) filled->mutable_compile()->clear_fall_back_to_eager();
  if (!given.compile().has_fsdp_bucketing()) filled->mutable_compile()->clear_fsdp_bucketing();
  if (!given.parallelism().has_enable_async_tensor_parallel())
    filled->mutable_parallelism()->clear_enable_async_tensor_parallel();
  if (given.training().has_dtype() || given.optimizer().has_master_weights()) return;
  filled->mutable_training()->clear_dtype();
  filled->mutable_optimizer()->clear_master_weights();
}

}  // namespace

void FillBaseDefaults(v1::Recipe* base) {
  const v1::Recipe given = *base;
  parallel::FillDefaults(base);
  LeaveOpen(given, base);
}

absl::StatusOr<v1::Recipe> LoadBase(const std::string& path, const parallel::Overrides& overrides) {
  ASSIGN_OR_RETURN(v1::Recipe base,
                   path.empty() ? parallel::ParseRecipe("", overrides) : parallel::LoadRecipe(path, overrides));
  std::string text;
  if (!path.empty()) {
    ASSIGN_OR_RETURN(text, ReadFileOf("recipe", path, kMostTextBytes, "give the path of a TOML file"));
  }
  v1::Recipe given;
  parallel::ReadRecipeToml(text, overrides, &given);  // LoadRecipe has told what is wrong with it
  LeaveOpen(given, &base);
  return base;
}

}  // namespace legoai::server
