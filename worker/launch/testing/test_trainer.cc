// A trainer that speaks the real protocol over the real link, and trains nothing. Rank --culprit does --act in step 3, after it
// has said so; the others go on until they are told otherwise. Acts: none, die, stop_self, exit, fail, find_damage (of what it
// has saved), lose_peer, oversized, garbage, ignore_term, hang, work (until it is told to stop, telling of its progress),
// wait_in_kernel (as for a disk, and does not answer), fork (leaves a process that ignores SIGTERM, and dies), be_held (hangs,
// and a process of another group sees to it that nobody can reap this one), die_slowly (its connections are closed, and the
// others say so, before it has ended: it waits for SIGCONT). All ranks meet in step 1, and in step --meet, and offer a checkpoint
// in step 2, or in every step that --saves divides; at the end they wait for the verdicts. With --block_term=1 SIGTERM reaches
// none of them. Where Start names a checkpoint, the last rank reads all of it, and fails as a trainer does where it does not
// load.
//
// With --check=FD it answers as scripted_check.h says.
//
//   test_trainer --act=die --culprit=1 --steps=5 --socket=FD
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/checkpoint/chunks.h"
#include "core/checkpoint/directory.h"
#include "core/process/build_version.h"
#include "core/process/run_directory.h"
#include "proto/errors.h"
#include "worker/launch/testing/scripted_check.h"
#include "worker/launch/trainer_link.h"

namespace legoai::launch {
namespace {

std::map<std::string, std::string> ParseArguments(int argc, char** argv) {
  std::map<std::string, std::string> arguments = {{"act", "none"}, {"culprit", "0"},    {"steps", "5"},
                                                  {"meet", "0"},   {"block_term", "0"}, {"build", std::string(BuildVersion())},
                                                  {"saves", "0"}};
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i] + 2;
    arguments[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
  }
  return arguments;
}

int Fail(TrainerLink& link, const absl::Status& status) {
  link.SendExit(v1::Exit::FAILED, 3, status).IgnoreError();
  return 1;
}

// How many of them this process may run on.
int Processors() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  return sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 0;
}

[[noreturn]] void SleepForever() {
  while (true) pause();
}

void BlockTerm() {
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  sigprocmask(SIG_BLOCK, &term, nullptr);
}

// A process that waits for its child as vfork() does is in state D.
[[noreturn]] void WaitInKernel(TrainerLink& link) {
  link.SetWaitsIn([]() -> std::string { SleepForever(); });
  if (syscall(SYS_clone, CLONE_VFORK | SIGCHLD, nullptr, nullptr, nullptr, nullptr) == 0) SleepForever();
  _exit(1);
}

[[noreturn]] void LeaveAProcess(TrainerLink& link) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGTERM, SIG_IGN);
    SleepForever();
  }
  link.SendLog("info", absl::StrCat("child ", child)).IgnoreError();
  raise(SIGKILL);
  _exit(1);
}

// Who is traced is reaped by its tracer first.
[[noreturn]] void BeHeld(TrainerLink& link) {
  const pid_t rank = getpid();
  int ready[2];
  if (pipe(ready) != 0) _exit(1);
  const pid_t tracer = fork();
  if (tracer == 0) {
    setsid();
    const bool traces = ptrace(PTRACE_SEIZE, rank, nullptr, nullptr) == 0;
    if (!traces || write(ready[1], "x", 1) != 1) _exit(1);
    SleepForever();
  }
  prctl(PR_SET_PTRACER, tracer);
  char byte;
  close(ready[1]);
  if (read(ready[0], &byte, 1) != 1) _exit(1);
  link.SendLog("info", absl::StrCat("held by ", tracer)).IgnoreError();
  SleepForever();
}

// Whether another child of this process' parent is stopped.
bool ASiblingIsStopped() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream stat(entry.path() / "stat");
    std::string text;
    if (!std::isdigit(entry.path().filename().string()[0]) || !std::getline(stat, text)) continue;
    char state = 0;
    int parent = 0;
    // The name, in parentheses, may hold anything.
    if (std::sscanf(text.c_str() + text.rfind(')') + 1, " %c %d", &state, &parent) == 2 && state == 'T' && parent == getppid())
      return true;
  }
  return false;
}

