#include "worker/comm/cpu_kernels.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdlib>

namespace legoai::comm {

void UseKnownCpuKernels() { setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16", 0); }

bool OneDnnComputesBfloat16() {
  static const auto supported =
      c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_is_mkldnn_bf16_supported", "").typed<bool()>();
  return supported.call();
}

bool CpuKernelsAreKnownForBfloat16() { return !OneDnnComputesBfloat16() || __builtin_cpu_supports("avx512bf16") != 0; }

}  // namespace legoai::comm
