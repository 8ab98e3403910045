#include "server/metrics/registry.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include "core/process/mutex.h"
#include "proto/worker_slots.h"

namespace legoai::server {
namespace {

using prometheus::Histogram;
using CounterFamily = prometheus::Family<prometheus::Counter>;
using GaugeFamily = prometheus::Family<prometheus::Gauge>;

// From a tenth of a millisecond, where a hit in memory lies, to what a user takes for a standstill.
const Histogram::BucketBoundaries kFast = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
                                           0.05,   0.1,     0.25,   0.5,   1,      2.5,   10};
const Histogram::BucketBoundaries kSlow = {0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 150, 300, 900};

CounterFamily& Counters(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}
prometheus::Counter& OneCounter(prometheus::Registry& registry, const char* name, const char* help) {
  return Counters(registry, name, help).Add({});
}
GaugeFamily& Gauges(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}
prometheus::Gauge& OneGauge(prometheus::Registry& registry, const char* name, const char* help) {
  return Gauges(registry, name, help).Add({});
}
Histogram& OneHistogram(prometheus::Registry& registry, const char* name, const char* help,
                        const Histogram::BucketBoundaries& buckets) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, buckets);
}

double ResidentBytes() {
  std::ifstream in("/proc/self/statm");
  int64_t total = 0, resident = 0;
  in >> total >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double OpenFiles() {
  std::error_code error;
  double files = 0;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end; it.increment(error)) ++files;
  return files;
}

double UnixSeconds() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

// One line of a family.
using Series = std::pair<GaugeFamily*, prometheus::Gauge*>;

void SetSeries(GaugeFamily& family, const prometheus::Labels& labels, double value, std::set<Series>* set) {
  prometheus::Gauge& gauge = family.Add(labels);  // the same again where it is there
  gauge.Set(value);
  set->insert({&family, &gauge});
}

}  // namespace

