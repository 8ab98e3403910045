#include "worker/agent/machine_checks.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "core/checkpoint/files.h"
#include "core/hardware/check_text.h"
#include "core/process/child_process.h"
#include "core/process/framing.h"
#include "proto/text.h"
#include "worker/agent/attempt_log.h"
#include "worker/launch/check_pairs.h"

namespace legoai::agent {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLookMilliseconds = 50;
constexpr absl::Duration kKilledWithin = absl::Seconds(5);
constexpr int64_t kMostResultBytes = int64_t{1} << 20;

// A process of legoai-trainer with its task.
class CheckProcess {
 public:
  CheckProcess(const CheckPlan& plan, v1::CheckTask task, std::optional<int> processor, size_t results, const std::string& log)
      : task_(std::move(task)), awaited_(results), log_(log) {
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
      why_ended_ = "no socket is to be had";
      return;
    }
    socket_ = fds[0];
    const timeval timeout = {10, 0};
    setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    launch::ChildSpec spec;
    spec.arguments = {plan.trainer, absl::StrCat("--check=", fds[1])};
    spec.inherited = {fds[1]};
    if (task_.rendezvous_fd() >= 0) spec.inherited.push_back(static_cast<int>(task_.rendezvous_fd()));
    spec.cpu = processor;
    spec.log_path = log_;
    spec.user = plan.user;
    if (plan.user) spec.environment = launch::EnvironmentOf(*plan.user, /*with_keys=*/false);
    const auto pid = launch::SpawnChild(spec);
    close(fds[1]);
    pid_ = pid.value_or(-1);
    if (!pid.ok()) why_ended_ = std::string(pid.status().message());
    if (pid.ok() && !launch::WriteMessage(socket_, task_).ok()) why_ended_ = "it does not take its task";
    reader_ = std::make_unique<launch::MessageReader>(socket_, kMostResultBytes);
  }
  ~CheckProcess() { End(); }
  CheckProcess(const CheckProcess&) = delete;
  CheckProcess& operator=(const CheckProcess&) = delete;

  bool IsDone() const { return results_.size() >= awaited_ || !why_ended_.empty(); }
  int socket() const { return IsDone() ? -1 : socket_; }
  const v1::CheckTask& task() const { return task_; }
  const std::vector<v1::CheckResult>& results() const { return results_; }

  void Receive() {
    const absl::StatusOr<bool> open = reader_->Fill();
    v1::CheckResult result;
    while (reader_->Next(&result).value_or(false)) results_.push_back(result);
    if (!IsDone() && !open.value_or(false)) why_ended_ = "it has ended";
  }

  // Kills what still runs. A process that hangs in the kernel is left to that.
  void End() {
    if (socket_ >= 0) close(std::exchange(socket_, -1));
    if (pid_ <= 0) return;
    // Who is done ends by itself once the socket is closed; who is cut off is killed.
    for (const absl::Time end = absl::Now() + kKilledWithin; absl::Now() < end; absl::SleepFor(absl::Milliseconds(5))) {
      if (results_.size() < awaited_ || absl::Now() > end - kKilledWithin / 2) kill(-pid_, SIGKILL);
      const std::optional<int> status = launch::ReapIfEnded(pid_);
      if (!status) continue;
      pid_ = -1;
      if (why_ended_.empty() || why_ended_ == "it has ended") wait_status_ = launch::DescribeWaitStatus(*status);
      return;
    }
  }

  // Why there are not all results, after End().
  std::string WhyMissing(absl::Duration limit) const {
    if (why_ended_.empty()) return absl::StrCat("it did not end within ", DurationText(limit));
    if (why_ended_ != "it has ended") return why_ended_;
    const std::vector<std::string> lines = LastLines(log_, /*lines=*/3, /*bytes=*/2048);
    return absl::StrCat("its process ", wait_status_, lines.empty() ? "" : ": ", absl::StrJoin(lines, " / "));
  }

 private:
  const v1::CheckTask task_;
  const size_t awaited_;
  const std::string log_;
  int socket_ = -1;
  pid_t pid_ = -1;
  std::unique_ptr<launch::MessageReader> reader_;
  std::vector<v1::CheckResult> results_;
  std::string why_ended_, wait_status_ = "has closed its socket and does not end";
};

