// What `lego sweep` found, as a table, CSV and JSON. Torch-free. Thread-safety: pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "proto/json/reflect.h"
#include "proto/legoai/v1/plan.pb.h"
#include "server/cli/whatif/sweep_points.h"

namespace legoai::cli {

// What one point came to. Without `best` there is no figure, and `reason` says why.
struct SweepOutcome {
  SweepPoint point;
  int64_t devices = 0;
  std::optional<v1::RankedRecipe> best;  // the planned winner, or the one recipe; it may not fit
  bool fits = false;
  std::string reason;  // why not
};

struct Sweep {
  std::vector<Variation> variations;
  bool planned = false;  // each point has its own recipe
  std::vector<SweepOutcome> outcomes;
};

std::string SweepText(const Sweep& sweep);

// RFC 4180, with a header; sizes in bytes, times in seconds. Cells of what is not known are empty.
std::string SweepCsv(const Sweep& sweep);

// {"varied": [KEY...], "points": [{"values": {KEY: VALUE}, "devices", "fits", "reason", and an entry's fields of the JSON of
// `plan`}]}
Tree SweepTree(const Sweep& sweep);

// One line of CSV with its end; cells are quoted where they must be.
std::string CsvLine(const std::vector<std::string>& cells);

}  // namespace legoai::cli
