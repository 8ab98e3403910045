#include "server/metrics/gauges.h"

#include "gtest/gtest.h"

namespace legoai::server {
namespace {

v1::Worker MakeWorker(v1::WorkerState state, int64_t slots, int64_t used, bool connected) {
  v1::Worker worker;
  worker.set_state(state);
  worker.set_slots(slots);
  worker.set_connected(connected);
  if (used > 0) worker.add_used()->set_slots(used);
  return worker;
}

TEST(WorkerGauges, CountOnlySlotsThatAJobCouldHave) {
  Metrics metrics;
  SetWorkerGauges({MakeWorker(v1::READY, 8, 3, true), MakeWorker(v1::READY, 4, 0, true), MakeWorker(v1::DRAINING, 16, 2, true),
                   MakeWorker(v1::LOST, 32, 0, false)},
                  &metrics);
  const std::string text = metrics.Text();
  for (const char* line :
       {"legoai_workers{state=\"ready\"} 2", "legoai_workers{state=\"draining\"} 1", "legoai_workers{state=\"lost\"} 1",
        "legoai_slots{use=\"used\"} 3", "legoai_slots{use=\"free\"} 9", "legoai_agents_connected 3"}) {
    EXPECT_NE(text.find(std::string(line) + "\n"), std::string::npos) << line << "\n" << text;
  }
}

}  // namespace
}  // namespace legoai::server