// Where the processes write what they have to say besides; empty: nowhere.
class LogFolder {
 public:
  LogFolder() {
    std::error_code error;
    std::string path = (std::filesystem::temp_directory_path(error) / "legoai-check-XXXXXX").string();
    if (!error && mkdtemp(path.data()) != nullptr) path_ = path;
  }
  ~LogFolder() {
    std::error_code none;
    if (!path_.empty()) std::filesystem::remove_all(path_, none);
  }
  LogFolder(const LogFolder&) = delete;
  LogFolder& operator=(const LogFolder&) = delete;
  std::string Next() { return path_.empty() ? "/dev/null" : absl::StrCat(path_, "/", ++count_); }

 private:
  std::string path_;
  int count_ = 0;
};

// Until all have told all, or the limit is over. False: it was given up.
bool Await(const std::vector<std::unique_ptr<CheckProcess>>& processes, absl::Duration limit,
           const std::function<bool()>& given_up) {
  const Clock::time_point end = Clock::now() + absl::ToChronoNanoseconds(limit);
  while (Clock::now() < end) {
    if (given_up()) return false;
    std::vector<pollfd> fds;
    std::vector<CheckProcess*> of_fds;
    for (const auto& process : processes) {
      if (process->socket() < 0) continue;
      fds.push_back({process->socket(), POLLIN, 0});
      of_fds.push_back(process.get());
    }
    if (fds.empty()) return true;
    poll(fds.data(), fds.size(), kLookMilliseconds);
    for (size_t i = 0; i < fds.size(); ++i) {
      if (fds[i].revents != 0) of_fds[i]->Receive();
    }
  }
  return true;
}

v1::CheckTask TaskOf(const CheckPlan& plan, v1::CheckKind kind, size_t place) {
  v1::CheckTask task;
  task.set_kind(kind);
  task.set_device(plan.gpus.empty() ? "cpu" : "cuda");
  if (!plan.gpus.empty()) task.set_gpu(plan.gpus[place]);
  task.set_threads(plan.threads);
  task.set_rendezvous_fd(-1);
  return task;
}

std::optional<int> ProcessorOf(const CheckPlan& plan, size_t place) {
  return plan.processors.empty() ? std::nullopt : std::optional(plan.processors[place]);
}

// The one result of a process, or that there is none.
v1::CheckResult ResultOf(CheckProcess& process, absl::Duration limit) {
  process.End();
  if (!process.results().empty()) return process.results().front();
  v1::CheckResult result;
  result.set_kind(process.task().kind());
  result.set_text(process.WhyMissing(limit));
  return result;
}

bool CheckDiskAndDevices(const CheckPlan& plan, LogFolder& logs, const std::function<bool()>& given_up, v1::MachineCheck* check) {
  std::vector<std::unique_ptr<CheckProcess>> processes;
  v1::CheckTask disk = TaskOf(plan, v1::DISK_CHECK, 0);
  disk.set_folder(plan.runs);
  // Always the same: what one leaves that was killed, the next one overwrites and removes.
  disk.set_file(absl::StrCat(".check-", plan.worker.substr(plan.worker.rfind('/') + 1)));
  processes.push_back(std::make_unique<CheckProcess>(plan, disk, std::nullopt, 1, logs.Next()));
  for (size_t i = 0; i < plan.slots.size(); ++i) {
    processes.push_back(
        std::make_unique<CheckProcess>(plan, TaskOf(plan, v1::DEVICE_CHECK, i), ProcessorOf(plan, i), 1, logs.Next()));
  }
  if (!Await(processes, plan.limit, given_up)) return false;
  for (size_t i = 0; i < processes.size(); ++i) {
    v1::CheckResult& result = *check->add_results();
    result = ResultOf(*processes[i], plan.limit);
    if (i > 0) result.add_slots(plan.slots[i - 1]);
  }
  return true;
}

// The slots that have passed, as a plan of their own.
CheckPlan PassedOf(const CheckPlan& plan, const v1::MachineCheck& check) {
  const std::set<int64_t> passed = PassedSlots(check);
  CheckPlan left = plan;
  left.slots.clear(), left.processors.clear(), left.gpus.clear();
  for (size_t i = 0; i < plan.slots.size(); ++i) {
    if (passed.count(plan.slots[i]) == 0) continue;
    left.slots.push_back(plan.slots[i]);
    if (!plan.processors.empty()) left.processors.push_back(plan.processors[i]);
    if (!plan.gpus.empty()) left.gpus.push_back(plan.gpus[i]);
  }
  return left;
}

