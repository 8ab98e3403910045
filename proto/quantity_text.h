// Quantities as people read them, the same in tables, messages and logs: three digits, a space, the unit. The page does likewise
// (dashboards/web/src/format.ts). Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace legoai {

std::string BytesText(double bytes);      // "145 MiB", "1.50 GiB"; binary
std::string SecondsText(double seconds);  // what one thing took: "3.21 ms", "3.200 s"
// How long something lasts: "45 s", "3 min 20 s", "2 h 5 min", "4 d 3 h"; "300 ms" of what is shorter than a second.
std::string DurationText(double seconds);
std::string DurationText(absl::Duration duration);
std::string CountText(double count);                 // "8.03 B", "4.60 M"
std::string WithCommas(int64_t number);              // "12,345"
std::string PercentText(double share);               // 0.4 -> "40.0 %"
std::string FlopsText(double flops_per_second);      // "989 TFLOP/s"
std::string BandwidthText(double bytes_per_second);  // "3.35 TB/s"; decimal, as data sheets have it

}  // namespace legoai
