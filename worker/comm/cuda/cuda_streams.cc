#include "worker/comm/cuda/cuda_streams.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "worker/comm/stream_ids.h"

namespace legoai::comm {
namespace {

absl::Status Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::UnavailableError(std::string(what) + " failed: " + cudaGetErrorString(error));
}

// Events for marks, to be used again. Thread-safe.
class EventPool {
 public:
  ~EventPool() {
    for (cudaEvent_t event : free_) cudaEventDestroy(event);
  }
  // Null if there is none to be had.
  cudaEvent_t Take() {
    std::lock_guard lock(mutex_);
    cudaEvent_t event = nullptr;
    if (free_.empty()) return cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess ? event : nullptr;
    event = free_.back();
    free_.pop_back();
    return event;
  }
  void Give(cudaEvent_t event) {
    std::lock_guard lock(mutex_);
    free_.push_back(event);
  }

 private:
  std::mutex mutex_;
  std::vector<cudaEvent_t> free_;
};

// May outlive the streams. Of a device that failed it is never passed.
class CudaMark : public StreamMark {
 public:
  CudaMark(std::shared_ptr<EventPool> pool, cudaStream_t stream) : pool_(std::move(pool)), event_(pool_->Take()) {
    cudaGetDevice(&device_);
    recorded_ = event_ != nullptr && cudaEventRecord(event_, stream) == cudaSuccess;
  }
  ~CudaMark() override {
    if (event_ != nullptr) pool_->Give(event_);
  }
  bool Passed() override {
    if (!recorded_) return false;
    // A thread that has not said which GPU is its own would make a context on the first one.
    int device = -1;
    if (cudaGetDevice(&device) != cudaSuccess || (device != device_ && cudaSetDevice(device_) != cudaSuccess)) return false;
    const cudaError_t state = cudaEventQuery(event_);
    if (state == cudaErrorNotReady) (void)cudaGetLastError();  // or the next check of a kernel would find it
    return state == cudaSuccess;
  }

 private:
  std::shared_ptr<EventPool> pool_;
  cudaEvent_t event_;
  int device_ = 0;
  bool recorded_ = false;
};

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
  std::unique_ptr<StreamMark> Mark(int64_t stream) override {
    return std::make_unique<CudaMark>(marks_, Stream(stream).stream());
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
  std::shared_ptr<EventPool> marks_ = std::make_shared<EventPool>();
};

}  // namespace

std::unique_ptr<Streams> MakeCudaStreams() { return std::make_unique<CudaStreams>(); }

}  // namespace legoai::comm
