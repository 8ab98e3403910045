// Which build this is. Processes of one job compare it where they meet (launcher and trainer), and a run and its checkpoints
// keep it. Thread-safe.
#pragma once

#include <string_view>

namespace legoai::launch {

// "0.1.0+8f3a12cd9b04": the release in VERSION, and a digest of the sources of proto, worker and simulator
// (tools/workspace_status). Equal sources give equal versions on every machine.
std::string_view BuildVersion();

}  // namespace legoai::launch
