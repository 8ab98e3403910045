// What `--help` and `--version` of a program with absl's flags print: its own flags, not those of the libraries in it, and its
// build.
#pragma once

#include <string>

namespace legoai::launch {

// Before absl::ParseCommandLine. `usage`: what the program does, with an example. `file`: the end of the source's name in which
// its flags are defined.
void SetProgramHelp(const std::string& usage, const std::string& file);

}  // namespace legoai::launch
