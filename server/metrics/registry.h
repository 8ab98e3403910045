// Metrics of the server and its workers' machines, in Prometheus' text format 0.0.4. Base units. Job ids are not labels, and only
// connected workers are, so the number of series does not grow over time. docs/operations.md explains each metric.
//
// Thread-safe; counting takes well under a microsecond and never blocks on a reader.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/legoai/v1/worker.pb.h"

namespace legoai::server {

class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // As of now; store_metrics.h sets them from the store. `state`: "queued", "ready"; `use`: "used", "free", "faulty".
  void SetJobs(std::string_view state, int64_t jobs);        // legoai_jobs{state}
  void SetWorkers(std::string_view state, int64_t workers);  // legoai_workers{state}
  void SetSlots(std::string_view use, int64_t slots);        // legoai_slots{use}
  void SetConnectedAgents(int64_t agents);                   // legoai_agents_connected
  // Of several servers over one store: whether this one leads, and the term of the one that does as it knows it.
  // legoai_server_leads, legoai_leader_term; legoai_leaderships_total counts how often this server has begun to lead.
  void SetLeading(bool leads, int64_t term);
  void BeganToLead();
  void SlotFault(std::string_view cause);  // legoai_slot_faults_total{cause}
  // Of connected workers that have reported it; series of other workers are removed. legoai_worker_processor_usage_ratio{worker},
  // legoai_worker_memory_used_bytes{worker}, legoai_worker_gpu_utilization_ratio{worker,gpu},
  // legoai_worker_gpu_memory_used_bytes, legoai_worker_gpu_temperature_celsius, legoai_worker_gpu_power_watts,
  // legoai_worker_gpu_uncorrected_ecc_errors, legoai_worker_gpu_slowdown{worker,gpu,reason},
  // legoai_worker_faulty_slots{worker}, legoai_worker_checking{worker}
  void SetUse(const std::vector<v1::Worker>& workers);

  // `method`: GET, HEAD, POST; others count as "other". `code`: of the answer.
  void HttpRequest(std::string_view method, int code, double seconds);  // legoai_http_requests_total, legoai_http_request_seconds
  void HttpStreams(int change);                                         // legoai_http_streams
  // `method`: "CreateJob"; `code`: "OK", "NOT_FOUND". legoai_grpc_requests_total, legoai_grpc_request_seconds; streams last as
  // long as their client likes and are counted without seconds.
  void GrpcRequest(std::string_view method, std::string_view code, std::optional<double> seconds);

  void StoreWrite(double seconds);  // legoai_store_write_seconds: one transaction until it is durable
  void Heartbeat(double seconds);  // legoai_heartbeat_seconds: from an agent's heartbeat until its answer is handed to the stream
  void Planning(double seconds);   // legoai_planning_seconds: one plan
  void PlanReused();               // legoai_plans_reused_total: plans given that an equal request had made
  void Lease();                    // legoai_leases_total: leases given
  void AttemptLost();              // legoai_attempts_lost_total
  void CheckpointCommitted();      // legoai_checkpoints_committed_total
  void TelemetryRecords(int64_t records);  // legoai_telemetry_records_total: records that became durable
  void TelemetryDropped(int64_t records);  // legoai_telemetry_dropped_total: records that agents could not keep

  // All metrics, with the process metrics (process_resident_memory_bytes and so on) as of this call.
  std::string Text();

 private:
  struct Families;
  const std::unique_ptr<Families> families_;
};

}  // namespace legoai::server
