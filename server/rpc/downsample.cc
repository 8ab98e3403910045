#include "server/rpc/downsample.h"

#include <cmath>

namespace legoai::server {
namespace {

struct Point {
  double x = 0, y = 0;
};

// A point without a finite loss takes the height of the one before: it decides nothing.
std::vector<Point> LossCurve(const std::vector<CurvePoint>& curve) {
  std::vector<Point> points;
  double height = 0;
  for (const CurvePoint& point : curve) {
    if (std::isfinite(point.loss)) height = point.loss;
    points.push_back({point.step, height});
  }
  return points;
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

std::set<size_t> Downsample(const std::vector<CurvePoint>& curve, size_t most) {
  std::set<size_t> chosen;
  if (curve.size() <= most) {
    for (size_t i = 0; i < curve.size(); ++i) chosen.insert(chosen.end(), i);
    return chosen;
  }
  std::vector<size_t> held_out;
  for (size_t i = 1; i + 1 < curve.size(); ++i) {
    if (curve[i].held_out) held_out.push_back(i);
  }
  held_out = Thin(held_out, most - 2);
  chosen = LargestTriangles(LossCurve(curve), most - held_out.size());
  chosen.insert(held_out.begin(), held_out.end());
  return chosen;
}

}  // namespace legoai::server
