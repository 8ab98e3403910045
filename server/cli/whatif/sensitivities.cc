#include "server/cli/whatif/sensitivities.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/hardware/catalog.h"
#include "planner/explain.h"
#include "planner/plan_facts.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "proto/text.h"
#include "server/cli/arguments.h"
#include "server/cli/output.h"
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

constexpr char kEfficiency[] = ".efficiency", kLink[] = "link.", kBandwidth[] = ".bandwidth", kLatency[] = ".latency";

enum class Unit { kBytes, kBytesPerSecond, kSeconds, kShare, kFlops };

// One figure: every place of the cluster that holds it.
struct Figure {
  Unit unit = Unit::kShare;
  std::vector<std::function<double()>> get;
  std::vector<std::function<void(double)>> set;
};

template <class Message, class Value>
void AddPlace(Message* message, Value (Message::*get)() const, void (Message::*set)(Value), Figure* figure) {
  figure->get.push_back([=] { return static_cast<double>((message->*get)()); });
  figure->set.push_back([=](double value) { (message->*set)(static_cast<Value>(value)); });
}

template <class Message, class Value>
Figure Of(Unit unit, Message* message, Value (Message::*get)() const, void (Message::*set)(Value)) {
  Figure figure{unit, {}, {}};
  AddPlace(message, get, set, &figure);
  return figure;
}

void AddLinks(v1::Cluster* cluster, bool by_tier, std::map<std::string, Figure>* figures) {
  for (v1::Tier& tier : *cluster->mutable_tiers()) {
    v1::Link* const link = tier.mutable_link();
    const std::string name = by_tier ? tier.name() : link->type();
    Figure& bandwidth = (*figures)[absl::StrCat(kLink, name, kBandwidth)];
    bandwidth.unit = Unit::kBytesPerSecond;
    AddPlace(link, &v1::Link::bandwidth_bytes_per_second, &v1::Link::set_bandwidth_bytes_per_second, &bandwidth);
    Figure& latency = (*figures)[absl::StrCat(kLink, name, kLatency)];
    latency.unit = Unit::kSeconds;
    AddPlace(link, &v1::Link::latency_seconds, &v1::Link::set_latency_seconds, &latency);
  }
}

// All figures of `cluster`, which must outlive what is given. `tiers`: links by their tiers' names too.
std::map<std::string, Figure> Figures(v1::Cluster* cluster, bool tiers) {
  v1::Device* const device = cluster->mutable_device();
  std::map<std::string, Figure> figures;
  figures["memory"] = Of(Unit::kBytes, device, &v1::Device::memory_bytes, &v1::Device::set_memory_bytes);
  figures["memory.bandwidth"] = Of(Unit::kBytesPerSecond, device, &v1::Device::memory_bandwidth_bytes_per_second,
                                   &v1::Device::set_memory_bandwidth_bytes_per_second);
  figures["launch.time"] = Of(Unit::kSeconds, device, &v1::Device::kernel_launch_seconds, &v1::Device::set_kernel_launch_seconds);
  figures["dispatch.time"] =
      Of(Unit::kSeconds, device, &v1::Device::host_dispatch_seconds, &v1::Device::set_host_dispatch_seconds);
  Figure& peak = figures["compute.peak"];
  peak.unit = Unit::kFlops;
  for (v1::PeakFlops& one : *device->mutable_peak_flops())
    AddPlace(&one, &v1::PeakFlops::flops_per_second, &v1::PeakFlops::set_flops_per_second, &peak);
  for (v1::Efficiency& one : *device->mutable_efficiencies()) {
    Figure& figure = figures[one.op_class() + kEfficiency];
    AddPlace(&one, &v1::Efficiency::fraction, &v1::Efficiency::set_fraction, &figure);
    for (v1::EfficiencyPoint& point : *one.mutable_curve())
      AddPlace(&point, &v1::EfficiencyPoint::fraction, &v1::EfficiencyPoint::set_fraction, &figure);
  }
  AddLinks(cluster, /*by_tier=*/false, &figures);
  std::map<std::string, Figure> by_tier;
  if (tiers) AddLinks(cluster, /*by_tier=*/true, &by_tier);
  figures.merge(by_tier);  // a tier may have the name of a link's type
  return figures;
}

std::string ValueText(Unit unit, double value) {
  switch (unit) {
    case Unit::kBytes: return BytesText(value);
    case Unit::kBytesPerSecond: return BandwidthText(value);
    case Unit::kSeconds: return SecondsText(value);
    case Unit::kFlops: return FlopsText(value);
    case Unit::kShare: break;
  }
  return PercentText(value);
}

const char* HowToWrite(Unit unit) {
  switch (unit) {
    case Unit::kBytes: return "write a multiple as 1.5x, or bytes as 120GiB";
    case Unit::kBytesPerSecond: return "write a multiple as 1.5x, or bytes per second as 450GB/s";
    case Unit::kSeconds: return "write a multiple as 1.5x, or a time as 5us";
    case Unit::kFlops: return "write a multiple as 1.5x: a device has a peak for each precision";
    case Unit::kShare: break;
  }
  return "write a multiple as 1.1x, or a share above 0 and up to 1 as 0.7";
}

