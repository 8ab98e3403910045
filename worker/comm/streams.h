// Streams and events: a thread per side stream on CPU, nothing at all on the fake device, CUDA's own in the plugin.
//
// Work on one stream runs in the order of posting. An event carries generations: a wait refers to the latest record of that
// event dispatched before it. All calls come from the dispatching thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"

namespace legoai::comm {

class Streams {
 public:
  virtual ~Streams() = default;
  // On stream kCompute: runs before returning. The first failure of a side stream comes back from the next Wait or Drain.
  virtual absl::Status Post(int64_t stream, std::function<absl::Status()> work) = 0;
  virtual absl::Status Record(int64_t stream, int64_t event) = 0;
  virtual absl::Status Wait(int64_t stream, int64_t event) = 0;
  // Waits for all streams.
  virtual absl::Status Drain() = 0;
};

std::unique_ptr<Streams> MakeThreadStreams();
std::unique_ptr<Streams> MakeFakeStreams();

}  // namespace legoai::comm
