#include "server/cli/whatif/sweep_chart.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/cli/output.h"
#include "server/cli/whatif/svg.h"

namespace legoai::cli {
namespace {

using svg::Box, svg::Document, svg::Escaped, svg::kBad, svg::kColors, svg::kGrid, svg::kInk, svg::kSoft, svg::Line, svg::TextAt;

constexpr double kWidth = 330, kHeight = 220, kLeft = 64, kTop = 64, kGap = 28, kBottom = 56, kLegendLine = 18;
constexpr double kLogFrom = 8;  // the span of values from which they stand on a logarithmic axis

// Where the values of the first variation stand, from 0 to 1.
std::vector<double> Places(const std::vector<std::string>& values) {
  std::vector<double> numbers;
  for (const std::string& value : values) {
    double number = 0;
    const std::string text = value.ends_with("x") ? value.substr(0, value.size() - 1) : value;
    if (absl::SimpleAtod(text, &number) && std::isfinite(number)) numbers.push_back(number);
  }
  const bool numeric = numbers.size() == values.size() && values.size() > 1;
  if (!numeric) {
    for (numbers.clear(); numbers.size() < values.size();) numbers.push_back(static_cast<double>(numbers.size()));
  }
  auto [least, most] = std::minmax_element(numbers.begin(), numbers.end());
  if (numeric && *least > 0 && *most / *least >= kLogFrom) {
    for (double& number : numbers) number = std::log(number);
  }
  const double from = *least, span = *most - *least;
  for (double& number : numbers) number = span > 0 ? (number - from) / span : 0.5;
  return numbers;
}

// A round number that `most` fits under in at most five steps of an equal size.
double RoundStep(double most) {
  const double power = std::pow(10, std::floor(std::log10(most / 5)));
  for (double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (5 * factor * power >= most) return factor * power;
  }
  return 10 * power;
}

double BinaryStep(double most) {
  double step = 1;
  while (5 * step < most) step *= 2;
  return step;
}

struct Panel {
  const char* title;
  std::string (*text)(double);
  double (*value)(const v1::RankedRecipe&);
  double (*limit)(const v1::RankedRecipe&);  // a line above the values; null: none
  double (*step)(double);
};

const Panel kPanels[] = {
    {"tokens a day", CountText, [](const v1::RankedRecipe& best) { return best.running_cost().tokens_per_day(); }, nullptr,
     RoundStep},
    {"tokens/s of a device", CountText, [](const v1::RankedRecipe& best) { return best.tokens_per_second_per_gpu(); }, nullptr,
     RoundStep},
    {"peak memory of a device, and what is usable (dashed)", BytesText,
     [](const v1::RankedRecipe& best) { return static_cast<double>(best.peak_memory_bytes()); },
     [](const v1::RankedRecipe& best) { return static_cast<double>(best.peak_memory_bytes() + best.headroom_bytes()); },
     BinaryStep}};

struct Point {
  double x = 0;  // 0 to 1
  const SweepOutcome* outcome = nullptr;
};
// Lines by the values of the other variations, in the order of the sweep.
using Series = std::vector<std::pair<std::string, std::vector<Point>>>;

Series SeriesOf(const Sweep& sweep) {
  const std::vector<std::string>& values = sweep.variations[0].values;
  const std::vector<double> places = Places(values);
  Series series;
  for (const SweepOutcome& outcome : sweep.outcomes) {
    std::string name;
    for (size_t i = 1; i < outcome.point.size(); ++i)
      absl::StrAppend(&name, i == 1 ? "" : ", ", sweep.variations[i].key, " ", outcome.point[i]);
    auto found = std::find_if(series.begin(), series.end(), [&](const auto& one) { return one.first == name; });
    if (found == series.end()) found = series.insert(series.end(), {name, {}});
    const size_t at = std::find(values.begin(), values.end(), outcome.point[0]) - values.begin();
    found->second.push_back({places[at], &outcome});
  }
  for (auto& [name, points] : series)
    std::stable_sort(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.x < b.x; });
  return series;
}

// One panel at `left`; the y axis begins at 0, so that heights compare as the figures do.
class PanelDrawing {
 public:
  PanelDrawing(const Panel& panel, double left, const Series& series) : panel_(panel), left_(left) {
    for (const auto& [name, points] : series) {
      for (const Point& point : points) {
        if (!point.outcome->best) continue;
        most_ = std::max(most_, panel.value(*point.outcome->best));
        if (panel.limit != nullptr) most_ = std::max(most_, panel.limit(*point.outcome->best));
      }
    }
    step_ = most_ > 0 ? panel.step(most_) : 1;
    top_value_ = std::max(step_, std::ceil(most_ / step_) * step_);
  }

  std::string Frame(const Variation& variation) const {
    std::string svg = TextAt(left_, kTop - 14, panel_.title, "start", kInk);
    for (double value = 0; value <= top_value_ * 1.0001; value += step_) {
      svg += Line(left_, Y(value), left_ + kWidth, Y(value), kGrid);
      svg += TextAt(left_ - 6, Y(value) + 4, value == 0 ? "0" : panel_.text(value), "end");
    }
    const std::vector<double> places = Places(variation.values);
    for (size_t i = 0; i < places.size(); ++i) svg += TextAt(X(places[i]), kTop + kHeight + 18, variation.values[i], "middle");
    return svg + TextAt(left_ + kWidth / 2, kTop + kHeight + 38, variation.key, "middle", kInk);
  }

