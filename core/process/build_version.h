// The version of this build, and what `--help` and `--version` print. Thread-safety: BuildVersion() is thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace legoai::launch {

// Processes of one job compare it when they connect (launcher and trainer), and a run and its checkpoints record it.

// "0.1.0+8f3a12cd9b04": the release in VERSION, and a digest of the sources of proto, worker and simulator
// (tools/workspace_status). Equal sources give equal versions on every machine.
std::string_view BuildVersion();

// For a program with absl's flags: prints its own flags, not those of linked libraries, and its build.

// Call it before absl::ParseCommandLine. `usage`: what the program does, with an example. `file`: the suffix of the source file
// that defines its flags.
void SetProgramHelp(const std::string& usage, const std::string& file);

}  // namespace legoai::launch
