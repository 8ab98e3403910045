#include "worker/comm/cuda/cuda_streams.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <chrono>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "core/process/mutex.h"
#include "core/trace/annotation.h"
#include "proto/status.h"
#include "worker/comm/cuda/device.h"

namespace legoai::comm {

class EventPool {
 public:
  explicit EventPool(unsigned flags) : flags_(flags) {}
  ~EventPool() {
    for (cudaEvent_t event : free_) cudaEventDestroy(event);
  }
  // Null if there is none to be had.
  cudaEvent_t Take() {
    const MutexLock lock(mutex_);
    cudaEvent_t event = nullptr;
    if (free_.empty()) return cudaEventCreateWithFlags(&event, flags_) == cudaSuccess ? event : nullptr;
    event = free_.back();
    free_.pop_back();
    return event;
  }
  void Give(cudaEvent_t event) {
    const MutexLock lock(mutex_);
    free_.push_back(event);
  }

 private:
  const unsigned flags_;
  Mutex mutex_;
  std::vector<cudaEvent_t> free_ ABSL_GUARDED_BY(mutex_);
};

// Of a device that failed it is never passed.
class CudaMarks::Mark : public StreamMark {
 public:
  Mark(std::shared_ptr<EventPool> pool, cudaStream_t stream) : pool_(std::move(pool)), event_(pool_->Take()) {
    cudaGetDevice(&device_);
    recorded_ = event_ != nullptr && cudaEventRecord(event_, stream) == cudaSuccess;
  }
  ~Mark() override {
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

CudaMarks::CudaMarks() : pool_(std::make_shared<EventPool>(cudaEventDisableTiming)) {}
CudaMarks::~CudaMarks() = default;
std::unique_ptr<StreamMark> CudaMarks::At(cudaStream_t stream) { return std::make_unique<Mark>(pool_, stream); }

namespace {

using Clock = std::chrono::steady_clock;
// While a peer may be lost: how long the wait looks without a pause, how long its pauses are, and how often it asks for health.
constexpr std::chrono::milliseconds kEager{2}, kAsk{100};
constexpr std::chrono::microseconds kPause{50};

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
      RETURN_IF_ERROR(Check(cudaEventCreateWithFlags(&handle, cudaEventDisableTiming), "cudaEventCreate"));
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
      RETURN_IF_ERROR(WaitFor(stream.stream()));
    }
    return WaitFor(Stream(kCompute).stream());
  }
  void SetHealth(std::function<absl::Status()> health) override { health_ = std::move(health); }
  absl::Status Copy(void* out, const void* in, int64_t bytes) override {
    if (bytes == 0 || out == in) return absl::OkStatus();
    return Check(cudaMemcpyAsync(out, in, bytes, cudaMemcpyDeviceToDevice, Stream(kCompute).stream()), "cudaMemcpyAsync");
  }
  std::unique_ptr<StreamMark> Mark(int64_t stream) override { return marks_.At(Stream(stream).stream()); }

 private:
  // A stream that stands in a collective of a lost peer never ends: then health does.
  absl::Status WaitFor(cudaStream_t stream) {
    if (!health_) return Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    const Clock::time_point start = Clock::now();
    Clock::time_point ask = start + kAsk;
    while (true) {
      const cudaError_t state = cudaStreamQuery(stream);
      if (state != cudaErrorNotReady) return Check(state, "the work of a stream");
      (void)cudaGetLastError();  // or the next check of a kernel would find it
      const Clock::time_point now = Clock::now();
      if (now >= ask) {
        RETURN_IF_ERROR(health_());
        ask = now + kAsk;
      }
      now - start < kEager ? std::this_thread::yield() : std::this_thread::sleep_for(kPause);
    }
  }

  // Out of posted work the compute stream is the one it was posted on.
  c10::cuda::CUDAStream Stream(int64_t stream) {
    if (stream == kCompute) return c10::cuda::getCurrentCUDAStream();
    auto it = side_.find(stream);
    if (it == side_.end()) it = side_.emplace(stream, c10::cuda::getStreamFromPool(/*isHighPriority=*/true)).first;
    return it->second;
  }
  std::map<int64_t, c10::cuda::CUDAStream> side_;
  std::map<int64_t, cudaEvent_t> events_;
  CudaMarks marks_;
  std::function<absl::Status()> health_;
};

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
    RETURN_IF_ERROR(Check(cudaEventRecord(begin_, Stream()), "cudaEventRecord"));
    started_ = true;
    return absl::OkStatus();
  }

  absl::StatusOr<double> Stop() override {
    if (!started_) return absl::FailedPreconditionError("the timer was stopped and not started");
    started_ = false;
    float milliseconds = 0;
    RETURN_IF_ERROR(Check(cudaEventRecord(end_, Stream()), "cudaEventRecord"));
    RETURN_IF_ERROR(Check(cudaEventSynchronize(end_), "cudaEventSynchronize"));
    RETURN_IF_ERROR(Check(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime"));
    return 1e-3 * milliseconds;
  }

 private:
  static cudaStream_t Stream() { return c10::cuda::getCurrentCUDAStream().stream(); }
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  bool started_ = false;
};

class CudaClock : public DeviceClock {
 public:
  std::unique_ptr<Mark> Now() override {
    auto mark = std::make_unique<TimedMark>(pool_);
    return mark->recorded() ? std::move(mark) : nullptr;
  }
  absl::StatusOr<double> Seconds(const Mark& from, const Mark& to) override {
    const cudaEvent_t begin = static_cast<const TimedMark&>(from).event(), end = static_cast<const TimedMark&>(to).event();
    float milliseconds = 0;
    RETURN_IF_ERROR(Check(cudaEventSynchronize(end), "cudaEventSynchronize"));
    RETURN_IF_ERROR(Check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime"));
    return 1e-3 * milliseconds;
  }

 private:
  class TimedMark : public Mark {
   public:
    explicit TimedMark(std::shared_ptr<EventPool> pool) : pool_(std::move(pool)), event_(pool_->Take()) {
      recorded_ = event_ != nullptr && cudaEventRecord(event_, c10::cuda::getCurrentCUDAStream().stream()) == cudaSuccess;
    }
    ~TimedMark() override {
      if (event_ != nullptr) pool_->Give(event_);
    }
    cudaEvent_t event() const { return event_; }
    bool recorded() const { return recorded_; }

   private:
    std::shared_ptr<EventPool> pool_;
    cudaEvent_t event_;
    bool recorded_ = false;
  };

  std::shared_ptr<EventPool> pool_ = std::make_shared<EventPool>(cudaEventDefault);
};

}  // namespace

std::unique_ptr<DeviceClock> MakeCudaClock() { return std::make_unique<CudaClock>(); }
std::unique_ptr<Streams> MakeCudaStreams() { return std::make_unique<CudaStreams>(); }
std::unique_ptr<DeviceTimer> MakeCudaTimer() { return std::make_unique<CudaTimer>(); }

}  // namespace legoai::comm