// By a rank of the pair, which always says how long it took.
bool WasTold(const v1::CheckResult& result) { return result.seconds() > 0; }

// Of what both ranks have told of a pair: passed if both say so, and the slower figure.
v1::CheckResult OfPair(int64_t one, int64_t other, const std::vector<std::unique_ptr<CheckProcess>>& processes,
                       const launch::RankPair& pair, absl::Duration limit) {
  v1::CheckResult together;
  together.set_kind(v1::ALL_GATHER_CHECK);
  together.set_passed(true);
  for (const int64_t rank : {pair.first, pair.second}) {
    const auto& results = processes[rank]->results();
    const auto told = std::find_if(results.begin(), results.end(), [&](const v1::CheckResult& result) {
      return result.slots_size() == 2 && result.slots(0) == one && result.slots(1) == other;
    });
    const bool passed = told != results.end() && told->passed();
    if (!passed && together.passed()) {
      together.set_passed(false);
      together.set_text(told != results.end() ? told->text() : processes[rank]->WhyMissing(limit));
    }
    if (told == results.end()) continue;
    together.set_seconds(std::max(together.seconds(), told->seconds()));
    if (told->has_received_bytes_per_second() &&
        (!together.has_received_bytes_per_second() || told->received_bytes_per_second() < together.received_bytes_per_second()))
      together.set_received_bytes_per_second(told->received_bytes_per_second());
  }
  together.add_slots(one);
  together.add_slots(other);
  return together;
}

// Where there is nothing to be connected.
void AddNoPair(const CheckPlan& plan, size_t passed, v1::MachineCheck* check) {
  v1::CheckResult& result = *check->add_results();
  result.set_kind(v1::ALL_GATHER_CHECK);
  result.set_passed(true);
  const std::string one = plan.gpus.empty() ? "slot" : "GPU";
  if (plan.slots.empty()) {
    result.set_text("jobs have all slots: none is checked");
  } else if (plan.slots.size() == 1) {
    result.set_text(absl::StrCat("there is one ", one, " to check, and no pair"));
  } else {
    result.set_text(absl::StrCat("of ", plan.slots.size(), " ", one, "s ", passed, " passed, and there is no pair"));
  }
}

bool CheckPairs(const CheckPlan& all, LogFolder& logs, const std::function<bool()>& given_up, v1::MachineCheck* check) {
  const CheckPlan plan = PassedOf(all, *check);
  const bool neighbours = plan.gpus.empty();  // processors are connected by one memory
  const auto rounds = launch::CheckRounds(static_cast<int64_t>(plan.slots.size()), neighbours);
  if (rounds.empty()) {
    AddNoPair(all, plan.slots.size(), check);
    return true;
  }
  std::vector<size_t> meetings(plan.slots.size(), 0);
  for (const auto& round : rounds) {
    for (const auto& [a, b] : round) ++meetings[a], ++meetings[b];
  }
  const auto listener = launch::ListenOnLoopback(0);
  if (!listener.ok()) {
    v1::CheckResult& result = *check->add_results();
    result.set_kind(v1::ALL_GATHER_CHECK);
    result.set_text(std::string(listener.status().message()));
    return true;
  }
  std::vector<std::unique_ptr<CheckProcess>> processes;
  for (size_t rank = 0; rank < plan.slots.size(); ++rank) {
    v1::CheckTask task = TaskOf(plan, v1::ALL_GATHER_CHECK, rank);
    for (const int64_t slot : plan.slots) task.add_slots(slot);
    task.set_rank(static_cast<int64_t>(rank));
    task.set_rendezvous_port(listener->port);
    if (rank == 0) task.set_rendezvous_fd(listener->fd);
    task.set_one_round(neighbours);
    // Whose peer hangs in every round has told of all of them in time, and waits for one after the last.
    task.set_timeout_seconds(absl::ToDoubleSeconds(plan.limit) / static_cast<double>(rounds.size() + 2));
    processes.push_back(std::make_unique<CheckProcess>(plan, task, ProcessorOf(plan, rank), meetings[rank], logs.Next()));
  }
  close(listener->fd);
  if (!Await(processes, plan.limit, given_up)) return false;
  for (const auto& process : processes) process->End();
  for (const auto& round : rounds) {
    for (const launch::RankPair& pair : round)
      *check->add_results() = OfPair(plan.slots[pair.first], plan.slots[pair.second], processes, pair, plan.limit);
  }
  return true;
}

