// The two kinds of Storage; StorageOf chooses.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "core/checkpoint/storage.h"
#include "core/objectstore/s3_url.h"

namespace legoai::checkpoint {

std::unique_ptr<Storage> MakeFileStorage();

// Of all paths in the bucket. Errors: those of S3Client::Create.
absl::StatusOr<std::unique_ptr<Storage>> MakeObjectStorage(const objectstore::S3Url& place);

}  // namespace legoai::checkpoint
