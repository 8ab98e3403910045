// What `lego sweep` varies: --vary KEY=A,B,C, and the points that these make. Thread-safety: pure functions.
//
// KEY is a key of the recipe, or cluster, model, gpus, global-batch, seq, or a figure of the cluster (sensitivities.h).
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/json/reflect.h"
#include "proto/legoai/v1/cluster.pb.h"
#include "proto/legoai/v1/plan.pb.h"
#include "server/cli/arguments.h"

namespace legoai::cli {

inline constexpr int64_t kMostSweepPoints = 256;

struct Variation {
  std::string key;
  std::vector<std::string> values;  // in the order given
};

// Of all --vary. Errors: FieldError of --vary: no KEY=VALUES, a key twice or unknown, one that is an option of the call too, more
// than kMostSweepPoints points.
absl::StatusOr<std::vector<Variation>> ReadVariations(const Arguments& arguments);

// One value of each variation, in their order.
using SweepPoint = std::vector<std::string>;

// All combinations; the last variation changes fastest.
std::vector<SweepPoint> SweepPoints(const std::vector<Variation>& variations);

// The call with the values of `point` that options and keys of the recipe can say. Errors: FieldError of the key.
absl::StatusOr<Arguments> ArgumentsAt(const Arguments& arguments, const std::vector<Variation>& variations,
                                      const SweepPoint& point);

// Sets the figures of the cluster that `point` has. Errors: FieldError of the figure.
absl::Status SetFiguresAt(const std::vector<Variation>& variations, const SweepPoint& point, v1::Cluster* cluster);

// What `lego sweep` found, as a table, CSV and JSON. Thread-safety: pure functions.

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