  std::string Curve(const std::string& name, const std::vector<Point>& points, const char* color) const {
    std::string path, marks, limit;
    for (const Point& point : points) {
      if (!point.outcome->best) continue;
      const double value = panel_.value(*point.outcome->best), x = X(point.x), y = Y(value);
      absl::StrAppendFormat(&path, "%s%.1f %.1f", path.empty() ? "M" : " L", x, y);
      absl::StrAppendFormat(
          &marks, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" stroke=\"%s\" fill=\"%s\"><title>%s</title></circle>\n", x, y, color,
          point.outcome->fits ? color : "#ffffff",
          Escaped(absl::StrCat(name, name.empty() ? "" : ": ", panel_.text(value), point.outcome->fits ? "" : ", does not fit")));
      if (panel_.limit == nullptr) continue;
      const double most = Y(panel_.limit(*point.outcome->best));
      absl::StrAppendFormat(&limit, "%s%.1f %.1f", limit.empty() ? "M" : " L", x, most);
    }
    if (points.size() == 1 && !limit.empty()) limit = absl::StrCat(limit, " h 14");
    return absl::StrCat(Path(limit, kBad, " stroke-dasharray=\"5 4\""), Path(path, color, " stroke-width=\"2\""), marks);
  }

 private:
  static std::string Path(const std::string& path, const char* color, const char* more) {
    if (path.empty()) return "";
    return absl::StrCat("<path d=\"", path, "\" fill=\"none\" stroke=\"", color, "\"", more, "/>\n");
  }
  double X(double place) const { return left_ + 20 + place * (kWidth - 40); }
  double Y(double value) const { return kTop + kHeight * (1 - value / top_value_); }

  const Panel& panel_;
  const double left_;
  double most_ = 0, step_ = 1, top_value_ = 1;
};

const char* ColorOf(size_t index) { return kColors[index % std::size(kColors)]; }

std::string Legend(const Series& series, double y) {
  std::string svg;
  for (size_t i = 0; series.size() > 1 && i < series.size(); ++i, y += kLegendLine) {
    svg += Line(kLeft, y - 4, kLeft + 22, y - 4, ColorOf(i), " stroke-width=\"2\"");
    svg += TextAt(kLeft + 30, y, series[i].first, "start", kInk);
  }
  return svg;
}

}  // namespace

std::string SweepSvg(const Sweep& sweep, const std::string& title) {
  const Series series = SeriesOf(sweep);
  std::string body;
  double left = kLeft;
  for (const Panel& panel : kPanels) {
    const PanelDrawing drawing(panel, left, series);
    body += drawing.Frame(sweep.variations[0]);
    for (size_t i = 0; i < series.size(); ++i) body += drawing.Curve(series[i].first, series[i].second, ColorOf(i));
    left += kWidth + kLeft + kGap;
  }
  const double legend = kTop + kHeight + kBottom + 6;
  body += Legend(series, legend);
  const bool unfit = std::any_of(sweep.outcomes.begin(), sweep.outcomes.end(), [](const auto& o) { return o.best && !o.fits; });
  const double lines = series.size() > 1 ? static_cast<double>(series.size()) : 0;
  if (unfit) body += TextAt(kLeft, legend + lines * kLegendLine, "hollow: does not fit");
  const double height = legend + (lines + (unfit ? 1 : 0)) * kLegendLine + 4;
  return Document(left - kGap - kLeft + 24, height, title, body);
}

std::string SensitivitiesSvg(const Sensitivities& sensitivities, const std::string& title) {
  constexpr double kName = 250, kHalf = 220, kRow = 26;
  const double now = sensitivities.estimate.step_time_seconds();
  double most = 0.01;  // of the step; smaller effects are not blown up
  for (const Sensitivity& row : sensitivities.rows) {
    for (double seconds : {row.less_seconds, row.more_seconds}) {
      if (seconds > 0) most = std::max(most, std::abs(seconds / now - 1));
    }
  }
  const double middle = kName + 70 + kHalf;
  std::string body;
  double y = kTop;
  for (const Sensitivity& row : sensitivities.rows) {
    body += TextAt(16, y + 13, absl::StrCat(row.figure, "  ", row.now), "start", kInk);
    const std::pair<double, const char*> bars[] = {{row.less_seconds, kColors[1]}, {row.more_seconds, kColors[0]}};
    for (const auto& [seconds, color] : bars) {
      if (seconds == 0) continue;
      const double change = seconds / now - 1, width = std::abs(change) / most * kHalf;
      body += Box(change < 0 ? middle - width : middle, y, width, 16, color);
      if (std::abs(change) >= 5e-4)
        body += TextAt(change < 0 ? middle - width - 6 : middle + width + 6, y + 13, absl::StrFormat("%+.1f %%", 100 * change),
                       change < 0 ? "end" : "start");
    }
    y += kRow;
  }
  body += Line(middle, kTop - 8, middle, y, kSoft);
  const std::string share = absl::StrFormat("%.0f %%", 100 * kSensitivityShare);
  body += TextAt(16, 44,
                 absl::StrCat("step time ", SecondsText(now), ": how it changes with ", share, " less of a figure (red) and ",
                              share, " more (blue)"));
  return Document(middle + kHalf + 90, y + 16, title, body);
}

}  // namespace legoai::cli
