// A sweep and sensitivities drawn: SVG for a page, a report, a chat. Thread-safety: pure functions.
#pragma once

#include <string>

#include "server/cli/whatif/sensitivities.h"
#include "server/cli/whatif/sweep_points.h"

namespace legoai::cli {

// Three panels over the values of the first variation: tokens per day, tokens/s per device, peak and usable memory. One line per
// combination of the other variations. Numeric values are placed to scale, on a logarithmic axis if they span a factor of 8 or
// more; other values are evenly spaced. Points that do not fit are hollow.
std::string SweepSvg(const Sweep& sweep, const std::string& title);

// For each figure a bar to each side: the step time with less and with more of it.
std::string SensitivitiesSvg(const Sensitivities& sensitivities, const std::string& title);

}  // namespace legoai::cli