std::optional<double> Number(absl::string_view text) {
  double number = 0;
  const bool plain = !text.empty() && text.find_first_not_of("0123456789.eE+-") == absl::string_view::npos;
  if (!plain || !absl::SimpleAtod(text, &number) || !std::isfinite(number) || number < 0) return std::nullopt;
  return number;
}

// A number with one of these units behind it, the longest first.
std::optional<double> Scaled(absl::string_view text, const std::vector<std::pair<const char*, double>>& units) {
  for (const auto& [name, scale] : units) {
    if (!absl::EndsWith(text, name)) continue;
    const auto number = Number(text.substr(0, text.size() - absl::string_view(name).size()));
    return number ? std::optional<double>(*number * scale) : std::nullopt;
  }
  return Number(text);
}

std::optional<double> NewValue(Unit unit, const std::string& text, double now) {
  if (text.ends_with("x")) {
    const auto factor = Number(absl::string_view(text).substr(0, text.size() - 1));
    return factor ? std::optional<double>(now * *factor) : std::nullopt;
  }
  switch (unit) {
    case Unit::kBytes: return ReadBytes(text, now);
    case Unit::kBytesPerSecond: return Scaled(text, {{"TB/s", 1e12}, {"GB/s", 1e9}, {"MB/s", 1e6}});
    case Unit::kSeconds: return Scaled(text, {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}});
    case Unit::kFlops: return std::nullopt;
    case Unit::kShare: break;
  }
  return Number(text);
}

absl::Status Unknown(const std::string& name, const std::map<std::string, Figure>& figures) {
  std::vector<std::string> names;
  for (const auto& [known, figure] : figures) names.push_back(known);
  return FieldError(
      "--vary", name,
      absl::StrCat("is no figure of this cluster; did you mean ", Nearest(name, names), "? It has ", absl::StrJoin(names, ", ")));
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

bool IsClusterFigure(const std::string& name) {
  static const char* const kPlain[] = {"memory", "memory.bandwidth", "compute.peak", "launch.time", "dispatch.time"};
  return std::find(std::begin(kPlain), std::end(kPlain), name) != std::end(kPlain) || name.ends_with(kEfficiency) ||
         name.starts_with(kLink);
}

std::vector<std::string> ClusterFigures(const v1::Cluster& cluster) {
  v1::Cluster copy = cluster;
  std::vector<std::string> names;
  for (const auto& [name, figure] : Figures(&copy, /*tiers=*/false)) names.push_back(name);
  return names;
}

absl::StatusOr<std::string> ClusterFigureText(const v1::Cluster& cluster, const std::string& name) {
  v1::Cluster copy = cluster;
  const auto figures = Figures(&copy, /*tiers=*/true);
  const auto found = figures.find(name);
  if (found == figures.end()) return Unknown(name, figures);
  double least = INFINITY, most = 0;
  for (const auto& get : found->second.get) {
    least = std::min(least, get());
    most = std::max(most, get());
  }
  const Unit unit = found->second.unit;
  const bool one = least == most || unit == Unit::kFlops;  // of a device's peaks people name the largest
  return one ? ValueText(unit, most) : absl::StrCat(ValueText(unit, least), " to ", ValueText(unit, most));
}

absl::Status SetClusterFigure(const std::string& name, const std::string& value, v1::Cluster* cluster) {
  const auto figures = Figures(cluster, /*tiers=*/true);
  const auto found = figures.find(name);
  if (found == figures.end()) return Unknown(name, figures);
  const Figure& figure = found->second;
  for (size_t i = 0; i < figure.get.size(); ++i) {
    const auto number = NewValue(figure.unit, value, figure.get[i]());
    const bool above = figure.unit == Unit::kShare && number && *number > 1;
    if (!number || above || !(*number <= 1e18)) return FieldError(name, value, HowToWrite(figure.unit));
    figure.set[i](*number);
  }
  if (const auto fault = GetFieldViolation(sim::CheckCluster(*cluster))) return FieldError(name, value, fault->remedy());
  return absl::OkStatus();
}

absl::StatusOr<std::string> ResizedCluster(const std::string& text, int64_t devices) {
  const size_t at = std::min(text.rfind('@'), text.size()), colon = text.rfind(':', at);
  int64_t per_node = 0;
  if (colon == std::string::npos || colon + 1 >= at ||
      !absl::SimpleAtoi(absl::string_view(text).substr(colon + 1, text.find_first_of("x@", colon) - colon - 1), &per_node) ||
      per_node < 1) {
    return FieldError("gpus", absl::StrCat(devices),
                      absl::StrCat("needs --cluster TYPE:DEVICES_PER_NODExNODES, not ", text,
                                   "; of clusters in files, vary cluster=A.txtpb,B.txtpb"));
  }
  if (devices > per_node && devices % per_node != 0)
    return FieldError("gpus", absl::StrCat(devices),
                      absl::StrCat("must fill whole nodes of ", per_node, " devices, or be a part of one"));
  const int64_t nodes = std::max<int64_t>(1, devices / per_node);
  return absl::StrCat(text.substr(0, colon), ":", std::min(devices, per_node), "x", nodes, nodes > 1 ? text.substr(at) : "");
}

}  // namespace legoai::cli
