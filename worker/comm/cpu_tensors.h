// CPU tensors: which kernels compute their 16-bit products and attention, and a count of their bytes.
#pragma once

#include <cstdint>

namespace legoai::comm {

// Restricts oneDNN to its AVX-512 kernels even if the CPU has AMX: AMX kernels take buffers that the rules of
// simulator/memory/workspace.cc do not cover, and predictions and measurements would not transfer between the hosts of a fleet.
// An existing ONEDNN_MAX_CPU_ISA is kept. Call it in main(), before the first tensor and the first thread.
void UseKnownCpuKernels();

// Has malloc keep freed blocks of up to 32 MiB (glibc's largest M_MMAP_THRESHOLD) for the next step. Otherwise it returns the top
// of its heap to the kernel in every step, and takes it back by page faults, which small models' steps feel (docs/benchmarks.md).
// Whatever a prediction is measured with must do as the trainer does. Call it in main().
void KeepFreedMemory();

// Whether LibTorch computes bfloat16 products with oneDNN here, in blocks from the allocator. It does so on CPUs with AVX-512, if
// ONEDNN_MAX_CPU_ISA permits; elsewhere its own loops compute them without buffers. The answer is LibTorch's own and fixed for
// the process: call UseKnownCpuKernels first. Thread-safe.
bool OneDnnComputesBfloat16();

// Whether the workspace rules hold for bfloat16 on this CPU: either oneDNN computes no products, or it uses AVX512_BF16
// instructions. With plain AVX-512 it converts through fp32, in buffers that no rule covers.
bool CpuKernelsAreKnownForBfloat16();

// Counts the bytes that CPU tensors hold in this process: what the memory simulator predicts (peak_requested_bytes). Replaces
// torch's allocator by a counting one. Call once, before the first tensor; it cannot be undone. Thread-safe.
void InstallCpuMemoryCounter();

// Bytes requested and not yet freed; 0 without the counter.
int64_t CpuLiveBytes();
// Their maximum since the start or the last reset.
int64_t CpuPeakBytes();
void ResetCpuPeakBytes();

// While one lives, blocks of memory that its thread frees are kept for tensors of the same size that the thread makes later, also
// under later ones: a program that runs again and again finds its memory where it was, without the system's allocator and its
// page faults. What is kept does not count as live, and live and kept bytes together stay within the peak: blocks are given back
// where a new one would exceed it. Without the counter nothing is kept. May be nested.
class CpuBlockReuse {
 public:
  CpuBlockReuse();
  ~CpuBlockReuse();
  CpuBlockReuse(const CpuBlockReuse&) = delete;
  CpuBlockReuse& operator=(const CpuBlockReuse&) = delete;
};
// Bytes that are kept, of all threads.
int64_t CpuKeptBytes();

}  // namespace legoai::comm
