#include "planner/autowrap/autowrap.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace legoai::planner {
namespace {

// Of WrapLimits: as the paper has it, and filled up until a fifth and a twentieth of a bucket's time is latency.
constexpr double kLatencyShares[] = {1, 0.2, 0.05};

// Sums over the modules of a bucket, or of the step in which they are computed with.
struct Bucket {
  int64_t gather_bytes = 0, reduce_bytes = 0, peak_bytes = 0, held_bytes = 0;
  double compute_seconds = 0;

  Bucket With(const WrapModule& module) const {
    return {gather_bytes + module.gather_bytes, reduce_bytes + module.reduce_bytes, std::max(peak_bytes, module.peak_bytes),
            held_bytes + module.held_bytes, compute_seconds + module.compute_seconds};
  }
};

class Greedy {
 public:
  Greedy(const WrapPass& pass, const WrapLimits& limits) : pass_(pass), limits_(limits) {}

  WrapBuckets Run() {
    WrapBuckets buckets;
    for (const WrapModule& module : pass_.modules) {
      if (buckets.empty() || !Joins(module)) {
        reducing_bytes_ = now_.reduce_bytes;
        now_ = std::exchange(next_, Bucket());
        buckets.emplace_back();
      }
      next_ = next_.With(module);
      buckets.back().push_back(module.name);
    }
    return buckets;
  }

 private:
  // Lines 3 to 15 of the algorithm; a forward reduces nothing.
  bool Joins(const WrapModule& module) const {
    const Bucket joined = next_.With(module);
    const double gather = pass_.gather.Of(joined.gather_bytes);
    const double reduce = reducing_bytes_ > 0 ? pass_.reduce.Of(reducing_bytes_) : 0;
    const bool time = reduce + gather <= now_.compute_seconds ||
                      pass_.gather.latency_seconds > limits_.latency_share * pass_.gather.Of(next_.gather_bytes);
    // Peaks are of the whole step, so the largest counts, and what a bucket holds of its other modules comes on top.
    const bool memory = joined.peak_bytes + joined.held_bytes + now_.held_bytes <= limits_.memory_bytes;
    return time && memory;
  }

  const WrapPass& pass_;
  const WrapLimits& limits_;
  Bucket now_;                  // the step under way
  Bucket next_;                 // what is gathered beside it
  int64_t reducing_bytes_ = 0;  // of the step before it
};

std::map<std::string, size_t> PlacesOf(const WrapBuckets& buckets) {
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < buckets.size(); ++i) {
    for (const std::string& name : buckets[i]) places.emplace(name, i);
  }
  return places;
}

// `buckets`, cut wherever the other ones are.
WrapBuckets CommonParts(const WrapBuckets& buckets, const WrapBuckets& others) {
  const std::map<std::string, size_t> places = PlacesOf(others);
  const auto place = [&](const std::string& name) {
    const auto found = places.find(name);
    return found == places.end() ? others.size() : found->second;
  };
  WrapBuckets parts;
  for (const auto& bucket : buckets) {
    for (size_t i = 0; i < bucket.size(); ++i) {
      if (i == 0 || place(bucket[i]) != place(bucket[i - 1])) parts.emplace_back();
      parts.back().push_back(bucket[i]);
    }
  }
  return parts;
}

// "layers.3" of "layers.3.mlp.up_proj"; empty outside of layers.
std::string LayerOf(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '.');
  return parts.size() > 2 && parts[0] == "layers" ? absl::StrCat(parts[0], ".", parts[1]) : "";
}

bool IsIn(const std::string& name, const std::string& module) {
  return name == module || absl::StartsWith(name, absl::StrCat(module, "."));
}

// As many for every stage.
std::vector<WrapBuckets> ProposalsOf(const WrapStage& stage, int64_t memory_bytes) {
  std::vector<WrapBuckets> proposals;
  for (const double share : kLatencyShares) {
    const WrapLimits limits{memory_bytes, share};
    const WrapBuckets ahead = WrapGreedily(stage.forward, limits);
    const WrapBuckets back = stage.backward.modules.empty() ? ahead : WrapGreedily(stage.backward, limits);
    proposals.insert(proposals.end(), {ahead, back, CommonParts(ahead, back)});
  }
  proposals.push_back(WrapLayers(stage.forward));
  return proposals;
}

