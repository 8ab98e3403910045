// Where a predicted and a measured step part, from their traces. Thread-safety: pure functions. Units: seconds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/json/reflect.h"
#include "server/cli/whatif/achieved.h"
#include "server/cli/whatif/trace_reader.h"

namespace legoai::cli {

struct SecondsOfBoth {
  double predicted = 0, measured = 0;
  double difference() const { return measured - predicted; }
};

// All that runs on a stream in a phase for a module, layers of one kind as one: "model.layers.*.mlp". The rows of the compute
// stream, and those below without a phase, make up the step; what other streams do runs beside it.
struct TraceRow {
  std::string stream, phase, module;
  SecondsOfBoth seconds;
  bool OfStep() const { return stream == "compute" || phase.empty(); }
};
inline constexpr char kWaits[] = "(waits for communication)";
inline constexpr char kIdle[] = "(between operators)";
inline constexpr char kData[] = "(fetches the batch)";

struct CollectiveRow {
  std::string name, group;  // "lego::all_gather_into", "dp_shard"
  SecondsOfBoth seconds, exposed;
  int64_t predicted_count = 0, measured_count = 0;
};

// The most of live memory that there was at a time: of all, "all", or of a category, "activation". The workspace of kernels is
// predicted and not measured.
struct MemoryRow {
  std::string category;
  int64_t predicted_bytes = 0, measured_bytes = 0;
  int64_t difference() const { return measured_bytes - predicted_bytes; }
};

struct OperatorRow {
  std::string name;
  int64_t count = 0;
  double seconds = 0;
};

struct TraceComparison {
  std::string model;
  int64_t stage = 0, ranks = 0;
  std::string step;         // which was measured; "": it is not said
  SecondsOfBoth step_time;  // with fetching the batch, which is not predicted
  SecondsOfBoth exposed;    // communication, while the compute stream waits for it
  std::vector<TraceRow> rows;              // of the step, that which explains most of the difference first; then what runs beside
  std::vector<CollectiveRow> collectives;  // by name and group
  std::vector<MemoryRow> memory;  // all, then that which differs most; none if one of the files says nothing of it
  std::vector<AchievedRow> achieved;  // of the measured step
  std::vector<OperatorRow> only_predicted, only_measured;
};

// Of the stage that `measured` is of. Errors: FieldErrors of PREDICTED and MEASURED: another model, another number of ranks, no
// such stage, more than one measured stage.
absl::StatusOr<TraceComparison> CompareTraces(const StepTraceFile& predicted, const StepTraceFile& measured);

// At most `rows` rows.
std::string TraceComparisonText(const TraceComparison& comparison, size_t rows);
Tree TraceComparisonTree(const TraceComparison& comparison);

}  // namespace legoai::cli
