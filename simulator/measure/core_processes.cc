#include "simulator/measure/core_processes.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <new>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/process/child_process.h"
#include "core/process/host_resources.h"
#include "worker/graph/ivalue_constant.h"

namespace legoai::sim {
namespace {

struct Child {
  pid_t pid = -1;
  int pipe = -1;
};

void WriteAll(int fd, const void* data, size_t size) {
  for (const char* at = static_cast<const char*>(data); size > 0;) {
    const ssize_t written = write(fd, at, size);
    if (written <= 0) _exit(3);
    at += written;
    size -= static_cast<size_t>(written);
  }
}

std::string ReadAll(int fd, const std::function<void()>& watch) {
  constexpr int kLookMs = 500;
  std::string text;
  char buffer[1 << 14];
  while (true) {
    pollfd polled = {fd, POLLIN, 0};
    if (watch && poll(&polled, 1, kLookMs) == 0) {
      watch();
      continue;
    }
    const ssize_t got = read(fd, buffer, sizeof buffer);
    if (got <= 0) return text;
    text.append(buffer, got);
  }
}

// Numbers as bytes with exit code 0, or a message with exit code 1.
[[noreturn]] void RunChild(int64_t core, int cpu, const CoreWork& work, int out) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(cpu, &cpus);
  sched_setaffinity(0, sizeof cpus, &cpus);
  absl::StatusOr<std::vector<double>> result;
  try {
    at::set_num_threads(1);
    result = work(core);
  } catch (const std::exception& error) {
    result = absl::InternalError(error.what());
  }
  if (result.ok()) {
    WriteAll(out, result->data(), result->size() * sizeof(double));
    _exit(0);
  }
  WriteAll(out, result.status().message().data(), result.status().message().size());
  _exit(1);
}

absl::StatusOr<Child> Start(int64_t core, int cpu, const CoreWork& work) {
  int ends[2];
  if (pipe(ends) != 0) return absl::ResourceExhaustedError("no pipe for a process that measures");
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    RunChild(core, cpu, work, ends[1]);
  }
  close(ends[1]);
  if (pid > 0) return Child{pid, ends[0]};
  close(ends[0]);
  return absl::ResourceExhaustedError("no process could be started to measure");
}

absl::StatusOr<std::vector<double>> Finish(const Child& child, const std::function<void()>& watch) {
  const std::string bytes = ReadAll(child.pipe, watch);
  close(child.pipe);
  int status = 0;
  waitpid(child.pid, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 1) return absl::InternalError(bytes);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return absl::InternalError(absl::StrCat("a process that measured ", launch::DescribeWaitStatus(status)));
  }
  const auto* numbers = reinterpret_cast<const double*>(bytes.data());
  return std::vector<double>(numbers, numbers + bytes.size() / sizeof(double));
}

double CpuSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Of this thread, the fastest of a few: what else runs here slows the others.
double SecondsOf(const std::function<void()>& work) {
  constexpr int kRuns = 3;
  double fastest = 0;
  for (int i = 0; i <= kRuns; ++i) {
    const double begin = CpuSeconds();
    work();
    const double seconds = CpuSeconds() - begin;
    if (i > 0) fastest = i == 1 ? seconds : std::min(fastest, seconds);  // the first one warms up
  }
  return std::max(fastest, 1e-9);
}

double ProductFlopsPerSecond(v1::DType dtype) {
  constexpr int64_t kSize = 256;
  const at::Tensor a = at::ones({kSize, kSize}, at::TensorOptions().dtype(graph::ToScalarType(dtype)));
  return 2.0 * kSize * kSize * kSize / SecondsOf([&] { at::mm(a, a); });
}

double BytesPerSecond() {
  constexpr int64_t kElements = 4 << 20;
  at::Tensor a = at::ones({kElements});
  return 2.0 * kElements * sizeof(float) / SecondsOf([&] { a.add_(1); });
}

}  // namespace

SharedCounters::SharedCounters(int64_t count) : count_(count) {
  void* const memory =
      mmap(nullptr, count * sizeof(*counters_), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, /*fd=*/-1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  counters_ = new (memory) std::atomic<int64_t>[count]();
}

SharedCounters::~SharedCounters() { munmap(counters_, count_ * sizeof(*counters_)); }

int64_t SharedCounters::Smallest() const {
  return *std::min_element(counters_, counters_ + count_, [](const auto& a, const auto& b) { return a.load() < b.load(); });
}

absl::StatusOr<std::vector<std::vector<double>>> RunOnCores(int64_t cores, const CoreWork& work,
                                                            const std::function<void()>& watch) {
  const std::vector<int> cpus = launch::AllowedCpus();
  if (cpus.empty()) return absl::InternalError("this process has no processor to run on");
  std::vector<Child> children;
  absl::Status failure;
  for (int64_t core = 0; core < cores && failure.ok(); ++core) {
    auto child = Start(core, cpus[core % cpus.size()], work);
    if (child.ok()) children.push_back(*child);
    failure = child.status();
  }
  std::vector<std::vector<double>> results;
  for (const Child& child : children) {
    auto result = Finish(child, watch);
    if (failure.ok()) failure = result.status();
    if (result.ok()) results.push_back(*std::move(result));
  }
  if (!failure.ok()) return failure;
  return results;
}

absl::StatusOr<CoreSpeed> MeasureCoreSpeed(v1::DType dtype, int64_t busy_cores) {
  const auto cores = RunOnCores(busy_cores, [&](int64_t) -> absl::StatusOr<std::vector<double>> {
    return std::vector<double>{ProductFlopsPerSecond(dtype), ProductFlopsPerSecond(v1::FLOAT32), BytesPerSecond()};
  });
  if (!cores.ok()) return cores.status();
  CoreSpeed speed{dtype, 0, 0, 0};
  for (const auto& core : *cores) {
    speed.flops_per_second += core[0] / static_cast<double>(cores->size());
    speed.float32_flops_per_second += core[1] / static_cast<double>(cores->size());
    speed.bytes_per_second += core[2] / static_cast<double>(cores->size());
  }
  return speed;
}

}  // namespace legoai::sim
