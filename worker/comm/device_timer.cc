#include "worker/comm/device_timer.h"

#include <chrono>
#include <optional>

namespace legoai::comm {
namespace {

class HostTimer : public DeviceTimer {
 public:
  absl::Status Start() override {
    start_ = std::chrono::steady_clock::now();
    return absl::OkStatus();
  }
  absl::StatusOr<double> Stop() override {
    const auto now = std::chrono::steady_clock::now();
    if (!start_) return absl::FailedPreconditionError("the timer was stopped and not started");
    const double seconds = std::chrono::duration<double>(now - *start_).count();
    start_.reset();
    return seconds;
  }

 private:
  std::optional<std::chrono::steady_clock::time_point> start_;
};

}  // namespace

std::unique_ptr<DeviceTimer> MakeHostTimer() { return std::make_unique<HostTimer>(); }

}  // namespace legoai::comm
