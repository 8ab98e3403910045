#include "worker/comm/cuda/cuda_timer.h"

#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>

#include <string>

#include "proto/status.h"

namespace legoai::comm {
namespace {

absl::Status Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::UnavailableError(std::string(what) + " failed: " + cudaGetErrorString(error));
}

// Events are made with the first Start, on the GPU that is selected then.
class CudaTimer : public DeviceTimer {
 public:
  ~CudaTimer() override {
    for (cudaEvent_t event : {begin_, end_}) {
      if (event != nullptr) cudaEventDestroy(event);
    }
  }

  absl::Status Start() override {
    for (cudaEvent_t* event : {&begin_, &end_}) {
      if (*event != nullptr) continue;
      RETURN_IF_ERROR(Check(cudaEventCreate(event), "cudaEventCreate"));
    }
    started_ = false;
    absl::Status status = Check(cudaEventRecord(begin_, Stream()), "cudaEventRecord");
    started_ = status.ok();
    return status;
  }

  absl::StatusOr<double> Stop() override {
    if (!started_) return absl::FailedPreconditionError("the timer was stopped and not started");
    started_ = false;
    float milliseconds = 0;
    absl::Status status = Check(cudaEventRecord(end_, Stream()), "cudaEventRecord");
    if (status.ok()) status = Check(cudaEventSynchronize(end_), "cudaEventSynchronize");
    if (status.ok()) status = Check(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime");
    if (!status.ok()) return status;
    return 1e-3 * milliseconds;
  }

 private:
  static cudaStream_t Stream() { return c10::cuda::getCurrentCUDAStream().stream(); }
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  bool started_ = false;
};

}  // namespace

std::unique_ptr<DeviceTimer> MakeCudaTimer() { return std::make_unique<CudaTimer>(); }

}  // namespace legoai::comm
