#include "server/cli/background_program.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
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
