#include "tests/scenarios/chaos.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/enum_text.h"
#include "server/store/open_store.h"
#include "server/store/testing/postgres_server.h"
#include "tests/scenarios/checker.h"
#include "tests/scenarios/checkpoint_checker.h"
#include "tests/scenarios/clients.h"
#include "tests/scenarios/disk_harm.h"
#include "tests/scenarios/told.h"
#include "tests/service/service_processes.h"

namespace legoai::scenarios {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kAgents = 2, kSlots = 2, kClients = 2;
constexpr int64_t kKeepLatest = 2;
constexpr size_t kLastWordsBytes = 6000;
// Generous: it is reached only where a job hangs.
constexpr double kSettleSeconds = 300, kIdleSeconds = 60;
constexpr double kLongestRoundSeconds = 15;  // a longer one is told of, and breaks no rule: the machine may be busy

const service::ServerTimes kShortLeases = {.lease_ttl = "2s", .heartbeat_interval = "300ms", .replan_grace = "1s"};
const service::ServerTimes kCalm = {.lease_ttl = "20s", .heartbeat_interval = "500ms", .replan_grace = "1s"};

struct Agent {
  std::string name;
  pid_t process = 0;  // 0: killed
  bool stopped = false;
  Clock::time_point revive_at;  // of one that was killed or stopped
  bool drains = false;
  Clock::time_point undrain_at;
};

// Beside the one of ServiceProcesses, which is the first.
struct Server {
  std::string address;
  std::unique_ptr<v1::ControlPlane::Stub> stub = nullptr;
  pid_t process = 0;  // 0: killed
  bool stopped = false;
  Clock::time_point revive_at = {};  // of one that was killed or stopped
};

struct Harm {
  int servers = 0, agents = 0, stops = 0, trainers = 0, spoiled = 0, fills = 0, drains = 0, databases = 0, stopped_servers = 0;
  void Add(const Harm& other) {
    servers += other.servers, agents += other.agents, stops += other.stops, trainers += other.trainers;
    spoiled += other.spoiled, fills += other.fills, drains += other.drains, databases += other.databases;
    stopped_servers += other.stopped_servers;
  }
  std::string Text() const {
    return absl::StrCat("killed ", servers, " servers, ", agents, " agents, ", trainers, " trainers, stopped ", stops,
                        " agents, drained ", drains, ", spoiled ", spoiled, " checkpoints, filled the disk ", fills, " times",
                        stopped_servers > 0 ? absl::StrCat(", stopped ", stopped_servers, " servers") : "",
                        store::TestStoreIsPostgres() ? absl::StrCat(", ended the database ", databases, " times") : "");
  }
};

std::string CallsText(const Calls& calls) {
  return absl::StrCat(calls.submitted, " submissions, ", calls.repeated, " repeated, ", calls.cancelled, " cancellations (",
                      calls.saving, " that save), ",
                      calls.retried, " retries, ", calls.looked, " looks, ", calls.unanswered, " unanswered");
}

class Chaos {
 public:
  explicit Chaos(const ChaosOptions& options) : options_(options), random_(options.seed), service_("legoai-chaos") {}
  ~Chaos() { disk_.Unmount(); }

  std::vector<std::string> Run() {
    Begin();
    for (int round = 1; round <= options_.rounds && broken_.empty() && !options_.stop(); ++round) Round(round);
    if (broken_.empty() && !options_.stop()) Settle();
    if (options_.stop()) return {"stopped"};
    if (broken_.empty()) {
      options_.say(absl::StrCat("seed ", options_.seed, ": ", options_.rounds, " rounds, ", long_rounds_, " of them longer than ",
                                kLongestRoundSeconds, " s, no rule broken; ", harm_.Text(), "; ", CallsText(calls_), "; ",
                                ViewText(view_), RecoveryText()));
    } else {
      service_.KeepFolder();
      // Before the rules: what is long is cut at its beginning.
      broken_.insert(broken_.begin(), absl::StrCat("seed ", options_.seed, ", kept: ", service_.Path(""), "\n",
                                                   service_.LastWords(kLastWordsBytes)));
    }
    return broken_;
  }

