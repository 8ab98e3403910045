// What `lego sweep` varies: --vary KEY=A,B,C, and the resulting points. Thread-safety: pure functions.
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

// From all --vary options. Errors: FieldError of --vary: not KEY=VALUES, a key that is repeated, unknown or also given as an
// option, or more than kMostSweepPoints points.
absl::StatusOr<std::vector<Variation>> ReadVariations(const Arguments& arguments);

// One value of each variation, in order.
using SweepPoint = std::vector<std::string>;

// All combinations; the last variation changes fastest.
std::vector<SweepPoint> SweepPoints(const std::vector<Variation>& variations);

// `arguments` with the values of `point` that are options or keys of the recipe. Errors: FieldError of the key.
absl::StatusOr<Arguments> ArgumentsAt(const Arguments& arguments, const std::vector<Variation>& variations,
                                      const SweepPoint& point);

// Sets the cluster figures in `point`. Errors: FieldError of the figure.
absl::Status SetFiguresAt(const std::vector<Variation>& variations, const SweepPoint& point, v1::Cluster* cluster);

// The results of `lego sweep` as a table, CSV and JSON. Thread-safety: pure functions.

// The result of one point. Without `best` there are no figures, and `reason` says why.
struct SweepOutcome {
  SweepPoint point;
  int64_t devices = 0;
  std::optional<v1::RankedRecipe> best;  // the planned winner, or the given recipe; it may not fit
  bool fits = false;
  std::string reason;  // why it does not fit
};

struct Sweep {
  std::vector<Variation> variations;
  bool planned = false;  // each point has its own recipe
  std::vector<SweepOutcome> outcomes;
};

std::string SweepText(const Sweep& sweep);

// RFC 4180, with a header; sizes in bytes, times in seconds. Unknown values are empty.
std::string SweepCsv(const Sweep& sweep);

// {"varied": [KEY...], "points": [{"values": {KEY: VALUE}, "devices", "fits", "reason", and an entry's fields of the JSON of
// `plan`}]}
Tree SweepTree(const Sweep& sweep);

// One line of CSV with its line end; cells are quoted if necessary.
std::string CsvLine(const std::vector<std::string>& cells);

}  // namespace legoai::cli
