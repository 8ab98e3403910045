#include "server/cli/whatif/trace_comparison.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "proto/text.h"
#include "server/cli/output.h"

namespace legoai::cli {
namespace {

constexpr char kPredicted[] = "PREDICTED", kMeasured[] = "MEASURED";
constexpr char kCompute[] = "compute";  // the stream, and the category

using Span = std::pair<int64_t, int64_t>;

// In order, those that touch or overlap made one.
std::vector<Span> Union(std::vector<Span> spans) {
  std::sort(spans.begin(), spans.end());
  std::vector<Span> merged;
  for (const Span& span : spans) {
    if (span.second <= span.first) continue;
    if (!merged.empty() && span.first <= merged.back().second) {
      merged.back().second = std::max(merged.back().second, span.second);
    } else {
      merged.push_back(span);
    }
  }
  return merged;
}

double SecondsOf(const std::vector<Span>& spans) {
  int64_t ns = 0;
  for (const auto& [begin, end] : spans) ns += end - begin;
  return 1e-9 * static_cast<double>(ns);
}

// What lies in both of two unions.
std::vector<Span> Common(const std::vector<Span>& a, const std::vector<Span>& b) {
  std::vector<Span> common;
  for (size_t i = 0, k = 0; i < a.size() && k < b.size();) {
    const Span span(std::max(a[i].first, b[k].first), std::min(a[i].second, b[k].second));
    if (span.first < span.second) common.push_back(span);
    a[i].second < b[k].second ? ++i : ++k;
  }
  return common;
}

// What of [0, end) is not in a union.
std::vector<Span> Rest(const std::vector<Span>& spans, int64_t end) {
  std::vector<Span> rest;
  int64_t at = 0;
  for (const auto& [from, to] : spans) {
    if (from > at) rest.emplace_back(at, std::min(from, end));
    at = std::max(at, to);
  }
  if (at < end) rest.emplace_back(at, end);
  return Union(std::move(rest));
}

// "model.layers.3.mlp": "model.layers.*.mlp".
std::string OfAllLayers(const std::string& module) {
  std::vector<std::string> parts = absl::StrSplit(module, '.');
  for (std::string& part : parts) {
    if (!part.empty() && std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c); })) part = "*";
  }
  return absl::StrJoin(parts, ".");
}

bool Communicates(const TraceSlice& slice) { return slice.category == "communication" && slice.ranks != 1; }

double NumberIn(const StepTraceFile& file, const char* name) {
  double value = 0;
  return absl::SimpleAtod(file.About(name), &value) && std::isfinite(value) && value >= 0 ? value : 0;
}

// One file's stage, in the same terms for both.
class Side {
 public:
  Side(const StepTraceFile& file, const TracedStage& stage, double SecondsOfBoth::*which)
      : stage_(stage),
        which_(which),
        data_(NumberIn(file, "data_seconds")),
        length_(NumberIn(file, "step_time_seconds") - data_) {
    std::vector<Span> runs, waits, beside;
    for (const TraceSlice& slice : stage.slices) {
      const Span span(slice.begin_ns, slice.end_ns);
      end_ = std::max(end_, slice.end_ns);
      if (slice.category == "wait") {
        waits.push_back(span);
      } else if (slice.stream == kCompute) {
        runs.push_back(span);
        if (Communicates(slice)) own_.push_back(span);
      } else if (Communicates(slice)) {
        beside.push_back(span);
      }
    }
    end_ = std::max(end_, static_cast<int64_t>(std::llround(1e9 * length_)));
    runs_ = Union(std::move(runs));
    own_ = Union(std::move(own_));
    // A trainer says when its compute stream waits; in a prediction nothing else keeps it from computing while there is
    // communication.
    const bool measured = file.About("made_by") != "lego simulate";
    waits_ = measured ? Union(std::move(waits)) : Common(Rest(runs_, end_), Union(std::move(beside)));
  }

  double data() const { return data_; }
  double step() const { return length_ + data_; }

