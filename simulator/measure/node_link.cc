#include "simulator/measure/host_measurement.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "core/process/child_process.h"
#include "proto/status.h"
#include "simulator/measure/core_processes.h"
#include "worker/comm/gloo_communicator.h"

namespace legoai::sim {
namespace {

constexpr int64_t kSmall = 512, kLarge = 2 << 20;  // bytes of each rank's part

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Mean seconds of an all-gather of `bytes` from each of two ranks, which compute a little in between, as in a step. The mean, not
// the median: now and then the scheduler makes one wait, in a step too. Without the slowest twentieth: those met other processes.
absl::StatusOr<double> AllGatherSeconds(comm::Communicator& communicator, int64_t bytes, int runs) {
  constexpr int kWarmUp = 5;
  constexpr double kComputeSeconds = 3e-4;
  std::vector<char> in(bytes, 1), out(2 * bytes);
  std::vector<double> seconds;
  for (int i = 0; i < kWarmUp + runs; ++i) {
    const double computed = Now() + kComputeSeconds;
    while (Now() < computed) {
    }
    const double begin = Now();
    absl::Status status = communicator.AllGather(out.data(), in.data(), bytes);
    if (!status.ok()) return status;
    if (i >= kWarmUp) seconds.push_back(Now() - begin);
  }
  std::sort(seconds.begin(), seconds.end());
  seconds.resize(std::max(1, runs * 19 / 20));
  return std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size());
}

absl::StatusOr<std::vector<double>> MeasureRank(int64_t rank, const launch::ListenSocket& listener) {
  comm::RendezvousOptions options;
  options.port = static_cast<int>(listener.port);
  options.listen_fd = rank == 0 ? listener.fd : -1;
  options.rank = rank;
  options.world_size = 2;
  ASSIGN_OR_RETURN(auto factory, comm::MakeGlooFactory(options));
  ASSIGN_OR_RETURN(const auto communicator, factory({mesh::Dim::kWorld, {0, 1, 2}}, rank, 0));
  ASSIGN_OR_RETURN(const double small, AllGatherSeconds(*communicator, kSmall, 200));
  ASSIGN_OR_RETURN(const double large, AllGatherSeconds(*communicator, kLarge, 50));
  // Nobody leaves while the other still reads.
  RETURN_IF_ERROR(AllGatherSeconds(*communicator, 1, 1).status());
  return std::vector<double>{small, large};
}

struct Times {
  double small = 0, large = 0;  // seconds
};

absl::StatusOr<Times> MeasurePair() {
  ASSIGN_OR_RETURN(auto listener, launch::ListenOnLoopback(0));
  auto measured = RunOnCores(2, [&](int64_t rank) { return MeasureRank(rank, listener); });
  close(listener.fd);
  if (!measured.ok()) return measured.status();
  const std::vector<double>&one = measured->front(), &other = measured->back();
  return Times{(one[0] + other[0]) / 2, (one[1] + other[1]) / 2};
}

}  // namespace

absl::StatusOr<v1::Link> MeasureNodeLink() {
  constexpr int kTries = 10;
  for (int i = 0; i < kTries; ++i) {
    ASSIGN_OR_RETURN(auto times, MeasurePair());
    if (times.large <= times.small) continue;  // other processes were in the way
    v1::Link link;
    link.set_type("loopback");
    link.set_latency_seconds(times.small);
    link.set_bandwidth_bytes_per_second((kLarge - kSmall) / (times.large - times.small));
    link.set_efficiency(1);
    link.add_sources("measured on this machine: Gloo between two processes, all-gathers of 1 KiB and 4 MiB");
    return link;
  }
  return absl::UnavailableError("the link between two processes cannot be measured: the machine is too busy; measure again");
}

}  // namespace legoai::sim
