#include "core/process/child_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"

namespace legoai::launch {
namespace {

// Everything the child does before exec: only calls that are safe after fork in a process with threads.
struct ChildPlan {
  std::vector<char*> argv, environment;
  const std::vector<int>* inherited;
  const OtherUser* user = nullptr;
  std::optional<int> cpu;
  int64_t memory_bytes = 0;
  int null_fd = -1, log_fd = -1, error_fd = -1;
  pid_t parent = 0;
};

// What the child says where it does not come to exec.
struct ChildError {
  int error = 0;        // errno; 0: it has come there
  bool of_user = false;  // it could not become its user
};

[[noreturn]] void GiveUp(const ChildPlan& plan, const ChildError& error) {
  [[maybe_unused]] const ssize_t written = write(plan.error_fd, &error, sizeof(error));
  _exit(127);
}

void ResetSignals() {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int signal_number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD}) signal(signal_number, SIG_DFL);
}

[[noreturn]] void RunChild(const ChildPlan& plan) {
  setpgid(0, 0);
  if (plan.user != nullptr) {
    if (const int error = BecomeForGood(*plan.user); error != 0) GiveUp(plan, {error, /*of_user=*/true});
    CloseAllOnExec();
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // a change of user takes it back
  if (getppid() != plan.parent) _exit(1);  // the parent died before prctl
  ResetSignals();
  if (plan.memory_bytes > 0) {
    if (const int error = LowerLimit(RLIMIT_DATA, static_cast<uint64_t>(plan.memory_bytes)); error != 0) GiveUp(plan, {error});
  }
  if (plan.cpu) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(*plan.cpu, &cpus);
    sched_setaffinity(0, sizeof(cpus), &cpus);
  }
  dup2(plan.null_fd, STDIN_FILENO);
  if (plan.log_fd >= 0) {
    dup2(plan.log_fd, STDOUT_FILENO);
    dup2(plan.log_fd, STDERR_FILENO);
  }
  for (int fd : *plan.inherited) fcntl(fd, F_SETFD, 0);
  execve(plan.argv[0], plan.argv.data(), plan.user == nullptr ? environ : plan.environment.data());
  GiveUp(plan, {errno});
}

// The pipe closes when exec succeeds.
ChildError AwaitExec(int fd) {
  ChildError error;
  ssize_t got;
  do {
    got = read(fd, &error, sizeof(error));
  } while (got < 0 && errno == EINTR);
  return got == sizeof(error) ? error : ChildError();
}

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

absl::StatusOr<pid_t> SpawnChild(const ChildSpec& spec) {
  ChildPlan plan;
  plan.argv = Pointers(spec.arguments);
  plan.environment = Pointers(spec.environment);
  plan.user = spec.user ? &*spec.user : nullptr;
  plan.inherited = &spec.inherited;
  plan.cpu = spec.cpu;
  plan.memory_bytes = spec.memory_bytes;
  plan.parent = getpid();
  if (!spec.log_path.empty()) {
    // Without O_NONBLOCK a pipe that nobody reads would be waited for.
    plan.log_fd = open(spec.log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0644);
    if (plan.log_fd < 0) return FieldError("log file", spec.log_path, absl::StrCat("cannot be written: ", std::strerror(errno)));
  }
  plan.null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) {
    const int error = errno;
    if (plan.null_fd >= 0) close(plan.null_fd);
    if (plan.log_fd >= 0) close(plan.log_fd);
    return absl::ResourceExhaustedError(absl::StrCat("pipe: ", std::strerror(error)));
  }
  plan.error_fd = pipe_fds[1];
  const pid_t pid = fork();
  if (pid == 0) RunChild(plan);
  const int fork_error = errno;
  close(pipe_fds[1]);
  if (plan.null_fd >= 0) close(plan.null_fd);
  if (plan.log_fd >= 0) close(plan.log_fd);
  const ChildError failed = pid > 0 ? AwaitExec(pipe_fds[0]) : ChildError();
  close(pipe_fds[0]);
  if (pid < 0) return absl::ResourceExhaustedError(absl::StrCat("cannot start a process: ", std::strerror(fork_error)));
  if (failed.error == 0) return pid;
  waitpid(pid, nullptr, 0);
  if (failed.of_user)
    return absl::PermissionDeniedError(
        absl::StrCat("a process cannot become user ", spec.user->name, ": ", std::strerror(failed.error),
                     "; allow this process to change users (CAP_SETUID and CAP_SETGID)"));
  const std::string as = spec.user ? absl::StrCat(" by user ", spec.user->name) : "";
  return FieldError("trainer program", spec.arguments[0], absl::StrCat("cannot be run", as, ": ", std::strerror(failed.error)),
                    absl::StatusCode::kNotFound);
}

