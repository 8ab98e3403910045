#include "simulator/measure/operator_grid.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/enum_text.h"

namespace legoai::sim {
namespace {

// Of the shape's numbers: more of it is more work, as far as one operator goes.
double Volume(const GridPoint& point) {
  double volume = 1;
  for (const auto& [_, size] : point.shape) volume *= static_cast<double>(std::max<int64_t>(size, 1));
  return volume;
}

// The bits of `i` behind the point, the lowest first: 0, 1/2, 1/4, 3/4, 1/8 ... Any first part is spread over [0, 1).
double RadicalInverse(size_t i) {
  double inverse = 0, digit = 0.5;
  for (; i > 0; i /= 2, digit /= 2) inverse += digit * static_cast<double>(i % 2);
  return inverse;
}

// By size, then drawn so that early ones are spread over all sizes.
void Spread(std::vector<GridPoint>* family) {
  std::stable_sort(family->begin(), family->end(), [](const auto& a, const auto& b) { return Volume(a) < Volume(b); });
  std::vector<size_t> order(family->size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [](size_t a, size_t b) { return RadicalInverse(a) < RadicalInverse(b); });
  std::vector<GridPoint> spread;
  for (const size_t i : order) spread.push_back(std::move((*family)[i]));
  *family = std::move(spread);
}

}  // namespace

std::string PointName(const GridPoint& point) {
  std::string name = point.call.name;
  if (!point.call.overload.empty()) absl::StrAppend(&name, ".", point.call.overload);
  absl::StrAppend(&name, " ", EnumText(point.dtype));
  for (const auto& [key, value] : point.shape) absl::StrAppend(&name, " ", key, "=", value);
  return name;
}

std::vector<GridPoint> InMeasuringOrder(std::vector<GridPoint> points) {
  std::set<std::string> names;
  std::map<std::tuple<int, std::string, v1::DType>, std::vector<GridPoint>> families;
  for (GridPoint& point : points) {
    if (!names.insert(PointName(point)).second) continue;
    families[{point.tier, point.call.name, point.dtype}].push_back(std::move(point));
  }
  // (tier, how far through its family): families of any length come to their ends together.
  std::vector<std::pair<std::pair<int, double>, GridPoint>> placed;
  for (auto& [key, family] : families) {
    Spread(&family);
    for (size_t i = 0; i < family.size(); ++i) {
      const double place = (static_cast<double>(i) + 0.5) / static_cast<double>(family.size());
      placed.push_back({{std::get<0>(key), place}, std::move(family[i])});
    }
  }
  std::stable_sort(placed.begin(), placed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<GridPoint> order;
  for (auto& [_, point] : placed) order.push_back(std::move(point));
  return order;
}

std::vector<GridPoint> OperatorGrid(GridSize size) {
  std::vector<GridPoint> points;
  AddMatmuls(size, &points);
  AddAttention(size, &points);
  AddElementwise(size, &points);
  AddReductions(size, &points);
  AddCopies(size, &points);
  AddOptimizer(size, &points);
  return InMeasuringOrder(std::move(points));
}

}  // namespace legoai::sim
