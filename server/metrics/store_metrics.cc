#include "server/metrics/store_metrics.h"

#include <map>

#include "proto/enum_text.h"
#include "proto/status.h"
#include "proto/worker_slots.h"

namespace legoai::server {

void SetWorkerGauges(const std::vector<v1::Worker>& workers, Metrics* metrics) {
  std::map<int, int64_t> by_state = {{v1::READY, 0}, {v1::DRAINING, 0}, {v1::LOST, 0}};
  int64_t used = 0, free = 0, faulty = 0, connected = 0;
  for (const v1::Worker& worker : workers) {
    ++by_state[worker.state()];
    connected += worker.connected();
    if (worker.state() != v1::READY) continue;
    int64_t here = 0;
    for (const v1::SlotUse& use : worker.used()) here += use.slots();
    used += here;
    free += FreeSlots(worker);
    faulty += worker.slots() - SoundSlots(worker);
  }
  for (const auto& [state, count] : by_state) metrics->SetWorkers(EnumText(static_cast<v1::WorkerState>(state)), count);
  metrics->SetSlots("used", used);
  metrics->SetSlots("free", free);
  metrics->SetSlots("faulty", faulty);
  metrics->SetConnectedAgents(connected);
  metrics->SetUse(workers);
}

absl::Status SetJobGauges(store::Store& store, Metrics* metrics) {
  std::map<v1::JobState, int64_t> jobs;
  RETURN_IF_ERROR(store.Read([&jobs](store::ReadTransaction& read) -> absl::Status {
    ASSIGN_OR_RETURN(jobs, read.CountJobsByState());
    return absl::OkStatus();
  }));
  for (int number = v1::SUBMITTED; number <= v1::CANCELLED; ++number) {
    const auto state = static_cast<v1::JobState>(number);
    metrics->SetJobs(EnumText(state), jobs[state]);
  }
  return absl::OkStatus();
}

void ClearGauges(Metrics* metrics) {
  SetWorkerGauges({}, metrics);
  for (int state = v1::SUBMITTED; state <= v1::CANCELLED; ++state)
    metrics->SetJobs(EnumText(static_cast<v1::JobState>(state)), 0);
}

}  // namespace legoai::server
