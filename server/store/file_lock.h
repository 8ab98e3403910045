// Keeps a second server from the same store: a lock on a file beside it, which ends with the process. Thread-safe.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace legoai::store {

class FileLock {
 public:
  // Makes PATH.lock, locks it and writes this process's id there, and keeps what NoteMade() has written. Errors (field `store`):
  // FailedPrecondition with the process that holds it; PermissionDenied, ResourceExhausted where the file cannot be made.
  static absl::StatusOr<FileLock> Take(const std::string& path);
  FileLock(FileLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)), made_(other.made_) {}
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

  // Whether a store was once made at `path`: then it is lost if there is nothing.
  bool made() const { return made_; }
  void NoteMade();

 private:
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
  bool made_ = false;
};

}  // namespace legoai::store
