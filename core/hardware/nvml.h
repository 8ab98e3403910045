// The NVIDIA GPUs of this host, as NVML (the driver's libnvidia-ml.so.1, opened at run time) reports them.
// CUDA-free: asking makes no context on a card.
//
// NVML and CUDA number cards differently (CUDA's order is fastest first unless CUDA_DEVICE_ORDER=PCI_BUS_ID): what connects the
// two is the UUID alone. Thread-safety: as that of reading the environment.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace legoai::sim {

struct Gpu {
  int index = 0;             // of NVML: PCI order
  std::string uuid;          // "GPU-8f4b…", which CUDA gives the same card
  std::string name;          // "NVIDIA H100 80GB HBM3"
  int64_t memory_bytes = 0;  // as CUDA has it: without what the driver keeps, where it says how much
  // What a card does not tell is 0.
  double power_limit_watts = 0;
  int64_t max_sm_clock_mhz = 0, max_memory_clock_mhz = 0, sm_clock_mhz = 0;
};

struct NvmlReport {
  std::string driver_version;
  std::vector<Gpu> gpus;  // at least one
};

// The GPUs that CUDA_VISIBLE_DEVICES leaves, in its order: indices, or UUIDs or beginnings of them of which there is one card. As
// CUDA does it an entry that is no card ends the list, a card that comes twice makes it empty, and without the variable
// all are seen, in the order of their indices. The library is LEGOAI_NVML where that is set.
// Errors: FailedPrecondition, a FieldError of "device" = "cuda": no library, no driver, no GPU. Unavailable, the same: NVML is
// here and fails. FieldError of CUDA_VISIBLE_DEVICES: indices among cards of different kinds, in an order that only CUDA knows.
absl::StatusOr<NvmlReport> ReadNvml();

// How much of a card is in use, by whomever. What it does not tell is unset.
struct GpuLoad {
  int index = 0;                      // of NVML
  std::optional<double> utilization;  // share of the last sample period (a second at most) in which a kernel ran
  int64_t memory_bytes = 0;           // that is taken
  std::optional<double> temperature_celsius;
  std::optional<double> power_watts;
};

// Asks the cards of these indices again and again. NVML stays open as long as one is there, for opening it may take seconds. Not
// thread-safe.
class GpuLoadReader {
 public:
  // Errors: as those of ReadNvml where NVML cannot be opened.
  static absl::StatusOr<GpuLoadReader> Open(const std::vector<int>& indices);
  // Cards that fail are left out.
  std::vector<GpuLoad> Read() const;

 private:
  struct Session;
  GpuLoadReader(std::shared_ptr<const Session> session, std::vector<int> indices)
      : session_(std::move(session)), indices_(std::move(indices)) {}
  std::shared_ptr<const Session> session_;
  std::vector<int> indices_;
};

// Of one name and, but for what drivers keep, of one memory.
bool AreAlike(const Gpu& a, const Gpu& b);
bool AreAlike(const std::vector<Gpu>& gpus);

// Whether two sizes of a card's memory may be told of the same kind of card: 3 %.
bool IsSameMemory(int64_t a, int64_t b);

// "4 NVIDIA H200", "NVIDIA H200 and NVIDIA A100-SXM4-80GB".
std::string GpusText(const std::vector<Gpu>& gpus);

// CUDA_VISIBLE_DEVICES, read as CUDA and torch.cuda read it. A pure function.

struct VisibleDevices {
  std::vector<int> positions;  // in the list of UUIDs
  bool by_index = false;       // the variable holds indices
};

// `value`: of the variable. `uuids`: of all GPUs, by index.
VisibleDevices ReadVisibleDevices(std::string_view value, const std::vector<std::string>& uuids);

}  // namespace legoai::sim
