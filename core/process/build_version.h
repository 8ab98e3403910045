// Which build this is, and what `--help` and `--version` print. Thread-safety: BuildVersion() is thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace legoai::launch {

// Processes of one job compare it where they meet (launcher and trainer), and a run and its checkpoints keep it.

// "0.1.0+8f3a12cd9b04": the release in VERSION, and a digest of the sources of proto, worker and simulator
// (tools/workspace_status). Equal sources give equal versions on every machine.
std::string_view BuildVersion();

// For a program with absl's flags: prints its own flags, not those of the libraries in it, and its build.

// Before absl::ParseCommandLine. `usage`: what the program does, with an example. `file`: the end of the source's name in which
// its flags are defined.
void SetProgramHelp(const std::string& usage, const std::string& file);

}  // namespace legoai::launch
