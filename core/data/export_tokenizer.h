// A tokenizer in the files that Hugging Face transformers reads beside a model. Torch-free. Thread-safety: a function of the file
// system.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "core/data/tokenizer.h"

namespace legoai::data {

// Writes tokenizer.json, tokenizer_config.json and generation_config.json into `folder`: AutoTokenizer gives a text the ids that
// training gave it, with what a document begins with before them, and `generate` ends where a document does. `context`: the most
// tokens that the model takes.
absl::Status ExportTokenizer(const Tokenizer& tokenizer, int64_t context, const std::string& folder);

}  // namespace legoai::data
