// Deals a run's samples out to data-parallel ranks.
//
// An optimizer step takes global_batch samples in the order of their global index. Accumulation step a of rank r takes rows
// [first + (a * dp_degree + r) * local_batch, … + local_batch), so which samples a step trains on does not depend on the layout,
// and the state is one number: the index of the next sample. Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/text_dataset.h"

namespace legoai::data {

// Ranks that hold shards of one model replica (tensor, pipeline) have the same dp_rank and get the same samples.
struct Layout {
  int64_t dp_rank = 0, dp_degree = 1;
  int64_t local_batch = 1;   // sequences per rank and forward pass
  int64_t accumulation = 1;  // forward passes per optimizer step
  int64_t GlobalBatch() const { return dp_degree * local_batch * accumulation; }
  int64_t Rows() const { return local_batch * accumulation; }  // of one rank and step
};

// Error (field training.global_batch_size) unless global_batch = dp_degree x local_batch x accumulation for a whole accumulation.
absl::StatusOr<Layout> MakeLayout(int64_t dp_rank, int64_t dp_degree, int64_t local_batch, int64_t global_batch);

// The global indices of this rank's rows, [accumulation * local_batch], of the step whose first sample is `first_sample`.
std::vector<int64_t> SamplesOfStep(const Layout& layout, int64_t first_sample);

class Loader {
 public:
  // `dataset` outlives the loader. `next_sample` is 0, or what an earlier run had come to.
  Loader(const TextDataset* dataset, const Layout& layout, int64_t next_sample)
      : dataset_(dataset), layout_(layout), next_sample_(next_sample) {}

  // Fills `tokens` and `targets` [Rows(), seq_len] and `samples` [Rows()] for the next step, and moves on by one global batch.
  void Next(int64_t* tokens, int64_t* targets, int64_t* samples);

  // The first sample of the step that Next() would give: what a checkpoint keeps.
  int64_t next_sample() const { return next_sample_; }

  // Held-out data come in batches of the same shape, every sequence in one of them; what the last one lacks is padding, whose
  // targets are `padding` (text_dataset.h).
  int64_t validation_batches() const;
  void Validation(int64_t batch, int64_t padding, int64_t* tokens, int64_t* targets, int64_t* samples) const;
  // Sequences in the first `batches` of them, padding left out.
  int64_t ValidationSequences(int64_t batches) const;

 private:
  const TextDataset* dataset_;
  Layout layout_;
  int64_t next_sample_;
};

}  // namespace legoai::data
