// The passes that a recipe asks for, one after the other, over the Trace of one rank's whole step: what a trainer runs with
// compile.enable, and what the simulator predicts for it. Of a recipe without passes the Trace is left as the device gives its
// results.
//
// A pass is a pure function Trace -> Trace with a name. Passes cross the boundaries of templates, so a Trace of two levels is
// flattened first (core/trace/instances.h). Every rank runs the same passes over its own Trace, and a collective that one rank's
// pass joins or moves every other rank of its group joins or moves too: decisions follow from what ranks of a group have in
// common (names of modules, order of uses), never from sizes of shards or from a rank's number.
//
// Thread-safety: pure functions but for the files of `dump_directory`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/recipe/resolved_recipe.h"
#include "core/trace/trace.h"
#include "proto/legoai/v1/hardware.pb.h"

namespace legoai::graph {

struct PassOptions {
  // Of the device that runs the program, whose operators give what the captured Trace then says (core/trace/device_results.h).
  v1::DeviceKind device = v1::CPU;
  // Where the Trace before and after each pass is written as text (trace_dump.h): "0_captured.txt", "1_NAME.txt", ... The folder
  // is made; empty: nothing is written.
  std::string dump_directory;
  // Each pass is followed by the checks of pass_check.h, and the captured Trace is checked before the first.
#ifdef NDEBUG
  bool check = false;
#else
  bool check = true;
#endif
  // Sees the captured Trace, and what each pass makes of it; empty: nobody does. What it gives ends the run.
  std::function<absl::Status(const std::string& pass, const Trace& trace)> observer = nullptr;
};

// The name under which the captured Trace is shown, dumped and checked.
inline constexpr char kCapturedPass[] = "captured";

// What a Trace is made of.
struct TraceStatistics {
  int64_t operators = 0;         // views included
  int64_t collectives = 0;       // messages included
  int64_t collective_bytes = 0;  // of the whole tensors: of what is gathered, before it is scattered
  int64_t storages = 0;          // made in the step
  int64_t storage_bytes = 0;     // of these, each once
  bool operator==(const TraceStatistics&) const = default;
};
TraceStatistics StatisticsOf(const Trace& trace);

struct PassReport {
  std::string name;
  TraceStatistics before, after;
  double seconds = 0;  // of the pass itself
};

// Whether the recipe's step is another program than what was captured.
bool HasPasses(const parallel::ResolvedRecipe& resolved);

// `reports` gets an entry for each pass, in their order; may be null.
// Errors: FieldError of buckets that are still to be planned; Internal with the pass and the findings where a check fails; of the
// file system where the dump cannot be written; those of the observer.
absl::StatusOr<Trace> RunPasses(Trace trace, const parallel::ResolvedRecipe& resolved, const PassOptions& options,
                                std::vector<PassReport>* reports = nullptr);

}  // namespace legoai::graph
