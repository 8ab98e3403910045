#include "worker/comm/cpu_kernels.h"

#include <cstdlib>

namespace legoai::comm {

void UseKnownCpuKernels() { setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16", 0); }

bool CpuKernelsAreKnownForBfloat16() { return __builtin_cpu_supports("avx512bf16") != 0; }

}  // namespace legoai::comm
