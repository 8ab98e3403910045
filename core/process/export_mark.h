// The run directory's hf/, the trained model as a Hugging Face folder: made beside its place, marked with the checkpoint it is
// of, and put in place at once. Torch-free. Thread-safety: functions of the file system.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "core/checkpoint/files.h"

namespace legoai::launch {

// Whether hf/ is the export of the committed checkpoint of `step`, as it is now in `checkpoints` (CheckpointsHolding).
bool IsExported(const std::string& run_directory, const std::string& checkpoints, int64_t step);

// An empty hf.partial/ to write the export into; what an interrupted export left goes. Gives its path in `folder`.
absl::Status BeginExport(const std::string& run_directory, std::string* folder);

// Everything is in hf.partial/ and on the disk: marks it as of `step` in `checkpoints`, and makes it hf/ in place of an earlier
// one, which is removed as checkpoint::RemoveAll does.
absl::Status FinishExport(const std::string& run_directory, const std::string& checkpoints, int64_t step,
                          std::string_view build_version, const checkpoint::BytesDone& done = nullptr);

}  // namespace legoai::launch
