// The service as its users have it: legoai-server, legoai-agent and trainers as real processes on this machine, and the users'
// gRPC service as the way to ask. Not thread-safe.
#pragma once

#include <grpcpp/grpcpp.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "proto/legoai/v1/control_plane.grpc.pb.h"
#include "server/cli/testing/lego_process.h"

namespace legoai::service {

class ServiceTest : public cli::testing::LegoTest {
 protected:
  void SetUp() override;
  void TearDown() override;
  // Called when the folder is there, and before anything is started: the process has one thread, unless a test ran before.
  virtual void PrepareFolder() {}

  // On the same port and store each time; returns when it answers.
  void StartServer();
  void KillServer();
  // Under this worker's name; returns when the server knows it as connected. `further`: flags that take the place of others.
  pid_t StartAgent(const std::string& name, int64_t slots, const std::vector<std::string>& further = {});
  void Signal(pid_t process, int number) const;
  void Kill(pid_t* process);  // SIGKILL, and waits for its end

  // A job of the tiny model over `slots` slots; it saves every `interval` steps.
  // `text`: the dataset; empty: the folder's own.
  std::string Submit(int64_t slots, int64_t steps, int64_t interval, int64_t min_slots = 1, const std::string& text = "");
  std::string Submit(v1::JobSpec spec);
  v1::Job Get(const std::string& job);
  // Waits until it holds; fails the test after five minutes, and with what the server and agents have said.
  v1::Job Await(const std::string& job, const std::string& what, const std::function<bool(const v1::Job&)>& wanted);
  v1::Job AwaitSuccess(const std::string& job);
  v1::Job AwaitCommit(const std::string& job, int64_t step);
  std::vector<v1::Attempt> Attempts(const std::string& job);
  // Loss by step, over all attempts.
  std::map<int64_t, double> Losses(const std::string& job);
  std::vector<v1::Checkpoint> Checkpoints(const std::string& job);
  std::vector<v1::Worker> Workers();
  // Every step once, and what training without trouble gives, within `tolerance` of each loss.
  void ExpectUndisturbed(const std::string& job, const std::map<int64_t, double>& undisturbed, double tolerance);
  // Of every directory of checkpoints that is listed, what is listed is what is there.
  void ExpectCheckpointsAsListed(const std::string& job);
  // Kills the server and looks at what it left: legal transitions, one attempt at a time, each from the last committed step
  // before it, nothing committed but by the attempt under way, and that can be read to the last byte.
  void ExpectSoundHistory(const std::string& job);

  const std::string& address() const { return address_; }

  std::unique_ptr<v1::ControlPlane::Stub> stub_;
  pid_t server_ = 0;
  std::vector<pid_t> agents_;

 private:
  std::string address_;
  int64_t submitted_ = 0;
};

}  // namespace legoai::service