std::string DescribeWaitStatus(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int number = WTERMSIG(wait_status);
    return absl::StrCat("was killed by signal ", number, " (", strsignal(number), ")");
  }
  return absl::StrCat("exited with code ", WEXITSTATUS(wait_status));
}

char ProcessState(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  std::getline(file, line);
  // "PID (NAME) STATE ...", and the name may hold anything.
  const size_t end = line.rfind(')');
  return end == std::string::npos || end + 2 >= line.size() ? '?' : line[end + 2];
}

std::optional<int> ReapIfEnded(pid_t pid) {
  siginfo_t info = {};
  if (waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != pid) return std::nullopt;
  // As long as the leader is not reaped its number stands for its group and for no other.
  kill(-pid, SIGKILL);
  int wait_status = 0;
  waitpid(pid, &wait_status, 0);
  return wait_status;
}

namespace fs = std::filesystem;

absl::StatusOr<std::string> FindProgram(const std::string& name, const std::string& folder, const char* variable) {
  const std::string remedy = absl::StrCat("build it with `bazel build //", folder, ":", name, "`, or name it in ", variable);
  if (const char* path = std::getenv(variable); path != nullptr && *path != '\0') {
    if (access(path, X_OK) == 0) return std::string(path);
    return absl::NotFoundError(absl::StrCat(variable, " = ", path, " is not there or cannot be run: ", remedy));
  }
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  const std::vector<fs::path> places = {self.parent_path() / name, self.parent_path() / "../.." / folder / name};
  for (const fs::path& place : places) {
    if (access(place.c_str(), X_OK) == 0) return fs::weakly_canonical(place, error).string();
  }
  return absl::NotFoundError(absl::StrCat("the program ", name, " is not beside ", self.filename().string(), ": ", remedy));
}

absl::StatusOr<std::string> FindTrainer() { return FindProgram("legoai-trainer", "worker/train", "LEGOAI_TRAINER"); }

StopPipe::StopPipe() {
  if (pipe2(fds_, O_CLOEXEC | O_NONBLOCK) != 0) fds_[0] = fds_[1] = -1;
}

StopPipe::~StopPipe() {
  for (int fd : fds_) {
    if (fd >= 0) close(fd);
  }
}

void StopPipe::Request(bool save) { Write(save ? 's' : 'd'); }
void StopPipe::Kill() { Write('k'); }
void StopPipe::Wake() { Write('w'); }

void StopPipe::Write(char byte) { [[maybe_unused]] const ssize_t written = write(fds_[1], &byte, 1); }

bool StopPipe::Pending() const {
  pollfd waiting = {fds_[0], POLLIN, 0};
  return poll(&waiting, 1, 0) > 0;
}

void StopPipe::Await() const {
  pollfd waiting = {fds_[0], POLLIN, 0};
  poll(&waiting, 1, 1000);
}

std::optional<Stop> StopPipe::Take() {
  char bytes[64];
  const ssize_t got = read(fds_[0], bytes, sizeof(bytes));
  const auto has = [&](char byte) { return got > 0 && std::find(bytes, bytes + got, byte) != bytes + got; };
  if (has('k')) return Stop::kKill;
  if (has('d')) return Stop::kDiscard;
  if (has('s')) return Stop::kSave;
  return std::nullopt;
}

absl::StatusOr<ListenSocket> ListenOnLoopback(int64_t port) {
  if (port < 0 || port > 65535) return FieldError("rendezvous_port", absl::StrCat(port), "must be from 0 (any) to 65535");
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ResourceExhaustedError(absl::StrCat("socket: ", std::strerror(errno)));
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  socklen_t length = sizeof(address);
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  if (bind(fd, raw, sizeof(address)) != 0 || listen(fd, SOMAXCONN) != 0 || getsockname(fd, raw, &length) != 0) {
    const int error = errno;
    close(fd);
    const char* remedy = error == EADDRINUSE ? "the port is in use: choose another, or 0 for any that is free" : nullptr;
    return FieldError("rendezvous_port", absl::StrCat(port),
                      remedy ? remedy : absl::StrCat("cannot be listened on: ", std::strerror(error)),
                      absl::StatusCode::kUnavailable);
  }
  return ListenSocket{fd, ntohs(address.sin_port)};
}

}  // namespace legoai::launch
