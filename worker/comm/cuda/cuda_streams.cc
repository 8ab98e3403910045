#include "worker/comm/cuda/cuda_streams.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>

#include <map>
#include <string>

#include "worker/comm/stream_ids.h"

namespace legoai::comm {
namespace {

absl::Status Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::UnavailableError(std::string(what) + " failed: " + cudaGetErrorString(error));
}

class CudaStreams : public Streams {
 public:
  ~CudaStreams() override {
    for (auto& [_, event] : events_) cudaEventDestroy(event);
  }

  absl::Status Post(int64_t stream, std::function<absl::Status()> work) override {
    c10::cuda::CUDAStreamGuard guard(Stream(stream));
    return work();
  }
  absl::Status Record(int64_t stream, int64_t event) override {
    cudaEvent_t& handle = events_[event];
    if (handle == nullptr) {
      absl::Status status = Check(cudaEventCreateWithFlags(&handle, cudaEventDisableTiming), "cudaEventCreate");
      if (!status.ok()) return status;
    }
    return Check(cudaEventRecord(handle, Stream(stream).stream()), "cudaEventRecord");
  }
  absl::Status Wait(int64_t stream, int64_t event) override {
    auto it = events_.find(event);
    if (it == events_.end()) return absl::OkStatus();  // never recorded: done, as CUDA has it
    return Check(cudaStreamWaitEvent(Stream(stream).stream(), it->second, 0), "cudaStreamWaitEvent");
  }
  absl::Status Drain() override {
    for (auto& [_, stream] : side_) {
      if (absl::Status status = Check(cudaStreamSynchronize(stream.stream()), "cudaStreamSynchronize"); !status.ok())
        return status;
    }
    return Check(cudaStreamSynchronize(Stream(kCompute).stream()), "cudaStreamSynchronize");
  }

 private:
  c10::cuda::CUDAStream Stream(int64_t stream) {
    if (stream == kCompute) return c10::cuda::getCurrentCUDAStream();
    auto it = side_.find(stream);
    if (it == side_.end()) it = side_.emplace(stream, c10::cuda::getStreamFromPool(/*isHighPriority=*/true)).first;
    return it->second;
  }
  std::map<int64_t, c10::cuda::CUDAStream> side_;
  std::map<int64_t, cudaEvent_t> events_;
};

}  // namespace

std::unique_ptr<Streams> MakeCudaStreams() { return std::make_unique<CudaStreams>(); }

}  // namespace legoai::comm