std::optional<v1::MachineCheck> CheckAll(const CheckPlan& plan, const std::function<bool()>& given_up) {
  v1::MachineCheck check;
  LogFolder logs;
  check.set_start_time_us(absl::ToUnixMicros(absl::Now()));
  const Clock::time_point begin = Clock::now();
  if (!CheckDiskAndDevices(plan, logs, given_up, &check) || !CheckPairs(plan, logs, given_up, &check)) return std::nullopt;
  check.set_seconds(std::chrono::duration<double>(Clock::now() - begin).count());
  return check;
}

// Trainers may write below RUNS, and not in it.
constexpr char kCheckFolder[] = ".checks";

v1::MachineCheck FailedBefore(const absl::Status& why) {
  v1::MachineCheck check;
  check.set_start_time_us(absl::ToUnixMicros(absl::Now()));
  v1::CheckResult& result = *check.add_results();
  result.set_kind(v1::DISK_CHECK);
  result.set_text(std::string(why.message()));
  return check;
}

}  // namespace

std::optional<v1::MachineCheck> CheckTheMachine(const CheckPlan& plan, const std::function<bool()>& given_up) {
  if (!plan.user) return CheckAll(plan, given_up);
  std::optional<v1::MachineCheck> check;
  if (const absl::Status given = launch::GiveFolder("--runs", plan.runs, kCheckFolder, *plan.user); !given.ok())
    return FailedBefore(given);
  CheckPlan theirs = plan;
  theirs.runs = absl::StrCat(plan.runs, "/", kCheckFolder);
  absl::Status made;
  const absl::Status acted = launch::RunAs(*plan.user, [&] {
    made = checkpoint::MakeFolders(theirs.runs);
    if (made.ok()) check = CheckAll(theirs, given_up);
  });
  if (!acted.ok() || !made.ok()) return FailedBefore(acted.ok() ? made : acted);
  return check;
}

std::map<int64_t, std::string> FaultsOf(const v1::MachineCheck& check) {
  std::map<int64_t, std::string> faults;
  // Pairs of which neither rank told may not have met because of another one that hung.
  std::vector<launch::RankPair> failed, untold;
  for (const v1::CheckResult& result : check.results()) {
    if (result.passed()) continue;
    if (result.kind() == v1::DEVICE_CHECK) faults[result.slots(0)] = absl::StrCat("its device failed the check: ", result.text());
    if (result.kind() != v1::ALL_GATHER_CHECK || result.slots_size() != 2) continue;
    (WasTold(result) ? failed : untold).push_back({result.slots(0), result.slots(1)});
  }
  const bool any_told = !failed.empty();
  for (const int64_t slot : launch::BlameRanks(any_told ? failed : untold)) {
    const auto pair = std::find_if(check.results().begin(), check.results().end(), [&](const v1::CheckResult& result) {
      return !result.passed() && result.slots_size() == 2 && WasTold(result) == any_told &&
             (result.slots(0) == slot || result.slots(1) == slot);
    });
    faults[slot] = absl::StrCat(sim::CheckedText(*pair), " failed: ", pair->text());
  }
  return faults;
}

std::set<int64_t> PassedSlots(const v1::MachineCheck& check) {
  std::set<int64_t> passed;
  for (const v1::CheckResult& result : check.results()) {
    if (result.kind() == v1::DEVICE_CHECK && result.passed()) passed.insert(result.slots(0));
  }
  for (const auto& [slot, fault] : FaultsOf(check)) passed.erase(slot);
  return passed;
}

std::string FaultOfDisk(const v1::MachineCheck& check) {
  for (const v1::CheckResult& result : check.results()) {
    if (result.kind() == v1::DISK_CHECK && !result.passed())
      return absl::StrCat("the disk of its runs failed the check: ", result.text());
  }
  return "";
}
}  // namespace legoai::agent
