// The service on this machine: legoai-server and legoai-agents as real processes in a folder of their own, with a job of a tiny
// model to give them. For scenarios and benchmarks; nothing of a test's frame is needed. Everything that was started is killed at
// the end. One object at a time (marked_processes.h). Not thread-safe; the stub is.
#pragma once

#include <grpcpp/grpcpp.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/control_plane.grpc.pb.h"
#include "server/cli/testing/marked_processes.h"
#include "server/store/testing/test_store.h"

namespace legoai::service {

// A port that was free a moment ago: the server must have the same one again after it was killed.
int FreePort();

// gRPC's client of the server at HOST:PORT, which soon sees one that has come back; or of several, ipv4:IP:PORT,IP:PORT, by
// turns.
std::unique_ptr<v1::ControlPlane::Stub> MakeStub(const std::string& address);

// As legoai-server's flags take them.
struct ServerTimes {
  std::string lease_ttl = "15s", heartbeat_interval = "2s", replan_grace = "30s", leader_lease = "5s";
};

// The programs and their flags. Without HTTP. `data`: a folder; the store is SQLite's in it, or PostgreSQL's (test_store.h).
// `programs`: the folder that they lie in, ending with a slash; empty: this build's (other_build.h has those of another).
std::vector<std::string> ServerCommand(const std::string& address, const std::string& data, const ServerTimes& times = {},
                                       const std::string& programs = "");
std::vector<std::string> AgentCommand(const std::string& server, const std::string& name, int64_t slots, const std::string& runs,
                                      const std::string& programs = "");

// The tiny model and text of `folder` (marked_processes.h) over up to `slots` slots, saved every `interval` steps.
absl::StatusOr<v1::JobSpec> TinyJob(const std::string& folder, int64_t slots, int64_t steps, int64_t interval);

class ServiceProcesses {
 public:
  // In a new folder below that of temporary files; `name` is a part of its name.
  explicit ServiceProcesses(const std::string& name);
  // The folder is removed too, unless KeepFolder() was called.
  ~ServiceProcesses();
  void KeepFolder() { keep_folder_ = true; }

  // On the same port and store each time. Does not wait.
  void StartServer(const ServerTimes& times);
  // Whether it answers within a minute.
  bool AwaitServer();
  void KillServer();
  bool server_runs() const { return server_ != 0; }
  pid_t server() const { return server_; }  // 0: none
  const std::string& address() const { return address_; }
  bool ServerEnded() const { return server_ != 0 && cli::testing::Ended(server_); }  // by itself

  // Another one over the same store, which must be PostgreSQL's. Does not wait; it is killed with all the others, or by Kill().
  // `programs` as ServerCommand takes it.
  pid_t StartServerAt(const std::string& address, const ServerTimes& times, const std::string& programs = "") const;

  // Program and arguments, in the folder and found as all others are. Does not wait; it is killed with them, or by Kill().
  pid_t Start(std::vector<std::string> words) const { return processes_.Start(std::move(words)); }
  // Does not wait. `servers`: as --server takes them; empty: that of address().
  pid_t StartAgent(const std::string& name, int slots, const std::string& servers = "", const std::string& programs = "") const;
  // SIGKILL, also of one that is stopped, and waits for its end. 0: nothing.
  static void Kill(pid_t* process);
  std::vector<pid_t> Trainers() const;

  // With as many restarts as there may be.
  absl::StatusOr<v1::JobSpec> TinyJob(int slots, int steps, int interval) const;

  v1::ControlPlane::Stub& stub() const { return *stub_; }
  std::string Path(const std::string& name) const { return processes_.Path(name); }
  std::string StoreUrl() const { return store::TestStoreUrl(Path("data")); }  // of a server that has ended (test_store.h)
  // Where a process that was started writes: "stdout", "stderr".
  std::string OutputOf(pid_t process, const std::string& stream) const { return processes_.OutputOf(process, stream); }
  // The last lines of what the server (each of them) and the agents have said.
  std::string LastWords(size_t bytes_each) const;

 private:
  ServiceProcesses(const std::filesystem::path& under, const std::string& name);

  const cli::testing::MarkedProcesses processes_;
  const std::string address_;
  std::unique_ptr<v1::ControlPlane::Stub> stub_;
  pid_t server_ = 0;
  bool keep_folder_ = false;
};

// Looks every few milliseconds; whether `condition` held before the seconds were over.
bool Within(double seconds, const std::function<bool()>& condition);

template <typename Request, typename Response>
using ControlPlaneCall = grpc::Status (v1::ControlPlane::Stub::*)(grpc::ClientContext*, const Request&, Response*);

template <typename Request, typename Response>
grpc::Status Ask(v1::ControlPlane::Stub& stub, ControlPlaneCall<Request, Response> call, const Request& request,
                 Response* response, double seconds = 10) {
  grpc::ClientContext context;
  // A call that fails at once does not drive the connection, and gRPC looks after an idle one every five seconds only.
  context.set_wait_for_ready(true);
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3)));
  return (stub.*call)(&context, request, response);
}

}  // namespace legoai::service
