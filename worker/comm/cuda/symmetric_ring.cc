#include "worker/comm/cuda/symmetric_ring.h"

#include <c10/cuda/CUDAStream.h>
#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "proto/status.h"
#include "worker/comm/cuda/device.h"
#include "worker/comm/cuda/symmetric_buffer.h"
#include "worker/comm/symmetric_slots.h"

namespace legoai::comm {
namespace {

// Operations of a stream on a number in memory of this GPU or another one. They are the driver's alone; the plugin does not link
// it, and asks the runtime for them.
struct StreamCounters {
  decltype(&cuStreamWaitValue32) wait = nullptr;    // until the number is at least the value, in circular order
  decltype(&cuStreamWriteValue32) write = nullptr;  // after a fence: what the stream wrote before is there for who sees the value

  // Empty where the driver has them.
  std::string Find() {
    return FindOne("cuStreamWaitValue32", &wait) && FindOne("cuStreamWriteValue32", &write)
               ? ""
               : "the driver has no operations of a stream on memory";
  }

 private:
  template <class Function>
  static bool FindOne(const char* name, Function* function) {
    constexpr unsigned kVersion = 12000;  // the first whose operations need no permission of the driver's
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &result);
    if (error != cudaSuccess || result != cudaDriverEntryPointSuccess || found == nullptr) return false;
    *function = reinterpret_cast<Function>(found);
    return true;
  }
};

absl::Status CheckDriver(CUresult result, const char* what) { return Check(static_cast<cudaError_t>(result), what); }

// Where a rank's counters lie behind its slots.
enum Line : int64_t { kArrived = 0, kFreed = 1 };

class Ring : public SymmetricRing {
 public:
  Ring(std::unique_ptr<SymmetricBuffer> buffer, const StreamCounters& counters, int64_t rank, int64_t size)
      : buffer_(std::move(buffer)),
        counters_(counters),
        own_(buffer_->Of(rank)),
        next_(buffer_->Of((rank + 1) % size)),
        previous_(buffer_->Of((rank + size - 1) % size)) {}
  ~Ring() override {
    buffer_.reset();  // waits for the streams
    for (cudaEvent_t event : {fork_, join_}) {
      if (event != nullptr) cudaEventDestroy(event);
    }
    for (cudaStream_t stream : {taking_, releasing_}) {
      if (stream != nullptr) cudaStreamDestroy(stream);
    }
  }

  absl::Status Make() {
    int least = 0, greatest = 0;
    RETURN_IF_ERROR(Check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange"));
    for (cudaStream_t* stream : {&taking_, &releasing_}) {
      RETURN_IF_ERROR(Check(cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, greatest), "cudaStreamCreate"));
    }
    for (cudaEvent_t* event : {&fork_, &join_}) {
      RETURN_IF_ERROR(Check(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "cudaEventCreate"));
    }
    return absl::OkStatus();
  }

  absl::Status Rotate(void* out, const void* in, int64_t bytes) override {
    if (bytes == 0) return absl::OkStatus();
    const cudaStream_t pushing = c10::cuda::getCurrentCUDAStream().stream();
    RETURN_IF_ERROR(Follow(pushing, fork_, taking_));
    for (int64_t done = 0; done < bytes; done += kSymmetricSlotBytes) {
      const int64_t piece = std::min(kSymmetricSlotBytes, bytes - done);
      RETURN_IF_ERROR(Push(static_cast<const char*>(in) + done, piece, pushing));
      RETURN_IF_ERROR(Take(static_cast<char*>(out) + done, piece));
      ++pieces_;
    }
    return Follow(taking_, join_, pushing);
  }

  void Release() override {
    const uint32_t ahead = pieces_ + (uint32_t{1} << 30);  // of all that is waited for, by less than half the circle
    for (const Line line : {kArrived, kFreed}) {
      (void)counters_.write(releasing_, Address(own_, line), ahead, CU_STREAM_WRITE_VALUE_DEFAULT);
    }
  }

 private:
  static CUdeviceptr Address(char* buffer, Line line) {
    return reinterpret_cast<CUdeviceptr>(buffer + kSymmetricSlots * kSymmetricSlotBytes + line * kSymmetricLineBytes);
  }
  static absl::Status Follow(cudaStream_t first, cudaEvent_t event, cudaStream_t then) {
    RETURN_IF_ERROR(Check(cudaEventRecord(event, first), "cudaEventRecord"));
    return Check(cudaStreamWaitEvent(then, event, 0), "cudaStreamWaitEvent");
  }
  static absl::Status Copy(void* to, const void* from, int64_t bytes, cudaStream_t stream) {
    return Check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
  }
  absl::Status AwaitCount(cudaStream_t stream, Line line, uint32_t count) {
    return CheckDriver(counters_.wait(stream, Address(own_, line), count, CU_STREAM_WAIT_VALUE_GEQ), "cuStreamWaitValue32");
  }
  absl::Status Count(cudaStream_t stream, char* peer, Line line, uint32_t count) {
    return CheckDriver(counters_.write(stream, Address(peer, line), count, CU_STREAM_WRITE_VALUE_DEFAULT),
                       "cuStreamWriteValue32");
  }

  int64_t Slot() const { return pieces_ % kSymmetricSlots * kSymmetricSlotBytes; }

  // The slot is free when the piece that was there before has been taken.
  absl::Status Push(const char* from, int64_t bytes, cudaStream_t stream) {
    RETURN_IF_ERROR(AwaitCount(stream, kFreed, pieces_ + 1 - static_cast<uint32_t>(kSymmetricSlots)));
    RETURN_IF_ERROR(Copy(next_ + Slot(), from, bytes, stream));
    return Count(stream, next_, kArrived, pieces_ + 1);
  }
  absl::Status Take(char* to, int64_t bytes) {
    RETURN_IF_ERROR(AwaitCount(taking_, kArrived, pieces_ + 1));
    RETURN_IF_ERROR(Copy(to, own_ + Slot(), bytes, taking_));
    return Count(taking_, previous_, kFreed, pieces_ + 1);
  }

  std::unique_ptr<SymmetricBuffer> buffer_;
  const StreamCounters counters_;
  char *const own_, *const next_, *const previous_;
  cudaStream_t taking_ = nullptr, releasing_ = nullptr;
  cudaEvent_t fork_ = nullptr, join_ = nullptr;
  std::atomic<uint32_t> pieces_{0};  // of all calls, as it is of all ranks; it may go round, as a power of two of slots may
};

static_assert((kSymmetricSlots & (kSymmetricSlots - 1)) == 0);

}  // namespace

absl::StatusOr<std::unique_ptr<SymmetricRing>> SymmetricRing::Connect(const c10::intrusive_ptr<c10d::Store>& store, int64_t rank,
                                                                      int64_t size) {
  StreamCounters counters;
  const std::string fault = counters.Find();
  ASSIGN_OR_RETURN(auto buffer, SymmetricBuffer::Connect(store, rank, size, kSymmetricBufferBytes, fault));
  auto ring = std::make_unique<Ring>(std::move(buffer), counters, rank, size);
  RETURN_IF_ERROR(ring->Make());
  return ring;
}

}  // namespace legoai::comm
