#include "server/cli/local_service.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "core/checkpoint/files.h"
#include "core/process/build_version.h"
#include "core/process/child_process.h"
#include "proto/errors.h"
#include "proto/json/reflect.h"
#include "proto/read_file.h"
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

constexpr absl::Duration kDies = absl::Seconds(10);  // after SIGKILL, on a busy machine
constexpr size_t kStartTime = 19;                    // fields behind the name in /proc/PID/stat

// 0: there is none, or it has ended and nobody has asked for its exit code yet.
uint64_t StartTime(pid_t pid) {
  const char state = launch::ProcessState(pid);
  if (state == '?' || state == 'Z' || state == 'X') return 0;
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  const std::string line((std::istreambuf_iterator<char>(file)), {});
  std::istringstream fields(line.substr(std::min(line.size(), line.rfind(')') + 1)));
  std::vector<std::string> words((std::istream_iterator<std::string>(fields)), {});
  return words.size() > kStartTime ? std::strtoull(words[kStartTime].c_str(), nullptr, 10) : 0;
}

std::string ReadFrom(const std::string& path, int64_t begin) {
  std::ifstream file(path);
  file.seekg(begin);
  return {std::istreambuf_iterator<char>(file), {}};
}

int64_t SizeOf(const std::string& path) {
  std::error_code none;
  const auto size = std::filesystem::file_size(path, none);
  return none ? 0 : static_cast<int64_t>(size);
}

bool Within(absl::Duration patience, const std::function<bool()>& condition) {
  for (const absl::Time end = absl::Now() + patience; !condition(); absl::SleepFor(kLook)) {
    if (absl::Now() >= end) return false;
  }
  return true;
}

// In a session of its own, which no terminal ends, with default handling of signals.
absl::StatusOr<pid_t> Spawn(const std::vector<std::string>& command, const std::string& log) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t all, none;
  sigfillset(&all);
  sigemptyset(&none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, words[0], &files, &attributes, words.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error == 0) return pid;
  return FieldError("program", command[0], absl::StrCat("cannot be run with the log ", log, ": ", std::strerror(error)));
}

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

BackgroundProgram::BackgroundProgram(const std::string& folder, const std::string& name)
    : name_(name), record_(folder + "/" + name + ".json"), log_(folder + "/" + name + ".log") {}

std::optional<BackgroundProgram::Start> BackgroundProgram::Running() const {
  const auto text = ReadFile(record_, kMostTextBytes);
  if (!text.ok()) return std::nullopt;
  // One that was written in part (a full disk) tells of nothing that runs.
  const Tree tree = Tree::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!tree.is_object()) return std::nullopt;
  Start start;
  try {
    start = {tree.at("pid"), tree.at("start_time"), tree.at("build"), tree.at("command")};
  } catch (const Tree::exception&) {
    return std::nullopt;
  }
  const bool runs = start.pid > 0 && start.start_time > 0 && StartTime(start.pid) == start.start_time;
  return runs ? std::optional<Start>(std::move(start)) : std::nullopt;
}

std::string BackgroundProgram::ValueOf(const std::string& option) const {
  const auto running = Running();
  for (const std::string& word : running ? running->command : std::vector<std::string>()) {
    if (absl::StartsWith(word, option + "=")) return word.substr(option.size() + 1);
  }
  return "";
}

absl::Status BackgroundProgram::Run(const std::vector<std::string>& command) {
  log_begin_ = SizeOf(log_);
  ASSIGN_OR_RETURN(const auto pid, Spawn(command, log_));
  const Tree record = {
      {"pid", pid}, {"start_time", StartTime(pid)}, {"build", std::string(launch::BuildVersion())}, {"command", command}};
  absl::Status written = checkpoint::WriteFile(record_, record.dump(2) + "\n");
  if (!written.ok()) kill(pid, SIGKILL);  // nobody would find it again
  return written;
}

bool BackgroundProgram::End(absl::Duration patience) {
  const auto running = Running();
  const auto gone = [this] { return !Running(); };
  if (!running || kill(running->pid, SIGTERM) != 0 || Within(patience, gone)) return true;
  kill(running->pid, SIGKILL);
  Within(kDies, gone);
  return false;
}

std::string BackgroundProgram::LogSinceRun() const { return ReadFrom(log_, log_begin_); }

std::string BackgroundProgram::LastMessage() const {
  constexpr int64_t kEnd = 1 << 16;
  const std::vector<std::string> lines =
      absl::StrSplit(ReadFrom(log_, std::max<int64_t>(0, SizeOf(log_) - kEnd)), '\n', absl::SkipEmpty());
  if (lines.empty()) return "";
  const Tree line = Tree::parse(lines.back(), nullptr, /*allow_exceptions=*/false);
  const bool told = line.is_object() && line.contains("message") && line["message"].is_string();
  return told ? line["message"].get<std::string>() : lines.back();
}

}  // namespace legoai::cli
