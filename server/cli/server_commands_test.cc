// The commands that talk to a server, as processes against a real one: handlers, store and gRPC, with a scripted fleet.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/cli/testing/lego_process.h"
#include "server/rpc/testing/test_service.h"

namespace legoai::cli {
namespace {

using testing::Json;
using testing::ReadAll;
using testing::Result;

constexpr char kLego[] = "server/cli/lego";
const std::vector<v1::JobState> kToRunning = {v1::PLANNING, v1::QUEUED, v1::LEASED, v1::STARTING, v1::RUNNING};

// Whether the process has a handler of its own for the signal by now.
bool Catches(pid_t pid, int signal) {
  const std::string status = ReadAll("/proc/" + std::to_string(pid) + "/status"), name = "SigCgt:";
  const size_t at = status.find(name);
  return at != std::string::npos && (std::stoull(status.substr(at + name.size()), nullptr, 16) >> (signal - 1) & 1) != 0;
}

// A terminal of the test's own, for a program to write to.
class Terminal {
 public:
  Terminal() {
    char name[64] = "";
    winsize size = {24, 80, 0, 0};
    EXPECT_EQ(openpty(&reader_, &writer_, name, nullptr, &size), 0);
    fcntl(reader_, F_SETFL, O_NONBLOCK);
    name_ = name;
  }
  ~Terminal() {
    close(reader_);
    close(writer_);
  }
  const std::string& name() const { return name_; }
  // All that was written so far.
  const std::string& Text() {
    char part[512];
    for (ssize_t got = 0; (got = read(reader_, part, sizeof(part))) > 0;) text_.append(part, static_cast<size_t>(got));
    return text_;
  }

 private:
  int reader_ = -1, writer_ = -1;
  std::string name_, text_;
};

class ServerCommands : public testing::LegoTest {
 protected:
  void SetUp() override {
    LegoTest::SetUp();
    setenv("LEGOAI_SERVER", service_.StartServer().c_str(), 1);
  }
  void TearDown() override {
    unsetenv("LEGOAI_SERVER");
    LegoTest::TearDown();
  }
  std::string Id(const v1::Job& job) const { return job.name().substr(job.name().rfind('/') + 1); }
  std::string Suffix(const v1::Job& job) const { return job.name().substr(job.name().size() - 6); }
  std::string StandardError(pid_t pid) const { return ReadAll(Path("stderr." + std::to_string(pid))); }
  std::string StandardOutput(pid_t pid) const { return ReadAll(Path("stdout." + std::to_string(pid))); }
  void WaitForText(pid_t pid, const std::string& text) const {
    testing::WaitUntil(text, [&] {
      return testing::Ended(pid) || StandardError(pid).find(text) != std::string::npos ||
             StandardOutput(pid).find(text) != std::string::npos;
    });
  }
  Json RunJson(std::vector<std::string> words) const {
    words.insert(words.end(), {"-o", "json"});
    const Result result = Run(words);
    EXPECT_EQ(result.code, 0) << result.err;
    return Json::parse(result.out, nullptr, false);
  }

