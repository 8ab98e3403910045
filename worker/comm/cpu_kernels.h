// Which kernels compute 16-bit products and attention of CPU tensors.
#pragma once

namespace legoai::comm {

// Keeps oneDNN to its AVX-512 kernels, also where the CPU has AMX besides: those of AMX take other buffers than the rules of
// simulator/memory/workspace.cc know, and what was predicted or measured on one host of a fleet would not hold on the next. Who
// has set ONEDNN_MAX_CPU_ISA keeps that. Call it in main(), before the first tensor and the first thread.
void UseKnownCpuKernels();

// Whether the rules hold for bfloat16 on this CPU: it has the instructions of AVX512_BF16. Without them oneDNN computes 16-bit
// products by way of fp32, in buffers that no rule knows.
bool CpuKernelsAreKnownForBfloat16();

}  // namespace legoai::comm
