// For tests of legoai-agent as a process: the agent, a scripted server, and jobs of the tiny Llama that real trainers train.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/process/run_directory.h"
#include "nlohmann/json.hpp"
#include "worker/agent/testing/scripted_server.h"
#include "worker/launch/testing/tiny_run.h"

namespace legoai::agent::testing {

class AgentTest : public launch::testing::TinyRun {
 protected:
  explicit AgentTest(const std::string& trainer = "worker/train/legoai-trainer");
  // No trainer is left, whatever has happened to the agent.
  ~AgentTest() override;

  // Starts the agent with two slots that are processors. Not connected yet.
  void StartAgent(const std::vector<std::string>& further_arguments = {});
  void Signal(int signal_number) const { kill(agent_, signal_number); }
  // How the agent ended: its exit code; minus the signal's number; nothing: it did not end within minutes.
  std::optional<int> AwaitExit();
  // Whether the agent holds its session.
  bool AwaitConnection();

  // Starts the agent and, once it holds its session, sends it the attempt.
  bool Begin(const v1::ToAgent& attempt);

  // Until the server knows of a step of the attempt that is at least this one.
  bool AwaitStep(int64_t step, int64_t epoch = 0);
  // Until the server knows how the attempt of this epoch ended.
  bool AwaitEnd(int64_t epoch);

  // A StartAttempt of `world` ranks with recipe() under `epoch`, for which nothing was committed yet.
  v1::ToAgent Attempt(int64_t epoch, int64_t world, const std::string& job = "01JOB") const;
  // The same of two ranks, of which this worker has the second; `port`: where the first worker, of this host too, meets it.
  v1::ToAgent AttemptOfMember(int64_t epoch, int port) const;
  static v1::ToAgent StopOf(int64_t epoch, const std::string& job, bool save, double grace_seconds);
  static v1::LeaseId LeaseOf(int64_t epoch, const std::string& job = "01JOB");
  // Trainers go on no further than to the next checkpoint.
  void WaitForEachVerdict() { recipe().mutable_checkpoint()->set_max_pending_commits(0); }
  // Its run directory.
  std::string EpochFolder(int64_t epoch, const std::string& job = "01JOB") const;
  std::string Checkpoints(int64_t epoch) const { return launch::CheckpointsPath(EpochFolder(epoch)); }

  static std::vector<int64_t> Steps(const std::vector<v1::StepMetrics>& metrics);

  // Lines that the agent has logged, and whether one of them holds this text.
  std::vector<nlohmann::json> Lines() const;
  bool Logged(const std::string& text) const;
  // Trainers that the agent has told of, by epoch and rank.
  std::map<std::pair<int64_t, int64_t>, pid_t> Trainers() const;
  // Until none of them runs any more.
  bool AwaitNoTrainers() const;
  pid_t agent() const { return agent_; }

  ScriptedServer server_;

 private:
  std::string LogPath() const { return folder() + "/agent.log"; }

  pid_t agent_ = -1;
};

}  // namespace legoai::agent::testing
