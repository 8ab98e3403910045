// CUDA streams, events and timers: compute is the current stream, every side stream one of the pool.
#pragma once

#include <cuda_runtime.h>

#include <memory>

#include "worker/comm/step_timeline.h"
#include "worker/comm/streams.h"

namespace legoai::comm {

std::unique_ptr<Streams> MakeCudaStreams();

// Two events on the current stream.
std::unique_ptr<DeviceTimer> MakeCudaTimer();

// Events that keep their time, on whatever stream is the current one. They are used again.
std::unique_ptr<DeviceClock> MakeCudaClock();

class EventPool;

// Marks of a process's streams. Their events are used again. Thread-safe.
class CudaMarks {
 public:
  CudaMarks();
  ~CudaMarks();
  // Behind what has been enqueued on `stream`; may outlive this.
  std::unique_ptr<StreamMark> At(cudaStream_t stream);

 private:
  class Mark;
  std::shared_ptr<EventPool> pool_;
};

}  // namespace legoai::comm