  void AddTo(TraceComparison* comparison) const {
    std::map<std::tuple<std::string, std::string, std::string>, TraceRow> rows;
    for (TraceRow& row : comparison->rows) rows[{row.stream, row.phase, row.module}] = std::move(row);
    const auto add = [&](const std::string& stream, const std::string& phase, const std::string& module, double seconds) {
      TraceRow& row = rows[{stream, phase, module}];
      row.stream = stream, row.phase = phase, row.module = module;
      row.seconds.*which_ += seconds;
    };
    for (const TraceSlice& slice : stage_.slices) {
      if (slice.category != "wait") add(slice.stream, slice.phase, OfAllLayers(slice.module), LengthOf(slice));
    }
    const double waits = SecondsOf(waits_);
    add(kCompute, "", kWaits, waits);
    add(kCompute, "", kIdle, std::max(0.0, length_ - SecondsOf(runs_) - waits));
    if (data_ > 0) add("host", "", kData, data_);
    comparison->rows.clear();
    for (auto& [_, row] : rows) comparison->rows.push_back(std::move(row));
    comparison->step_time.*which_ = step();
    comparison->exposed.*which_ = waits + SecondsOf(own_);
    AddCollectives(comparison);
  }

  std::map<std::string, OperatorRow> Operators() const {
    std::map<std::string, OperatorRow> operators;
    for (const TraceSlice& slice : stage_.slices) {
      if (slice.category == "wait") continue;
      OperatorRow& row = operators[slice.name];
      row.name = slice.name;
      ++row.count;
      row.seconds += LengthOf(slice);
    }
    return operators;
  }

 private:
  static double LengthOf(const TraceSlice& slice) { return 1e-9 * static_cast<double>(slice.end_ns - slice.begin_ns); }

  void AddCollectives(TraceComparison* comparison) const {
    for (const TraceSlice& slice : stage_.slices) {
      if (!Communicates(slice)) continue;
      const auto same = [&](const CollectiveRow& other) { return other.name == slice.name && other.group == slice.group; };
      auto row = std::find_if(comparison->collectives.begin(), comparison->collectives.end(), same);
      if (row == comparison->collectives.end()) row = comparison->collectives.insert(row, {slice.name, slice.group, {}, {}});
      ++(which_ == &SecondsOfBoth::predicted ? row->predicted_count : row->measured_count);
      row->seconds.*which_ += LengthOf(slice);
      const bool own = slice.stream == kCompute;
      row->exposed.*which_ += own ? LengthOf(slice) : SecondsOf(Common({{slice.begin_ns, slice.end_ns}}, waits_));
    }
  }

  const TracedStage& stage_;
  double SecondsOfBoth::*const which_;
  const double data_, length_;
  int64_t end_ = 0;
  std::vector<Span> runs_, own_, waits_;  // of the compute stream
};

using Operators = std::map<std::string, OperatorRow>;  // by name

std::vector<OperatorRow> OnlyIn(const Operators& these, const Operators& those) {
  std::vector<OperatorRow> only;
  for (const auto& [name, row] : these) {
    if (those.count(name) == 0) only.push_back(row);
  }
  std::stable_sort(only.begin(), only.end(), [](const OperatorRow& a, const OperatorRow& b) { return a.seconds > b.seconds; });
  return only;
}

absl::StatusOr<int64_t> StageToCompare(const StepTraceFile& predicted, const StepTraceFile& measured) {
  for (const char* const what : {"model", "ranks"}) {
    const std::string is = measured.About(what), other = predicted.About(what);
    if (is == other) continue;
    return FieldError(kMeasured, is,
                      absl::StrCat("is the measured step's ", what, ", and the predicted one has ",
                                   other.empty() ? "none" : other, ": compare traces of one recipe"));
  }
  if (measured.stages.size() > 1)
    return FieldError(kMeasured, absl::StrCat(measured.stages.size(), " stages"), "must be the trace of one rank");
  const int64_t stage = measured.stages.begin()->first;
  if (predicted.stages.count(stage) > 0) return stage;
  std::vector<int64_t> has;
  for (const auto& [number, _] : predicted.stages) has.push_back(number);
  return FieldError(kPredicted, absl::StrCat("stage ", absl::StrJoin(has, ", ")),
                    absl::StrCat("has no stage ", stage, ", which the measured trace is of"));
}

