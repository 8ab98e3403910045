// A sweep and sensitivities drawn: SVG for a page, a report, a chat. Thread-safety: pure functions.
#pragma once

#include <string>

#include "server/cli/whatif/sensitivities.h"
#include "server/cli/whatif/sweep_points.h"

namespace legoai::cli {

// Three panels over the values of the first variation: tokens a day, tokens/s of a device, peak memory with what is usable. A
// line for each combination of the other variations. Where all values are numbers they stand at their places, on a logarithmic
// axis if they span a factor of 8 or more; other values stand side by side. Points that do not fit are hollow.
std::string SweepSvg(const Sweep& sweep, const std::string& title);

// A bar to each side for each figure: the step with less and with more of it.
std::string SensitivitiesSvg(const Sensitivities& sensitivities, const std::string& title);

}  // namespace legoai::cli
