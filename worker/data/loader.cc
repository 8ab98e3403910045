#include "worker/data/loader.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"

namespace legoai::data {

absl::StatusOr<Layout> MakeLayout(int64_t dp_rank, int64_t dp_degree, int64_t local_batch, int64_t global_batch) {
  if (local_batch < 1) return FieldError("training.local_batch_size", absl::StrCat(local_batch), "must be at least 1");
  if (dp_degree < 1 || dp_rank < 0 || dp_rank >= dp_degree)
    return FieldError("data parallel rank", absl::StrCat(dp_rank), absl::StrCat("must be in [0, ", dp_degree, ")"));
  const int64_t per_pass = dp_degree * local_batch;
  if (global_batch < 1 || global_batch % per_pass != 0)
    return FieldError("training.global_batch_size", absl::StrCat(global_batch),
                      absl::StrCat("must be a multiple of data-parallel degree x training.local_batch_size = ", dp_degree, " x ",
                                   local_batch, " = ", per_pass));
  return Layout{dp_rank, dp_degree, local_batch, global_batch / per_pass};
}

std::vector<int64_t> SamplesOfStep(const Layout& layout, int64_t first_sample) {
  std::vector<int64_t> samples;
  samples.reserve(layout.Rows());
  for (int64_t a = 0; a < layout.accumulation; ++a)
    for (int64_t i = 0; i < layout.local_batch; ++i)
      samples.push_back(first_sample + (a * layout.dp_degree + layout.dp_rank) * layout.local_batch + i);
  return samples;
}

void Loader::Next(int64_t* tokens, int64_t* targets, int64_t* samples) {
  const std::vector<int64_t> rows = SamplesOfStep(layout_, next_sample_);
  dataset_->Batch(rows, tokens, targets);
  std::copy(rows.begin(), rows.end(), samples);
  next_sample_ += layout_.GlobalBatch();
}

int64_t Loader::validation_batches() const {
  const int64_t batch = layout_.GlobalBatch();
  return (dataset_->validation_sequences() + batch - 1) / batch;
}

void Loader::Validation(int64_t batch, int64_t padding, int64_t* tokens, int64_t* targets, int64_t* samples) const {
  const std::vector<int64_t> rows = SamplesOfStep(layout_, batch * layout_.GlobalBatch());
  dataset_->ValidationBatch(rows, padding, tokens, targets);
  std::copy(rows.begin(), rows.end(), samples);
}

int64_t Loader::ValidationSequences(int64_t batches) const {
  return std::min(batches * layout_.GlobalBatch(), dataset_->validation_sequences());
}

}  // namespace legoai::data