// Comes back where the act is survived.
int Act(const std::string& act, TrainerLink& link, int fd) {
  if (act == "die") raise(SIGKILL);
  if (act == "stop_self") raise(SIGSTOP);
  if (act == "exit") _exit(7);
  if (act == "fail") return Fail(link, FieldError("training.lr", "1e9", "the loss is not finite"));
  if (act == "find_damage") {  // of what it has saved at step 4, each time
    const std::string root = CheckpointsPath(link.start().run_directory());
    return Fail(link, checkpoint::NoteDamage(absl::DataLossError("rank-00000.bin: torn"), root, 4));
  }
  if (act == "lose_peer") return Fail(link, absl::UnavailableError("connection closed by peer"));
  if (act == "oversized") {
    [[maybe_unused]] const ssize_t sent = send(fd, "\xff\xff\xff\x7f", 4, MSG_NOSIGNAL);
    SleepForever();
  }
  if (act == "garbage") {
    [[maybe_unused]] const ssize_t sent = send(fd, "\x04\0\0\0\xff\xff\xff\xff", 8, MSG_NOSIGNAL);
    SleepForever();
  }
  if (act == "hang") SleepForever();
  if (act == "die_slowly") {
    shutdown(fd, SHUT_WR);
    raise(SIGSTOP);
    SleepForever();  // until the listening thread sees that the launcher has closed the connection, too
  }
  if (act == "wait_in_kernel") WaitInKernel(link);
  if (act == "fork") LeaveAProcess(link);
  if (act == "be_held") BeHeld(link);
  if (act == "work") {
    link.SendProgress("checkpoint", 2, 5, /*total=*/1'000'000).IgnoreError();
    while (link.stop_request() == TrainerLink::StopRequest::kNone) {
      absl::SleepFor(absl::Milliseconds(10));
      link.Advance(1);
    }
  }
  if (act == "ignore_term") {
    signal(SIGTERM, SIG_IGN);
    SleepForever();
  }
  return 0;
}

absl::Status LoadCheckpoint(const v1::Start& start) {
  if (!start.has_resume_step() || start.rank() != start.world_size() - 1) return absl::OkStatus();
  const std::string root = CheckpointsHolding(start, start.resume_step());
  auto reader = checkpoint::CheckpointReader::Open(root, start.resume_step(), "");
  absl::Status status = reader.status();
  for (int i = 0; reader.ok() && status.ok() && i < reader->manifest().chunks_size(); ++i) {
    const v1::CheckpointChunk chunk = reader->manifest().chunks(i);
    std::string bytes(static_cast<size_t>(chunk.bytes()), '\0');
    status = reader->ReadRectangle(
        chunk.name(), chunk.dtype(), {chunk.global_shape().begin(), chunk.global_shape().end()},
        {{chunk.offsets().begin(), chunk.offsets().end()}, {chunk.sizes().begin(), chunk.sizes().end()}}, bytes.data());
  }
  return checkpoint::NoteDamage(status, root, start.resume_step());
}

absl::Status Meet(TrainerLink& link) {
  link.SendLog("info", "arrives").IgnoreError();
  const absl::Status met = link.Meet();
  link.SendLog("info", "passes").IgnoreError();
  return met;
}

// As of a trainer that traces step 2: of LEGOAI_TEST_TRACE_BYTES bytes, where that is set.
absl::Status SendTrace(TrainerLink& link, int64_t step) {
  const char* const bytes = std::getenv("LEGOAI_TEST_TRACE_BYTES");
  if (bytes == nullptr || step != 2) return absl::OkStatus();
  v1::FromTrainer message;
  message.mutable_step_trace()->set_step(step);
  message.mutable_step_trace()->set_path(absl::StrCat(link.start().run_directory(), "/trace-", link.start().rank(), ".json.gz"));
  std::ofstream(message.step_trace().path()) << std::string(static_cast<size_t>(std::atoll(bytes)), 'x');
  return link.Send(std::move(message));
}

