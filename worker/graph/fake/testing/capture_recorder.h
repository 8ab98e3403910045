// For tests: records the same code on the fake device or on real tensors, keeps copies of what the real run read and gave, and
// compares tensors bit by bit. Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "worker/graph/fake/fake_device.h"
#include "worker/graph/recorder.h"

namespace legoai::sim::testing {

// Whether both, on the CPU, have the same sizes, dtype and bits: NaN equals itself, and 0 is not -0. Strides do not matter.
inline bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.contiguous(), y = b.contiguous();
  return x.sizes() == y.sizes() && x.dtype() == y.dtype() &&
         (x.numel() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0);
}

struct Capture {
  graph::Trace trace;
  std::map<std::string, at::Tensor> inputs, outputs;  // copies; of a real run
};

// Records from SetRecording(true) on.
class CaptureRecorder {
 public:
  explicit CaptureRecorder(bool real) : real_(real), recorder_(real ? nullptr : &device_) { recorder_.SetRecording(false); }

  void SetRecording(bool recording) { recorder_.SetRecording(recording); }
  void Input(const std::string& name, const at::Tensor& tensor, graph::Category category) {
    recorder_.Input(name, tensor, category);
    if (real_) capture_.inputs[name] = tensor.detach().clone();
  }
  void Output(const std::string& name, const at::Tensor& tensor) {
    recorder_.Output(name, tensor);
    if (real_) capture_.outputs[name] = tensor.clone();
  }
  Capture Finish() {
    capture_.trace = recorder_.Finish();
    return std::move(capture_);
  }

 private:
  const bool real_;
  FakeDevice device_;
  graph::Recorder recorder_;
  Capture capture_;
};

}  // namespace legoai::sim::testing
