// What a request leaves to the plan beside the layout: a policy of checkpointing (auto_sac.h), buckets of FSDP's collectives, how
// far ahead these are gathered, and what is decided last (last_choices.h).
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/plan.pb.h"

namespace legoai::planner {

struct OpenChoices {
  bool policies = false;  // activation_checkpoint.mode = "auto"
  bool buckets = false;   // compile.fsdp_bucketing = "auto"
  bool reorders = true;   // of buckets: compile.fsdp_reorder
  bool depth = false;     // parallelism.fsdp_prefetch_depth, which nobody gave
  // Of last_choices.h: keys that neither the base nor a constraint names, where programs train and the objective is the time.
  bool graph_mode = false;             // compile.enable
  bool async_tensor_parallel = false;  // parallelism.enable_async_tensor_parallel
  bool tries_buckets = false;          // compile.fsdp_bucketing; not where `buckets` asks for them
  bool fuses = false;                  // compile.fuse, of what is trained anew on one host
  bool masters = false;                // optimizer.master_weights, with training.dtype; on any device, of what is trained anew
  std::string of_fused = {};           // for people: what becomes of operators that resume_from has fused; empty: nothing to say
};

// Takes what says "auto" out of the base and the constraints. The request is then one for any checkpointing, which leaves free
// what is beyond memory_budget_gib, and for collectives by block. Where the run that it goes on from has fused operators, whoever
// chose that, and no key says otherwise, the base asks for them, too: another choice would round otherwise from here on. Several
// hosts may have several compilers, which must not end the run: unless a key forbids it, they may then train without
// (compile.fall_back_to_eager). Errors: FieldError of what cannot be left to a plan.
absl::StatusOr<OpenChoices> TakeOpenChoices(v1::PlanRequest* request);

}  // namespace legoai::planner
