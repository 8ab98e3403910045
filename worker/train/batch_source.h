// Fills a step's inputs from the recipe's text: tokenizer, dataset and loader of a rank.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/data/token_file.h"
#include "core/recipe/resolved_recipe.h"
#include "proto/legoai/v1/dataset.pb.h"
#include "proto/legoai/v1/model.pb.h"
#include "proto/legoai/v1/recipe.pb.h"
#include "worker/data/text_dataset.h"
#include "worker/train/train_step.h"

namespace legoai::train {

class BatchSource {
 public:
  // Errors: those of tokenizer, dataset and layout, as FieldErrors. `cache_folder` keeps the tokens for all ranks. `cancel` is
  // polled while the text is read; Cancelled.
  static absl::StatusOr<std::unique_ptr<BatchSource>> Create(const parallel::ResolvedRecipe& resolved, const v1::Dataset& dataset,
                                                             int64_t rank, const std::string& cache_folder, int64_t next_sample,
                                                             const checkpoint::Cancel& cancel = nullptr);

  // Sets tokens, targets and samples. Error (DataLoss): an id beyond the vocabulary, because the mapped cache was changed after
  // verification; the embedding would read out of bounds.
  absl::Status Next(StepInputs& inputs);
  int64_t next_sample() const { return loader_->next_sample(); }
  const std::string& warning() const { return token_file_.warning(); }

  // Together they hold every held-out sequence once; missing rows of the last one have parallel::kIgnoredTarget as targets.
  int64_t validation_batches() const { return loader_->validation_batches(); }
  absl::Status Validation(int64_t batch, StepInputs& inputs);
  // Targets in the first `batches` of them, without padding.
  int64_t ValidationTokens(int64_t batches) const { return loader_->ValidationSequences(batches) * dataset_->seq_len(); }

 private:
  explicit BatchSource(data::TokenFile tokens) : token_file_(std::move(tokens)) {}
  absl::Status CheckIds() const;
  void CopyTo(StepInputs& inputs);

  data::TokenFile token_file_;
  int64_t vocab_size_ = 0;  // ids are below it
  std::string cache_folder_;
  std::unique_ptr<data::TextDataset> dataset_;
  std::unique_ptr<data::Loader> loader_;
  std::vector<int64_t> tokens_, targets_, samples_;  // on the host, of one step, whole sequences
  std::vector<model::TokenRun> runs_;                // the tokens of them that this rank has
};

}  // namespace legoai::train
