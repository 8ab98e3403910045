#include "server/metrics/store_metrics.h"

#include <filesystem>
#include <string>

#include "gtest/gtest.h"
#include "server/store/open_store.h"

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

TEST(JobGauges, CountThoseOfAllProjects) {
  const std::string folder = ::testing::TempDir() + "/job-gauges";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const auto store = store::OpenStore("sqlite:" + folder + "/legoai.db");
  ASSERT_TRUE(store.ok()) << store.status();
  for (const char* name : {"projects/default/jobs/A", "projects/default/jobs/B", "projects/other/jobs/C"}) {
    v1::Job job;
    job.set_name(name);
    job.set_version(1);
    job.set_state(name[9] == 'd' ? v1::QUEUED : v1::RUNNING);
    ASSERT_TRUE((*store)->Write([&](store::Transaction& transaction) { return transaction.InsertJob(job, {}); }).ok());
  }
  Metrics metrics;
  ASSERT_TRUE(SetJobGauges(**store, &metrics).ok());
  const std::string text = metrics.Text();
  for (const char* line :
       {"legoai_jobs{state=\"queued\"} 2", "legoai_jobs{state=\"running\"} 1", "legoai_jobs{state=\"failed\"} 0"}) {
    EXPECT_NE(text.find(std::string(line) + "\n"), std::string::npos) << line << "\n" << text;
  }
}

v1::Worker MakeUsed(const std::string& name, double processors) {
  v1::Worker worker = MakeWorker(v1::READY, 2, 0, true);
  worker.set_name("workers/" + name);
  worker.mutable_use()->set_processor_share(processors);
  worker.mutable_use()->set_memory_bytes(4096);
  return worker;
}

TEST(WorkerGauges, TellOfTheUseOfThoseThatAreConnected) {
  Metrics metrics;
  v1::Worker cards = MakeUsed("b", 0.25), gone = MakeUsed("c", 0.5), silent = MakeWorker(v1::READY, 2, 0, true);
  gone.set_connected(false);
  silent.set_name("workers/d");
  v1::GpuUse* const gpu = cards.mutable_use()->add_gpus();
  gpu->set_index(3);
  gpu->set_memory_bytes(1024);
  gpu->set_power_watts(350.5);
  SetWorkerGauges({MakeUsed("a", 0.75), cards, gone, silent}, &metrics);
  std::string text = metrics.Text();
  for (const char* line :
       {"legoai_worker_processor_usage_ratio{worker=\"a\"} 0.75", "legoai_worker_processor_usage_ratio{worker=\"b\"} 0.25",
        "legoai_worker_memory_used_bytes{worker=\"a\"} 4096", "legoai_worker_gpu_memory_used_bytes{gpu=\"3\",worker=\"b\"} 1024",
        "legoai_worker_gpu_power_watts{gpu=\"3\",worker=\"b\"} 350.5"}) {
    EXPECT_NE(text.find(std::string(line) + "\n"), std::string::npos) << line << "\n" << text;
  }
  for (const char* part :
       {"worker=\"c\"", "worker=\"d\"", "legoai_worker_gpu_utilization_ratio{", "legoai_worker_gpu_temperature_celsius{"})
    EXPECT_EQ(text.find(part), std::string::npos) << part << "\n" << text;

  SetWorkerGauges({MakeUsed("a", 0.5)}, &metrics);
  text = metrics.Text();
  EXPECT_NE(text.find("legoai_worker_processor_usage_ratio{worker=\"a\"} 0.5\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("worker=\"b\""), std::string::npos) << "it is not connected any more\n" << text;
}

}  // namespace
}  // namespace legoai::server
