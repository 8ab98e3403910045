// The model, weights and tokenizer to generate text with, found in a run directory, in the runs of a job of the service, or in a
// Hugging Face folder. Torch-free. Thread-safety: functions of the file system.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/data/tokenizer.h"
#include "proto/legoai/v1/model.pb.h"
#include "worker/model/hf_weights.h"

namespace legoai::generate {

struct Wanted {
  std::string path;             // run directory, RUNS/JOB of the service, or folder with a config.json
  std::optional<int64_t> step;  // a checkpoint of the run; unset: the newest
  std::string tokenizer;        // "byte" or a file; empty: the one that the model was trained with
};

struct Source {
  std::string what;  // "runs/example at step 400, from its Hugging Face folder"
  std::string note = {};  // what there may be besides and cannot be looked at; usually empty
  v1::Model model;
  std::unique_ptr<data::Tokenizer> tokenizer;
  std::vector<int32_t> end_ids;  // a text ends with any of them
  model::ParameterSource weights;
};

// For a run: its exported Hugging Face folder if that is of the step, otherwise the checkpoint in any layout. For a job: its
// newest attempt that has either. What cannot be looked at beside a model that can is noted: checkpoints in a store without keys, an
// attempt whose files are damaged. Errors are FieldErrors of RUN|FOLDER, --step and --tokenizer; those of the files.
absl::StatusOr<Source> OpenSource(const Wanted& wanted);

}  // namespace legoai::generate
