// Checks and prepares a training before any process is started: everything that `lego train --dry-run` prints, and all errors of
// recipe, model, text and checkpoint. Thread-safety: functions of the file system.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/files.h"
#include "core/process/other_user.h"
#include "proto/legoai/v1/checkpoint.pb.h"
#include "proto/legoai/v1/launch.pb.h"
#include "proto/legoai/v1/model.pb.h"
#include "proto/legoai/v1/recipe.pb.h"
#include "worker/launch/gang_address.h"

namespace legoai::launch {

// An attempt of a job of the service, which numbers attempts and chooses what to resume from (worker/agent).
struct LeasedAttempt {
  int64_t attempt = 1;
  int64_t epoch = 1;                                  // of the lease
  std::optional<int64_t> resume_step = std::nullopt;  // a checkpoint that the service has committed; unset: from the beginning
  std::string resume_directory = {};                  // contains its step-N; usually of another attempt
  bool take_back = false;                             // the user asked for it: a damaged one that was put aside is tried again
};

struct TrainRequest {
  v1::Recipe recipe;                   // as from parallel::LoadRecipe
  v1::Model model;                     // that of recipe.model.name
  int64_t nproc = 1;                   // ranks on this host
  std::optional<GangPlace> gang;       // unset: all ranks are on this host; each host has as many
  std::string trainer;                 // path of legoai-trainer
  std::optional<LeasedAttempt> lease;  // unset: numbers the run directory's attempts and resumes from its latest checkpoint
  v1::Dataset dataset;                 // digest and length that the text must have; empty: any
  bool fresh = false;                  // starts over even if there are checkpoints; all hosts of a gang say the same
  bool begun_anew = false;             // an earlier attempt of the same call has: goes on from what that has saved
  bool accept_other_build = false;     // resumes from a checkpoint of another build
  std::string device = "cpu";          // or "cuda"
  int64_t threads = 1;                 // of each rank
  bool pin = true;                     // pins each rank to a core
  std::vector<int> processors;         // the cores; empty: all that this process may use
  std::vector<std::string> gpus;       // UUIDs of the ranks' GPUs; empty: rank r uses the r-th that CUDA shows
  int64_t rendezvous_port = 0;         // 0: any
  double peak_flops_per_second = 0;    // of one device, for MFU; 0: MFU is omitted
  // Folders that its input files must be in (data_roots.h); unset: anywhere.
  std::optional<std::vector<std::string>> data_roots;
  // Where its checkpoints must be (checkpoint_roots.h); empty: anywhere.
  std::vector<std::string> checkpoint_roots = {};
  // As whom ranks run; the thread that calls acts as the same, so that all is theirs. Unset: as this process.
  std::optional<OtherUser> user = std::nullopt;
  // That each rank may take for itself on its host (ChildSpec); 0: no limit.
  int64_t memory_bytes = 0;
};

// Ranks on all hosts.
int64_t WorldSize(const TrainRequest& request);

// Whether checkpoints that are there are to be put aside.
inline bool BeginsAnew(const TrainRequest& request) { return request.fresh && !request.begun_anew; }

struct PreparedTraining {
  v1::Start start;                    // without attempt, rank and rendezvous; its recipe is complete, with derived degrees
  int64_t parameters = 0;             // of the model
  int64_t tokens = 0;                 // of the text
  double unigram_entropy = 0;         // of the text, nats per token: the loss of the best model without context
  std::optional<int64_t> checkpoint;  // the committed step to resume from
  std::vector<std::string> changes;   // differences from that checkpoint that affect training (resume.h), as sentences
  std::string warning;                // why cached tokens were not used (data/token_file.h); usually empty
  bool finished = false;              // the last step is saved, and exported if requested
  std::vector<v1::CheckpointDamage> damaged;  // damaged checkpoints that it would have resumed from, latest first
};

// `cache_folder` caches the text's tokens; empty: no cache. `cancel` is polled while the text is read, tokenized and counted.
// Errors, as FieldErrors: an illegal recipe; a text that is missing, empty, too short or has another digest; a tokenizer with
// more ids than the model; a missing trainer; a checkpoint of another build, or of an incompatible training (resume.h);
// checkpoints none of which loads; an object store that does not let this process write. Cancelled: `cancel` returned true.
absl::StatusOr<PreparedTraining> PrepareTraining(const TrainRequest& request, const std::string& cache_folder,
                                                 const checkpoint::Cancel& cancel = nullptr);

// Checks that the checkpoints to go on from, in `directory`, lie where jobs of this host may keep theirs
// (core/process/checkpoint_roots.h); anywhere if there are no `roots`. Errors: PermissionDenied.
absl::Status CheckResumeRoots(const std::string& directory, const std::vector<std::string>& roots);

// Sets the checkpoint fields of PreparedTraining and its start, and adds damaged checkpoints to prepared->damaged. It changes
// nothing on disk, or in the store, except to complete an interrupted commit and, if a lease asks for it, to move a checkpoint
// that was put aside back to its place. It may be called again after damaged checkpoints found by a rank were put aside. Errors:
// those of an intact but incompatible checkpoint (resume.h, another build); DataLoss naming each checkpoint if there are some and
// none loads, because training never starts over unasked. The error of a leased attempt carries the damage
// (core/checkpoint/directory.h), so that the service can choose another.
absl::Status FindCheckpoint(const TrainRequest& request, PreparedTraining* prepared);

}  // namespace legoai::launch
