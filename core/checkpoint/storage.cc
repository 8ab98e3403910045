#include "core/checkpoint/storage.h"

#include "core/checkpoint/storage_kinds.h"
#include "core/objectstore/s3_url.h"
#include "proto/status.h"

namespace legoai::checkpoint {

absl::StatusOr<std::unique_ptr<Storage>> StorageOf(const std::string& path) {
  if (!objectstore::IsUrl(path)) return MakeFileStorage();
  ASSIGN_OR_RETURN(const objectstore::S3Url place,
                   objectstore::ParseS3Url("checkpoint.folder", path, objectstore::kMostKeyBytes));
  return MakeObjectStorage(place);
}

bool IsInObjectStore(const std::string& path) { return objectstore::IsUrl(path); }

absl::Status CheckWritable(const std::string& root) {
  if (!IsInObjectStore(root)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto storage, StorageOf(root));
  const std::string probe = root + "/.legoai-writable";
  RETURN_IF_ERROR(storage->Write(probe, ""));
  return storage->Remove(probe, nullptr);
}

}  // namespace legoai::checkpoint