std::vector<MemoryRow> MemoryRows(const std::map<std::string, int64_t>& predicted,
                                  const std::map<std::string, int64_t>& measured) {
  constexpr char kOfCategory[] = "memory: ";
  if (predicted.empty() || measured.empty()) return {};
  std::map<std::string, MemoryRow> rows;
  const auto add = [&](const std::map<std::string, int64_t>& peaks, int64_t MemoryRow::*which) {
    for (const auto& [name, bytes] : peaks) {
      MemoryRow& row = rows[name];
      row.category = absl::StartsWith(name, kOfCategory) ? name.substr(std::strlen(kOfCategory)) : "all";
      row.*which = bytes;
    }
  };
  add(predicted, &MemoryRow::predicted_bytes);
  add(measured, &MemoryRow::measured_bytes);
  std::vector<MemoryRow> list;
  for (auto& [_, row] : rows) list.push_back(std::move(row));
  std::stable_sort(list.begin(), list.end(), [](const MemoryRow& a, const MemoryRow& b) {
    return std::pair(a.category == "all", std::abs(a.difference())) > std::pair(b.category == "all", std::abs(b.difference()));
  });
  return list;
}

std::string MemoryText(const std::vector<MemoryRow>& rows) {
  if (rows.empty()) return "";
  const auto text = [](int64_t bytes) { return bytes > 0 ? BytesText(static_cast<double>(bytes)) : "-"; };
  Table table({"<memory", "predicted", "measured", "difference"});
  for (const MemoryRow& row : rows) {
    const int64_t difference = row.difference();
    const std::string size = BytesText(static_cast<double>(std::abs(difference)));
    table.Add({row.category, text(row.predicted_bytes), text(row.measured_bytes),
               difference == 0 ? "none" : absl::StrCat(difference < 0 ? "-" : "+", size)});
  }
  return absl::StrCat("\nThe most memory of each kind (a kernel's workspace is not measured):\n", table.Text());
}

std::string RatioText(const SecondsOfBoth& both) {
  return both.predicted > 0 && both.measured > 0 ? absl::StrFormat("%.2f", both.measured / both.predicted) : "-";
}
std::string TimeText(double seconds) { return seconds > 0 ? SecondsText(seconds) : "-"; }
std::string DifferenceText(double seconds) { return absl::StrCat(seconds < 0 ? "-" : "+", SecondsText(std::fabs(seconds))); }

std::string OperatorsText(const char* title, const std::vector<OperatorRow>& rows) {
  constexpr size_t kShown = 10;
  if (rows.empty()) return "";
  std::string text = absl::StrCat("\n", title, ":\n");
  Table table({"<operator", "times", "seconds"});
  for (size_t i = 0; i < std::min(kShown, rows.size()); ++i)
    table.Add({rows[i].name, absl::StrCat(rows[i].count), SecondsText(rows[i].seconds)});
  absl::StrAppend(&text, table.Text());
  if (rows.size() > kShown) absl::StrAppend(&text, "and ", rows.size() - kShown, " more\n");
  return text;
}

Tree BothTree(const SecondsOfBoth& both) { return {{"predicted", both.predicted}, {"measured", both.measured}}; }

Tree OperatorsTree(const std::vector<OperatorRow>& rows) {
  Tree list = Tree::array();
  for (const OperatorRow& row : rows) list.push_back({{"operator", row.name}, {"times", row.count}, {"seconds", row.seconds}});
  return list;
}

}  // namespace

absl::StatusOr<TraceComparison> CompareTraces(const StepTraceFile& predicted, const StepTraceFile& measured) {
  TraceComparison comparison;
  ASSIGN_OR_RETURN(comparison.stage, StageToCompare(predicted, measured));
  comparison.model = measured.About("model");
  comparison.step = measured.About("step");
  if (!absl::SimpleAtoi(measured.About("ranks"), &comparison.ranks)) comparison.ranks = 0;
  const Side first(predicted, predicted.stages.at(comparison.stage), &SecondsOfBoth::predicted);
  const Side second(measured, measured.stages.at(comparison.stage), &SecondsOfBoth::measured);
  first.AddTo(&comparison);
  second.AddTo(&comparison);
  std::stable_sort(comparison.rows.begin(), comparison.rows.end(), [](const TraceRow& a, const TraceRow& b) {
    return std::pair(a.OfStep(), std::fabs(a.seconds.difference())) > std::pair(b.OfStep(), std::fabs(b.seconds.difference()));
  });
  std::sort(comparison.collectives.begin(), comparison.collectives.end(), [](const CollectiveRow& a, const CollectiveRow& b) {
    return std::tie(a.name, a.group) < std::tie(b.name, b.group);
  });
  comparison.memory =
      MemoryRows(predicted.stages.at(comparison.stage).peak_bytes, measured.stages.at(comparison.stage).peak_bytes);
  comparison.achieved = Achieved(predicted, measured.stages.at(comparison.stage));
  const auto of_first = first.Operators(), of_second = second.Operators();
  comparison.only_predicted = OnlyIn(of_first, of_second);
  comparison.only_measured = OnlyIn(of_second, of_first);
  return comparison;
}

