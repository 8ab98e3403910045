// Fixed-length sequences over one tokenized text: what a global sample index means, and which rank trains on which samples.
//
// The last `validation_fraction` of the tokens is held out; the rest is for training. Each part is cut into sequences at
// multiples of seq_len; sequence j is tokens [j * seq_len, j * seq_len + seq_len], one more than seq_len, so that every token of
// the part but its first is predicted once. A remainder at the end is not used. Training sample s, counted over all ranks and
// steps of a run, is sequence Permutation(sequences, seed, epoch)(s mod sequences) of epoch s / sequences: a pure function, so
// the order needs no state and does not depend on the number of ranks. Thread-safety: const access from several threads is safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "core/checkpoint/files.h"
#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::data {

// A shuffle that needs no memory and no state: a permutation of [0, size) chosen by a key and evaluated at one index. A Feistel
// network over the smallest even number of bits that holds `size`, applied again until the result falls inside (cycle walking):
// the network is a bijection whatever its round function, and so is its restriction. Fewer than four applications on average.
class Permutation {
 public:
  // `size` at least 1.
  Permutation(int64_t size, uint64_t seed, uint64_t epoch);

  // The image of `index`, which is in [0, size).
  int64_t operator()(int64_t index) const;

 private:
  uint64_t Apply(uint64_t value) const;

  uint64_t size_, key_;
  int half_bits_;
};

// Does not own the tokens.
class TextDataset {
 public:
  struct Options {
    int64_t seq_len = 0;
    double validation_fraction = 0;
    uint64_t seed = 0;
  };
  // `tokens` live as long as the dataset. Errors (fields training.seq_len, training.validation_fraction, training.dataset_path):
  // a value out of range, a text shorter than one sequence, a held-out part shorter than one sequence.
  static absl::StatusOr<TextDataset> Create(std::span<const int32_t> tokens, const Options& options);

  int64_t seq_len() const { return options_.seq_len; }
  int64_t training_sequences() const { return Sequences(training_); }
  int64_t validation_sequences() const { return Sequences(validation_); }
  std::span<const int32_t> training_tokens() const { return training_; }
  std::span<const int32_t> validation_tokens() const { return validation_; }

  // Fills `tokens` and `targets`, each [samples, seq_len] row-major, for training samples (at least 0, without upper bound).
  void Batch(std::span<const int64_t> samples, int64_t* tokens, int64_t* targets) const;

  // The same for held-out sequences in the text's order. An index beyond the last gives a row of padding: tokens of the last
  // sequence, with all targets `padding`.
  void ValidationBatch(std::span<const int64_t> samples, int64_t padding, int64_t* tokens, int64_t* targets) const;

 private:
  TextDataset() = default;
  int64_t Sequences(std::span<const int32_t> part) const;
  void Row(std::span<const int32_t> part, int64_t sequence, int64_t row, int64_t* tokens, int64_t* targets) const;

  Options options_;
  std::span<const int32_t> training_, validation_;
};

// The options of a recipe.
TextDataset::Options OptionsOf(const v1::Training& training);

// Entropy of the unigram distribution, in nats per token: the loss of the best model without context. 0 for no tokens. Cancelled.
absl::StatusOr<double> UnigramEntropy(std::span<const int32_t> tokens, const checkpoint::Cancel& cancel = nullptr);

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

// Distributes a run's samples over data-parallel ranks.
//
// An optimizer step takes global_batch samples in the order of their global index. Accumulation step a of rank r takes rows
// [first + (a * dp_degree + r) * local_batch, … + local_batch), so which samples a step trains on does not depend on the layout,
// and the state is one number: the index of the next sample. Thread-safety: one thread at a time.
class Loader {
 public:
  // `dataset` outlives the loader. `next_sample` is 0, or where an earlier run stopped.
  Loader(const TextDataset* dataset, const Layout& layout, int64_t next_sample)
      : dataset_(dataset), layout_(layout), next_sample_(next_sample) {}

  // Fills `tokens` and `targets` [Rows(), seq_len] and `samples` [Rows()] for the next step, and advances by one global batch.
  void Next(int64_t* tokens, int64_t* targets, int64_t* samples);

  // The first sample of the next step: what a checkpoint keeps.
  int64_t next_sample() const { return next_sample_; }

  // Held-out data come in batches of the same shape, each sequence in exactly one; the last one is filled up with padding, whose
  // targets are `padding`.
  int64_t validation_batches() const;
  void Validation(int64_t batch, int64_t padding, int64_t* tokens, int64_t* targets, int64_t* samples) const;
  // Sequences in the first `batches` of them, without padding.
  int64_t ValidationSequences(int64_t batches) const;

 private:
  const TextDataset* dataset_;
  Layout layout_;
  int64_t next_sample_;
};

}  // namespace legoai::data
