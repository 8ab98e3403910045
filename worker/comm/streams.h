// Streams, events and timers: a thread per side stream on CPU, no-ops on the fake device, CUDA's own in the plugin.
//
// Work on one stream runs in the order of posting. An event carries generations: a wait refers to the latest record of that
// event dispatched before it. All calls come from the dispatching thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace legoai::comm {

// A position in the work of a stream whose calls return before the work is done (CUDA).
class StreamMark {
 public:
  virtual ~StreamMark() = default;
  // Whether the stream has reached it. Does not wait; from any thread, one at a time.
  virtual bool Passed() = 0;
};

class Streams {
 public:
  virtual ~Streams() = default;
  // On stream kCompute: runs before returning. The first failure of a side stream is returned by the next Wait or Drain.
  virtual absl::Status Post(int64_t stream, std::function<absl::Status()> work) = 0;
  virtual absl::Status Record(int64_t stream, int64_t event) = 0;
  virtual absl::Status Wait(int64_t stream, int64_t event) = 0;
  // Waits for all streams.
  virtual absl::Status Drain() = 0;
  // A function that Drain polls while it waits for a device: an error ends the wait and is returned by Drain. Not used if work is
  // done when its calls return.
  virtual void SetHealth(std::function<absl::Status()> health) {}
  // Copies within the tensors' memory, as part of the work of the calling stream.
  virtual absl::Status Copy(void* out, const void* in, int64_t bytes) {
    if (bytes > 0 && out != in) std::memmove(out, in, bytes);
    return absl::OkStatus();
  }
  // Called from work posted on `stream`: a mark after what has been enqueued there so far. Null if work is done when its calls
  // return.
  virtual std::unique_ptr<StreamMark> Mark(int64_t stream) { return nullptr; }
};

std::unique_ptr<Streams> MakeThreadStreams();
std::unique_ptr<Streams> MakeFakeStreams();

// Measures the device time of work on the current stream: CUDA events in the plugin, the host's clock on a CPU. Seconds. Call
// Start and Stop alternately from the dispatching thread.
class DeviceTimer {
 public:
  virtual ~DeviceTimer() = default;
  // Does not wait; excludes what was enqueued before.
  virtual absl::Status Start() = 0;
  // Waits for everything enqueued since Start and returns the elapsed seconds. Errors: Unavailable with the device's message;
  // FailedPrecondition without a Start.
  virtual absl::StatusOr<double> Stop() = 0;
};

std::unique_ptr<DeviceTimer> MakeHostTimer();

}  // namespace legoai::comm
