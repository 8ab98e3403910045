#include "worker/launch/testing/rank_stopper.h"

#include <signal.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "core/flight/flight_ring.h"
#include "core/process/child_process.h"
#include "core/process/run_directory.h"

namespace legoai::launch::testing {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(2);
constexpr int kTries = 20'000;

}  // namespace

void RankStopper::Stop(int64_t rank) const {
  kill(ranks_[rank], SIGSTOP);
  for (int i = 0; i < kTries && ProcessState(ranks_[rank]) != 'T'; ++i) absl::SleepFor(kLook);
}

void RankStopper::Continue(int64_t rank) const { kill(ranks_[rank], SIGCONT); }

std::vector<v1::FlightEntry> RankStopper::Ring(int64_t rank) const {
  const auto dump = comm::ReadFlightRing(FlightRingPath(run_directory_, rank), "test");
  if (!dump.ok()) return {};
  return {dump->entries().begin(), dump->entries().end()};
}

std::vector<v1::FlightEntry> RankStopper::Open(int64_t rank) const {
  std::vector<v1::FlightEntry> open;
  for (const v1::FlightEntry& entry : Ring(rank)) {
    if (entry.state() != "completed") open.push_back(entry);
  }
  return open;
}

bool RankStopper::Knows(int64_t rank, const v1::FlightEntry& wanted) const {
  const auto ring = Ring(rank);
  return std::any_of(ring.begin(), ring.end(), [&](const v1::FlightEntry& entry) {
    return entry.process_group() == wanted.process_group() && entry.collective_seq_id() == wanted.collective_seq_id();
  });
}

std::optional<v1::FlightEntry> RankStopper::StopInside() const {
  for (int i = 0; i < kTries; ++i) {
    Stop(0);
    const auto waits = [](const auto& open) { return !open.empty() && open.front().state() == "started"; };
    for (int j = 0; j < 50 && !waits(Open(1)); ++j) absl::SleepFor(kLook);
    Stop(1);
    const auto open = Open(1);
    const bool good =
        open.size() == 1 && waits(open) && !Knows(0, open[0]) && absl::EndsWith(open[0].profiling_name(), ":all_reduce");
    Continue(0);
    if (good) return open[0];
    Continue(1);
    absl::SleepFor(kLook);
  }
  return std::nullopt;
}

bool RankStopper::StopOutside() const {
  for (int i = 0; i < kTries; ++i) {
    Stop(1);
    if (Open(1).empty()) return true;
    Continue(1);
    absl::SleepFor(kLook);
  }
  return false;
}

}  // namespace legoai::launch::testing
