// An Estimator on a clock of its own: every simulation takes the time and has the outcome that a test says for its recipe, and
// waiting sets the clock forward. So a machine under any load is played in no time. Not thread-safe.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "planner/estimates.h"

namespace legoai::planner::testing {

struct Outcome {
  absl::Duration takes;
  bool fits = true;
  bool fails = false;
  double step_seconds = 1;
  int64_t peak_bytes = 60;  // of 100, where it fits
};

class SlowEstimator : public Estimator {
 public:
  SlowEstimator(int64_t slots, std::function<Outcome(const v1::SimRequest&)> outcome)
      : slots_(slots), outcome_(std::move(outcome)) {}

  absl::Duration Now() const { return now_; }
  int64_t under_way() const { return static_cast<int64_t>(running_.size()); }
  int64_t started() const { return started_; }

  int64_t Slots() const override { return slots_; }
  absl::Status Start(const v1::SimRequest& request) override {
    if (under_way() >= slots_) return absl::ResourceExhaustedError("more than Slots() under way");
    ++started_;
    const Outcome outcome = outcome_(request);
    running_.push_back({request, outcome, now_ + outcome.takes});
    return absl::OkStatus();
  }
  absl::StatusOr<std::optional<v1::SimResponse>> Wait(absl::Duration timeout) override {
    const auto next = std::min_element(running_.begin(), running_.end(), [](auto& a, auto& b) { return a.ends < b.ends; });
    if (next == running_.end() || next->ends > now_ + timeout) {
      now_ += timeout;
      return std::optional<v1::SimResponse>();
    }
    now_ = std::max(now_, next->ends);
    v1::SimResponse response = Answer(*next);
    running_.erase(next);
    return std::optional<v1::SimResponse>(std::move(response));
  }
  void StopAll() override { running_.clear(); }

 private:
  struct Running {
    v1::SimRequest request;
    Outcome outcome;
    absl::Duration ends;
  };

  static v1::SimResponse Answer(const Running& running) {
    v1::SimResponse response;
    response.set_id(running.request.id());
    if (running.outcome.fails) {
      response.mutable_error()->set_message("it fails, as it was told to");
      return response;
    }
    v1::Estimate* const estimate = response.mutable_estimate();
    *estimate->mutable_recipe() = running.request.recipe();
    estimate->set_fits(running.outcome.fits);
    estimate->set_step_time_seconds(running.outcome.step_seconds);
    v1::StageEstimate* const stage = estimate->add_stages();
    stage->set_capacity_bytes(100);
    stage->set_peak_allocated_bytes(running.outcome.fits ? running.outcome.peak_bytes : 160);
    return response;
  }

  const int64_t slots_;
  const std::function<Outcome(const v1::SimRequest&)> outcome_;
  absl::Duration now_;
  int64_t started_ = 0;
  std::vector<Running> running_;
};

}  // namespace legoai::planner::testing
