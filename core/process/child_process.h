// Starts one child process that cannot outlive the thread that started it. Linux.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace legoai::launch {

struct ChildSpec {
  std::vector<std::string> arguments;  // the first is the path of the program
  std::vector<int> inherited;          // descriptors the child keeps, under the same numbers; all others must be close-on-exec
  std::optional<int> cpu;              // the one processor it runs on
  std::string log_path;                // gets stdout and stderr, appended; empty: they are inherited
};

// The child leads its own process group (a terminal's Ctrl-C does not reach it), has default signal handling, and is killed
// when the calling thread ends. Errors: FieldError naming the program where it cannot be run.
absl::StatusOr<pid_t> SpawnChild(const ChildSpec& spec);

// How a reaped child ended: "killed by signal 9 (Killed)", "exited with code 1".
std::string DescribeWaitStatus(int wait_status);

// What a process does, as the kernel says in /proc: 'R' and 'S' run or sleep, 'T' is stopped (SIGSTOP), 'D' waits for a device;
// '?': it is gone.
char ProcessState(pid_t pid);

// Reaps `pid` if it has ended, after killing what is left of its process group; gives its wait status.
std::optional<int> ReapIfEnded(pid_t pid);

// Finds the programs that belong together: installed side by side, or in the build's output tree.

// Path of the program `name`, which the build leaves in `folder` (from the root of its output tree): what the environment
// variable says, if it is set; else beside this program, or in the output tree. Errors: NotFound, saying how to build it.
absl::StatusOr<std::string> FindProgram(const std::string& name, const std::string& folder, const char* variable);

// legoai-trainer; LEGOAI_TRAINER names another one.
absl::StatusOr<std::string> FindTrainer();

}  // namespace legoai::launch