 private:
  void Begin() {
    std::vector<std::string> addresses;
    for (int i = 0; i < options_.servers; ++i) {
      addresses.push_back(i == 0 ? service_.address() : absl::StrCat("127.0.0.1:", service::FreePort()));
      servers_.push_back({.address = addresses.back(), .stub = service::MakeStub(addresses.back())});
    }
    all_servers_ = absl::StrJoin(addresses, ",");
    any_server_ = service::MakeStub("ipv4:" + all_servers_);
    if (const auto refusal = disk_.Mount()) options_.say(absl::StrCat("the disk of the runs is never full: ", *refusal));
    for (const auto& [slots, steps, interval] : {std::tuple(1, 40, 5), {1, 150, 10}, {2, 60, 6}, {2, 200, 20}}) {
      auto spec = service_.TinyJob(slots, steps, interval);
      if (!spec.ok()) return Break(std::string(spec.status().message()));
      spec->mutable_recipe()->mutable_checkpoint()->set_keep_latest_k(kKeepLatest);
      spec->mutable_recipe()->mutable_comm()->set_trace_buf_size(100);  // else many rounds' rings fill the disk for good
      client_options_.specs.push_back(*std::move(spec));
    }
    for (int i = 0; i < kClients; ++i) {
      clients_.emplace_back(absl::StrCat("client-", i), static_cast<uint32_t>(random_()), &client_options_, any_server_.get(),
                            &told_);
    }
    for (int i = 0; i < kAgents; ++i) agents_.emplace_back().name = absl::StrCat("agent-", i);
    for (Agent& agent : agents_) agent.process = service_.StartAgent(agent.name, kSlots, all_servers_);
  }

  void Break(const std::string& rule) { broken_.push_back(rule); }

  double Draw(double from, double to) { return std::uniform_real_distribution<double>(from, to)(random_); }
  static Clock::time_point In(double seconds) {
    return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }

  void StartServers(const service::ServerTimes& times) {
    for (Server& server : servers_) Start(&server, times);
    const bool answer = service::Within(60, [this] {
      return std::all_of(servers_.begin(), servers_.end(), [](Server& server) { return InfoOf(server).start_time_us() > 0; });
    });
    if (!answer) Break("a server that was killed starts again: it did not answer");
  }

  void Start(Server* server, const service::ServerTimes& times) {
    server->process = service_.StartServerAt(server->address, times);
    server->stopped = false;
  }

  static v1::ServerInfo InfoOf(Server& server) {
    v1::ServerInfo info;
    if (server.process == 0 || server.stopped) return info;
    service::Ask(*server.stub, &v1::ControlPlane::Stub::GetServerInfo, v1::GetServerInfoRequest(), &info, 0.5);
    return info;
  }

  void KillServers() {
    for (Server& server : servers_) service::ServiceProcesses::Kill(&server.process);
  }

  // The first that says so; null: nobody.
  Server* Leader() {
    for (Server& server : servers_) {
      if (InfoOf(server).leads()) return &server;
    }
    return nullptr;
  }

  void Round(int round) {
    const auto begun = Clock::now(), end = In(options_.round_seconds);
    StartServers(kShortLeases);
    if (!broken_.empty()) return;
    std::atomic<bool> stop = false;
    std::vector<std::thread> threads;
    for (Client& client : clients_) threads.emplace_back([&] { client.Run(stop); });
    Harm harm;
    DoHarm(end, &harm);
    stop = true;
    for (std::thread& thread : threads) thread.join();
    for (const Server& server : servers_) {
      if (server.process != 0 && cli::testing::Ended(server.process))
        Break(absl::StrCat("a server runs until it is killed: that at ", server.address, " ended by itself"));
    }
    KillServers();
    leaderless_since_.reset();
    Calls calls;
    for (Client& client : clients_) calls.Add(client.TakeCalls());
    harm_.Add(harm), calls_.Add(calls);
    Check();
    const double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
    const bool is_long = seconds > kLongestRoundSeconds;
    long_rounds_ += is_long;
    options_.say(absl::StrFormat("round %d, %.1f s%s: %s; %s; %s; %s", round, seconds, is_long ? " (TOO LONG)" : "", harm.Text(),
                                 CallsText(calls), ViewText(view_), broken_.empty() ? "all rules hold" : "BROKEN"));
  }

