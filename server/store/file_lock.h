// Prevents a second server from using the same store: a lock on a file beside it, which ends with the process. Thread-safe.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace legoai::store {

class FileLock {
 public:
  // Creates and locks PATH.lock and writes this process's id into it, preserving what NoteMade() wrote. Errors (field `store`):
  // FailedPrecondition with the process that holds it; PermissionDenied, ResourceExhausted if the file cannot be created.
  static absl::StatusOr<FileLock> Take(const std::string& path);
  FileLock(FileLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)), made_(other.made_) {}
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

  // Whether a store was once created at `path`: if the file is missing now, it is lost.
  bool made() const { return made_; }
  void NoteMade();

 private:
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
  bool made_ = false;
};

}  // namespace legoai::store
