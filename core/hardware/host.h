// The processors of this host (physical cores and their name), and who keeps them busy. Thread-safety: pure functions, and reads
// of /proc and /sys.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/hardware.pb.h"

namespace legoai::sim {

// Cores that this process may run on (core/process/host_resources.h); at least 1.
int64_t HostPhysicalCores();

// "AMD EPYC 9654 96-Core Processor", as /proc/cpuinfo has it; "unknown processor".
std::string HostProcessor();

// The file with this machine's measured CPU, which `lego hardware --measure` writes. Thread-safety: reads of the environment and
// the file.

// Its path: LEGOAI_HOST_DEVICE, or ~/.cache/legoai/this-machine.txtpb.
std::string HostDevicePath();

// This machine's CPU as measured; nothing if it was not. Errors: the file is malformed, or LEGOAI_HOST_DEVICE names a missing
// file.
absl::StatusOr<std::optional<v1::Device>> LoadHostDevice();

// If other processes took more than this share of the processors during a measurement, its figures are too low to use.
inline constexpr double kBusyShare = 0.05;

// Whether a measured device's figures are too low for that reason.
bool WasMeasuredBusy(const v1::Device& device);

// The warning for such figures: "others took 43.0 % of the processors while this machine was measured ..."; empty if they are
// sound.
std::string MeasuredBusyText(const v1::Device& device);

// Whether the machine is idle now: watches its processors for half a second. False without /proc.
bool HostIsQuiet();

// The peak to compute an MFU from: PeakFlops, or 0 if the device has no such figure of its own. An unmeasured CPU has the
// catalog's generic figures, and a 16-bit type that is slower than float32 is emulated in software.
double TruePeakFlops(const v1::Device& device, v1::DType dtype);

// Whether this machine's processor has bfloat16 instructions (AVX512-BF16 or AMX, Arm's BF16), by /proc/cpuinfo.
bool HostHasBfloat16();

// The same for a text in the format of /proc/cpuinfo.
bool HasBfloat16(const std::string& cpuinfo);

// Processor usage of this host and of this process, from /proc/stat and process times.

// Seconds of all processors together, since the host started.
struct ProcessorTimes {
  double busy_seconds = 0;  // includes what a hypervisor gave to other machines (steal)
  double all_seconds = 0;   // busy or idle
};

// Of the processors `cpus`, or of all if that is empty, from `text` in the format of /proc/stat (proc(5)), in ticks of 1 /
// `ticks_per_second` seconds. Nothing if it has none of them.
std::optional<ProcessorTimes> ParseProcessorTimes(const std::string& text, const std::set<int>& cpus, double ticks_per_second);

// The share of these processors in use from `before` to `after`, 0 to 1. Nothing if no time has passed.
std::optional<double> UsedShare(const ProcessorTimes& before, const ProcessorTimes& after);

// The same for other processes, given `own_seconds` of processor time of one's own.
std::optional<double> OthersShare(const ProcessorTimes& before, const ProcessorTimes& after, double own_seconds);

// Of the processors that this process may run on; of the whole host. Nothing if /proc cannot be read.
std::optional<ProcessorTimes> AllowedProcessorTimes();
std::optional<ProcessorTimes> HostProcessorTimes();

// Processor time of this process and of its reaped children, and of theirs.
double OwnProcessorSeconds();

// What other processes use of the processors that this process may run on, since construction.
class OthersUse {
 public:
  OthersUse();
  std::optional<double> Share() const;  // so far

 private:
  std::optional<ProcessorTimes> began_;
  double own_seconds_ = 0;
};

}  // namespace legoai::sim
