// A job that is never done, to be looked at while parts of the service end. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "proto/legoai/v1/control_plane.grpc.pb.h"
#include "tests/bench/bench_main.h"
#include "tests/service/service_processes.h"

namespace legoai::integration {

class EndlessJob {
 public:
  using Stub = v1::ControlPlane::Stub;

  // Of the tiny model, over `slots` slots, submitted to the server of `stub`, once `arrange` has changed it; null: as it is.
  // `service` must outlive it. Throws std::runtime_error.
  EndlessJob(const service::ServiceProcesses& service, Stub& stub, int slots,
             const std::function<void(v1::JobSpec&)>& arrange = nullptr);
  const std::string& name() const { return name_; }

  // As that server tells; of one that is away, or does not answer within its deadline: in no state.
  v1::Job Get(Stub& stub) const;
  // Whether a step was done after that time: some before it may be told only afterwards.
  bool HasStepAfter(Stub& stub, int64_t step, double unix_seconds) const;
  // Throws std::runtime_error after two minutes, with what the service has said.
  v1::Job Await(Stub& stub, const std::string& what, const std::function<bool(const v1::Job&)>& wanted) const;
  // With a checkpoint to go on from that was not there before.
  v1::Job AwaitNewCheckpoint(Stub& stub, const std::string& what) const;
  // Asks it to end, and waits until it has.
  void Cancel(Stub& stub) const;

 private:
  const service::ServiceProcesses& service_;
  std::string name_;
};

// Of now, as steps have it.
double UnixSeconds();

// The head of a table of times, and a row: their number, median, 90th and 95th percentile and the worst.
void NoteTimes(Rows& rows);
void AddTimes(Rows& rows, const std::string& what, const std::vector<double>& seconds);

// A line for whoever waits, beside the table: on stderr. Thread-safe.
void TellProgress(const std::string& what, int round, int rounds, double seconds);

// The program of a benchmark of rounds: its flags are --json and --rounds, `rounds` unless it is given. Gives its exit code.
int RoundsMain(int argc, char** argv, int rounds, const std::function<void(Rows& rows, int rounds)>& measure);

}  // namespace legoai::integration
