// From the server's StartAttempt to the call of RunTraining. Torch-free. Thread-safety: a pure function.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/hardware.pb.h"
#include "proto/legoai/v1/worker_service.pb.h"
#include "worker/launch/prepare_training.h"

namespace legoai::agent {

// `run_directory` takes the place of the recipe's job.dump_folder. Processors are left to the caller. Errors: FieldError for what
// one worker cannot run: ranks elsewhere, a placement that does not fit the world.
absl::StatusOr<launch::TrainRequest> AttemptRequest(const v1::StartAttempt& start, const std::string& run_directory,
                                                    const std::string& trainer, const v1::Device& device);

}  // namespace legoai::agent
