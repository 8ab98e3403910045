// The next token from a model's logits. Torch-free. Not thread-safe.
#pragma once

#include <cstdint>
#include <random>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace legoai::generate {

struct Sampling {
  double temperature = 0;  // 0: always the most likely token, the lowest id among equals
  double top_p = 1;        // samples from the smallest set of most likely tokens with at least this total probability
  uint64_t seed = 0;
};

// Errors (fields --temperature, --top-p): a temperature below 0 or not finite, top_p outside (0, 1].
absl::Status CheckSampling(const Sampling& sampling);

// Equal logits in equal order give equal tokens for one seed, on every machine.
class Sampler {
 public:
  // `sampling` must have been checked.
  explicit Sampler(const Sampling& sampling) : sampling_(sampling), random_(sampling.seed) {}

  // Error: a logit is NaN or +infinity, or none is finite: the training diverged.
  absl::StatusOr<int64_t> Next(std::span<const float> logits);

 private:
  double Uniform();  // in [0, 1)

  Sampling sampling_;
  std::mt19937_64 random_;
};

}  // namespace legoai::generate
