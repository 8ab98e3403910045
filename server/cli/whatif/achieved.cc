#include "server/cli/whatif/achieved.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/text.h"
#include "server/cli/output.h"

namespace legoai::cli {
namespace {

double PositiveOr0(const std::string& text) {
  double value = 0;
  return absl::SimpleAtod(text, &value) && std::isfinite(value) && value > 0 ? value : 0;
}

// As simulator/estimate/estimate.cc writes them: "float32 3e+10, bfloat16 4e+08".
class Peaks {
 public:
  explicit Peaks(const StepTraceFile& file) : bandwidth_(PositiveOr0(file.About("memory_bandwidth_bytes_per_second"))) {
    const std::string peaks = file.About("peak_flops_per_second");
    for (const absl::string_view one : absl::StrSplit(peaks, ", ", absl::SkipEmpty())) {
      const std::pair<std::string, std::string> words = absl::StrSplit(one, absl::MaxSplits(' ', 1));
      flops_[words.first] = PositiveOr0(words.second);
    }
  }

  // Operators that are no products compute in fp32 whatever the type, so that the faster of the two is the bound.
  double Arithmetic(double flops, const std::string& dtype) const {
    const double peak = std::max(Of(dtype), Of("float32"));
    return peak > 0 ? flops / peak : 0;
  }
  double Traffic(double bytes) const { return bandwidth_ > 0 ? bytes / bandwidth_ : 0; }

 private:
  double Of(const std::string& dtype) const {
    const auto found = flops_.find(dtype);
    return found == flops_.end() ? 0 : found->second;
  }

  std::map<std::string, double> flops_;
  double bandwidth_;
};

}  // namespace

std::vector<AchievedRow> Achieved(const StepTraceFile& predicted, const TracedStage& measured) {
  const Peaks peaks(predicted);
  std::map<std::pair<std::string, std::string>, AchievedRow> rows;
  for (const TraceSlice& slice : measured.slices) {
    if (slice.category != "compute" || slice.flops + slice.bytes == 0) continue;
    AchievedRow& row = rows[{slice.name, slice.dtype}];
    row.name = slice.name, row.dtype = slice.dtype;
    ++row.count;
    row.flops += slice.flops, row.bytes += slice.bytes;
    row.measured += 1e-9 * static_cast<double>(slice.end_ns - slice.begin_ns);
    const double arithmetic = peaks.Arithmetic(slice.flops, slice.dtype), traffic = peaks.Traffic(slice.bytes);
    row.arithmetic += arithmetic, row.traffic += traffic;
    row.least += std::max(arithmetic, traffic);
  }
  std::vector<AchievedRow> list;
  for (auto& [_, row] : rows) list.push_back(std::move(row));
  std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.measured > b.measured; });
  return list;
}

std::string AchievedText(const std::vector<AchievedRow>& achieved, size_t rows) {
  if (achieved.empty()) return "";
  Table table({"<operator", "<type", "times", "FLOPs", "bytes", "measured", "at least", "achieved", "<bound by"});
  for (size_t i = 0; i < std::min(rows, achieved.size()); ++i) {
    const AchievedRow& row = achieved[i];
    const bool known = row.least > 0;
    table.Add({row.name, row.dtype, absl::StrCat(row.count), CountText(row.flops), BytesText(row.bytes),
               SecondsText(row.measured), known ? SecondsText(row.least) : "-",
               known && row.measured > 0 ? PercentText(row.share()) : "-", known ? row.bound() : "-"});
  }
  const char* const more = rows < achieved.size() ? " (--rows shows more)" : "";
  return absl::StrCat("\nMeasured operators beside the least time that the predicted device's peaks allow", more, ":\n",
                      table.Text());
}

Tree AchievedTree(const std::vector<AchievedRow>& achieved) {
  Tree list = Tree::array();
  for (const AchievedRow& row : achieved) {
    list.push_back({{"operator", row.name},
                    {"dtype", row.dtype},
                    {"times", row.count},
                    {"flops", row.flops},
                    {"bytes", row.bytes},
                    {"measured_seconds", row.measured},
                    {"least_seconds", row.least > 0 ? Tree(row.least) : Tree(nullptr)},
                    {"bound", row.bound()}});
  }
  return list;
}

}  // namespace legoai::cli
