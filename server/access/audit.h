// The audit log: who did what, on what, from where, with which outcome. A file to which lines of JSON are appended
// (AuditRecord of access.proto, one a line), readable by its owner alone; beyond a size it becomes FILE.1, the older ones FILE.2
// and so on, and the oldest goes. Thread-safe.
#pragma once

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/process/mutex.h"
#include "proto/legoai/v1/access.pb.h"

namespace legoai::access {

struct AuditOptions {
  int64_t file_bytes = int64_t{64} << 20;
  int files = 16;  // with the one that is written
};

class AuditLog {
 public:
  // Errors (FieldError of --audit_log): the file cannot be written.
  static absl::StatusOr<std::unique_ptr<AuditLog>> Open(const std::string& path, const AuditOptions& options = {});
  ~AuditLog();
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

  // A line that cannot be written (a full disk) is in the server's log instead, and the server goes on.
  void Append(const v1::AuditRecord& record);

  // The latest `most` records that have `text` in any of their fields (empty: all), the latest first, of all files. Lines that
  // cannot be read are left out. Errors: a file cannot be read.
  absl::StatusOr<std::vector<v1::AuditRecord>> Latest(size_t most, std::string_view text) const;

 private:
  AuditLog(std::string path, const AuditOptions& options) : path_(std::move(path)), options_(options) {}
  absl::Status OpenFile() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Rotate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Older(int number) const;
  using Reader = std::unique_ptr<std::ifstream>;
  std::vector<Reader> OpenAll() const;

  const std::string path_;
  const AuditOptions options_;
  mutable Mutex mutex_;
  int file_ ABSL_GUARDED_BY(mutex_) = -1;
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace legoai::access
