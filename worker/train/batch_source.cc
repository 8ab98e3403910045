#include "worker/train/batch_source.h"

#include <ATen/ops/from_blob.h>

#include <utility>

#include "worker/data/tokenizer.h"

namespace legoai::train {

absl::StatusOr<std::unique_ptr<BatchSource>> BatchSource::Create(const v1::Recipe& recipe, const v1::Model& model,
                                                                 const v1::Dataset& dataset, const parallel::ParallelDims& dims,
                                                                 int64_t rank, const std::string& cache_folder,
                                                                 int64_t next_sample) {
  auto tokenizer = data::LoadTokenizer(recipe.model().tokenizer_path());
  if (!tokenizer.ok()) return tokenizer.status();
  if (absl::Status fits = data::CheckFits(**tokenizer, model.vocab_size()); !fits.ok()) return fits;
  auto tokens = data::TokenFile::Open(dataset, **tokenizer, cache_folder);
  if (!tokens.ok()) return tokens.status();
  std::unique_ptr<BatchSource> source(new BatchSource(*std::move(tokens)));

  const v1::Training& training = recipe.training();
  auto text = data::TextDataset::Create(source->token_file_.tokens(), data::OptionsOf(training));
  if (!text.ok()) return text.status();
  source->dataset_ = std::make_unique<data::TextDataset>(*std::move(text));
  const auto layout = data::MakeLayout(dims.DataParallelRank(rank), dims.dp(), dims.local_batch(), dims.global_batch());
  if (!layout.ok()) return layout.status();
  source->loader_ = std::make_unique<data::Loader>(source->dataset_.get(), *layout, next_sample);
  source->tokens_.resize(layout->Rows() * training.seq_len());
  source->targets_.resize(source->tokens_.size());
  source->samples_.resize(layout->Rows());
  return source;
}

void BatchSource::Next(StepInputs& inputs) {
  loader_->Next(tokens_.data(), targets_.data(), samples_.data());
  CopyTo(inputs);
}

void BatchSource::Validation(int64_t batch, StepInputs& inputs) {
  loader_->Validation(batch, tokens_.data(), targets_.data(), samples_.data());
  CopyTo(inputs);
}

void BatchSource::CopyTo(StepInputs& inputs) {
  const auto copy = [](std::vector<int64_t>& from, const at::Tensor& to) {
    to.copy_(at::from_blob(from.data(), to.sizes(), at::TensorOptions().dtype(at::kLong)));
  };
  copy(tokens_, inputs.tokens);
  copy(targets_, inputs.targets);
  copy(samples_, inputs.samples);
}

}  // namespace legoai::train
