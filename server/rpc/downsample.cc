#include "server/rpc/downsample.h"

#include <cmath>
#include <set>
#include <utility>

namespace legoai::server {
namespace {

struct Point {
  double x = 0, y = 0;
};

// A point without a finite loss takes the height of the one before: it decides nothing.
std::vector<Point> LossCurve(const std::vector<v1::StepMetrics>& points) {
  std::vector<Point> curve;
  double height = 0;
  for (const v1::StepMetrics& point : points) {
    if (point.has_loss() && std::isfinite(point.loss())) height = point.loss();
    curve.push_back({static_cast<double>(point.step()), height});
  }
  return curve;
}

Point Mean(const std::vector<Point>& curve, size_t begin, size_t end) {
  Point mean;
  for (size_t i = begin; i < end; ++i) mean.x += curve[i].x, mean.y += curve[i].y;
  const double count = static_cast<double>(end - begin);
  return {mean.x / count, mean.y / count};
}

double TriangleArea(const Point& a, const Point& b, const Point& c) {
  return std::abs((a.x - c.x) * (b.y - a.y) - (a.x - b.x) * (c.y - a.y)) / 2;
}

// The first, the last, and one of each of `count` - 2 buckets: that with the largest triangle to the one chosen before and the
// mean of the next bucket. `count` is at least 2 and less than the number of points.
std::set<size_t> LargestTriangles(const std::vector<Point>& curve, size_t count) {
  const size_t last = curve.size() - 1, buckets = count - 2;
  // Of the points between first and last, those before bucket b.
  auto begin_of = [&](size_t b) { return 1 + (last - 1) * b / buckets; };
  std::set<size_t> chosen = {0, last};
  size_t before = 0;
  for (size_t b = 0; b < buckets; ++b) {
    const bool final_bucket = b + 1 == buckets;
    const Point next = final_bucket ? curve[last] : Mean(curve, begin_of(b + 1), begin_of(b + 2));
    size_t best = begin_of(b);
    for (size_t i = best; i < begin_of(b + 1); ++i) {
      if (TriangleArea(curve[before], curve[i], next) > TriangleArea(curve[before], curve[best], next)) best = i;
    }
    chosen.insert(best);
    before = best;
  }
  return chosen;
}

// `count` of `all`, evenly, the last one among them.
std::vector<size_t> Thin(const std::vector<size_t>& all, size_t count) {
  if (all.size() <= count) return all;
  std::vector<size_t> kept;
  for (size_t i = 1; i <= count; ++i) kept.push_back(all[all.size() * i / count - 1]);
  return kept;
}

}  // namespace

std::vector<v1::StepMetrics> Downsample(std::vector<v1::StepMetrics> points, size_t most) {
  if (points.size() <= most) return points;
  std::vector<size_t> held_out;
  for (size_t i = 1; i + 1 < points.size(); ++i) {
    if (points[i].has_validation_loss()) held_out.push_back(i);
  }
  held_out = Thin(held_out, most - 2);
  std::set<size_t> chosen = LargestTriangles(LossCurve(points), most - held_out.size());
  chosen.insert(held_out.begin(), held_out.end());
  std::vector<v1::StepMetrics> kept;
  for (size_t i : chosen) kept.push_back(std::move(points[i]));
  return kept;
}

}  // namespace legoai::server
