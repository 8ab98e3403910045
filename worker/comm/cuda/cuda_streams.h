// Streams and events of CUDA: compute is the current stream, every side stream one of the pool.
#pragma once

#include <cuda_runtime.h>

#include <memory>

#include "worker/comm/streams.h"

namespace legoai::comm {

std::unique_ptr<Streams> MakeCudaStreams();

// Marks of a process's streams. Their events are used again. Thread-safe.
class CudaMarks {
 public:
  CudaMarks();
  ~CudaMarks();
  // Behind what has been enqueued on `stream`; may outlive this.
  std::unique_ptr<StreamMark> At(cudaStream_t stream);

 private:
  class Pool;
  class Mark;
  std::shared_ptr<Pool> pool_;
};

}  // namespace legoai::comm
