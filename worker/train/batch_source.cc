#include "worker/train/batch_source.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/data/tokenizer.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "worker/parallel/context_parallel.h"
#include "worker/parallel/loss_parallel.h"

namespace legoai::train {

absl::StatusOr<std::unique_ptr<BatchSource>> BatchSource::Create(const parallel::ResolvedRecipe& resolved,
                                                                 const v1::Dataset& dataset, int64_t rank,
                                                                 const std::string& cache_folder, int64_t next_sample,
                                                                 const checkpoint::Cancel& cancel) {
  ASSIGN_OR_RETURN(auto tokenizer, data::LoadTokenizer(resolved.recipe().model().tokenizer_path()));
  RETURN_IF_ERROR(data::CheckFits(*tokenizer, resolved.model().vocab_size()));
  ASSIGN_OR_RETURN(auto tokens, data::TokenFile::Open(dataset, *tokenizer, cache_folder, cancel));
  std::unique_ptr<BatchSource> source(new BatchSource(std::move(tokens)));
  source->vocab_size_ = tokenizer->VocabSize();
  source->cache_folder_ = cache_folder;

  const v1::Training& training = resolved.recipe().training();
  ASSIGN_OR_RETURN(auto text, data::TextDataset::Create(source->token_file_.tokens(), data::OptionsOf(training)));
  source->dataset_ = std::make_unique<data::TextDataset>(std::move(text));
  ASSIGN_OR_RETURN(const auto layout, data::MakeLayout(resolved.mesh().IndexOf(mesh::Dim::kDp, rank), resolved.mesh().dp(),
                                                       resolved.local_batch(), resolved.global_batch()));
  source->loader_ = std::make_unique<data::Loader>(source->dataset_.get(), layout, next_sample);
  source->runs_ = parallel::TokensOfRank(resolved, rank);
  source->tokens_.resize(layout.Rows() * training.seq_len());
  source->targets_.resize(source->tokens_.size());
  source->samples_.resize(layout.Rows());
  return source;
}

absl::Status BatchSource::Next(StepInputs& inputs) {
  loader_->Next(tokens_.data(), targets_.data(), samples_.data());
  RETURN_IF_ERROR(CheckIds());
  CopyTo(inputs);
  return absl::OkStatus();
}

absl::Status BatchSource::Validation(int64_t batch, StepInputs& inputs) {
  loader_->Validation(batch, parallel::kIgnoredTarget, tokens_.data(), targets_.data(), samples_.data());
  RETURN_IF_ERROR(CheckIds());
  CopyTo(inputs);
  return absl::OkStatus();
}

absl::Status BatchSource::CheckIds() const {
  const auto check = [&](const std::vector<int64_t>& ids, const char* what, bool padded) {
    const auto wrong = std::find_if(ids.begin(), ids.end(), [&](int64_t id) {
      return (id < 0 || id >= vocab_size_) && !(padded && id == parallel::kIgnoredTarget);
    });
    if (wrong == ids.end()) return absl::OkStatus();
    const int64_t length = static_cast<int64_t>(ids.size() / samples_.size()), at = wrong - ids.begin();
    return FieldError(
        absl::StrCat(what, " ", at % length, " of sample ", samples_[at / length]), absl::StrCat(*wrong),
        absl::StrCat("is no id of the tokenizer, which has ", vocab_size_,
                     ": the token cache was changed while it was in use; start again, and it is verified and made anew in ",
                     cache_folder_),
        absl::StatusCode::kDataLoss);
  };
  RETURN_IF_ERROR(check(tokens_, "token", /*padded=*/false));
  return check(targets_, "target", /*padded=*/true);
}

void BatchSource::CopyTo(StepInputs& inputs) {
  const int64_t rows = static_cast<int64_t>(samples_.size());
  const auto on_host = [&](std::vector<int64_t>& from) {
    return at::from_blob(from.data(), {rows, static_cast<int64_t>(from.size()) / rows}, at::TensorOptions().dtype(at::kLong));
  };
  int64_t at = 0;
  for (const model::TokenRun& run : runs_) {
    inputs.tokens.narrow(1, at, run.length).copy_(on_host(tokens_).narrow(1, run.first, run.length));
    inputs.targets.narrow(1, at, run.length).copy_(on_host(targets_).narrow(1, run.first, run.length));
    at += run.length;
  }
  inputs.samples.copy_(on_host(samples_).view({rows}));
}

}  // namespace legoai::train
