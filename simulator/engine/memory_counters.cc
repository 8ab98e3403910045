#include "simulator/engine/memory_counters.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "core/trace/live_bytes.h"
#include "core/trace/trace_text.h"

namespace legoai::sim {
namespace {

constexpr char kAll[] = "memory";

// Of graph::Category, and then workspace.
const char* NameOf(size_t category) {
  return category == kCategoryCount ? "workspace" : graph::CategoryText(static_cast<graph::Category>(category));
}

// When each point of a timeline is, in the order of the timeline.
class PointClock {
 public:
  PointClock(uint32_t stage, const StepSimulation& simulation)
      : tasks_(simulation.lowered.tasks), schedule_(simulation.schedule), compute_(simulation.lowered.compute[stage]) {}

  // A second point of one instruction is at its end.
  int64_t Next(uint32_t position) {
    while (next_ < compute_.size() && Before(tasks_[compute_[next_]], position)) Pass();
    const bool runs = next_ < compute_.size() && tasks_[compute_[next_]].position == position;
    if (runs && started_) {
      Pass();
    } else if (runs) {
      now_ = std::max(now_, graph::Nanoseconds(schedule_.start[compute_[next_]]));
      started_ = true;
    }
    return now_;
  }

 private:
  static bool Before(const TaskInfo& info, uint32_t position) {
    return info.position < position || (info.position == position && info.kind == TaskKind::kMarker);
  }
  void Pass() {
    now_ = std::max(now_, graph::Nanoseconds(schedule_.finish[compute_[next_++]]));
    started_ = false;
  }

  const std::vector<TaskInfo>& tasks_;
  const Schedule& schedule_;
  const std::vector<TaskId>& compute_;
  size_t next_ = 0;  // the first of compute_ that has not ended yet
  bool started_ = false;
  int64_t now_ = 0;
};

void AddPoint(int64_t nanoseconds, int64_t bytes, std::vector<CounterPoint>* points) {
  if (points->empty() || points->back().bytes != bytes) points->push_back({nanoseconds, bytes});
}

}  // namespace

std::vector<MemoryCounter> MemoryCounters(uint32_t stage, const StepSimulation& simulation, const MemoryProfile& profile) {
  std::vector<MemoryCounter> counters(1 + std::tuple_size_v<CategoryBytes>);
  counters[0].name = kAll;
  for (size_t c = 0; 1 + c < counters.size(); ++c) counters[1 + c].name = absl::StrCat(kAll, ": ", NameOf(c));
  PointClock clock(stage, simulation);
  for (const TimelinePoint& point : profile.timeline) {
    const int64_t now = clock.Next(point.position);
    AddPoint(now, std::accumulate(point.bytes.begin(), point.bytes.end(), int64_t{0}), &counters[0].points);
    for (size_t c = 0; c < point.bytes.size(); ++c) AddPoint(now, point.bytes[c], &counters[1 + c].points);
  }
  std::erase_if(counters, [](const MemoryCounter& counter) {
    return std::all_of(counter.points.begin(), counter.points.end(), [](const CounterPoint& point) { return point.bytes == 0; });
  });
  return counters;
}

std::vector<CounterPoint> Thinned(const std::vector<CounterPoint>& points, int64_t limit) {
  if (static_cast<int64_t>(points.size()) <= limit) return points;
  const size_t stretches = static_cast<size_t>(std::max<int64_t>(1, limit / 4));
  std::vector<CounterPoint> kept;
  auto less = [](const CounterPoint& a, const CounterPoint& b) { return a.bytes < b.bytes; };
  for (size_t s = 0; s < stretches; ++s) {
    const auto begin = points.begin() + static_cast<ptrdiff_t>(s * points.size() / stretches);
    const auto end = points.begin() + static_cast<ptrdiff_t>((s + 1) * points.size() / stretches);
    std::array<std::vector<CounterPoint>::const_iterator, 4> chosen = {begin, std::min_element(begin, end, less),
                                                                       std::max_element(begin, end, less), end - 1};
    std::sort(chosen.begin(), chosen.end());
    const auto last = std::unique(chosen.begin(), chosen.end());
    for (auto it = chosen.begin(); it != last; ++it) kept.push_back(**it);
  }
  return kept;
}

}  // namespace legoai::sim
