#include "worker/data/text_dataset.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::data {
namespace {

constexpr uint64_t kRounds = 8;

// Every bit of the input moves about half of the bits of the output (the finalizer of SplitMix64).
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

Permutation::Permutation(int64_t size, uint64_t seed, uint64_t epoch)
    : size_(static_cast<uint64_t>(size)),
      key_(Mix(Mix(seed) ^ epoch)),
      half_bits_(std::max(1, (static_cast<int>(std::bit_width(size_ - 1)) + 1) / 2)) {}

uint64_t Permutation::Apply(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_, right = value & mask;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const uint64_t next = left ^ (Mix(Mix(key_ + round) ^ right) & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

int64_t Permutation::operator()(int64_t index) const {
  uint64_t value = static_cast<uint64_t>(index);
  do {
    value = Apply(value);
  } while (value >= size_);
  return static_cast<int64_t>(value);
}

absl::StatusOr<TextDataset> TextDataset::Create(std::span<const int32_t> tokens, const Options& options) {
  if (options.seq_len < 1) return FieldError("training.seq_len", absl::StrCat(options.seq_len), "must be at least 1");
  if (!(options.validation_fraction >= 0 && options.validation_fraction < 1))
    return FieldError("training.validation_fraction", absl::StrCat(options.validation_fraction),
                      "must be at least 0 and below 1");
  const size_t held_out = static_cast<size_t>(static_cast<double>(tokens.size()) * options.validation_fraction);
  TextDataset dataset;
  dataset.options_ = options;
  dataset.training_ = tokens.first(tokens.size() - held_out);
  dataset.validation_ = tokens.last(held_out);
  const std::string needed = absl::StrCat("; one sequence needs ", options.seq_len + 1, " (training.seq_len + 1)");
  if (dataset.training_sequences() < 1)
    return FieldError("training.dataset_path", absl::StrCat(dataset.training_.size(), " tokens to train on"),
                      absl::StrCat("shorter than one sequence", needed, "; give a longer text or a smaller training.seq_len"));
  if (options.validation_fraction > 0 && dataset.validation_sequences() < 1)
    return FieldError("training.validation_fraction", absl::StrCat(options.validation_fraction),
                      absl::StrCat("holds out ", held_out, " tokens", needed, "; hold out more, or nothing (0)"));
  return dataset;
}

int64_t TextDataset::Sequences(std::span<const int32_t> part) const {
  return part.empty() ? 0 : (static_cast<int64_t>(part.size()) - 1) / options_.seq_len;
}

void TextDataset::Row(std::span<const int32_t> part, int64_t sequence, int64_t row, int64_t* tokens, int64_t* targets) const {
  const int32_t* first = part.data() + sequence * options_.seq_len;
  std::copy_n(first, options_.seq_len, tokens + row * options_.seq_len);
  std::copy_n(first + 1, options_.seq_len, targets + row * options_.seq_len);
}

void TextDataset::Batch(std::span<const int64_t> samples, int64_t* tokens, int64_t* targets) const {
  const int64_t sequences = training_sequences();
  for (size_t i = 0; i < samples.size(); ++i) {
    const Permutation order(sequences, options_.seed, static_cast<uint64_t>(samples[i] / sequences));
    Row(training_, order(samples[i] % sequences), static_cast<int64_t>(i), tokens, targets);
  }
}

void TextDataset::ValidationBatch(std::span<const int64_t> samples, int64_t padding, int64_t* tokens, int64_t* targets) const {
  const int64_t last = validation_sequences() - 1;
  for (size_t i = 0; i < samples.size(); ++i) {
    const int64_t row = static_cast<int64_t>(i);
    Row(validation_, std::min(samples[i], last), row, tokens, targets);
    if (samples[i] > last) std::fill_n(targets + row * options_.seq_len, options_.seq_len, padding);
  }
}

TextDataset::Options OptionsOf(const v1::Training& training) {
  return {.seq_len = training.seq_len(),
          .validation_fraction = training.validation_fraction(),
          .seed = static_cast<uint64_t>(training.seed())};
}

absl::StatusOr<double> UnigramEntropy(std::span<const int32_t> tokens, const checkpoint::Cancel& cancel) {
  constexpr size_t kAskEvery = size_t{1} << 20;
  std::unordered_map<int32_t, int64_t> counts;
  for (size_t begin = 0; begin < tokens.size(); begin += kAskEvery) {
    RETURN_IF_ERROR(checkpoint::CheckNotCancelled(cancel));
    for (int32_t token : tokens.subspan(begin, std::min(kAskEvery, tokens.size() - begin))) ++counts[token];
  }
  double entropy = 0;
  for (const auto& [token, count] : counts) {
    const double share = static_cast<double>(count) / static_cast<double>(tokens.size());
    entropy -= share * std::log(share);
  }
  return entropy;
}

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