// Without what is there already.
void AddNew(const WrapBuckets& buckets, WrapBuckets* all) {
  const std::map<std::string, size_t> there = PlacesOf(*all);
  for (const auto& bucket : buckets) {
    std::vector<std::string> fresh;
    for (const std::string& name : bucket) {
      if (there.count(name) == 0) fresh.push_back(name);
    }
    if (!fresh.empty()) all->push_back(std::move(fresh));
  }
}

}  // namespace

bool JoinTheSame(const WrapBuckets& a, const WrapBuckets& b) {
  const auto sorted = [](WrapBuckets buckets) {
    for (auto& bucket : buckets) std::sort(bucket.begin(), bucket.end());
    std::sort(buckets.begin(), buckets.end());
    return buckets;
  };
  return sorted(a) == sorted(b);
}

WrapBuckets WrapGreedily(const WrapPass& pass, const WrapLimits& limits) { return Greedy(pass, limits).Run(); }

WrapBuckets WrapLayers(const WrapPass& pass) {
  WrapBuckets buckets;
  std::string last;
  for (const WrapModule& module : pass.modules) {
    const std::string layer = LayerOf(module.name);
    if (layer.empty() || layer != last) buckets.emplace_back();
    buckets.back().push_back(module.name);
    last = layer;
  }
  return buckets;
}

std::vector<WrapBuckets> ProposeBuckets(const std::vector<WrapStage>& stages, int64_t memory_bytes) {
  std::vector<WrapBuckets> all;
  for (const WrapStage& stage : stages) {
    const std::vector<WrapBuckets> own = ProposalsOf(stage, memory_bytes);
    all.resize(own.size());
    for (size_t i = 0; i < own.size(); ++i) AddNew(own[i], &all[i]);
  }
  std::vector<WrapBuckets> proposals;
  for (const WrapBuckets& buckets : all) {
    WrapBuckets few = WithFewNames(buckets);
    if (std::find(proposals.begin(), proposals.end(), few) == proposals.end()) proposals.push_back(std::move(few));
  }
  return proposals;
}

std::vector<WrapPlan> ProposePlans(const std::vector<WrapStage>& stages, int64_t memory_bytes) {
  std::vector<WrapPlan> plans;
  for (WrapBuckets& buckets : ProposeBuckets(stages, memory_bytes)) plans.push_back({std::move(buckets), {}});
  for (const double share : kLatencyShares) {
    WrapBuckets ahead, back;
    for (const WrapStage& stage : stages) {
      AddNew(WrapGreedily(stage.forward, {memory_bytes, share}), &ahead);
      AddNew(WrapGreedily(stage.backward, {memory_bytes, share}), &back);
    }
    if (ahead.empty() || back.empty()) continue;
    WrapPlan plan{WithFewNames(ahead), WithFewNames(back)};
    if (JoinTheSame(plan.forward, plan.backward)) continue;
    if (std::find(plans.begin(), plans.end(), plan) == plans.end()) plans.push_back(std::move(plan));
  }
  return plans;
}

WrapBuckets WithFewNames(const WrapBuckets& buckets) {
  const std::map<std::string, size_t> places = PlacesOf(buckets);
  // Whether a bucket has all that lies below a module.
  const auto has_all = [&](size_t bucket, const std::string& module) {
    return std::all_of(places.begin(), places.end(),
                       [&](const auto& at) { return at.second == bucket || !IsIn(at.first, module); });
  };
  WrapBuckets few;
  for (size_t i = 0; i < buckets.size(); ++i) {
    few.emplace_back();
    for (std::string name : buckets[i]) {
      for (size_t dot = name.rfind('.'); dot != std::string::npos; dot = name.rfind('.')) {
        const std::string outer = name.substr(0, dot);
        if (outer == "layers" || !has_all(i, outer)) break;
        name = outer;
      }
      std::vector<std::string>& bucket = few.back();
      if (std::find(bucket.begin(), bucket.end(), name) == bucket.end()) bucket.push_back(std::move(name));
    }
  }
  return few;
}

}  // namespace legoai::planner
