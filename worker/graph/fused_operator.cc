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
#include "proto/errors.h"
#include "proto/status.h"
#include "worker/comm/cuda_plugin.h"
#include "worker/graph/cuda_kernel_cache.h"
#include "worker/graph/cuda_kernel_source.h"
#include "worker/graph/ivalue_constant.h"
#include "worker/graph/kernel_cache.h"
#include "worker/graph/kernel_source.h"

namespace legoai::graph {
namespace {

constexpr int64_t kGrain = 32768;  // elements worth a thread

struct CpuKernel {
  FusedKernel kernel;
  KernelFunction run = nullptr;
  int64_t range = 0, grain = 1;
};

struct CudaKernel {
  FusedKernel kernel;
  std::vector<CudaFunction> functions;  // the fastest first
  std::vector<void*> loaded;            // of the plugin
};

// Kernels of this process for a kind of device, by text. Entries stay.
template <class Kernel>
class Kernels {
 public:
  static Kernels& Known() {
    static auto* const kernels = new Kernels();
    return *kernels;
  }
  const Kernel* Find(const std::string& text) {
    const MutexLock lock(mutex_);
    const auto found = kernels_.find(text);
    return found == kernels_.end() ? nullptr : found->second.get();
  }
  const Kernel& FindPrepared(const std::string& text) {
    const Kernel* const found = Find(text);
    TORCH_CHECK(found != nullptr, "a fused kernel was not prepared: ", text);
    return *found;
  }
  void Add(const std::string& text, Kernel prepared) {
    const MutexLock lock(mutex_);
    kernels_.try_emplace(text, std::make_unique<Kernel>(std::move(prepared)));
  }

 private:
  Mutex mutex_;
  std::map<std::string, std::unique_ptr<Kernel>> kernels_ ABSL_GUARDED_BY(mutex_);
};

// What compiles and runs kernels for a GPU.
struct Gpu {
  const comm::CudaPlugin* plugin = nullptr;
  std::string architecture;
};
absl::StatusOr<Gpu> FindGpu(c10::Device device) {
  Gpu gpu;
  ASSIGN_OR_RETURN(gpu.plugin, comm::LoadCudaPlugin());
  gpu.architecture = gpu.plugin->architecture(device.has_index() ? device.index() : 0);
  if (gpu.architecture.empty())
    return FieldError("compile.fuse", "true", "needs to know the GPU's compute capability, which CUDA does not say",
                      absl::StatusCode::kFailedPrecondition);
  return gpu;
}

absl::StatusOr<CpuKernel> PrepareForCpu(const std::string& text, KernelCounts* counts, std::vector<std::string>* notes,
                                        const GoesOn& goes_on) {
  CpuKernel prepared;
  ASSIGN_OR_RETURN(prepared.kernel, ParseFusedKernel(text));
  ASSIGN_OR_RETURN(const std::string source, SourceOf(prepared.kernel));
  ASSIGN_OR_RETURN(prepared.run, LoadKernel(source, counts, notes, goes_on));
  prepared.range = RangeEnd(prepared.kernel);
  prepared.grain = std::max<int64_t>(1, kGrain * prepared.range / prepared.kernel.Elements());
  return prepared;
}

absl::StatusOr<CudaKernel> PrepareForGpu(const std::string& text, const Gpu& gpu, KernelCounts* counts,
                                         std::vector<std::string>* notes, const GoesOn& goes_on) {
  CudaKernel prepared;
  ASSIGN_OR_RETURN(prepared.kernel, ParseFusedKernel(text));
  ASSIGN_OR_RETURN(CudaSource source, CudaSourceOf(prepared.kernel));
  ASSIGN_OR_RETURN(const std::string cubin, LoadCudaKernel(source.text, gpu.architecture, counts, notes, goes_on));
  std::vector<std::string> names;
  for (const CudaFunction& function : source.functions) names.push_back(function.name);
  ASSIGN_OR_RETURN(prepared.loaded, gpu.plugin->load_functions(cubin, names));
  prepared.functions = std::move(source.functions);
  return prepared;
}

// The first elements of all tensors, in the order of the kernel's arguments. Results are made.
std::vector<void*> TensorsOf(const FusedKernel& kernel, at::TensorList inputs, at::TensorList written,
                             std::vector<at::Tensor>* results) {
  TORCH_CHECK(inputs.size() == kernel.inputs.size() && written.size() == kernel.written.size(), "a fused kernel of ",
              kernel.inputs.size(), " and ", kernel.written.size(), " tensors is given ", inputs.size(), " and ", written.size());
  TORCH_CHECK(!inputs.empty(), "a fused kernel has no input");
  const c10::Device device = inputs[0].device();
  std::vector<void*> tensors;
  const auto add = [&](const at::Tensor& tensor, v1::DType dtype) {
    TORCH_CHECK(tensor.scalar_type() == ToScalarType(dtype), "a fused kernel is given ", tensor.scalar_type(), " in place of ",
                ToScalarType(dtype));
    TORCH_CHECK(tensor.device() == device, "a fused kernel is given tensors on ", device, " and ", tensor.device());
    tensors.push_back(const_cast<void*>(tensor.const_data_ptr()));
  };
  for (size_t i = 0; i < inputs.size(); ++i) add(inputs[i], kernel.inputs[i].dtype);
  for (size_t i = 0; i < written.size(); ++i) add(written[i], kernel.written[i].tensor.dtype);
  for (const FusedOutput& output : kernel.results) {
    const auto options = at::TensorOptions().dtype(ToScalarType(output.tensor.dtype)).device(device);
    results->push_back(at::empty_strided(output.own_sizes, output.own_strides, options));
    tensors.push_back(results->back().mutable_data_ptr());
  }
  return tensors;
}

std::vector<at::Tensor> FusedCpu(at::TensorList inputs, at::TensorList written, c10::string_view text) {
  const CpuKernel& prepared = Kernels<CpuKernel>::Known().FindPrepared(std::string(text.data(), text.size()));
  std::vector<at::Tensor> results;
  const std::vector<void*> tensors = TensorsOf(prepared.kernel, inputs, written, &results);
  at::parallel_for(0, prepared.range, prepared.grain,
                   [&](int64_t begin, int64_t end) { prepared.run(tensors.data(), begin, end); });
  return results;
}

bool IsAligned(const std::vector<void*>& tensors, const std::vector<int>& alignment) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (reinterpret_cast<uintptr_t>(tensors[i]) % alignment[i] != 0) return false;
  }
  return true;
}