absl::Status SendMetrics(TrainerLink& link, int64_t step) {
  v1::FromTrainer message;
  message.mutable_metrics()->set_attempt(link.start().attempt());
  message.mutable_metrics()->set_step(step);
  message.mutable_metrics()->set_loss(10.0 - static_cast<double>(step));
  message.mutable_metrics()->set_step_seconds(0.01 * static_cast<double>(step));
  message.mutable_metrics()->set_peak_memory_bytes(1000 + link.start().rank());
  return link.Send(std::move(message));
}

int End(TrainerLink& link, v1::Exit::Cause cause, int64_t step) {
  link.SendLog("info", absl::StrCat("ends: ", link.AwaitVerdicts().ToString())).IgnoreError();
  link.SendExit(cause, step, absl::OkStatus()).IgnoreError();
  return 0;
}

int Run(int argc, char** argv) {
  auto arguments = ParseArguments(argc, argv);
  const int fd = std::atoi(arguments["socket"].c_str());
  if (arguments["block_term"] == "1") BlockTerm();
  auto link = TrainerLink::Connect(fd, arguments["build"]);
  if (!link.ok()) return 1;
  const v1::Start& start = (*link)->start();
  (*link)
      ->SendLog("info",
                absl::StrCat("pid ", getpid(), " fd ", start.rendezvous_fd(), " port ", start.rendezvous_port(), " threads ",
                             start.threads(), " processors ", Processors(), " gpu ", start.gpu().empty() ? "none" : start.gpu()))
      .IgnoreError();
  if (const absl::Status loaded = LoadCheckpoint(start); !loaded.ok()) return Fail(**link, loaded);
  const bool culprit = std::to_string(start.rank()) == arguments["culprit"];
  const int64_t steps = std::atoi(arguments["steps"].c_str()), meet = std::atoi(arguments["meet"].c_str());
  const int64_t saves = std::atoi(arguments["saves"].c_str());
  (*link)->SetHearVerdict([&](int64_t step, const absl::Status& verdict) {
    (*link)->SendLog("info", absl::StrCat("verdict on ", step, ": ", verdict.ToString())).IgnoreError();
  });
  for (int64_t step = 1; step <= steps; ++step) {
    absl::SleepFor(absl::Milliseconds(10));
    if (!culprit && step == 3 && arguments["act"] == "die_slowly") {
      while (!ASiblingIsStopped()) absl::SleepFor(absl::Milliseconds(1));  // it has closed its connection before
      return Fail(**link, absl::UnavailableError("connection closed by peer"));
    }
    if (culprit && step == 3) {
      (*link)->SendLog("info", "acts").IgnoreError();
      if (const int code = Act(arguments["act"], **link, fd); code != 0) return code;
    }
    if ((step == 1 || step == meet) && !Meet(**link).ok()) return 1;
    if (!(*link)->SendProgress("train", step, steps).ok()) return 1;
    if (!SendMetrics(**link, step).ok() || !SendTrace(**link, step).ok()) return 1;
    if (saves > 0 ? step % saves == 0 : step == 2) {
      if (!(*link)->Offer(step, absl::StrCat("digest-", start.rank())).ok()) return 1;
      (*link)->SendLog("info", absl::StrCat("has offered ", step)).IgnoreError();
    }
    if ((*link)->stop_request() == TrainerLink::StopRequest::kNone) continue;
    const bool save = (*link)->stop_request() == TrainerLink::StopRequest::kSave;
    (*link)->SendLog("info", save ? "saved" : "discarded").IgnoreError();
    return End(**link, v1::Exit::STOPPED, step);
  }
  return End(**link, v1::Exit::FINISHED, steps);
}

}  // namespace
}  // namespace legoai::launch

int main(int argc, char** argv) {
  const std::string check = "--check=", first = argc > 1 ? argv[1] : "";
  if (first.rfind(check, 0) == 0) return legoai::launch::testing::RunScriptedCheck(std::atoi(first.c_str() + check.size()));
  return legoai::launch::Run(argc, argv);
}
