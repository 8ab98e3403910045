// What demo_server shows of steps: where the time of each rank went, and traces as the simulator writes them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "proto/legoai/v1/estimate.pb.h"
#include "proto/legoai/v1/metrics.pb.h"
#include "proto/legoai/v1/sim.pb.h"
#include "proto/read_file.h"
#include "server/store/store.h"
#include "simulator/engine/chrome_trace.h"
#include "simulator/engine/testing/example_pipeline.h"

namespace legoai::testing {

// Rank 2 is slow in its backward, and what the others wait for it is exposed.
inline void AddRanks(int64_t ranks, v1::StepMetrics* metrics) {
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const double step = metrics->step_seconds() * (1 + 0.002 * static_cast<double>((metrics->step() + rank) % 3));
    const double lost = rank == 2 ? 0.07 * step : 0;
    v1::RankMetrics& row = *metrics->add_ranks();
    row.set_rank(rank);
    row.set_step_seconds(step + lost);
    row.set_data_seconds(metrics->data_seconds());
    row.set_forward_seconds(0.28 * step);
    row.set_backward_seconds(0.57 * step + lost);
    row.set_optimizer_seconds(0.1 * step);
    row.set_exposed_communication_seconds(rank == 2 ? 0.04 * step : 0.11 * step);
    row.set_peak_memory_bytes(int64_t{138 - 3 * rank} << 20);
    const auto add = [&](const char* collective, const char* group, int64_t count, double seconds, double exposed) {
      v1::CollectiveTime& time = *row.add_collectives();
      time.set_collective(collective);
      time.set_group(group);
      time.set_count(count);
      time.set_seconds(seconds * step);
      time.set_exposed_seconds((rank == 2 ? 0.4 : 1) * exposed * step);
    };
    add("all_gather", "dp_shard", 26, 0.12, 0.015);
    add("reduce_scatter", "dp_shard", 13, 0.14, 0.08);
    add("all_reduce", "loss", 2, 0.015, 0.015);
  }
  double exposed = 0, steps = 0;
  for (const v1::RankMetrics& row : metrics->ranks()) {
    exposed += row.exposed_communication_seconds();
    steps += row.step_seconds();
  }
  metrics->set_exposed_communication_share(exposed / steps);
}

// The step of a pipeline, as the simulator writes it; wider ones take longer, as measured steps take longer than predicted ones.
inline absl::Status WriteTrace(const std::string& path, int64_t width) {
  const sim::testing::Example step(2, 4, width);
  return sim::WriteChromeTrace("path", path, step.Source()).status();
}

inline absl::StatusOr<v1::Estimate> DemoSimulation(const v1::SimRequest& request, const std::function<bool()>&) {
  if (absl::Status status = WriteTrace(request.chrome_trace_path(), 4096); !status.ok()) return status;
  return v1::Estimate();
}

// Adds those of the first rank of each stage of the pipeline; `path` is a file to work with.
inline absl::Status AddTraces(const std::string& path, const std::string& job, int64_t step, int64_t time_us,
                              store::Transaction& transaction) {
  if (absl::Status status = WriteTrace(path, 5000); !status.ok()) return status;
  const auto gzip = ReadFile(path);
  if (!gzip.ok()) return gzip.status();
  for (int64_t rank : {0, 2}) {
    v1::StepTraceInfo info;
    info.set_name(absl::StrCat(job, "/stepTraces/2-", step, "-", rank));
    info.set_attempt(2);
    info.set_step(step);
    info.set_rank(rank);
    info.set_bytes(static_cast<int64_t>(gzip->size()));
    info.set_time_us(time_us);
    v1::TraceFile file;
    file.set_file_name(absl::StrCat("step-", step, "-rank-", rank, ".json.gz"));
    file.set_trace_gzip(*gzip);
    if (absl::Status status = transaction.PutStepTrace(job, info, file); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace legoai::testing
