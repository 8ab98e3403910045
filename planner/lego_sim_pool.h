// An Estimator over lego-sim child processes, kept alive between requests. A child that crashes or takes too much time or memory
// is killed and replaced; its request is answered with an error. Children die with their parent.
//
// A child that has answered before may be affected by earlier requests: if it crashes or takes too much memory, its request is
// retried once in a fresh process, so that a recipe is blamed only for its own effects.
//
// Progress is passed on, and new progress restarts the time limit.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "planner/estimates.h"

namespace legoai::planner {

struct LegoSimOptions {
  std::string program;  // path of lego-sim; it is called with --socket=FD
  int64_t processes = 2;
  absl::Duration time_limit = absl::Seconds(300);   // of one request, since its start or last progress
  int64_t resident_limit_bytes = int64_t{8} << 30;  // of one process; address space is not limited: torch reserves much of it
  std::vector<std::string> arguments = {};          // additional ones for lego-sim
};

class LegoSimPool : public Estimator {
 public:
  explicit LegoSimPool(LegoSimOptions options);
  ~LegoSimPool() override;  // no child is left

  int64_t Slots() const override { return options_.processes; }
  void Prepare() override;  // starts all processes: torch takes a second to load
  absl::Status Start(const v1::SimRequest& request) override;
  absl::StatusOr<std::optional<v1::SimResponse>> Wait(absl::Duration timeout) override;
  void StopAll() override;

 private:
  struct Child;
  absl::Status Spawn(Child& child);
  absl::Status Send(Child& child);
  std::optional<v1::SimResponse> Receive(Child& child, bool readable);
  static void Advance(Child& child, const v1::SimProgress& progress);
  std::optional<v1::SimResponse> CheckLimits(Child& child);
  std::optional<v1::SimResponse> RetryOrFail(Child& child, const std::string& why, absl::StatusCode code);
  v1::SimResponse Fail(Child& child, const std::string& why, absl::StatusCode code);
  int End(Child& child);

  const LegoSimOptions options_;
  std::vector<std::unique_ptr<Child>> children_;
};

}  // namespace legoai::planner