std::string TraceComparisonText(const TraceComparison& comparison, size_t rows) {
  std::string text = absl::StrCat(comparison.model, ", stage ", comparison.stage, " of ", comparison.ranks,
                                  comparison.ranks == 1 ? " rank" : " ranks",
                                  comparison.step.empty() ? "" : absl::StrCat(", step ", comparison.step), "\n\n");
  Table step({"<", "predicted", "measured", "ratio", "difference"});
  const auto add = [](Table* table, std::vector<std::string> names, const SecondsOfBoth& both) {
    for (std::string& cell : std::vector<std::string>{TimeText(both.predicted), TimeText(both.measured), RatioText(both),
                                                      DifferenceText(both.difference())})
      names.push_back(std::move(cell));
    table->Add(std::move(names));
  };
  add(&step, {"step"}, comparison.step_time);
  add(&step, {"exposed communication"}, comparison.exposed);
  const size_t shown = std::min(rows, comparison.rows.size());
  const char* const more = shown < comparison.rows.size() ? " (--rows shows more)" : "";
  absl::StrAppend(&text, step.Text(), "\nWhere they part, most first", more, ":\n");
  Table table({"<stream", "<phase", "<module", "predicted", "measured", "ratio", "difference"});
  for (size_t i = 0; i < shown; ++i) {
    const TraceRow& row = comparison.rows[i];
    add(&table, {row.stream, row.phase.empty() ? "-" : row.phase, row.module.empty() ? "-" : row.module}, row.seconds);
  }
  absl::StrAppend(&text, table.Text());
  if (!comparison.collectives.empty()) {
    Table exposed({"<communication", "<group", "times", "predicted", "exposed", "measured", "exposed"});
    for (const CollectiveRow& row : comparison.collectives) {
      const std::string times = row.predicted_count == row.measured_count
                                    ? absl::StrCat(row.measured_count)
                                    : absl::StrCat(row.predicted_count, " / ", row.measured_count);
      exposed.Add({row.name, row.group, times, TimeText(row.seconds.predicted), TimeText(row.exposed.predicted),
                   TimeText(row.seconds.measured), TimeText(row.exposed.measured)});
    }
    absl::StrAppend(&text, "\nCommunication, and how much of it is exposed:\n", exposed.Text());
  }
  absl::StrAppend(&text, AchievedText(comparison.achieved, rows), MemoryText(comparison.memory),
                  OperatorsText("Only in the predicted step", comparison.only_predicted),
                  OperatorsText("Only in the measured step", comparison.only_measured));
  return text;
}

Tree TraceComparisonTree(const TraceComparison& comparison) {
  Tree tree = {{"model", comparison.model},
               {"stage", comparison.stage},
               {"ranks", comparison.ranks},
               {"step", comparison.step.empty() ? Tree(nullptr) : Tree(comparison.step)},
               {"step_seconds", BothTree(comparison.step_time)},
               {"exposed_communication_seconds", BothTree(comparison.exposed)}};
  tree["rows"] = Tree::array();
  for (const TraceRow& row : comparison.rows) {
    tree["rows"].push_back(
        {{"stream", row.stream}, {"phase", row.phase}, {"module", row.module}, {"seconds", BothTree(row.seconds)}});
  }
  tree["collectives"] = Tree::array();
  for (const CollectiveRow& row : comparison.collectives) {
    tree["collectives"].push_back({{"collective", row.name},
                                   {"group", row.group},
                                   {"times", {{"predicted", row.predicted_count}, {"measured", row.measured_count}}},
                                   {"seconds", BothTree(row.seconds)},
                                   {"exposed_seconds", BothTree(row.exposed)}});
  }
  tree["memory"] = Tree::array();
  for (const MemoryRow& row : comparison.memory) {
    tree["memory"].push_back(
        {{"category", row.category}, {"peak_bytes", {{"predicted", row.predicted_bytes}, {"measured", row.measured_bytes}}}});
  }
  tree["achieved"] = AchievedTree(comparison.achieved);
  tree["only_predicted"] = OperatorsTree(comparison.only_predicted);
  tree["only_measured"] = OperatorsTree(comparison.only_measured);
  return tree;
}

}  // namespace legoai::cli
