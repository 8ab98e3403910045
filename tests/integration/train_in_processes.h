// Runs a case for some steps in as many processes as it has ranks, and brings back what can be compared.
#pragma once

#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/recipe/resolved_recipe.h"
#include "tests/integration/cases.h"
#include "worker/comm/runtime.h"
#include "worker/train/train_step.h"

namespace legoai::integration {

// Values of whole tensors by parameter name, row-major.
using Tensors = std::map<std::string, std::vector<float>>;

struct Training {
  std::vector<float> losses;      // by step
  std::vector<float> grad_norms;  // by step
  float held_out_loss = 0;        // of an evaluation after the last step
  Tensors first_gradients;        // of the first step, before clipping
  Tensors parameters;             // masters after the last step
};

Training Train(const Case& test_case, int64_t steps);

// That two steps give the losses and the norms of gradients of one process, as near as the precision lets them be.
void ExpectLossesOfOneProcess(const Case& test_case);

// What one rank does: in a process of its own, on real tensors. Gives back bytes.
using RankBody = std::function<std::string(int64_t rank, comm::Runtime&, const parallel::ResolvedRecipe&)>;
std::vector<std::string> RunCase(const Case& test_case, const RankBody& body);

// Sets the inputs of `step` (from 0): tokens that are a function of sample and position, learning rate, dropout's state.
void FillInputs(train::StepInputs& inputs, const Case& test_case, const parallel::ResolvedRecipe& resolved, int64_t rank,
                int64_t step);

// The value, or an exception: for what runs in a rank's process, where it fails the test, and for benchmarks.
template <class T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) throw std::runtime_error(value.status().ToString());
  return *std::move(value);
}
inline void Must(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

}  // namespace legoai::integration