std::vector<at::Tensor> FusedCuda(at::TensorList inputs, at::TensorList written, c10::string_view text) {
  const CudaKernel& prepared = Kernels<CudaKernel>::Known().FindPrepared(std::string(text.data(), text.size()));
  std::vector<at::Tensor> results;
  std::vector<void*> tensors = TensorsOf(prepared.kernel, inputs, written, &results);
  size_t chosen = 0;
  while (chosen + 1 < prepared.functions.size() && !IsAligned(tensors, prepared.functions[chosen].alignment)) ++chosen;
  const CudaFunction& function = prepared.functions[chosen];
  const absl::StatusOr<const comm::CudaPlugin*> plugin = comm::LoadCudaPlugin();
  TORCH_CHECK(plugin.ok(), std::string(plugin.status().message()));
  const absl::Status launched = (*plugin)->launch_function(prepared.loaded[chosen], inputs[0].device().index(), function.blocks,
                                                           function.threads, tensors.data());
  TORCH_CHECK(launched.ok(), "a fused kernel: ", std::string(launched.message()));
  return results;
}

template <class Kernel, class Prepare>
absl::Status PrepareAll(const Trace& trace, Prepare prepare) {
  Kernels<Kernel>& known = Kernels<Kernel>::Known();
  for (const Instruction& instruction : trace.instructions) {
    const std::string* const text = FusedKernelText(trace, instruction);
    if (text == nullptr || known.Find(*text) != nullptr) continue;
    ASSIGN_OR_RETURN(Kernel prepared, prepare(*text));
    known.Add(*text, std::move(prepared));
  }
  return absl::OkStatus();
}

bool HasFused(const Trace& trace) {
  return std::any_of(trace.instructions.begin(), trace.instructions.end(),
                     [&](const Instruction& instruction) { return FusedKernelText(trace, instruction) != nullptr; });
}

}  // namespace

absl::Status PrepareKernels(const Trace& trace, c10::Device device, KernelCounts* counts, std::vector<std::string>* notes,
                            const GoesOn& goes_on) {
  if (!HasFused(trace)) return absl::OkStatus();
  if (device.is_cpu())
    return PrepareAll<CpuKernel>(trace, [&](const std::string& text) { return PrepareForCpu(text, counts, notes, goes_on); });
  ASSIGN_OR_RETURN(const Gpu gpu, FindGpu(device));
  return PrepareAll<CudaKernel>(trace, [&](const std::string& text) { return PrepareForGpu(text, gpu, counts, notes, goes_on); });
}

absl::StatusOr<std::string> KernelsAreBuiltBy(c10::Device device) {
  if (device.is_cpu()) return CpuKernelsAreBuiltBy();
  ASSIGN_OR_RETURN(const Gpu gpu, FindGpu(device));
  return CudaKernelsAreBuiltBy(gpu.architecture);
}

}  // namespace legoai::graph

TORCH_LIBRARY_FRAGMENT(lego, m) { m.def("fused(Tensor[] inputs, Tensor(a!)[] written, str kernel) -> Tensor[]"); }
TORCH_LIBRARY_IMPL(lego, CPU, m) { m.impl("fused", legoai::graph::FusedCpu); }
TORCH_LIBRARY_IMPL(lego, CUDA, m) { m.impl("fused", legoai::graph::FusedCuda); }
