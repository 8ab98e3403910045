// What a reader of a plan may want to have been decided otherwise. Thread-safety: constants.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::planner {

struct Choice {
  const char* name;
  int64_t (*value)(const v1::Recipe&);  // how a recipe decides it
};

inline constexpr Choice kChoices[] = {
    {"checkpointing", [](const v1::Recipe& r) -> int64_t { return r.activation_checkpoint().mode(); }},
    {"tensor parallel degree", [](const v1::Recipe& r) { return r.parallelism().tensor_parallel_degree(); }},
    {"number of stages", [](const v1::Recipe& r) { return r.parallelism().pipeline_parallel_degree(); }},
    {"split into replicas", [](const v1::Recipe& r) { return r.parallelism().data_parallel_replicate_degree(); }},
    {"precision", [](const v1::Recipe& r) -> int64_t { return r.training().mixed_precision_param(); }},
};
inline constexpr size_t kChoiceCount = sizeof(kChoices) / sizeof(kChoices[0]);

}  // namespace legoai::planner
