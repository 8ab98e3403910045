#include "worker/generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"

namespace legoai::generate {
namespace {

// Proportional to the probabilities; the largest is 1.
std::vector<double> Weights(std::span<const float> logits, float largest, double temperature) {
  std::vector<double> weights;
  weights.reserve(logits.size());
  for (const float logit : logits) weights.push_back(std::exp((double{logit} - double{largest}) / temperature));
  return weights;
}

// Sets to 0 what is not in the smallest set of the heaviest that has `share` of the whole; of equals the lowest ids stay.
void KeepHeaviest(double share, std::vector<double>* weights) {
  double total = 0;
  std::vector<std::pair<double, int64_t>> heap;  // weight, and minus the id
  for (size_t id = 0; id < weights->size(); ++id) {
    total += (*weights)[id];
    heap.emplace_back((*weights)[id], -static_cast<int64_t>(id));
  }
  std::make_heap(heap.begin(), heap.end());
  std::fill(weights->begin(), weights->end(), 0.0);
  for (double kept = 0; kept < share * total && !heap.empty(); heap.pop_back()) {
    std::pop_heap(heap.begin(), heap.end());
    const auto [weight, minus_id] = heap.back();
    (*weights)[static_cast<size_t>(-minus_id)] = weight;
    kept += weight;
  }
}

}  // namespace

absl::Status CheckSampling(const Sampling& sampling) {
  if (!(sampling.temperature >= 0) || !std::isfinite(sampling.temperature))
    return FieldError("--temperature", absl::StrCat(sampling.temperature),
                      "must be at least 0; 0 always takes the most likely token");
  if (!(sampling.top_p > 0 && sampling.top_p <= 1))
    return FieldError("--top-p", absl::StrCat(sampling.top_p), "must be above 0 and at most 1; 1 draws from all tokens");
  return absl::OkStatus();
}

double Sampler::Uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

absl::StatusOr<int64_t> Sampler::Next(std::span<const float> logits) {
  const auto largest = std::max_element(logits.begin(), logits.end());
  const bool nan = std::any_of(logits.begin(), logits.end(), [](float logit) { return std::isnan(logit); });
  if (nan || largest == logits.end() || !std::isfinite(*largest))
    return absl::DataLossError("the model's logits are not finite: its weights are damaged, or its training diverged");
  if (sampling_.temperature == 0) return largest - logits.begin();
  std::vector<double> weights = Weights(logits, *largest, sampling_.temperature);
  if (sampling_.top_p < 1) KeepHeaviest(sampling_.top_p, &weights);
  double total = 0;
  for (const double weight : weights) total += weight;
  double left = Uniform() * total;
  int64_t drawn = largest - logits.begin();
  for (size_t id = 0; id < weights.size() && left >= 0; ++id) {
    if (weights[id] == 0) continue;
    left -= weights[id];
    drawn = static_cast<int64_t>(id);
  }
  return drawn;
}

}  // namespace legoai::generate