struct Metrics::Families {
  prometheus::Registry registry;
  GaugeFamily& jobs = Gauges(registry, "legoai_jobs", "Jobs by state.");
  GaugeFamily& workers = Gauges(registry, "legoai_workers", "Workers by state.");
  GaugeFamily& slots = Gauges(registry, "legoai_slots", "Slots of ready workers by use.");
  GaugeFamily& processors = Gauges(registry, "legoai_worker_processor_usage_ratio",
                                   "Share of a worker's processors that was in use, by whomever, since it last looked.");
  GaugeFamily& memory =
      Gauges(registry, "legoai_worker_memory_used_bytes", "Memory of a worker's host that is in use, by whomever.");
  GaugeFamily& memory_total =
      Gauges(registry, "legoai_worker_memory_total_bytes", "Memory of a worker's host, or its container's limit.");
  GaugeFamily& gpu_memory_total =
      Gauges(registry, "legoai_worker_gpu_memory_total_bytes", "Memory of a worker's GPU, by NVML's index.");
  GaugeFamily& gpu_utilization = Gauges(registry, "legoai_worker_gpu_utilization_ratio",
                                        "Share of the last second in which a kernel ran on a worker's GPU, by NVML's index.");
  GaugeFamily& gpu_memory =
      Gauges(registry, "legoai_worker_gpu_memory_used_bytes", "Memory of a worker's GPU that is in use, by NVML's index.");
  GaugeFamily& gpu_temperature =
      Gauges(registry, "legoai_worker_gpu_temperature_celsius", "Temperature of a worker's GPU, by NVML's index.");
  GaugeFamily& gpu_power = Gauges(registry, "legoai_worker_gpu_power_watts", "Power that a worker's GPU draws, by NVML's index.");
  GaugeFamily& gpu_ecc = Gauges(registry, "legoai_worker_gpu_uncorrected_ecc_errors",
                                "ECC errors of a worker's GPU that could not be corrected, since its driver was loaded.");
  GaugeFamily& gpu_slowdown =
      Gauges(registry, "legoai_worker_gpu_slowdown", "1 while the clocks of a worker's GPU are lowered for this reason.");
  GaugeFamily& faulty_slots =
      Gauges(registry, "legoai_worker_faulty_slots", "Slots of a worker that get nothing new, for their faults.");
  GaugeFamily& checking = Gauges(registry, "legoai_worker_checking", "1 while a worker checks its machine, else 0.");
  CounterFamily& slot_faults =
      Counters(registry, "legoai_slot_faults_total", "Faults of slots, and of whole workers, as they were noticed, by cause.");
  Mutex use_mutex;
  std::set<Series> use ABSL_GUARDED_BY(use_mutex);
  prometheus::Gauge& agents = OneGauge(registry, "legoai_agents_connected", "Agents whose stream is open.");
  prometheus::Gauge& leads = OneGauge(registry, "legoai_server_leads", "1: this server leads, 0: it follows another.");
  prometheus::Gauge& term = OneGauge(registry, "legoai_leader_term", "Term of the server that leads, as this one knows it.");
  prometheus::Counter& leaderships =
      OneCounter(registry, "legoai_leaderships_total", "How often this server has begun to lead.");
  CounterFamily& http = Counters(registry, "legoai_http_requests_total", "HTTP requests by method and code of the answer.");
  Histogram& http_seconds =
      OneHistogram(registry, "legoai_http_request_seconds", "Time of HTTP requests that are no streams.", kFast);
  prometheus::Gauge& http_streams = OneGauge(registry, "legoai_http_streams", "Open streams of server-sent events.");
  CounterFamily& grpc = Counters(registry, "legoai_grpc_requests_total", "gRPC calls of users by method and code.");
  Histogram& grpc_seconds =
      OneHistogram(registry, "legoai_grpc_request_seconds", "Time of gRPC calls of users that are no streams.", kFast);
  Histogram& store_write =
      OneHistogram(registry, "legoai_store_write_seconds", "Time of one write transaction until it is durable.", kFast);
  Histogram& heartbeat =
      OneHistogram(registry, "legoai_heartbeat_seconds", "Time from an agent's heartbeat until its answer is sent.", kFast);
  Histogram& planning = OneHistogram(registry, "legoai_planning_seconds", "Time of one planning.", kSlow);
  prometheus::Counter& plans_reused =
      OneCounter(registry, "legoai_plans_reused_total", "Plans that were given again, to an equal request.");
  prometheus::Counter& leases = OneCounter(registry, "legoai_leases_total", "Leases given to jobs.");
  prometheus::Counter& lost = OneCounter(registry, "legoai_attempts_lost_total", "Attempts that were lost.");
  prometheus::Counter& checkpoints = OneCounter(registry, "legoai_checkpoints_committed_total", "Checkpoints committed.");
  prometheus::Counter& records = OneCounter(registry, "legoai_telemetry_records_total", "Telemetry records made durable.");
  prometheus::Counter& dropped = OneCounter(registry, "legoai_telemetry_dropped_total", "Telemetry records that agents dropped.");
  prometheus::Gauge& resident = OneGauge(registry, "process_resident_memory_bytes", "Resident memory of the server.");
  // A counter whose value the kernel keeps: it is set by what it has grown.
  prometheus::Counter& cpu = OneCounter(registry, "process_cpu_seconds_total", "Processor time of the server, user and system.");
  prometheus::Gauge& files = OneGauge(registry, "process_open_fds", "Open file descriptors of the server.");
  prometheus::Gauge& start = OneGauge(registry, "process_start_time_seconds", "When the server was started, seconds since 1970.");
};

Metrics::Metrics() : families_(std::make_unique<Families>()) { families_->start.Set(UnixSeconds()); }
Metrics::~Metrics() = default;

void Metrics::SetJobs(std::string_view state, int64_t jobs) {
  families_->jobs.Add({{"state", std::string(state)}}).Set(static_cast<double>(jobs));
}
void Metrics::SetWorkers(std::string_view state, int64_t workers) {
  families_->workers.Add({{"state", std::string(state)}}).Set(static_cast<double>(workers));
}
void Metrics::SetSlots(std::string_view use, int64_t slots) {
  families_->slots.Add({{"use", std::string(use)}}).Set(static_cast<double>(slots));
}
void Metrics::SetConnectedAgents(int64_t agents) { families_->agents.Set(static_cast<double>(agents)); }

void Metrics::SetLeading(bool leads, int64_t term) {
  families_->leads.Set(leads ? 1 : 0);
  families_->term.Set(static_cast<double>(term));
}
void Metrics::BeganToLead() { families_->leaderships.Increment(); }

