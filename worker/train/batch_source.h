// Fills a step's inputs from the recipe's text: tokenizer, dataset and loader of one rank.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/dataset.pb.h"
#include "proto/legoai/v1/model.pb.h"
#include "proto/legoai/v1/recipe.pb.h"
#include "worker/data/loader.h"
#include "worker/data/text_dataset.h"
#include "worker/data/token_file.h"
#include "worker/parallel/parallel_dims.h"
#include "worker/train/train_step.h"

namespace legoai::train {

class BatchSource {
 public:
  // Errors: those of tokenizer, dataset and layout, as FieldErrors. `cache_folder` keeps the tokens for all ranks.
  static absl::StatusOr<std::unique_ptr<BatchSource>> Create(const v1::Recipe& recipe, const v1::Model& model,
                                                             const v1::Dataset& dataset, const parallel::ParallelDims& dims,
                                                             int64_t rank, const std::string& cache_folder, int64_t next_sample);

  // Sets tokens, targets and samples.
  void Next(StepInputs& inputs);
  int64_t next_sample() const { return loader_->next_sample(); }

  int64_t validation_batches() const { return loader_->validation_batches(); }
  void Validation(int64_t batch, StepInputs& inputs);

 private:
  explicit BatchSource(data::TokenFile tokens) : token_file_(std::move(tokens)) {}
  void CopyTo(StepInputs& inputs);

  data::TokenFile token_file_;
  std::unique_ptr<data::TextDataset> dataset_;
  std::unique_ptr<data::Loader> loader_;
  std::vector<int64_t> tokens_, targets_, samples_;  // on the host, of one step
};

}  // namespace legoai::train
