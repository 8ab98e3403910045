#include "worker/train/step_breakdown.h"

#include <algorithm>
#include <cmath>

#include "core/trace/annotation.h"

namespace legoai::train {
namespace {

using comm::TimeSpan;

// In order, those that touch or overlap made one.
std::vector<TimeSpan> Union(std::vector<TimeSpan> spans) {
  std::sort(spans.begin(), spans.end(), [](const TimeSpan& a, const TimeSpan& b) { return a.begin_ns < b.begin_ns; });
  std::vector<TimeSpan> merged;
  for (const TimeSpan& span : spans) {
    if (span.length_ns() <= 0) continue;
    if (!merged.empty() && span.begin_ns <= merged.back().end_ns) {
      merged.back().end_ns = std::max(merged.back().end_ns, span.end_ns);
    } else {
      merged.push_back(span);
    }
  }
  return merged;
}

// How much of `span` lies in `spans`, which are a union.
int64_t Overlap(const TimeSpan& span, const std::vector<TimeSpan>& spans) {
  auto next = std::upper_bound(spans.begin(), spans.end(), span.begin_ns,
                               [](int64_t at, const TimeSpan& other) { return at < other.end_ns; });
  int64_t ns = 0;
  for (; next != spans.end() && next->begin_ns < span.end_ns; ++next)
    ns += std::min(span.end_ns, next->end_ns) - std::max(span.begin_ns, next->begin_ns);
  return ns;
}

int64_t* PlaceOf(graph::Phase phase, StepBreakdown* breakdown) {
  switch (phase) {
    case graph::Phase::kForward: return &breakdown->forward_ns;
    case graph::Phase::kBackward:
    case graph::Phase::kRecompute: return &breakdown->backward_ns;
    case graph::Phase::kInit:
    case graph::Phase::kOptimizer: break;
  }
  return &breakdown->optimizer_ns;
}

}  // namespace

StepBreakdown BreakdownOf(const comm::StepTimes& times, const std::vector<mesh::Group>& groups) {
  StepBreakdown breakdown;
  breakdown.steps = 1;
  for (const auto& phase : times.phases) *PlaceOf(phase.phase, &breakdown) += phase.span.length_ns();
  std::vector<TimeSpan> idle = times.waits, communication;
  for (const auto& call : times.calls) {
    if (call.stream == comm::kCompute) idle.push_back(call.span);
  }
  idle = Union(std::move(idle));
  for (const auto& call : times.calls) {
    const mesh::Group& group = groups.at(static_cast<size_t>(call.group));
    if (group.ranks.size <= 1) continue;
    communication.push_back(call.span);
    auto& sum = breakdown.collectives[{call.kind, mesh::NameOf(group.dim)}];
    ++sum.count;
    sum.ns += call.span.length_ns();
    sum.exposed_ns += Overlap(call.span, idle);
  }
  for (const TimeSpan& span : Union(std::move(communication))) breakdown.exposed_ns += Overlap(span, idle);
  return breakdown;
}

void StepBreakdown::Add(const StepBreakdown& other) {
  steps += other.steps;
  step_ns += other.step_ns, data_ns += other.data_ns;
  forward_ns += other.forward_ns, backward_ns += other.backward_ns, optimizer_ns += other.optimizer_ns;
  exposed_ns += other.exposed_ns;
  for (const auto& [name, collective] : other.collectives) {
    Collective& sum = collectives[name];
    sum.count += collective.count, sum.ns += collective.ns, sum.exposed_ns += collective.exposed_ns;
  }
}

v1::RankMetrics StepBreakdown::Means(int64_t rank) const {
  v1::RankMetrics metrics;
  metrics.set_rank(rank);
  if (steps == 0) return metrics;
  const double count = static_cast<double>(steps);
  const auto mean = [&](int64_t ns) { return 1e-9 * static_cast<double>(ns) / count; };
  metrics.set_step_seconds(mean(step_ns));
  metrics.set_data_seconds(mean(data_ns));
  metrics.set_forward_seconds(mean(forward_ns));
  metrics.set_backward_seconds(mean(backward_ns));
  metrics.set_optimizer_seconds(mean(optimizer_ns));
  metrics.set_exposed_communication_seconds(mean(exposed_ns));
  for (const auto& [name, sum] : collectives) {
    v1::CollectiveTime& collective = *metrics.add_collectives();
    collective.set_collective(name.first);
    collective.set_group(name.second);
    collective.set_count(std::llround(static_cast<double>(sum.count) / count));
    collective.set_seconds(mean(sum.ns));
    collective.set_exposed_seconds(mean(sum.exposed_ns));
  }
  return metrics;
}

}  // namespace legoai::train
