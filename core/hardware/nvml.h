// The NVIDIA GPUs of this host, as NVML (the driver's libnvidia-ml.so.1, opened at run time) reports them. CUDA-free: a query
// creates no context on a card.
//
// NVML and CUDA number cards differently (CUDA's order is fastest first unless CUDA_DEVICE_ORDER=PCI_BUS_ID): only the UUID
// connects the two. Thread-safety: as for reading the environment.
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

namespace nvml {
struct Session;
}

struct Gpu {
  int index = 0;             // of NVML: PCI order
  std::string uuid;          // "GPU-8f4b…", which CUDA gives the same card
  std::string name;          // "NVIDIA H100 80GB HBM3"
  int64_t memory_bytes = 0;  // as in CUDA: without what the driver reserves, if it says how much
  // 0: not reported by the card.
  double power_limit_watts = 0;
  int64_t max_sm_clock_mhz = 0, max_memory_clock_mhz = 0, sm_clock_mhz = 0;
};

struct NvmlReport {
  std::string driver_version;
  std::vector<Gpu> gpus;  // at least one
};

// The GPUs that CUDA_VISIBLE_DEVICES selects, in its order: indices, or UUIDs or unique prefixes of them. As in CUDA an invalid
// entry ends the list, a duplicate makes it empty, and without the variable all are visible, in the order of their indices. The
// library is LEGOAI_NVML if that is set. Errors: FieldErrors of "device" = "cuda": FailedPrecondition without library, driver or
// GPU; Unavailable if NVML fails. FieldError of CUDA_VISIBLE_DEVICES: indices among cards of different kinds, whose order only
// CUDA knows.
absl::StatusOr<NvmlReport> ReadNvml();

// How much of a card is in use, by any process. Unset: not reported by the card.
struct GpuLoad {
  int index = 0;                      // of NVML
  std::optional<double> utilization;  // share of the last sample period (a second at most) in which a kernel ran
  int64_t memory_bytes = 0;           // that is taken
  std::optional<double> temperature_celsius;
  std::optional<double> power_watts;
  std::vector<std::string> slowdowns;  // why its clocks are lowered, as v1::GpuUse names it
  std::optional<int64_t> uncorrected_ecc_errors;  // since the driver was loaded, or the card reset
};

// Polls the cards of these indices. NVML stays open as long as a reader exists, because opening it may take seconds. Not
// thread-safe.
class GpuLoadReader {
 public:
  // Errors: those of ReadNvml if NVML cannot be opened.
  static absl::StatusOr<GpuLoadReader> Open(const std::vector<int>& indices);
  // Cards that fail are omitted.
  std::vector<GpuLoad> Read() const;

 private:
  GpuLoadReader(std::shared_ptr<const nvml::Session> session, std::vector<int> indices)
      : session_(std::move(session)), indices_(std::move(indices)) {}
  std::shared_ptr<const nvml::Session> session_;
  std::vector<int> indices_;
};

// Same name and, up to what drivers reserve, same memory.
bool AreAlike(const Gpu& a, const Gpu& b);
bool AreAlike(const std::vector<Gpu>& gpus);

// Whether two reported memory sizes may belong to the same kind of card: within 3 %.
bool IsSameMemory(int64_t a, int64_t b);

// "4 NVIDIA H200", "NVIDIA H200 and NVIDIA A100-SXM4-80GB".
std::string GpusText(const std::vector<Gpu>& gpus);

// CUDA_VISIBLE_DEVICES, parsed as by CUDA and torch.cuda. A pure function.

struct VisibleDevices {
  std::vector<int> positions;  // in the list of UUIDs
  bool by_index = false;       // the variable holds indices
};

// `value`: of the variable. `uuids`: of all GPUs, by index.
VisibleDevices ReadVisibleDevices(std::string_view value, const std::vector<std::string>& uuids);

}  // namespace legoai::sim
