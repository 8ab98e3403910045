#include "server/cli/whatif/sensitivities.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "planner/explain.h"
#include "planner/plan_facts.h"
#include "proto/status.h"
#include "server/cli/output.h"
#include "server/cli/whatif/cluster_figures.h"
#include "server/cli/whatif/sweep_points.h"

namespace legoai::cli {
namespace {

// The index of what was added; 0 where the figure cannot have this value, as an efficiency above 1.
size_t AddWith(const std::string& figure, double factor, std::vector<v1::SimRequest>* requests) {
  v1::SimRequest changed = requests->front();
  if (!SetClusterFigure(figure, absl::StrFormat("%.6fx", factor), changed.mutable_cluster()).ok()) return 0;
  requests->push_back(std::move(changed));
  return requests->size() - 1;
}

double StepOf(const std::vector<absl::StatusOr<v1::Estimate>>& estimates, size_t at) {
  return at == 0 ? 0 : estimates[at]->step_time_seconds();
}

double Effect(const Sensitivity& row, double step_seconds) {
  double effect = 0;
  for (double seconds : {row.less_seconds, row.more_seconds}) {
    if (seconds > 0) effect = std::max(effect, std::abs(seconds - step_seconds));
  }
  return effect;
}

std::string ChangeText(double seconds, double now) {
  if (seconds == 0) return "-";
  const double change = seconds / now - 1;
  if (std::abs(change) < 5e-4) return "0";
  return absl::StrFormat("%+.1f %%", 100 * change);
}

}  // namespace

absl::StatusOr<SensitivityRequests> RequestsForSensitivities(const v1::SimRequest& request) {
  SensitivityRequests all;
  all.requests = {request};
  for (const std::string& figure : ClusterFigures(request.cluster())) {
    if (figure == "memory") continue;
    ASSIGN_OR_RETURN(auto now, ClusterFigureText(request.cluster(), figure));
    SensitivityRequests::Place place{figure, std::move(now), 0, 0};
    place.less = AddWith(figure, 1 - kSensitivityShare, &all.requests);
    place.more = AddWith(figure, 1 + kSensitivityShare, &all.requests);
    if (place.less + place.more > 0) all.places.push_back(std::move(place));
  }
  return all;
}

absl::StatusOr<Sensitivities> ReadSensitivities(const SensitivityRequests& requests,
                                                const std::vector<absl::StatusOr<v1::Estimate>>& estimates) {
  for (const auto& estimate : estimates) {
    if (!estimate.ok()) return estimate.status();
  }
  Sensitivities result{*estimates[0], {}};
  for (const auto& place : requests.places)
    result.rows.push_back({place.figure, place.now, StepOf(estimates, place.less), StepOf(estimates, place.more)});
  const double now = result.estimate.step_time_seconds();
  std::stable_sort(result.rows.begin(), result.rows.end(),
                   [now](const Sensitivity& a, const Sensitivity& b) { return Effect(a, now) > Effect(b, now); });
  return result;
}

std::string SensitivitiesText(const Sensitivities& sensitivities) {
  const v1::Estimate& estimate = sensitivities.estimate;
  const double now = estimate.step_time_seconds();
  const std::string share = absl::StrFormat("%.0f %%", 100 * kSensitivityShare);
  Table table({"<figure", "now", share + " less", share + " more"});
  bool open = false;
  for (const Sensitivity& row : sensitivities.rows) {
    table.Add({row.figure, row.now, ChangeText(row.less_seconds, now), ChangeText(row.more_seconds, now)});
    open = open || row.more_seconds == 0;
  }
  const auto& stage = planner::FullestStage(estimate);
  const int64_t headroom = planner::HeadroomBytes(stage);
  const double least = static_cast<double>(stage.peak_allocated_bytes() + stage.reserve_bytes());
  return absl::StrCat(estimate.model(), " on ", estimate.cluster(), ": ", planner::Summarize(estimate.recipe()), "\nstep time ",
                      SecondsText(now), "; what it becomes when one figure of the cluster changes, all else as it is\n\n",
                      table.Text(), open ? "-: a share above 100 % cannot be\n" : "", "memory: ", BytesText(least),
                      " a device are needed, of ", BytesText(static_cast<double>(stage.capacity_bytes())),
                      headroom < 0 ? ": it does not fit" : "", "\n");
}

std::string SensitivitiesCsv(const Sensitivities& sensitivities) {
  std::string text = CsvLine({"figure", "now", "step_time_seconds", "less_step_time_seconds", "more_step_time_seconds"});
  const auto seconds = [](double value) { return value == 0 ? "" : absl::StrFormat("%.9g", value); };
  for (const Sensitivity& row : sensitivities.rows) {
    text += CsvLine({row.figure, row.now, seconds(sensitivities.estimate.step_time_seconds()), seconds(row.less_seconds),
                     seconds(row.more_seconds)});
  }
  return text;
}

Tree SensitivitiesTree(const Sensitivities& sensitivities) {
  Tree tree = {{"share", kSensitivityShare}, {"estimate", ToTree(sensitivities.estimate)}, {"sensitivities", Tree::array()}};
  for (const Sensitivity& row : sensitivities.rows) {
    Tree one = {{"figure", row.figure}, {"now", row.now}};
    if (row.less_seconds > 0) one["less_step_time_seconds"] = row.less_seconds;
    if (row.more_seconds > 0) one["more_step_time_seconds"] = row.more_seconds;
    tree["sensitivities"].push_back(std::move(one));
  }
  return tree;
}

}  // namespace legoai::cli
