// The version of this build, and what `--help` and `--version` print. Thread-safety: BuildVersion() is thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace legoai::launch {

// Processes compare it when they connect (launcher and trainer, hosts of a gang, server and agent); a run and its checkpoints
// record it; plans that were made before are those of one build (server/fleet/plan_cache.h).

// "0.1.0+8f3a12cd9b04": the release in VERSION, and a digest of the sources of core, planner, proto, simulator and worker, with
// the catalog of devices (tools/workspace_status). Equal sources give equal versions on every machine.
std::string_view BuildVersion();

// For a program with absl's flags: prints its own flags, not those of linked libraries, and its build.

// Call it before absl::ParseCommandLine. `usage`: what the program does, with an example. `file`: the suffix of the source file
// that defines its flags.
void SetProgramHelp(const std::string& usage, const std::string& file);

}  // namespace legoai::launch
