// Streams, events and timers: a thread per side stream on CPU, nothing at all on the fake device, CUDA's own in the plugin.
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

// A place in the work of a stream whose calls return before the work is done (CUDA).
class StreamMark {
 public:
  virtual ~StreamMark() = default;
  // Whether the stream has got there. Does not wait; from any thread, one at a time.
  virtual bool Passed() = 0;
};

class Streams {
 public:
  virtual ~Streams() = default;
  // On stream kCompute: runs before returning. The first failure of a side stream comes back from the next Wait or Drain.
  virtual absl::Status Post(int64_t stream, std::function<absl::Status()> work) = 0;
  virtual absl::Status Record(int64_t stream, int64_t event) = 0;
  virtual absl::Status Wait(int64_t stream, int64_t event) = 0;
  // Waits for all streams.
  virtual absl::Status Drain() = 0;
  // What Drain asks now and then where it waits for a device: an error ends the wait, and is what Drain gives. Where work is done
  // when its calls return, it tells of its failures itself, and nobody asks.
  virtual void SetHealth(std::function<absl::Status()> health) {}
  // Copies within the memory of the tensors, as work on the stream out of which it is called.
  virtual absl::Status Copy(void* out, const void* in, int64_t bytes) {
    if (bytes > 0 && out != in) std::memmove(out, in, bytes);
    return absl::OkStatus();
  }
  // For work that is posted on `stream`, out of which it is called: a mark behind what has been enqueued there so far. Null where
  // work is done when its calls return.
  virtual std::unique_ptr<StreamMark> Mark(int64_t stream) { return nullptr; }
};

std::unique_ptr<Streams> MakeThreadStreams();
std::unique_ptr<Streams> MakeFakeStreams();

// Time that a device takes for what is enqueued on the current stream: CUDA's events in the plugin, the host's clock on a CPU,
// where work is done when its call returns. Seconds. Start and Stop come from the dispatching thread, in turn.
class DeviceTimer {
 public:
  virtual ~DeviceTimer() = default;
  // From here on. Does not wait: what was enqueued before is not part of it.
  virtual absl::Status Start() = 0;
  // Waits for all that was enqueued since, and gives the seconds between. Errors: Unavailable, in the device's words;
  // FailedPrecondition without a Start.
  virtual absl::StatusOr<double> Stop() = 0;
};

std::unique_ptr<DeviceTimer> MakeHostTimer();

}  // namespace legoai::comm
