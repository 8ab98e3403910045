// A step recorded on a device beside the capture of it: what differs, said so that it can be mended from the text alone.
//
// The capture says what the CPU's kernels give; where it is known that the device's own auxiliary results take other bytes
// (simulator/memory/memory_simulator.h), those are expected, and neither their geometry nor that of their readers is compared.
// Torch-free. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/trace/trace.h"
#include "proto/legoai/v1/hardware.pb.h"

namespace legoai::gpu {

// Each distinct difference once, "N x ..." with how often, in the order of the first; beyond `limit` lines only how many more.
// Operators are matched along their longest common subsequence (phase, stream, name); of those that match, module, arguments,
// results, bytes; and, where all match, after which operator a storage is freed. Empty: the same.
std::vector<std::string> DeviceDifferences(const graph::Trace& recorded, const graph::Trace& captured, v1::DeviceKind kind,
                                           size_t limit = 60);

// `counted`: bytes before each operator of the recorded step, by the device's allocator. Beside those that the memory simulator
// has alive in the capture: the operators at which the distance changes, as above. The distance before the first operator is
// `resident`: what lives on the device beside the step.
struct LiveBytes {
  int64_t resident = 0;
  std::vector<std::string> differences;
};
LiveBytes CompareLiveBytes(const std::vector<int64_t>& counted, const graph::Trace& captured, v1::DeviceKind kind,
                           size_t limit = 60);

}  // namespace legoai::gpu
