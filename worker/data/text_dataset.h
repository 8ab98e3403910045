// Fixed-length sequences over one tokenized text: what a global sample index means.
//
// Of the tokens the last `validation_fraction` is held out, the rest is trained on. Each part is cut into sequences at multiples
// of seq_len; sequence j is tokens [j * seq_len, j * seq_len + seq_len], one more than seq_len, so that every token of the part
// but its first is predicted once. What is left over at the end is not used. Training sample s, counted over all ranks and steps
// of a run, is sequence Permutation(sequences, seed, epoch)(s mod sequences) of epoch s / sequences: a pure function, so an order
// needs no state and does not depend on how many ranks share it. Thread-safety: const access from several threads is safe.
#pragma once

#include <cstdint>
#include <span>

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
  // sequence, and nothing but `padding` as targets.
  void ValidationBatch(std::span<const int64_t> samples, int64_t padding, int64_t* tokens, int64_t* targets) const;

 private:
  TextDataset() = default;
  int64_t Sequences(std::span<const int32_t> part) const;
  void Row(std::span<const int32_t> part, int64_t sequence, int64_t row, int64_t* tokens, int64_t* targets) const;

  Options options_;
  std::span<const int32_t> training_, validation_;
};

// What a recipe says of its sequences.
TextDataset::Options OptionsOf(const v1::Training& training);

// Entropy of the distribution of single tokens, in nats per token: the loss of the best model that looks at no context. 0 for no
// tokens. Cancelled.
absl::StatusOr<double> UnigramEntropy(std::span<const int32_t> tokens, const checkpoint::Cancel& cancel = nullptr);

}  // namespace legoai::data
