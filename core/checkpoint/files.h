// Files that must never be half written: mapped reads, durable writes, and digests of contents.
//
// Errors name the path: NotFound if nothing is there, ResourceExhausted if the disk or a quota is full, OutOfRange if a file
// would grow beyond a size limit. Thread-safety: objects belong to one thread at a time; the bytes of a MappedFile may be read by
// several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/read_file.h"

namespace legoai::checkpoint {

using legoai::FileError;
using legoai::ReadError;
using legoai::ReadFile;

// Called as bytes are read or written, which shows that a long operation is making progress. May be empty.
using BytesDone = std::function<void(int64_t bytes)>;

// Polled during long operations; if it returns true, the operation ends with Cancelled. May be empty.
using Cancel = std::function<bool()>;
absl::Status CheckNotCancelled(const Cancel& cancel);

// The most bytes that are read or written between two calls of a BytesDone.
inline constexpr int64_t kPieceBytes = int64_t{8} << 20;

// A whole file, mapped read-only for as long as the object lives. Pages are read when touched.
class MappedFile {
 public:
  static absl::StatusOr<MappedFile> Open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::string_view bytes() const { return {data_, size_}; }

 private:
  MappedFile() = default;
  const char* data_ = nullptr;
  size_t size_ = 0;
};

// A file being written. Nothing is guaranteed to be on disk until Close() has returned OK. Written data is synced every 64 MiB,
// so Close() is quick however large the file is, and what `done` was told stays close to what the disk has.
class OutputFile {
 public:
  // Creates the file, or truncates it.
  static absl::StatusOr<OutputFile> Create(const std::string& path, BytesDone done = nullptr);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  ~OutputFile();  // closes without syncing

  absl::Status WriteAt(int64_t offset, const void* data, int64_t bytes);
  // Syncs the contents to the disk and closes.
  absl::Status Close();

  const std::string& path() const { return path_; }

 private:
  OutputFile() = default;
  std::string path_;
  int descriptor_ = -1;
  int64_t unsynced_ = 0;
  BytesDone done_;
};

// Passes `bytes` of the file from `offset` on to `piece`, piece by piece and in order. They are read, not mapped: a read error in
// a mapping kills the process (SIGBUS). Errors: those of ReadError; DataLoss if the file ends early.
absl::Status ReadPieces(const std::string& path, int64_t offset, int64_t bytes,
                        const std::function<void(std::string_view)>& piece);

// Creates or replaces a file and syncs it; a reader may see it half written.
absl::Status WriteFile(const std::string& path, std::string_view contents);

// Creates or replaces a small file atomically and syncs it: a reader sees the new contents or the old. Uses `path`.tmp, which is
// removed on an error.
absl::Status ReplaceFile(const std::string& path, std::string_view contents);

// Creates a folder and its missing parents.
absl::Status MakeFolders(const std::string& path);

// Renames the file `from` to `to` atomically and durably: renames, then syncs the directory of `to`.
absl::Status RenameFile(const std::string& from, const std::string& to);

// Renames the folder `from`, whose contents are on disk, to `to` atomically and durably. An earlier folder `to` stays until then
// and is removed afterwards, as by RemoveAll.
absl::Status ReplaceFolder(const std::string& from, const std::string& to, const BytesDone& done = nullptr);

// ReplaceFolder on a file system that cannot exchange two names: for a moment there is no folder `to`, and the earlier one is
// called `to`.replaced. On an error it gets its name back.
absl::Status ReplaceFolderInTwoSteps(const std::string& from, const std::string& to, const BytesDone& done = nullptr);

// Undoes or completes a ReplaceFolderInTwoSteps whose process was killed: afterwards there is no `to`.replaced, and `to` exists
// if it ever did. Call it only while nobody replaces the folder.
absl::Status RestoreFolder(const std::string& to);

// Removes a file, or a folder with its contents, and calls `done` with 0 after each entry, because each may take long on a slow
// disk. OK if nothing is there.
absl::Status RemoveAll(const std::string& path, const BytesDone& done = nullptr);

// Syncs the entries of a directory (files created, renamed, removed).
absl::Status SyncDirectory(const std::string& path);

// CRC-32C (Castagnoli), the checksum of checkpoint chunks, and SHA-256, the digest that identifies datasets, tokenizers and
// manifests.

// The checksum of `bytes` bytes that follow data whose checksum is `crc` (0: nothing precedes them), so that
// Crc32c(b, Crc32c(a)) is the checksum of a and b together.
uint32_t Crc32c(const void* data, size_t bytes, uint32_t crc = 0);

// 64 hexadecimal digits, lower case.
std::string Sha256(std::string_view bytes);
// The same of many bytes. Cancelled.
absl::StatusOr<std::string> Sha256(std::string_view bytes, const Cancel& cancel);

// The same of a file's contents. Errors name the path; Cancelled.
absl::StatusOr<std::string> Sha256OfFile(const std::string& path, const Cancel& cancel = nullptr);

}  // namespace legoai::checkpoint
