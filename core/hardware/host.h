// What this host has to compute with (physical cores, and what they are called), and who keeps its processors busy.
// Thread-safety: pure functions, and reads of /proc and /sys.
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

// The file with this machine's measured CPU, which `lego hardware --measure` makes, and which figures are a machine's own.
// Thread-safety: reads of the environment and the file.

// Where it is kept: LEGOAI_HOST_DEVICE, or ~/.cache/legoai/this-machine.txtpb.
std::string HostDevicePath();

// This machine's CPU as it was measured; nothing if it was not. Errors: the file is broken, or LEGOAI_HOST_DEVICE names none.
absl::StatusOr<std::optional<v1::Device>> LoadHostDevice();

// Above this share of the processors that others took while a device was measured, its figures are too low to go by.
inline constexpr double kBusyShare = 0.05;

// Whether a measured device's figures are too low for that reason.
bool WasMeasuredBusy(const v1::Device& device);

// What is to be said where such figures are used: "others took 43.0 % of the processors while this machine was measured ...";
// empty where nothing is.
std::string MeasuredBusyText(const v1::Device& device);

// Whether others leave this machine alone now: looks at its processors for half a second. Without /proc: no.
bool HostIsQuiet();

// The peak that an MFU may be a share of: PeakFlops, or 0 where the device has none of its own. A CPU that was not measured has
// the catalog's figures, which are of no machine in particular; and what is slower than float32 in half the bits is done in
// software.
double TruePeakFlops(const v1::Device& device, v1::DType dtype);

// Whether this machine's processor computes with bfloat16 itself (AVX512-BF16 or AMX, Arm's BF16) and not in software, as
// /proc/cpuinfo has it.
bool HostHasBfloat16();

// The same of a text as /proc/cpuinfo has it.
bool HasBfloat16(const std::string& cpuinfo);

// How busy this host's processors are, and who keeps them busy: from /proc/stat and the times of processes.

// Seconds of all processors together, since the host started.
struct ProcessorTimes {
  double busy_seconds = 0;  // also what a hypervisor gave to other machines meanwhile (steal)
  double all_seconds = 0;   // busy or idle
};

// Of the processors `cpus`, or of all where that is empty, in `text` as /proc/stat has it (proc(5)), in ticks of 1 /
// `ticks_per_second` seconds. Nothing where it has none of them.
std::optional<ProcessorTimes> ParseProcessorTimes(const std::string& text, const std::set<int>& cpus, double ticks_per_second);

// From `before` to `after`, the share of these processors that was in use, 0 to 1. Nothing where no time has passed.
std::optional<double> UsedShare(const ProcessorTimes& before, const ProcessorTimes& after);

// The same of what others used, where `own_seconds` of processor time were one's own.
std::optional<double> OthersShare(const ProcessorTimes& before, const ProcessorTimes& after, double own_seconds);

// Of those processors that this process may run on; of the whole host. Nothing where /proc cannot be read.
std::optional<ProcessorTimes> AllowedProcessorTimes();
std::optional<ProcessorTimes> HostProcessorTimes();

// Processor time of this process and of its children that have ended and were waited for, and of theirs.
double OwnProcessorSeconds();

// What others use of the processors that this process may run on, from its making on.
class OthersUse {
 public:
  OthersUse();
  std::optional<double> Share() const;  // so far

 private:
  std::optional<ProcessorTimes> began_;
  double own_seconds_ = 0;
};

}  // namespace legoai::sim
