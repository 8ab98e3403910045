// How busy this host's processors are, and who keeps them busy: from /proc/stat and the times of processes.
// Thread-safety: pure functions, and reads of /proc.
#pragma once

#include <optional>
#include <set>
#include <string>

namespace legoai::sim {

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
