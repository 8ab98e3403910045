// Which kernels compute 16-bit products and attention of CPU tensors.
#pragma once

namespace legoai::comm {

// Keeps oneDNN to its AVX-512 kernels, also where the CPU has AMX besides: those of AMX take other buffers than the rules of
// simulator/memory/workspace.cc know, and what was predicted or measured on one host of a fleet would not hold on the next. Who
// has set ONEDNN_MAX_CPU_ISA keeps that. Call it in main(), before the first tensor and the first thread.
void UseKnownCpuKernels();

// Whether LibTorch computes products of bfloat16 with oneDNN here, in blocks that it takes from the allocator. It does so on CPUs
// with AVX-512, if ONEDNN_MAX_CPU_ISA leaves oneDNN that; elsewhere its own loops compute them and take nothing. The answer is
// LibTorch's own and holds for the process: call UseKnownCpuKernels before. Thread-safe.
bool OneDnnComputesBfloat16();

// Whether the rules hold for bfloat16 on this CPU: either oneDNN computes no product, or it does so with the instructions of
// AVX512_BF16. With AVX-512 alone it goes by way of fp32, in buffers that no rule knows.
bool CpuKernelsAreKnownForBfloat16();

}  // namespace legoai::comm
