// Child processes, the pipe that tells a launcher to stop, and the socket of a job's rendezvous. Linux.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/process/other_user.h"

namespace legoai::launch {

// One child process that cannot outlive the thread that started it.

struct ChildSpec {
  std::vector<std::string> arguments;  // the first is the path of the program
  std::vector<int> inherited;          // descriptors the child keeps, under the same numbers; all others must be close-on-exec
  std::optional<int> cpu;              // the one processor it runs on
  int64_t memory_bytes = 0;            // that it may take for itself (RLIMIT_DATA); 0: no limit of its own
  std::string log_path;                // stdout and stderr are appended to it; empty: inherited
  // As whom it runs, with nothing of this process but what is said here (other_user.h): no descriptor that is not `inherited`,
  // and no environment but this one.
  std::optional<OtherUser> user = std::nullopt;
  std::vector<std::string> environment = {};  // with `user`: NAME=VALUE
};

// The child leads its own process group (a terminal's Ctrl-C does not reach it), has default signal handling, and is killed when
// the calling thread ends. Errors: FieldError naming the program if it cannot be run; PermissionDenied: it cannot be that user.
absl::StatusOr<pid_t> SpawnChild(const ChildSpec& spec);

// How a reaped child ended: "killed by signal 9 (Killed)", "exited with code 1".
std::string DescribeWaitStatus(int wait_status);

// The state of a process in /proc: 'R' running, 'S' sleeping, 'T' stopped (SIGSTOP), 'D' waiting for a device; '?': gone.
char ProcessState(pid_t pid);

// Reaps `pid` if it has ended, after killing the rest of its process group, and returns its wait status.
std::optional<int> ReapIfEnded(pid_t pid);

// Finds the programs that belong together: installed side by side, or in the build's output tree.

// Path of the program `name`, which the build puts in `folder` (from the root of its output tree): the value of the environment
// variable, if it is set; else beside this program, or in the output tree. Errors: NotFound, saying how to build it.
absl::StatusOr<std::string> FindProgram(const std::string& name, const std::string& folder, const char* variable);

// legoai-trainer; LEGOAI_TRAINER overrides it.
absl::StatusOr<std::string> FindTrainer();

// How a signal handler or another thread tells a launcher to stop or wakes it.

// Ways to stop, from the mildest: after a checkpoint; at the next step; all ranks are killed at once.
enum class Stop { kSave, kDiscard, kKill };

class StopPipe {
 public:
  StopPipe();
  ~StopPipe();
  StopPipe(const StopPipe&) = delete;
  StopPipe& operator=(const StopPipe&) = delete;

  // Stop at the next step boundary; `save`: after a checkpoint. Async-signal-safe, thread-safe.
  void Request(bool save);
  // Kill all ranks at once, because their lease is lost. Equally safe.
  void Kill();
  // An answer that the launcher waits for has arrived (LaunchCallbacks::commit). Equally safe.
  void Wake();

  // Whether there is a request that has not been taken yet.
  bool Pending() const;
  // Waits until there is a request or a wake-up, at most a second.
  void Await() const;
  // For poll: readable when there is a request or a wake-up.
  int fd() const { return fds_[0]; }
  // Takes all pending requests and returns the strongest; nothing if there is none.
  std::optional<Stop> Take();

 private:
  void Write(char byte);
  int fds_[2] = {-1, -1};
};

// The listening socket of a job's rendezvous: the launcher opens it, so that no port is guessed, and rank 0 inherits it.

struct ListenSocket {
  int fd = -1;  // close-on-exec; owned by the caller
  int64_t port = 0;
};

// Listens on 127.0.0.1. `port` 0: any free one. Errors: FieldError for "rendezvous_port" if it is in use or not available.
absl::StatusOr<ListenSocket> ListenOnLoopback(int64_t port);

}  // namespace legoai::launch
