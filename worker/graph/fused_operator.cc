#include "worker/graph/fused_operator.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "core/process/mutex.h"
#include "core/trace/fused_kernel.h"
#include "proto/status.h"
#include "worker/graph/ivalue_constant.h"
#include "worker/graph/kernel_source.h"

namespace legoai::graph {
namespace {

constexpr int64_t kGrain = 32768;  // elements worth a thread

struct Prepared {
  FusedKernel kernel;
  KernelFunction run = nullptr;
  int64_t range = 0, grain = 1;
};

// Kernels of this process, by text. Entries stay.
class Kernels {
 public:
  const Prepared* Find(const std::string& text) {
    const MutexLock lock(mutex_);
    const auto found = kernels_.find(text);
    return found == kernels_.end() ? nullptr : found->second.get();
  }
  void Add(const std::string& text, Prepared prepared) {
    const MutexLock lock(mutex_);
    kernels_.try_emplace(text, std::make_unique<Prepared>(std::move(prepared)));
  }

 private:
  Mutex mutex_;
  std::map<std::string, std::unique_ptr<Prepared>> kernels_ ABSL_GUARDED_BY(mutex_);
};
Kernels& Known() {
  static auto* const kernels = new Kernels();
  return *kernels;
}

absl::StatusOr<Prepared> Prepare(const std::string& text, KernelCounts* counts, std::vector<std::string>* notes,
                                 const GoesOn& goes_on) {
  Prepared prepared;
  ASSIGN_OR_RETURN(prepared.kernel, ParseFusedKernel(text));
  ASSIGN_OR_RETURN(const std::string source, SourceOf(prepared.kernel));
  ASSIGN_OR_RETURN(prepared.run, LoadKernel(source, counts, notes, goes_on));
  prepared.range = RangeEnd(prepared.kernel);
  prepared.grain = std::max<int64_t>(1, kGrain * prepared.range / prepared.kernel.Elements());
  return prepared;
}

std::vector<at::Tensor> Fused(at::TensorList inputs, at::TensorList written, c10::string_view text) {
  const Prepared* const prepared = Known().Find(std::string(text.data(), text.size()));
  TORCH_CHECK(prepared != nullptr, "a fused kernel was not prepared: ", std::string(text.data(), text.size()));
  const FusedKernel& kernel = prepared->kernel;
  TORCH_CHECK(inputs.size() == kernel.inputs.size() && written.size() == kernel.written.size(), "a fused kernel of ",
              kernel.inputs.size(), " and ", kernel.written.size(), " tensors is given ", inputs.size(), " and ", written.size());
  std::vector<void*> tensors;
  const auto add = [&](const at::Tensor& tensor, v1::DType dtype) {
    TORCH_CHECK(tensor.scalar_type() == ToScalarType(dtype), "a fused kernel is given ", tensor.scalar_type());
    tensors.push_back(const_cast<void*>(tensor.const_data_ptr()));
  };
  for (size_t i = 0; i < inputs.size(); ++i) add(inputs[i], kernel.inputs[i].dtype);
  for (size_t i = 0; i < written.size(); ++i) add(written[i], kernel.written[i].tensor.dtype);
  std::vector<at::Tensor> results;
  for (const FusedOutput& output : kernel.results) {
    const auto options = at::TensorOptions().dtype(ToScalarType(output.tensor.dtype));
    results.push_back(at::empty_strided(output.own_sizes, output.own_strides, options));
    tensors.push_back(results.back().mutable_data_ptr());
  }
  at::parallel_for(0, prepared->range, prepared->grain,
                   [&](int64_t begin, int64_t end) { prepared->run(tensors.data(), begin, end); });
  return results;
}

}  // namespace

absl::Status PrepareKernels(const Trace& trace, KernelCounts* counts, std::vector<std::string>* notes, const GoesOn& goes_on) {
  for (const Instruction& instruction : trace.instructions) {
    const std::string* const text = FusedKernelText(trace, instruction);
    if (text == nullptr || Known().Find(*text) != nullptr) continue;
    ASSIGN_OR_RETURN(Prepared prepared, Prepare(*text, counts, notes, goes_on));
    Known().Add(*text, std::move(prepared));
  }
  return absl::OkStatus();
}

}  // namespace legoai::graph

TORCH_LIBRARY_FRAGMENT(lego, m) { m.def("fused(Tensor[] inputs, Tensor(a!)[] written, str kernel) -> Tensor[]"); }
TORCH_LIBRARY_IMPL(lego, CPU, m) { m.impl("fused", legoai::graph::Fused); }
