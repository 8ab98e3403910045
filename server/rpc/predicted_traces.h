// Traces of simulated steps, as files in memory: made when they are first asked for, and kept while there is room. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "core/process/mutex.h"
#include "proto/legoai/v1/estimate.pb.h"
#include "proto/legoai/v1/sim.pb.h"

namespace legoai::server {

// Of all that are kept together, and of one alone.
inline constexpr int64_t kPredictedTracesBytes = int64_t{64} << 20, kPredictedTraceBytes = int64_t{16} << 20;

class PredictedTraces {
 public:
  using Cancelled = std::function<bool()>;
  // Simulates, and writes the request's chrome_trace_path, on this host (Fleet::Simulate).
  using Simulate = std::function<absl::StatusOr<v1::Estimate>(const v1::SimRequest& request, const Cancelled& cancelled)>;

  explicit PredictedTraces(Simulate simulate);

  // The Chrome trace of the request's step, compressed by gzip. `request` names no paths. Blocks for seconds where it is not
  // kept; who asks for one that is being made waits for it. Errors: those of `simulate`; Cancelled; ResourceExhausted for a
  // trace larger than kPredictedTraceBytes; Unavailable where this host has no room for its file.
  absl::StatusOr<std::string> Get(const v1::SimRequest& request, const Cancelled& cancelled);

 private:
  struct Trace {
    std::string key;
    std::shared_ptr<const std::string> gzip;
  };
  std::shared_ptr<const std::string> Find(const std::string& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Keep(const std::string& key, std::shared_ptr<const std::string> gzip) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::string> Make(v1::SimRequest request, const Cancelled& cancelled) const;

  const Simulate simulate_;
  Mutex mutex_;
  Condition changed_;
  std::set<std::string> being_made_ ABSL_GUARDED_BY(mutex_);  // keys
  std::list<Trace> kept_ ABSL_GUARDED_BY(mutex_);             // the latest asked for first
};

}  // namespace legoai::server
