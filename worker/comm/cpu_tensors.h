// CPU tensors: which kernels compute their 16-bit products and attention, and the bytes that they hold.
#pragma once

#include <cstdint>

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

// Counts the bytes that CPU tensors hold in this process: what the memory simulator predicts (peak_requested_bytes). Puts a
// counting allocator in the place of torch's. Call once, before the first tensor; it stays for good. Thread-safe.
void InstallCpuMemoryCounter();

// Bytes asked for and not yet freed; 0 without the counter.
int64_t CpuLiveBytes();
// The most since the start, or since the last reset.
int64_t CpuPeakBytes();
void ResetCpuPeakBytes();

}  // namespace legoai::comm
