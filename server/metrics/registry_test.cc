#include "server/metrics/registry.h"

#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "gtest/gtest.h"

namespace legoai::server {
namespace {

// "name{labels}" -> value, by the format's own rules: comments begin with #, the value is what follows the last space.
std::map<std::string, double> Samples(const std::string& text) {
  std::map<std::string, double> samples;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t space = line.rfind(' ');
    samples[line.substr(0, space)] = std::stod(line.substr(space + 1));
  }
  return samples;
}

TEST(Metrics, CountsByLabels) {
  Metrics metrics;
  metrics.HttpRequest("GET", 200, 0.001);
  metrics.HttpRequest("GET", 200, 0.3);
  metrics.HttpRequest("BREW", 405, 0.001);
  metrics.GrpcRequest("CreateJob", "OK", 0.01);
  auto samples = Samples(metrics.Text());
  EXPECT_EQ(samples.at("legoai_http_requests_total{code=\"200\",method=\"GET\"}"), 2);
  EXPECT_EQ(samples.at("legoai_http_requests_total{code=\"405\",method=\"other\"}"), 1);
  EXPECT_EQ(samples.at("legoai_grpc_requests_total{code=\"OK\",method=\"CreateJob\"}"), 1);
  EXPECT_EQ(samples.at("legoai_http_request_seconds_count"), 3);
  EXPECT_EQ(samples.at("legoai_http_request_seconds_bucket{le=\"0.001\"}"), 2);
  EXPECT_EQ(samples.at("legoai_http_request_seconds_bucket{le=\"+Inf\"}"), 3);
}

TEST(Metrics, GaugesSayTheLatest) {
  Metrics metrics;
  metrics.SetJobs("queued", 7);
  metrics.SetJobs("queued", 2);
  metrics.SetWorkers("ready", 3);
  metrics.SetSlots("free", 12);
  metrics.HttpStreams(1);
  metrics.HttpStreams(1);
  metrics.HttpStreams(-1);
  auto samples = Samples(metrics.Text());
  EXPECT_EQ(samples.at("legoai_jobs{state=\"queued\"}"), 2);
  EXPECT_EQ(samples.at("legoai_workers{state=\"ready\"}"), 3);
  EXPECT_EQ(samples.at("legoai_slots{use=\"free\"}"), 12);
  EXPECT_EQ(samples.at("legoai_http_streams"), 1);
}

TEST(Metrics, TellsOfTheProcess) {
  Metrics metrics;
  const auto first = Samples(metrics.Text());
  EXPECT_GT(first.at("process_resident_memory_bytes"), 1e6);
  EXPECT_GE(first.at("process_open_fds"), 3);
  const auto second = Samples(metrics.Text());
  EXPECT_GE(second.at("process_cpu_seconds_total"), first.at("process_cpu_seconds_total"));
}

TEST(Metrics, EveryFamilyHasHelpAndType) {
  const std::string text = Metrics().Text();
  for (const char* name :
       {"legoai_agents_connected", "legoai_store_write_seconds", "legoai_heartbeat_seconds", "legoai_leases_total"}) {
    EXPECT_NE(text.find(std::string("# HELP ") + name + " "), std::string::npos) << name;
    EXPECT_NE(text.find(std::string("# TYPE ") + name + " "), std::string::npos) << name;
  }
}

// "legoai_jobs{state}": names with their labels in the order of the alphabet.
std::set<std::string> Printed(const std::string& text) {
  std::set<std::string> names;
  for (const auto& [sample, value] : Samples(text)) {
    const std::string name = std::regex_replace(sample.substr(0, sample.find('{')), std::regex("_(bucket|sum|count)$"), "");
    const std::string labels = std::regex_replace(sample.substr(name.size()), std::regex("^[^{]*|le=\"[^\"]*\"|=\"[^\"]*\""), "");
    names.insert(labels == "{}" ? name : name + labels);
  }
  return names;
}

std::set<std::string> Explained(const std::string& text) {
  const size_t begin = text.find("\n## Metrics\n"), end = text.find("\n## ", begin + 1);
  const std::string section = text.substr(begin, end - begin);
  std::set<std::string> names;
  const std::regex name("`((legoai|process)_[a-z_]+)(\\{([a-z,]+)\\})?`");
  for (std::sregex_iterator it(section.begin(), section.end(), name), none; it != none; ++it) {
    std::set<std::string> labels;
    std::istringstream in((*it)[4]);
    for (std::string label; std::getline(in, label, ',');) labels.insert(label);
    std::string all;
    for (const std::string& label : labels) all += (all.empty() ? "" : ",") + label;
    names.insert(all.empty() ? (*it)[1].str() : (*it)[1].str() + "{" + all + "}");
  }
  return names;
}

TEST(Metrics, EachIsExplainedToOperators) {
  Metrics metrics;
  metrics.SetJobs("queued", 1);
  metrics.SetWorkers("ready", 1);
  metrics.SetSlots("free", 1);
  v1::Worker worker;
  worker.set_name("workers/a");
  worker.set_connected(true);
  worker.add_slot_devices()->set_memory_bytes(1024);
  worker.mutable_use()->set_processor_share(0.5);
  v1::GpuUse* const gpu = worker.mutable_use()->add_gpus();
  gpu->set_utilization(0.5);
  gpu->set_temperature_celsius(50);
  gpu->set_power_watts(500);
  gpu->set_uncorrected_ecc_errors(0);
  gpu->add_slowdowns("hw_thermal");
  worker.mutable_health()->set_checking(true);
  metrics.SetUse({worker});
  metrics.SlotFault("gpu_xid");
  metrics.HttpRequest("GET", 200, 0.01);
  metrics.GrpcRequest("GetJob", "OK", 0.01);
  std::ifstream file("docs/operations.md");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  // What is said of alerts names some a second time, without labels.
  const std::set<std::string> explained = Explained(text.substr(0, text.find("\nWorth an alert")) + "\n## ");
  std::set<std::string> printed = Printed(metrics.Text());
  printed.insert(
      {"legoai_http_connections", "legoai_http_connection_bytes"});  // the HTTP server's own (server/http/http_server.cc)
  EXPECT_EQ(printed, explained);
}

TEST(Metrics, NothingIsLostBetweenThreads) {
  Metrics metrics;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&metrics] {
      for (int i = 0; i < 1000; ++i) {
        metrics.Lease();
        metrics.HttpRequest("GET", 200, 0.01);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto samples = Samples(metrics.Text());
  EXPECT_EQ(samples.at("legoai_leases_total"), 4000);
  EXPECT_EQ(samples.at("legoai_http_requests_total{code=\"200\",method=\"GET\"}"), 4000);
}

}  // namespace
}  // namespace legoai::server
