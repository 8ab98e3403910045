// What the first half of planning, closed forms only, takes for a candidate: llama3-405b on ever more H100s. Asserts nothing
// about time.
//
// Usage: prune_bench [--json]
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "core/hardware/catalog.h"
#include "core/model/catalog.h"
#include "planner/legal.h"
#include "tests/bench/bench_main.h"

namespace legoai::integration {
namespace {

constexpr int kRepeats = 5;
constexpr int64_t kPerNode = 8;

v1::PlanRequest RequestFor(int64_t gpus) {
  v1::PlanRequest request;
  *request.mutable_model() = model::ResolveModel("llama3-405b").value();
  *request.mutable_cluster() = sim::ParseCluster(absl::StrFormat("h100-sxm-80:%dx%d", kPerNode, gpus / kPerNode)).value();
  request.set_global_batch(16'384);
  request.set_seq_len(8192);
  return request;
}

// Seconds of one call, the median of some.
template <class Work>
double Seconds(const Work& work) {
  std::vector<double> seconds;
  for (int i = 0; i < kRepeats; ++i) {
    const absl::Time start = absl::Now();
    work();
    seconds.push_back(absl::ToDoubleSeconds(absl::Now() - start));
  }
  return Median(seconds);
}

void Measure(int64_t gpus, Rows& rows) {
  const v1::PlanRequest request = RequestFor(gpus);
  planner::LegalSpace space;
  const double all = Seconds([&] {
    auto pruned = planner::PruneSpace(request);
    if (!pruned.ok()) throw std::runtime_error(pruned.status().ToString());
    space = *std::move(pruned);
  });
  double estimate = 0;
  if (!space.survivors.empty()) {
    estimate = Seconds([&] {
      for (const planner::Survivor& survivor : space.survivors) {
        if (!planner::EstimateTime(request, survivor.recipe).ok()) throw std::runtime_error("a survivor has no estimate");
      }
    });
    estimate /= static_cast<double>(space.survivors.size());
  }
  const double each = all / static_cast<double>(space.size);
  rows.Add(
      absl::StrFormat("\"gpus\": %d, \"candidates\": %d, \"may_fit\": %d, \"seconds\": %.4f, \"microseconds_per_candidate\": "
                      "%.2f, \"microseconds_per_estimate\": %.2f",
                      gpus, space.size, space.survivors.size(), all, 1e6 * each, 1e6 * estimate),
      absl::StrFormat("%6d GPUs  %6d candidates, %5d may fit  %7.3f s  %6.2f us each  an estimate %6.2f us", gpus, space.size,
                      space.survivors.size(), all, 1e6 * each, 1e6 * estimate));
}

}  // namespace
}  // namespace legoai::integration

int main(int argc, char** argv) {
  using legoai::integration::Rows;
  const bool json = argc > 1 && std::strcmp(argv[1], "--json") == 0;
  return legoai::integration::AddRows(argv[0], json, [](Rows& rows) {
    for (const int64_t gpus : {64, 256, 1024, 4096, 16'384}) legoai::integration::Measure(gpus, rows);
  });
}