  server::testing::TestService service_;
};

TEST_F(ServerCommands, WithoutAServerTheLineSaysWhatToDo) {
  service_.StopServer();
  for (const char* command : {"list", "workers"}) {
    ExpectError({command}, 1, {"no server at " + service_.address() + ": start one with `lego up`, or give --server"});
  }
  const std::string line = Run({"list"}).err;
  for (const char* wrapper : {"last error", "UNKNOWN", "all addresses;"})
    EXPECT_EQ(line.find(wrapper), std::string::npos) << line;
  ExpectError({"watch", "01ARZ3NDEKTSV4RRFFQ69G5FAV"}, 1, {"no server at"});
  ExpectError({"submit", Path("recipe.toml")}, 1, {"no server at"});
}

TEST_F(ServerCommands, ServersAreAskedEachAndSaidToBeAwayWhereTheyDoNotAnswer) {
  const Result one = Run({"servers", "--server", service_.address()});
  EXPECT_EQ(one.code, 0) << one.err;
  EXPECT_NE(one.out.find("alone"), std::string::npos) << one.out;
  const server::testing::SilentServer a, b;
  const Result three =
      Run({"servers", "--server", absl::StrCat(service_.address(), ",", a.address(), ",", b.address()), "-o", "json"});
  EXPECT_EQ(three.code, 1) << three.err;
  const Json list = Json::parse(three.out, nullptr, false);
  ASSERT_EQ(list.size(), 3u) << three.out;
  EXPECT_TRUE(list[0]["answers"].get<bool>());
  for (const int i : {1, 2}) {
    const std::string error = list[i]["error"].get<std::string>();
    EXPECT_NE(error.find("did not answer within 5s"), std::string::npos) << error;
  }
}

TEST_F(ServerCommands, AddressesAreChecked) {
  ExpectError({"list", "--server", "nonsense"}, 2, {"--server", "nonsense", "HOST:PORT"});
  ExpectError({"list", "--server", "localhost:99999"}, 2, {"--server", "HOST:PORT"});
  setenv("LEGOAI_SERVER", "http://a:1/", 1);
  ExpectError({"list"}, 2, {"LEGOAI_SERVER", "HOST:PORT"});
  EXPECT_EQ(Run({"list", "--server", service_.address()}).code, 0) << "the option wins";
}

TEST_F(ServerCommands, AJobFromSubmissionToItsEnd) {
  const Result submitted = Run({"submit", Path("recipe.toml"), "--name", "my job", "--policy.priority=3"});
  ASSERT_EQ(submitted.code, 0) << submitted.err;
  EXPECT_EQ(submitted.out.rfind("submitted projects/default/jobs/", 0), 0u) << submitted.out;
  EXPECT_NE(submitted.err.find("job.dump_folder is for `lego train`"), std::string::npos) << submitted.err;
  const Json jobs = RunJson({"list"});
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_EQ(jobs[0]["state"], "submitted");
  const std::string name = jobs[0]["name"], id = name.substr(name.rfind('/') + 1);
  EXPECT_NE(submitted.err.find("lego watch " + id), std::string::npos);
  // By name, id, beginning, end, in small letters too.
  std::string small = id.substr(16);
  for (char& c : small) c = static_cast<char>(tolower(c));
  for (const std::string& job : {name, id, id.substr(0, 12), id.substr(14), small}) {
    const Json got = RunJson({"get", job});
    EXPECT_EQ(got["name"], name);
    EXPECT_EQ(got["spec"]["display_name"], "my job");
    EXPECT_EQ(got["spec"]["policy"]["priority"], 3);
    EXPECT_EQ(got["spec"]["dataset"]["bytes"], static_cast<int64_t>(std::filesystem::file_size(Path("text.txt"))));
  }
  const Result table = Run({"get", id});
  for (const char* part : {"my job", "submitted", "all slots of pool default"})
    EXPECT_NE(table.out.find(part), std::string::npos) << table.out;
  EXPECT_NE(Run({"list"}).out.find("my job"), std::string::npos);
  EXPECT_EQ(RunJson({"list", "--filter", "state = running"}).size(), 0u);
  EXPECT_EQ(RunJson({"cancel", id, "--reason", "a test"})["state"], "cancelled");
  EXPECT_EQ(RunJson({"cancel", id})["reason"], "was cancelled: a test");
  const Json retried = RunJson({"retry", id, "--request-id", "retry-0001"});
  EXPECT_EQ(retried["retry_of"], name);
  EXPECT_EQ(RunJson({"retry", id, "--request-id", "retry-0001"})["name"], retried["name"]);
  EXPECT_EQ(RunJson({"list", "--limit", "1"})[0]["name"], retried["name"]);
  EXPECT_NE(Run({"retry", id}).out.find(", which tries " + name + " again; begins anew, for it has no checkpoint\n"),
            std::string::npos);
  ExpectError({"retry", id, "--from", "400"}, 2, {"from_step", "400", "there is none"});
  ExpectError({"retry", id, "--from", "0"}, 2, {"--from", "0"});
  ExpectError({"retry", id, "--from", "400", "--fresh"}, 2, {"from_step", "fresh"});
  const Result waited = Run({"wait", id});
  EXPECT_EQ(waited.code, 1);
  EXPECT_NE(waited.out.find("cancelled"), std::string::npos);
  ExpectError({"retry", retried["name"]}, 1, {"is submitted"});
  const Result yaml = Run({"list", "-o", "yaml"});
  EXPECT_NE(yaml.out.find("name: \"" + name + "\""), std::string::npos) << yaml.out;
}

TEST_F(ServerCommands, BadSubmissionsAreRefusedInTheFilesTerms) {
  const std::string recipe = Path("recipe.toml");
  ExpectError({"submit", recipe, "--training.local_bach_size=2"}, 2, {"training.local_bach_size", "training.local_batch_size"});
  ExpectError({"submit", recipe, "--resources.slot=2"}, 2, {"resources.slot", "slots"});
  ExpectError({"submit", recipe, "--resources.slots=-1"}, 2, {"recipe.toml: resources.slots = -1"});
  ExpectError({"submit", recipe, "--planning.constraints=parallelism.tensor_paralel_degree=2"}, 2,
              {"planning.constraints[0]", "tensor_parallel_degree"});
  ExpectError({"submit", recipe, "--request-id", "short"}, 2, {"request_id", "8 to 64"});
  ExpectError({"submit", Path("missing.toml")}, 2, {"missing.toml"});
  ExpectError({"submit", recipe, "--wait", "--watch"}, 2, {"exclude"});
  testing::Write(Path("other.json"), R"({"architectures": ["MambaForCausalLM"], "model_type": "mamba"})");
  ExpectError({"submit", recipe, "--model.name=" + Path("other.json")}, 2, {"MambaForCausalLM"});
  EXPECT_EQ(RunJson({"submit", recipe, "--check"})["spec"]["policy"]["max_restarts"], 3);
  const Result brief = Run({"submit", recipe, "--check", "--training.steps=2"});
  EXPECT_NE(brief.err.find("the whole run is warm-up"), std::string::npos) << brief.err;
  const std::string constraints = "parallelism.tensor_parallel_degree=1,training.local_batch_size=4";
  EXPECT_EQ(RunJson({"submit", recipe, "--check", "--planning.constraints=" + constraints})["spec"]["planning"]["constraints"],
            Json::array({"parallelism.tensor_parallel_degree=1", "training.local_batch_size=4"}));
  EXPECT_EQ(RunJson({"list"}).size(), 0u);
  EXPECT_EQ(Run({"submit", recipe, "--request-id", "my-request"}).code, 0);
  EXPECT_EQ(Run({"submit", recipe, "--request-id", "my-request"}).code, 0);
  ExpectError({"submit", recipe, "--request-id", "my-request", "--training.seed=1"}, 1, {"request_id", "another content"});
  EXPECT_EQ(RunJson({"list"}).size(), 1u);
  const Result unseen = Run({"submit", recipe, "--training.dataset_path=/nowhere/text.txt"});
  EXPECT_EQ(unseen.code, 0);
  EXPECT_NE(unseen.err.find("/nowhere/text.txt is not visible here"), std::string::npos) << unseen.err;
}

TEST_F(ServerCommands, PartsOfIdsMustBeUnique) {
  service_.Create();
  service_.Create();
  ExpectError({"get", "01"}, 2, {"JOB", "fits 2 jobs; give more of the id of one"});
  ExpectError({"get", "ZZZZ"}, 2, {"JOB", "lego list"});
  // A name that is also a part of the id of another job.
  const v1::Job other = service_.Create("other");
  const v1::Job suffix = service_.Create(Suffix(other));
  ExpectError({"get", Suffix(other)}, 2, {"fits 2 jobs", Id(other) + " (submitted, other)", Id(suffix)});
  ExpectError({"get", "01ARZ3NDEKTSV4RRFFQ69G5FAV"}, 2, {"there is no such job"});
  ExpectError({"get", "projects/default/jobs/x"}, 2, {"JOB"});
  ExpectError({"list", "--filter", "state = runing"}, 2, {"filter", "running"});
  ExpectError({"list", "--limit", "0"}, 2, {"--limit"});
}

TEST_F(ServerCommands, OfJobsWithOneNameTheActiveOneIsMeantOrElseTheNewest) {
  const v1::Job first = service_.Create("Bible");
  const Result alone = Run({"get", "Bible", "-o", "json"});
  EXPECT_EQ(Json::parse(alone.out)["name"], first.name());
  EXPECT_EQ(alone.err, "");
  const v1::Job second = service_.Create("Bible");
  EXPECT_EQ(RunJson({"get", "Bible"})["name"], second.name()) << "both are active";
  EXPECT_EQ(RunJson({"cancel", Id(second)})["state"], "cancelled");
  const Result active = Run({"get", "Bible", "-o", "json"});
  EXPECT_EQ(Json::parse(active.out)["name"], first.name()) << "the older one is still active";
  EXPECT_EQ(active.err, "note: 2 jobs are called Bible; this is the latest active one, " + Id(first) + " (submitted, Bible)\n");
  EXPECT_EQ(RunJson({"cancel", "Bible"})["name"], first.name());
  const Result newest = Run({"get", "Bible", "-o", "json"});
  EXPECT_EQ(Json::parse(newest.out)["name"], second.name()) << "both have ended";
  EXPECT_NE(newest.err.find("this is the newest one, " + Id(second) + " (cancelled, Bible)"), std::string::npos) << newest.err;
}

TEST_F(ServerCommands, AWatchOutlivesTheServer) {
  const v1::Job job = service_.Create("watched");
  const pid_t watch = Start({"watch", Suffix(job)});
  WaitForText(watch, "submitted");
  service_.Move(job.name(), {v1::PLANNING, v1::QUEUED});
  WaitForText(watch, "planning -> queued");
  service_.StopServer();
  service_.Move(job.name(), {v1::LEASED, v1::RUNNING});
  service_.StartServer();
  WaitForText(watch, "leased -> running");
  service_.Touch(job.name(), [](v1::Job* it) {
    it->mutable_progress()->set_step(3);
    it->mutable_progress()->set_steps(6);
    it->mutable_progress()->set_loss(2.5);
  });
  service_.Move(job.name(), {v1::SUCCEEDED});
  const Result result = Wait(watch);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("succeeded at step 3/6, loss 2.5"), std::string::npos) << result.out;
  // Every change once.
  for (const char* change : {"submitted -> planning", "planning -> queued", "queued -> leased", "running -> succeeded"}) {
    const size_t first = result.err.find(change);
    ASSERT_NE(first, std::string::npos) << change << " in " << result.err;
    EXPECT_EQ(result.err.find(change, first + 1), std::string::npos) << change;
  }
}

TEST_F(ServerCommands, AFullDiskIsNoSuccess) {
  service_.Create();
  const Result list = Wait(StartProgram({"/bin/sh", "-c", std::string(kLego) + " list > /dev/full"}));
  EXPECT_EQ(list.code, 1);
  EXPECT_NE(list.err.find("could not all be written"), std::string::npos) << list.err;
}

TEST_F(ServerCommands, LeavingAWatchLeavesTheJob) {
  const v1::Job job = service_.Create();
  service_.Move(job.name(), kToRunning);
  for (const char* command : {"watch", "wait"}) {
    const pid_t watch = Start({command, Id(job), "--server", service_.address()});
    if (std::string(command) == "watch") WaitForText(watch, "running");
    testing::WaitUntil("a handler for Ctrl-C", [&] { return testing::Ended(watch) || Catches(watch, SIGINT); });
    kill(watch, SIGINT);
    const Result result = Wait(watch);
    EXPECT_EQ(result.signal, 0) << "the signal ended " << command << ", which is to end by itself";
    EXPECT_EQ(result.code, 130) << result.err;
    EXPECT_NE(result.err.find("watch it again: lego watch " + Id(job) + " --server " + service_.address()), std::string::npos)
        << result.err;
  }
  EXPECT_EQ(service_.Get(job.name()).state(), v1::RUNNING);
}

TEST_F(ServerCommands, AWatchOnATerminalHasABarThatGrows) {
  const v1::Job job = service_.Create();
  service_.Move(job.name(), kToRunning);
  Terminal terminal;
  const pid_t watch =
      StartProgram({"/bin/sh", "-c", std::string("exec ") + kLego + " watch " + Id(job) + " 2>" + terminal.name()});
  const auto await = [&](const std::string& text) {
    testing::WaitUntil(text, [&] { return testing::Ended(watch) || terminal.Text().find(text) != std::string::npos; });
  };
  for (const auto& [step, bar] : {std::pair(3, "███·········"), {6, "██████······"}}) {
    service_.Touch(job.name(), [step = step](v1::Job* it) {
      it->mutable_progress()->set_step(step);
      it->mutable_progress()->set_steps(12);
    });
    await("\r\033[Krunning  " + std::string(bar) + "  step " + std::to_string(step) + "/12");
  }
  service_.Move(job.name(), {v1::SUCCEEDED});
  await("succeeded");  // else its last lines would not fit into the terminal
  EXPECT_EQ(Wait(watch).code, 0) << terminal.Text();
  EXPECT_NE(terminal.Text().find("running  ██████······  step 6/12"), std::string::npos) << terminal.Text();
}

TEST_F(ServerCommands, StatesHaveColoursOnATerminalUnlessTheyAreUnwanted) {
  const v1::Job job = service_.Create("my job");
  EXPECT_EQ(RunJson({"cancel", Id(job)})["state"], "cancelled");
  const auto list = [&](const std::string& environment) {
    Terminal terminal;
    const Result result =
        Wait(StartProgram({"/bin/sh", "-c", environment + " exec " + kLego + " list >" + terminal.name() + " 2>&1"}));
    EXPECT_EQ(result.code, 0);
    return terminal.Text();
  };
  const std::string colored = "\033[33mcancelled\033[0m  ";
  EXPECT_NE(list("NO_COLOR= TERM=xterm").find(Id(job) + "  " + colored), std::string::npos) << list("NO_COLOR= TERM=xterm");
  for (const char* plain : {"NO_COLOR=1 TERM=xterm", "TERM=dumb", "TERM="})
    EXPECT_NE(list(plain).find(Id(job) + "  cancelled  "), std::string::npos) << plain;
  EXPECT_EQ(Run({"list"}).out.find('\033'), std::string::npos) << "a pipe";
  const Result wrong = Wait(StartProgram({"/bin/sh", "-c", std::string("TERM=xterm exec ") + kLego + " list --limit 0"}));
  EXPECT_EQ(wrong.err.rfind("lego list: --limit", 0), 0u) << wrong.err;
}

TEST_F(ServerCommands, WatchesAsJsonAreLines) {
  const v1::Job job = service_.Create();
  const pid_t watch = Start({"submit", Path("recipe.toml"), "--watch", "-o", "json"});
  WaitForText(watch, "submitted");
  testing::WaitUntil("the second job", [&] { return RunJson({"list"}).size() == 2; });
  const std::string name = RunJson({"list"})[0]["name"];
  service_.Move(name, {v1::PLANNING});
  v1::PlanningProgress progress;
  progress.set_space(7);
  progress.set_elapsed_seconds(1);
  service_.notifier().SetPlanning(name, progress);
  service_.Move(name, {v1::FAILED});
  const Result result = Wait(watch);
  EXPECT_EQ(result.code, 1) << result.err;
  Json last;
  for (size_t at = 0; at < result.out.size();) {
    const size_t end = result.out.find('\n', at);
    last = Json::parse(result.out.substr(at, end - at));
    at = end + 1;
  }
  EXPECT_EQ(last["job"]["state"], "failed");
  EXPECT_EQ(Run({"wait", name, "-o", "json"}).code, 1);
}

TEST_F(ServerCommands, LogsAreReadAndFollowed) {
  const v1::Job job = service_.Create();
  service_.Move(job.name(), kToRunning);
  auto append = [&](const std::string& text, int64_t rank) {
    service_.Write([&](store::Transaction& transaction) {
      v1::LogLine line;
      line.set_text(text);
      line.set_level("info");
      line.set_attempt(1);
      line.set_rank(rank);
      return transaction.AppendLog(job.name(), line);
    });
  };
  for (int i = 0; i < 20; ++i) append("line-" + std::to_string(i) + ".", i % 2);
  const Result all = Run({"logs", Id(job)});
  EXPECT_EQ(std::count(all.out.begin(), all.out.end(), '\n'), 3 + 20) << "planned, queued, leased, and the trainers' own";
  EXPECT_NE(all.out.find("job leased: as the test wants it"), std::string::npos) << all.out;
  const Result tail = Run({"logs", Id(job), "--tail", "3", "-o", "json"});
  EXPECT_EQ(std::count(tail.out.begin(), tail.out.end(), '\n'), 3);
  EXPECT_EQ(Json::parse(tail.out.substr(0, tail.out.find('\n')))["text"], "line-17.");
  EXPECT_EQ(Run({"logs", Id(job), "--rank", "1"}).out.find("line-2."), std::string::npos);
  const pid_t follow = Start({"logs", Id(job), "--follow", "--tail", "1"});
  WaitForText(follow, "line-19.");
  append("later", 0);
  WaitForText(follow, "later");
  append("the last word", 0);
  service_.Move(job.name(), {v1::SUCCEEDED});
  const Result followed = Wait(follow);
  EXPECT_EQ(followed.code, 0) << followed.err;
  EXPECT_EQ(std::count(followed.out.begin(), followed.out.end(), '\n'), 4) << followed.out;
  EXPECT_NE(followed.out.find("the last word"), std::string::npos);
  EXPECT_NE(followed.out.find("job succeeded"), std::string::npos);
}

TEST_F(ServerCommands, WorkersAreShownAndDrained) {
  EXPECT_NE(Run({"workers"}).out.find("no workers"), std::string::npos);
  v1::Worker worker;
  worker.set_name("workers/node-7");
  worker.set_pool("default");
  worker.set_state(v1::READY);
  worker.set_slots(4);
  worker.set_connected(true);
  service_.fleet().SetWorkers({worker});
  EXPECT_NE(Run({"workers"}).out.find("node-7"), std::string::npos);
  EXPECT_EQ(RunJson({"workers"})[0]["slots"], 4);
  EXPECT_EQ(RunJson({"workers", "node-7", "--drain"})["state"], "draining");
  EXPECT_EQ(RunJson({"workers", "workers/node-7"})["state"], "draining");
  EXPECT_EQ(RunJson({"workers", "node-7", "--undrain"})["state"], "ready");
  EXPECT_TRUE(RunJson({"workers", "node-7", "--drain", "--let-finish"})["lets_finish"]);
  RunJson({"workers", "node-7", "--undrain"});
  ExpectError({"workers", "--drain"}, 2, {"NAME", "is needed"});
  ExpectError({"workers", "node-7", "--let-finish"}, 2, {"--let-finish", "goes with --drain"});
  ExpectError({"workers", "node-7", "--undrain", "--grace", "3"}, 2, {"--grace", "goes with --drain"});
  ExpectError({"workers", "node-7", "--drain", "--let-finish", "--grace", "3"}, 2, {"--grace", "are not stopped"});
  ExpectError({"workers", "node-8"}, 2, {"workers/node-8", "no such worker"});
  ExpectError({"workers", "node-7", "--drain", "--undrain"}, 2, {"exclude"});
}

TEST_F(ServerCommands, AWorkersHealthIsShownAndItsMachineChecked) {
  v1::Worker worker;
  worker.set_name("workers/node-7");
  worker.set_state(v1::READY);
  worker.set_slots(3);
  worker.set_connected(true);
  v1::SlotDevice& device = *worker.add_slot_devices();
  device.set_index(5), device.set_uuid("GPU-x"), device.set_name("NVIDIA H100 80GB HBM3");
  v1::GpuUse& gpu = *worker.mutable_use()->add_gpus();
  gpu.set_index(5), gpu.add_slowdowns("hw_thermal"), gpu.set_temperature_celsius(89);
  v1::WorkerHealth& health = *worker.mutable_health();
  v1::SlotFault& fault = *health.add_slot_faults();
  fault.set_slot(2), fault.set_cause(v1::GPU_XID), fault.set_reason("its driver told of Xid 79");
  fault.set_time_us(1'700'000'000'000'000);
  const auto add = [&](v1::CheckKind kind, const std::vector<int64_t>& slots, bool passed) {
    v1::CheckResult& result = *health.mutable_check()->add_results();
    result.set_kind(kind), result.set_passed(passed), result.set_seconds(1.25);
    for (const int64_t slot : slots) result.add_slots(slot);
    return &result;
  };
  add(v1::DISK_CHECK, {}, true)->set_write_bytes_per_second(5e8);
  add(v1::DEVICE_CHECK, {0}, true)->set_flops_per_second(5e13);
  add(v1::ALL_GATHER_CHECK, {0, 1}, true)->set_received_bytes_per_second(3e11);
  add(v1::ALL_GATHER_CHECK, {0, 2}, true)->set_received_bytes_per_second(2e11);
  service_.fleet().SetWorkers({worker});
  const std::string list = Run({"workers"}).out;
  EXPECT_NE(list.find("ready, 1 slot faulty"), std::string::npos) << list;
  EXPECT_EQ(list.find("Xid 79"), std::string::npos) << "the list is short";
  const std::string shown = Run({"workers", "node-7"}).out;
  for (const char* part :
       {"slot 2 gets nothing new since 2023-11-1", "(gpu_xid): its driver told of Xid 79\n",
        "slot 0: GPU 5, NVIDIA H100 80GB HBM3, GPU-x, 89 °C, slowed down: hw_thermal\n",
        "  disk: passed in 1.2 s, 500 MB/s written\n",
        "  device of slot 0: passed in 1.2 s, 50000 GFLOP/s\n",
        "  all_gather of 2 pairs: passed; the slowest: all_gather of slots 0 and 2: passed in 1.2 s, 200 GB/s received\n"})
    EXPECT_NE(shown.find(part), std::string::npos) << part << "\n" << shown;

  EXPECT_EQ(RunJson({"workers", "node-7", "--check"})["health"]["check"]["number"], 1);
  add(v1::DEVICE_CHECK, {1}, false)->set_text("a matrix product is not what the host computes");
  service_.fleet().SetWorkers({worker});
  const auto failed = Run({"workers", "node-7", "--check"});
  EXPECT_EQ(failed.code, 1);
  EXPECT_NE(failed.out.find("device of slot 1: FAILED in 1.2 s: a matrix product is not"), std::string::npos) << failed.out;
  ExpectError({"workers", "--check"}, 2, {"NAME", "is needed with --check"});
  ExpectError({"workers", "node-7", "--check", "--drain"}, 2, {"--check", "and --drain exclude each other"});
  ExpectError({"workers", "node-8", "--check"}, 2, {"workers/node-8", "no such worker"});
}

TEST_F(ServerCommands, CheckpointsAndFlightRecordsOfAJob) {
  const v1::Job job = service_.Create("my job");
  ExpectError({"fr", Id(job)}, 1, {job.name() + " has no flight record: one is taken when", "lego logs " + Id(job)});
  ExpectError({"fr", "01ARZ3NDEKTSV4RRFFQ69G5FAV"}, 2, {"there is no such job"});
  service_.Write([&](store::Transaction& transaction) -> absl::Status {
    v1::Checkpoint checkpoint;
    checkpoint.set_name(job.name() + "/checkpoints/100");
    checkpoint.set_step(100);
    checkpoint.set_epoch(1);
    checkpoint.set_directory("/data/run/checkpoints");
    if (absl::Status status = transaction.PutCheckpoint(job.name(), checkpoint); !status.ok()) return status;
    checkpoint.set_step(50);
    checkpoint.set_remove_time_us(7);
    if (absl::Status status = transaction.PutCheckpoint(job.name(), checkpoint); !status.ok()) return status;
    v1::FlightRecord head;
    head.set_attempt(1);
    head.set_reason("no progress");
    head.mutable_analysis()->set_verdict("collective_state_mismatch");
    head.mutable_analysis()->set_text("rank 1 has not entered all_gather 17");
    v1::FlightDump dump;
    dump.set_rank(0);
    dump.set_world_size(2);
    return transaction.PutFlightRecord(job.name(), head, &dump);
  });
  const Json listed = RunJson({"checkpoints", Suffix(job), "--server", service_.address()});
  ASSERT_EQ(listed.size(), 1u) << "one is gone";
  EXPECT_EQ(listed[0]["step"], 100);
  EXPECT_NE(Run({"checkpoints", job.name()}).out.find("/data/run/checkpoints"), std::string::npos);
  for (const std::string& word : {Id(job), Suffix(job), std::string("my job")}) {
    EXPECT_NE(Run({"fr", word}).out.find("rank 1 has not entered all_gather 17"), std::string::npos) << word;
    EXPECT_NE(Run({"checkpoints", word}).out.find("/data/run/checkpoints"), std::string::npos) << word;
  }
  for (const char* command : {"fr", "checkpoints"}) {
    ExpectError({command, "nothing"}, 2, {"there is no file or folder nothing here, so a job is meant", "lego list"});
    ExpectError({command, "runs/nothing"}, 2, {"runs/nothing", "is no "});
  }
  const Json record = RunJson({"fr", Suffix(job), "--server", service_.address()});
  EXPECT_EQ(record["analysis"]["verdict"], "collective_state_mismatch");
  EXPECT_EQ(record["world_size"], 2);
  EXPECT_EQ(record["missing"], Json::array({1}));
}

TEST_F(ServerCommands, TracesOfAJobAndTheTimeOfItsRanks) {
  const v1::Job job = service_.Create();
  EXPECT_NE(Run({"traces", Id(job)}).out.find("metrics.trace_steps"), std::string::npos);
  EXPECT_NE(Run({"get", Id(job), "--ranks"}).out.find("no report of this job says"), std::string::npos);
  service_.Write([&](store::Transaction& transaction) -> absl::Status {
    for (int64_t attempt : {1, 2}) {
      v1::StepTraceInfo info;
      info.set_name(absl::StrCat(job.name(), "/stepTraces/", attempt, "-100-1"));
      info.set_attempt(attempt);
      info.set_step(100);
      info.set_rank(1);
      info.set_bytes(2048);
      v1::TraceFile file;
      file.set_trace_gzip(absl::StrCat("of attempt ", attempt));
      if (absl::Status status = transaction.PutStepTrace(job.name(), info, file); !status.ok()) return status;
    }
    v1::StepMetrics metrics;
    metrics.set_attempt(1);
    metrics.set_step(1200);
    for (int64_t rank = 0; rank < 2; ++rank) {
      v1::RankMetrics& row = *metrics.add_ranks();
      row.set_rank(rank);
      row.set_step_seconds(0.5);
      row.set_forward_seconds(0.125);
      row.set_peak_memory_bytes(int64_t{3} << 30);
      v1::CollectiveTime& one = *row.add_collectives();
      one.set_collective("all_gather");
      one.set_group("dp_shard");
      one.set_count(24);
      one.set_seconds(0.2);
      one.set_exposed_seconds(rank == 0 ? 0.02 : 0.06);
    }
    return transaction.AppendMetrics(job.name(), metrics);
  });
  EXPECT_NE(Run({"traces", Id(job)}).out.find("2.00 KiB"), std::string::npos);
  const Json listed = RunJson({"traces", Id(job)});
  ASSERT_EQ(listed.size(), 2u);
  EXPECT_EQ(listed[1]["attempt"], 2);
  EXPECT_EQ(Run({"traces", Id(job), "--step", "100", "--out", Path("step.json.gz")}).code, 0);
  EXPECT_EQ(ReadAll(Path("step.json.gz")), "of attempt 2") << "the latest";
  EXPECT_EQ(Run({"traces", Id(job), "--step", "100", "--rank", "1", "--attempt", "1", "--out", Path("step.json.gz")}).code, 0);
  EXPECT_EQ(ReadAll(Path("step.json.gz")), "of attempt 1");
  ExpectError({"traces", Id(job), "--step", "100", "--rank", "0", "--out", Path("none.gz")}, 2, {"--step", "no such trace"});
  ExpectError({"traces", Id(job), "--step", "100"}, 2, {"--step", "goes with --out"});
  ExpectError({"traces", Id(job), "--rank", "1"}, 2, {"--rank", "goes with --step"});
  ExpectError({"traces", Id(job), "--out", Path("none.gz")}, 2, {"--out", "--predicted"});
  ExpectError({"traces", Id(job), "--predicted", "--out", Path("none.gz")}, 2, {"has no recipe whose step could be predicted"});
  const std::string ranks = Run({"get", Id(job), "--ranks"}).out;
  for (const char* part : {"report of step 1,200", "125 ms", "3.00 GiB", "all_gather", "dp_shard", "20.0 %", "60.0 ms on rank 1"})
    EXPECT_NE(ranks.find(part), std::string::npos) << part << " in " << ranks;
}

TEST_F(ServerCommands, PlansAndSimulationsOfAServer) {
  service_.fleet().plan = [](const v1::PlanRequest& request, const std::function<void(const v1::PlanningProgress&)>& progress,
                             const std::function<bool()>&) -> absl::StatusOr<v1::PlanResult> {
    EXPECT_EQ(request.global_batch(), 4);
    EXPECT_EQ(request.constraints_size(), 1);
    progress(v1::PlanningProgress());
    v1::PlanResult result;
    result.set_captured(1);
    result.set_explanation("because");
    result.add_ranked()->set_rank(1);
    return result;
  };
  service_.fleet().simulate = [](const v1::SimRequest& request, const std::function<bool()>&) -> absl::StatusOr<v1::Estimate> {
    v1::Estimate estimate;
    estimate.set_fits(true);
    estimate.set_model(request.model().name());
    return estimate;
  };
  const std::vector<std::string> common = {"--recipe", Path("recipe.toml"), "--cluster",
                                           "cpu:2x1",  "--server",          service_.address()};
  std::vector<std::string> plan = {"plan", "--constraint", "parallelism.tensor_parallel_degree=2", "--budget-seconds", "0"};
  plan.insert(plan.end(), common.begin(), common.end());
  EXPECT_EQ(RunJson(plan)["explanation"], "because");
  std::vector<std::string> simulate = {"simulate"};
  simulate.insert(simulate.end(), common.begin(), common.end());
  EXPECT_TRUE(RunJson(simulate)["fits"]);
  simulate.insert(simulate.end(), {"--trace", Path("trace.json")});
  ExpectError(simulate, 2, {"--trace", "--server"});
  service_.StopServer();
  ExpectError(plan, 1, {"no server at"});
}

TEST_F(ServerCommands, EveryCommandHasHelpWithAnExample) {
  const std::string overview = Run({}).out;
  for (const char* command : {"submit", "list", "get", "watch", "wait", "logs", "cancel", "retry", "workers"}) {
    const Result result = Run({command, "--help"});
    EXPECT_EQ(result.code, 0);
    EXPECT_NE(result.out.find("\nexample:\n"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("--server"), std::string::npos) << result.out;
    EXPECT_NE(overview.find(std::string("\n  ") + command), std::string::npos);
  }
}

}  // namespace
}  // namespace legoai::cli
