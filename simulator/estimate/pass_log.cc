#include "simulator/estimate/pass_log.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "proto/errors.h"
#include "proto/status.h"
#include "simulator/engine/step_simulation.h"

namespace legoai::sim {
namespace {

void Add(const graph::TraceStatistics& more, graph::TraceStatistics* sum) {
  sum->operators += more.operators;
  sum->collectives += more.collectives;
  sum->collective_bytes += more.collective_bytes;
  sum->storages += more.storages;
  sum->storage_bytes += more.storage_bytes;
}

}  // namespace

graph::PassOptions PassLog::Observing(graph::PassOptions options) {
  options.observer = [this](const std::string& pass, const graph::Trace& trace) {
    auto found = std::find_if(seen_.begin(), seen_.end(), [&](const auto& seen) { return seen.first == pass; });
    if (found == seen_.end()) found = seen_.insert(found, {pass, {}});
    found->second.push_back(trace);
    return absl::OkStatus();
  };
  return options;
}

absl::StatusOr<std::vector<PassRow>> PassLog::Rows(const std::vector<CapturedStage>& stages, const v1::Cluster& cluster,
                                                   const MemoryOptions& memory) const {
  ASSIGN_OR_RETURN(const auto compute, RooflineModel::Create(cluster.device()));
  const CollectiveCostModel collectives(cluster);
  std::vector<PassRow> rows;
  for (const auto& [pass, traces] : seen_) {
    PassRow& row = rows.emplace_back();
    row.pass = pass;
    std::vector<StageTrace> of_stages;
    for (size_t i = 0; i < traces.size(); ++i) {
      Add(graph::StatisticsOf(traces[i]), &row.statistics);
      ASSIGN_OR_RETURN(const auto profile, SimulateMemory(traces[i], memory));
      row.peak_bytes = std::max(row.peak_bytes, profile.peak_allocated_bytes);
      of_stages.push_back({&traces[i], static_cast<int64_t>(i), stages[i].rank, nullptr});
    }
    ASSIGN_OR_RETURN(const auto step, SimulateStep(of_stages, cluster, *compute, collectives));
    row.step_seconds = step.step_seconds;
    row.exposed_seconds = step.breakdown.exposed_communication_seconds();
    for (const graph::PassReport& report : reports_) {
      if (report.name == pass) row.pass_seconds += report.seconds;
    }
  }
  return rows;
}

absl::Status WritePassRows(const std::string& field, const std::string& path, const std::vector<PassRow>& rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const PassRow& row : rows) {
    nlohmann::ordered_json one;
    one["pass"] = row.pass;
    one["operators"] = row.statistics.operators;
    one["collectives"] = row.statistics.collectives;
    one["collective_bytes"] = row.statistics.collective_bytes;
    one["storages"] = row.statistics.storages;
    one["storage_bytes"] = row.statistics.storage_bytes;
    one["step_time_seconds"] = row.step_seconds;
    one["exposed_communication_seconds"] = row.exposed_seconds;
    one["peak_allocated_bytes"] = row.peak_bytes;
    one["pass_seconds"] = row.pass_seconds;
    list.push_back(std::move(one));
  }
  std::ofstream file(path);
  file << list.dump() << "\n";
  file.close();
  if (!file) return FieldError(field, path, "cannot be written");
  return absl::OkStatus();
}

}  // namespace legoai::sim
