// An estimator that answers by arithmetic, and a small request to plan with it. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/hardware/catalog.h"
#include "core/model/catalog.h"
#include "planner/estimates.h"

namespace legoai::planner::testing {

// Answers from closed forms, so that what the planner makes of answers can be checked: more tensor parallel is slower, recipes
// with GPipe do not fit, those with full checkpointing fail.
class ArithmeticEstimator : public Estimator {
 public:
  int64_t Slots() const override { return 3; }
  absl::Status Start(const v1::SimRequest& request) override {
    if (started_.size() >= 3) return absl::ResourceExhaustedError("more than Slots() under way");
    started_.push_back(request);
    ++total;
    return absl::OkStatus();
  }
  absl::StatusOr<std::optional<v1::SimResponse>> Wait(absl::Duration) override {
    if (started_.empty()) return std::optional<v1::SimResponse>();
    const v1::SimRequest request = started_.back();  // not in the order of starting
    started_.pop_back();
    v1::SimResponse response;
    response.set_id(request.id());
    if (request.recipe().activation_checkpoint().mode() == v1::AC_FULL) {
      response.mutable_error()->set_message("no such operator");
      return std::optional<v1::SimResponse>(response);
    }
    auto* estimate = response.mutable_estimate();
    *estimate->mutable_recipe() = request.recipe();
    estimate->set_fits(request.recipe().parallelism().pipeline_parallel_schedule() != v1::GPIPE);
    estimate->set_step_time_seconds(request.recipe().parallelism().tensor_parallel_degree() +
                                    0.001 * request.recipe().training().local_batch_size());
    auto* stage = estimate->add_stages();
    stage->set_capacity_bytes(100);
    stage->set_peak_allocated_bytes(estimate->fits() ? 60 : 160);
    return std::optional<v1::SimResponse>(response);
  }
  void StopAll() override { started_.clear(); }
  int64_t total = 0;

 private:
  std::deque<v1::SimRequest> started_;
};

// llama3-1b, untied, on a node of eight H100.
inline v1::PlanRequest Request() {
  v1::PlanRequest request;
  *request.mutable_model() = model::ResolveModel("llama3-1b").value();
  request.mutable_model()->set_tie_word_embeddings(false);
  *request.mutable_cluster() = sim::ParseCluster("h100-sxm-80:8x1").value();
  request.set_global_batch(16);
  request.set_seq_len(2048);
  request.mutable_base()->mutable_optimizer()->set_master_weights(false);  // or it would be tried last
  return request;
}

}  // namespace legoai::planner::testing
