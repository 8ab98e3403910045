#include "planner/estimates.h"

#include <optional>
#include <utility>

#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::planner {
namespace {

absl::Status FromSimError(const v1::SimError& error) {
  const auto code = error.code() == 0 ? absl::StatusCode::kInternal : static_cast<absl::StatusCode>(error.code());
  if (!error.field().empty()) return FieldError(error.field(), error.value(), error.remedy(), code);
  return absl::Status(code, error.message());
}

// The next answer that ends a request. What is under way is stopped where there is none to come: on Cancelled too.
absl::StatusOr<v1::SimResponse> NextEnd(Estimator& estimator, const std::function<bool()>& cancel,
                                        const std::function<void(const v1::SimProgress&)>& progress) {
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
    if (!(*answer)->has_progress()) return **std::move(answer);
    if (progress) progress((*answer)->progress());
  }
}

absl::StatusOr<v1::Estimate> EstimateOf(v1::SimResponse answer) {
  if (answer.has_error()) return FromSimError(answer.error());
  return std::move(*answer.mutable_estimate());
}

}  // namespace

absl::StatusOr<v1::Estimate> EstimateOne(const v1::SimRequest& request, Estimator& estimator, const std::function<bool()>& cancel,
                                         const std::function<void(const v1::SimProgress&)>& progress) {
  RETURN_IF_ERROR(estimator.Start(request));
  ASSIGN_OR_RETURN(auto answer, NextEnd(estimator, cancel, progress));
  return EstimateOf(std::move(answer));
}

absl::StatusOr<std::vector<absl::StatusOr<v1::Estimate>>> EstimateAll(std::vector<v1::SimRequest> requests, Estimator& estimator,
                                                                      const std::function<bool()>& cancel,
                                                                      const std::function<void(int64_t)>& done) {
  std::vector<absl::StatusOr<v1::Estimate>> estimates(requests.size(), absl::UnknownError("not estimated"));
  size_t started = 0;
  for (size_t ended = 0; ended < requests.size();) {
    for (; started < requests.size() && static_cast<int64_t>(started - ended) < estimator.Slots(); ++started) {
      requests[started].set_id(started);
      if (absl::Status status = estimator.Start(requests[started]); !status.ok()) {
        estimator.StopAll();
        return status;
      }
    }
    ASSIGN_OR_RETURN(auto answer, NextEnd(estimator, cancel, {}));
    const uint64_t id = answer.id();
    estimates[id] = EstimateOf(std::move(answer));
    ++ended;
    if (done) done(static_cast<int64_t>(ended));
  }
  return estimates;
}

}  // namespace legoai::planner
