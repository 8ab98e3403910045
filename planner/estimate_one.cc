#include "planner/estimate_one.h"

#include "proto/errors.h"

namespace legoai::planner {
namespace {

absl::Status FromSimError(const v1::SimError& error) {
  const auto code = error.code() == 0 ? absl::StatusCode::kInternal : static_cast<absl::StatusCode>(error.code());
  if (!error.field().empty()) return FieldError(error.field(), error.value(), error.remedy(), code);
  return absl::Status(code, error.message());
}

}  // namespace

absl::StatusOr<v1::Estimate> EstimateOne(const v1::SimRequest& request, Estimator& estimator, const std::function<bool()>& cancel,
                                         const std::function<void(const v1::SimProgress&)>& progress) {
  if (absl::Status status = estimator.Start(request); !status.ok()) return status;
  while (true) {
    if (cancel && cancel()) {
      estimator.StopAll();
      return absl::CancelledError("interrupted");
    }
    auto answer = estimator.Wait(absl::Milliseconds(200));
    if (!answer.ok()) {
      estimator.StopAll();
      return answer.status();
    }
    if (!*answer) continue;
    if ((*answer)->has_progress()) {
      if (progress) progress((*answer)->progress());
      continue;
    }
    if ((*answer)->has_error()) return FromSimError((*answer)->error());
    return (*answer)->estimate();
  }
}

}  // namespace legoai::planner
