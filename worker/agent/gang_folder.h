// Whether the workers of a gang see one folder: the first leaves a note in the attempt's run directory, and the others look for
// it before they train, since checkpoints that each wrote to a disk of its own would be whole nowhere. Thread-safety: functions
// of the file system.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/legoai/v1/worker_service.pb.h"

namespace legoai::agent {

// Of the first worker; the run directory is there. Errors: ResourceExhausted: the disk is full; others of the disk.
absl::Status WriteGangNote(const std::string& run_directory, const v1::StartAttempt& start);

// Of another worker: waits for the note of this attempt. Errors: FieldError (--runs), Unavailable, naming both workers: it was
// not there in time, as the folder is another one, or as the first worker waits for room on its disk, which passes; Cancelled:
// `given_up` returned true.
absl::Status AwaitGangNote(const std::string& run_directory, const v1::StartAttempt& start, absl::Duration timeout,
                           const std::function<bool()>& given_up);

}  // namespace legoai::agent