void Metrics::SetUse(const std::vector<v1::Worker>& workers) {
  Families& all = *families_;
  const MutexLock lock(all.use_mutex);
  std::set<Series> now;
  for (const v1::Worker& worker : workers) {
    const std::string name = worker.name().substr(worker.name().rfind('/') + 1);
    if (worker.connected() && worker.has_health()) {
      SetSeries(all.faulty_slots, {{"worker", name}}, static_cast<double>(worker.slots() - SoundSlots(worker)), &now);
      SetSeries(all.checking, {{"worker", name}}, worker.health().checking() ? 1 : 0, &now);
    }
    if (!worker.connected() || !worker.has_use()) continue;
    const v1::WorkerUse& use = worker.use();
    if (use.has_processor_share()) SetSeries(all.processors, {{"worker", name}}, use.processor_share(), &now);
    SetSeries(all.memory, {{"worker", name}}, static_cast<double>(use.memory_bytes()), &now);
    SetSeries(all.memory_total, {{"worker", name}}, static_cast<double>(worker.host_memory_bytes()), &now);
    for (const v1::SlotDevice& device : worker.slot_devices()) {
      SetSeries(all.gpu_memory_total, {{"worker", name}, {"gpu", std::to_string(device.index())}},
                static_cast<double>(device.memory_bytes()), &now);
    }
    for (const v1::GpuUse& gpu : use.gpus()) {
      const prometheus::Labels labels = {{"worker", name}, {"gpu", std::to_string(gpu.index())}};
      SetSeries(all.gpu_memory, labels, static_cast<double>(gpu.memory_bytes()), &now);
      if (gpu.has_utilization()) SetSeries(all.gpu_utilization, labels, gpu.utilization(), &now);
      if (gpu.has_temperature_celsius()) SetSeries(all.gpu_temperature, labels, gpu.temperature_celsius(), &now);
      if (gpu.has_power_watts()) SetSeries(all.gpu_power, labels, gpu.power_watts(), &now);
      if (gpu.has_uncorrected_ecc_errors())
        SetSeries(all.gpu_ecc, labels, static_cast<double>(gpu.uncorrected_ecc_errors()), &now);
      for (const std::string& reason : gpu.slowdowns()) {
        prometheus::Labels of_reason = labels;
        of_reason["reason"] = reason;
        SetSeries(all.gpu_slowdown, of_reason, 1, &now);
      }
    }
  }
  for (const Series& before : all.use) {
    if (now.count(before) == 0) before.first->Remove(before.second);
  }
  all.use = std::move(now);
}

void Metrics::SlotFault(std::string_view cause) { families_->slot_faults.Add({{"cause", std::string(cause)}}).Increment(); }

void Metrics::HttpRequest(std::string_view method, int code, double seconds) {
  const bool known = method == "GET" || method == "HEAD" || method == "POST";
  families_->http.Add({{"method", std::string(known ? method : "other")}, {"code", std::to_string(code)}}).Increment();
  families_->http_seconds.Observe(seconds);
}
void Metrics::HttpStreams(int change) { families_->http_streams.Increment(change); }

void Metrics::GrpcRequest(std::string_view method, std::string_view code, std::optional<double> seconds) {
  families_->grpc.Add({{"method", std::string(method)}, {"code", std::string(code)}}).Increment();
  if (seconds) families_->grpc_seconds.Observe(*seconds);
}

void Metrics::StoreWrite(double seconds) { families_->store_write.Observe(seconds); }
void Metrics::Heartbeat(double seconds) { families_->heartbeat.Observe(seconds); }
void Metrics::Planning(double seconds) { families_->planning.Observe(seconds); }
void Metrics::PlanReused() { families_->plans_reused.Increment(); }
void Metrics::Lease() { families_->leases.Increment(); }
void Metrics::AttemptLost() { families_->lost.Increment(); }
void Metrics::CheckpointCommitted() { families_->checkpoints.Increment(); }
void Metrics::TelemetryRecords(int64_t records) { families_->records.Increment(static_cast<double>(records)); }
void Metrics::TelemetryDropped(int64_t records) { families_->dropped.Increment(static_cast<double>(records)); }

std::string Metrics::Text() {
  families_->resident.Set(ResidentBytes());
  families_->cpu.Increment(CpuSeconds() - families_->cpu.Value());
  families_->files.Set(OpenFiles());
  return prometheus::TextSerializer().Serialize(families_->registry.Collect());
}

}  // namespace legoai::server
