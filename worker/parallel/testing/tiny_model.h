// For tests: a language model of a few hundred parameters in the shape of the real ones. Its rows divide by nothing, its blocks
// read the StepContext, its head may share the embedding's weight.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "worker/model/language_model.h"

namespace legoai::parallel::testing {

struct TinyOptions {
  int64_t vocab = 11, dim = 6, hidden = 7, blocks = 3;
  bool tied = false;
};

std::unique_ptr<model::LanguageModel> MakeTinyModel(const TinyOptions& options);

// Fills every master with values that depend on the parameter's name and the global index only. Allocates it first.
void FillMasters(model::LanguageModel& model);

// Cross entropy of logits [batch, seq, vocab] against targets [batch, seq], summed, times `scale`; in fp32.
at::Tensor TinyLoss(const at::Tensor& logits, const at::Tensor& targets, double scale);

}  // namespace legoai::parallel::testing
