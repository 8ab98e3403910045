// Everything about a training that can be found out before a process is started: all that `lego train --dry-run` says, and all
// that can be wrong with recipe, model, text and checkpoint. Thread-safety: functions of the file system.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/files.h"
#include "proto/legoai/v1/checkpoint.pb.h"
#include "proto/legoai/v1/launch.pb.h"
#include "proto/legoai/v1/model.pb.h"
#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::launch {

// An attempt at a job of the service, which counts attempts and says what to resume from (worker/agent).
struct LeasedAttempt {
  int64_t attempt = 1;
  int64_t epoch = 1;                                  // of the lease
  std::optional<int64_t> resume_step = std::nullopt;  // a checkpoint that the service has committed; unset: from the beginning
  std::string resume_directory = {};                  // holds step-N of it; another attempt's, usually
  bool take_back = false;                             // it was asked for: one that was put aside as damaged is tried once more
};

struct TrainRequest {
  v1::Recipe recipe;                   // as parallel::LoadRecipe gives it
  v1::Model model;                     // of recipe.model.name
  int64_t nproc = 1;                   // ranks, all on this host
  std::string trainer;                 // path of legoai-trainer
  std::optional<LeasedAttempt> lease;  // unset: counts the run directory's attempts, and resumes from its latest checkpoint
  v1::Dataset dataset;                 // digest and length that the text must have; where they are empty, it may be any
  bool fresh = false;                  // starts over although there are checkpoints
  bool accept_other_build = false;     // resumes from a checkpoint of another build
  std::string device = "cpu";          // or "cuda"
  int64_t threads = 1;                 // of each rank
  bool pin = true;                     // each rank to a core
  std::vector<int> processors;         // to which; empty: any that this process may use
  std::vector<std::string> gpus;       // UUIDs of the ranks' GPUs; empty: rank r has the r-th that CUDA shows
  int64_t rendezvous_port = 0;         // 0: any
  double peak_flops_per_second = 0;    // of one device; for MFU, which is left out where it is 0
  // Where the files that it reads must lie (data_roots.h); unset: anywhere.
  std::optional<std::vector<std::string>> data_roots;
};

struct PreparedTraining {
  v1::Start start;                    // but for attempt, rank and rendezvous; its recipe has every field, degrees derived
  int64_t parameters = 0;             // of the model
  int64_t tokens = 0;                 // of the text
  double unigram_entropy = 0;         // of the text, nats per token: the loss of the best model that looks at no context
  std::optional<int64_t> checkpoint;  // the committed step from which it goes on
  std::vector<std::string> changes;   // what differs from that checkpoint and changes what is learned (resume.h), as sentences
  std::string warning;                // why kept tokens were not used (data/token_file.h); usually empty
  bool finished = false;              // the last step is saved, and exported where that is wished for
  std::vector<v1::CheckpointDamage> damaged;  // from which it would go on, the latest first, were they whole
};

// `cache_folder` keeps the text's tokens; empty: they are not kept. `cancel` is polled while the text is read, tokenized and
// counted. Errors, as FieldErrors: an illegal recipe, a text that is missing, empty, too short or another one, a tokenizer with
// more ids than the model, a trainer that is not there, a checkpoint of another build, or of a training that cannot go on as this
// one (resume.h says what must be the same); checkpoints of which none loads. Cancelled: given up as asked.
absl::StatusOr<PreparedTraining> PrepareTraining(const TrainRequest& request, const std::string& cache_folder,
                                                 const checkpoint::Cancel& cancel = nullptr);

// Sets what PreparedTraining and its start say of the checkpoint. Those that are found damaged are added to prepared->damaged;
// nothing is changed on the disk but a commit that was cut short, and, for a lease that says so, that one which was put aside
// gets its place again. May be called again, once those that a rank has found damaged are put aside. Errors: of a checkpoint that
// is whole and from which this training cannot go on (resume.h, another build); DataLoss where there are checkpoints and none
// loads, with each: nobody starts over without being told to. That of a lease's carries the damage (core/checkpoint/directory.h),
// for the service chooses another.
absl::Status FindCheckpoint(const TrainRequest& request, PreparedTraining* prepared);

}  // namespace legoai::launch
