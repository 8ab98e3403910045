#include "server/cli/local_service.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/process/build_version.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::cli {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(50);
// The store's files are checked for up to a minute, and an old store is migrated.
constexpr absl::Duration kStarts = absl::Minutes(5);
constexpr absl::Duration kAgentEnds = absl::Seconds(120);  // its trainers have a minute to save
constexpr absl::Duration kServerEnds = absl::Seconds(30);
// As the programs log that they are ready.
constexpr char kServes[] = " serves\"", kConnected[] = "\"is connected with ";

void Say(const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); }

}  // namespace

absl::StatusOr<std::string> LocalService::DefaultFolder() {
  const char* data = std::getenv("XDG_DATA_HOME");
  if (data != nullptr && *data == '/') return absl::StrCat(data, "/legoai");
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home == '/') return absl::StrCat(home, "/.local/share/legoai");
  return FieldError("--data", "", "is needed where neither HOME nor XDG_DATA_HOME names a folder");
}

LocalService::LocalService(const std::string& folder) : folder_(folder), server_(folder, "server"), agent_(folder, "agent") {}

absl::StatusOr<std::shared_ptr<void>> LocalService::Lock() const {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  const std::string path = folder_ + "/up.lock";
  const int file = error ? -1 : open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) {
    return FieldError(
        "--data", folder_,
        absl::StrCat("cannot be written (", error ? error.message() : std::strerror(errno), "): name a folder of yours"));
  }
  std::shared_ptr<void> lock(nullptr, [file](void*) { close(file); });
  if (flock(file, LOCK_EX | LOCK_NB) == 0) return lock;
  Say(absl::StrCat("another `lego up` is at work in ", folder_, "; waiting for it"));
  while (flock(file, LOCK_EX) != 0) {
    if (errno != EINTR) return FieldError("--data", folder_, absl::StrCat("cannot be locked: ", std::strerror(errno)));
  }
  return lock;
}

absl::Status LocalService::Ended(const BackgroundProgram& program) {
  return absl::FailedPreconditionError(
      absl::StrCat("the ", program.name(), " ended: ", program.LastMessage(), " (", program.log(), ")"));
}

absl::Status LocalService::Await(const BackgroundProgram& program, const std::string& words) const {
  const absl::Time end = absl::Now() + kStarts;
  while (!absl::StrContains(program.LogSinceRun(), words)) {
    // Without the server an agent would wait for ever.
    for (const BackgroundProgram* needed : {&server_, &program}) {
      if (!needed->Running()) return Ended(*needed);
    }
    if (absl::Now() >= end) {
      return absl::DeadlineExceededError(absl::StrCat("the ", program.name(), " is not ready after ",
                                                      absl::FormatDuration(kStarts), "; its log is ", program.log()));
    }
    absl::SleepFor(kLook);
  }
  return absl::OkStatus();
}

void LocalService::EndOne(BackgroundProgram& program) {
  if (program.End(&program == &agent_ ? kAgentEnds : kServerEnds)) return;
  Say(absl::StrCat("the ", program.name(), " did not end, and was killed"));
}

absl::Status LocalService::StartOne(BackgroundProgram& program, const std::vector<std::string>& command,
                                    const std::string& ready) {
  if (program.Running()) return absl::OkStatus();
  Say(absl::StrCat("starting the ", program.name()));
  RETURN_IF_ERROR(program.Run(command));
  return Await(program, ready);
}

absl::Status LocalService::Start(const std::vector<std::string>& server_command, const std::vector<std::string>& agent_command) {
  const auto is_other = [](const BackgroundProgram& program, const std::vector<std::string>& command) {
    const auto running = program.Running();
    return running && (running->build != launch::BuildVersion() || running->command != command);
  };
  if (is_other(agent_, agent_command)) {
    Say("the agent that runs is of another build, or was started with other options: it saves what trains and ends");
    EndOne(agent_);
  }
  if (is_other(server_, server_command)) {
    Say("the server that runs is of another build, or was started with other options: it ends; what trains goes on");
    EndOne(server_);
  }
  RETURN_IF_ERROR(StartOne(server_, server_command, kServes));
  return StartOne(agent_, agent_command, kConnected);
}

void LocalService::Stop() {
  Say("stopping: the agent saves what trains and leaves, then the server");
  EndOne(agent_);
  EndOne(server_);
}

}  // namespace legoai::cli