  void DoHarm(Clock::time_point end, Harm* harm) {
    Clock::time_point next = In(Draw(0.2, 1));
    while (Clock::now() < end && !options_.stop()) {
      const auto now = Clock::now();
      for (Server& server : servers_) ReviveServer(&server, now);
      AwaitLeader();
      for (Agent& agent : agents_) {
        Revive(&agent, now);
        if (agent.drains && now >= agent.undrain_at) Drain(&agent, /*undo=*/true);
      }
      if (disk_.full() && now >= room_at_) disk_.MakeRoom();
      if (now >= next) {
        HarmSomething(harm);
        next = In(Draw(0.2, 1.5));
      }
      usleep(10'000);
    }
  }

  void ReviveServer(Server* server, Clock::time_point now) {
    if ((server->process != 0 && !server->stopped) || now < server->revive_at) return;
    if (server->process == 0) return Start(server, kShortLeases);
    kill(server->process, SIGCONT);
    server->stopped = false;
  }

  // How long it takes until another server leads, where there is another.
  void AwaitLeader() {
    if (!leaderless_since_ || Clock::now() < look_for_leader_at_) return;
    look_for_leader_at_ = In(0.1);
    if (Leader() == nullptr) return;
    recoveries_.push_back(std::chrono::duration<double>(Clock::now() - *leaderless_since_).count());
    leaderless_since_.reset();
  }

  // Mostly the one that leads.
  void HarmServer(Harm* harm) {
    Server* const leader = Leader();
    Server* server = leader != nullptr && Draw(0, 1) < 0.7 ? leader : &servers_[random_() % servers_.size()];
    if (server->process == 0 || server->stopped) return;
    const bool several = servers_.size() > 1;
    if (several && Draw(0, 1) < 0.4) {
      kill(server->process, SIGSTOP);
      server->stopped = true;
      server->revive_at = In(Draw(0.3, 9));  // within the leader's lease, or beyond it
      ++harm->stopped_servers;
    } else {
      service::ServiceProcesses::Kill(&server->process);
      server->revive_at = several ? In(Draw(0, 4)) : In(Draw(0, 1));
      ++harm->servers;
    }
    if (server == leader && several && !leaderless_since_) leaderless_since_ = Clock::now();
  }

  void HarmSomething(Harm* harm) {
    if (store::TestStoreIsPostgres() && Draw(0, 1) < 0.15) return EndDatabase(harm);
    const double draw = Draw(0, 1);
    Agent& agent = agents_[random_() % agents_.size()];
    if (draw < 0.12) {
      harm->spoiled += disk_.SpoilCheckpoint();
    } else if (draw < 0.2) {
      harm->fills += disk_.Fill();
      room_at_ = In(Draw(0.3, 4));
    } else if (draw < 0.3) {
      if (agent.drains) return;
      harm->drains += Drain(&agent, /*undo=*/false);
      agent.undrain_at = In(Draw(0.3, 4));
    } else if (draw < 0.52) {
      const std::vector<pid_t> trainers = service_.Trainers();
      const uint32_t chosen = random_();
      if (trainers.empty()) return;
      kill(trainers[chosen % trainers.size()], SIGKILL);
      ++harm->trainers;
    } else if (draw < 0.65) {
      HarmServer(harm);
    } else if (agent.process != 0 && draw < 0.82) {
      service::ServiceProcesses::Kill(&agent.process);
      agent.stopped = false;
      agent.revive_at = In(Draw(0, 1));
      ++harm->agents;
    } else if (agent.process != 0 && !agent.stopped) {
      kill(agent.process, SIGSTOP);
      agent.stopped = true;
      agent.revive_at = In(Draw(0.3, 5));  // within the lease's time-to-live, or beyond it
      ++harm->stops;
    }
  }

  // As a crash does; for so long that writes wait for it, or are refused.
  void EndDatabase(Harm* harm) {
    store::PostgresServer& database = store::PostgresServer::OfThisProcess();
    database.EndImmediately();
    usleep(static_cast<useconds_t>(1e6 * Draw(0, 0.9)));
    if (const absl::Status again = database.StartAgain(); !again.ok()) Break(std::string(again.message()));
    ++harm->databases;
  }

  // Jobs of a worker that drains are moved, most of the time. Whether the call came through is not known where no answer came;
  // then it is taken back later all the same.
  bool Drain(Agent* agent, bool undo) {
    v1::DrainWorkerRequest request;
    request.set_name("workers/" + agent->name);
    request.set_undo(undo);
    request.set_let_finish(!undo && Draw(0, 1) < 0.2);
    if (Draw(0, 1) < 0.3) request.set_grace_seconds(0.5);
    v1::Worker worker;
    const bool done = service::Ask(*any_server_, &v1::ControlPlane::Stub::DrainWorker, request, &worker, 1).ok();
    agent->drains = !(undo && done);
    return done;
  }

  void Revive(Agent* agent, Clock::time_point now) {
    if (now < agent->revive_at) return;
    if (agent->stopped) kill(agent->process, SIGCONT);
    agent->stopped = false;
    // One that left by itself did so because of a fault: that is not hidden by starting another.
    if (agent->process == 0) agent->process = service_.StartAgent(agent->name, kSlots, all_servers_);
  }

  // The server is dead: what it left is all that there is.
  void Check() {
    disk_.MakeRoom();
    for (const Agent& agent : agents_) {
      if (agent.process != 0 && cli::testing::Ended(agent.process))
        Break(absl::StrCat("an agent runs until it is told to end: ", agent.name, " ended"));
    }
    auto store = store::OpenStore(service_.StoreUrl());
    if (!store.ok()) return Break(absl::StrCat("the store opens: ", std::string(store.status().message())));
    auto view = ReadStore(**store, told_.Requests());
    if (!view.ok()) return Break(absl::StrCat("the store is read: ", std::string(view.status().message())));
    const auto add = [&](const std::vector<std::string>& rules) { broken_.insert(broken_.end(), rules.begin(), rules.end()); };
    add(CheckOnlyAdded(view_, *view));
    view_ = *std::move(view);
    add(CheckTold(view_, told_));
    add(CheckSlots(view_));
    for (const auto& [name, history] : view_.jobs) {
      add(CheckHistory(history));
      add(CheckCommits(history));
      add(CheckStops(history));
      add(CheckCheckpoints(history, kKeepLatest, service_.Path("scratch"), &disk_.spoiled()));
    }
  }

  // Nothing is harmed any more: all jobs end.
  void Settle() {
    disk_.MakeRoom();
    for (Agent& agent : agents_) Revive(&agent, Clock::time_point::max());
    StartServers(kCalm);
    for (Agent& agent : agents_) {
      if (!service::Within(kIdleSeconds, [&] { return !agent.drains || Drain(&agent, /*undo=*/true); }))
        Break(absl::StrCat("clients are answered as the API says: ", agent.name, " cannot be taken back"));
    }
    Client& client = clients_.front();
    const bool settled = service::Within(kSettleSeconds, [&] {
      usleep(200'000);
      if (options_.stop()) return true;
      if (!client.Look()) return false;
      const auto known = told_.Known();
      return std::all_of(known.begin(), known.end(), [](const auto& job) { return IsFinalState(job.second.state); });
    });
    // Also of attempts that were fenced off while their agent was stopped.
    if (settled && !options_.stop() && !service::Within(kIdleSeconds, [&] { return service_.Trainers().empty(); }))
      Break(absl::StrCat("nothing trains once every job has ended: ", service_.Trainers().size(), " trainers do"));
    KillServers();
    Check();
    for (const auto& [name, job] : told_.Known()) {
      if (settled || IsFinalState(job.state)) continue;
      const auto stored = view_.jobs.find(name);
      Break(absl::StrCat("every job ends once nothing is killed any more: ", name, " is ", EnumText(job.state), ", ",
                         stored == view_.jobs.end() ? "" : stored->second.job.reason()));
    }
  }

  // While nothing else was waited for.
  std::string RecoveryText() const {
    if (recoveries_.empty()) return "";
    std::vector<double> seconds = recoveries_;
    std::sort(seconds.begin(), seconds.end());
    return absl::StrFormat("; another server led after %.1f s in the median, %.1f s at the most, of %d times",
                           seconds[seconds.size() / 2], seconds.back(), static_cast<int>(seconds.size()));
  }

  static std::string ViewText(const StoreView& view) {
    std::map<v1::JobState, int> states;
    size_t transitions = 0, attempts = 0, checkpoints = 0;
    int64_t steps_back = 0;
    for (const auto& [name, history] : view.jobs) {
      ++states[history.job.state()];
      steps_back += history.job.steps_back();
      transitions += history.transitions.size(), attempts += history.attempts.size(), checkpoints += history.checkpoints.size();
    }
    std::string text = absl::StrCat("checked ", view.jobs.size(), " jobs (");
    for (const auto& [state, count] : states)
      absl::StrAppend(&text, state == states.begin()->first ? "" : ", ", count, " ", EnumText(state));
    return absl::StrCat(text, "), ", transitions, " transitions, ", attempts, " attempts, ", checkpoints, " checkpoints, ",
                        steps_back, " steps back");
  }

  const ChaosOptions options_;
  std::mt19937 random_;
  Told told_;
  ClientOptions client_options_;
  service::ServiceProcesses service_;
  DiskHarm disk_{service_.Path("runs"), &random_};
  Clock::time_point room_at_;  // of a disk that is full
  std::vector<Server> servers_;
  std::string all_servers_;  // as --server takes them
  std::unique_ptr<v1::ControlPlane::Stub> any_server_;
  std::optional<Clock::time_point> leaderless_since_;
  Clock::time_point look_for_leader_at_;
  std::vector<double> recoveries_;  // seconds
  std::deque<Client> clients_;
  std::vector<Agent> agents_;
  StoreView view_;
  Harm harm_;
  int long_rounds_ = 0;
  Calls calls_;
  std::vector<std::string> broken_;
};

}  // namespace

std::vector<std::string> RunChaos(const ChaosOptions& options) { return Chaos(options).Run(); }

}  // namespace legoai::scenarios
