// Recipes of which compile.fuse is tested.
#pragma once

#include <string>
#include <vector>

#include "proto/legoai/v1/recipe.pb.h"
#include "tests/integration/cases.h"

namespace legoai::integration {

struct FuseCase {
  Case eager;
  bool async = false;                      // tensor parallel
  std::vector<std::string> buckets = {};  // of FSDP; none: by block
};

std::vector<FuseCase> FuseCases();

// The case's recipe with fused operators.
v1::Recipe Fused(const FuseCase& fuse_case);

}  // namespace legoai::integration
